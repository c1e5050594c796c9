//! Planner: compares the present incidents with what a receiver has, and returns the messages that are due.
//!
//! It takes no hint of what changed, so that a receiver that was away gets the present state, once.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rankguard_model::Timestamp;

use crate::incident::{Incident, IncidentKey, IncidentStage, NoticeKind};
use crate::ledger::{DeliveryLedger, DueMessage, LedgerEntry};
use crate::settings::{ReceiverKind, ReceiverSettings};

/// Interval at which the end of quiet hours is checked.
const HELD_CHECK: Duration = Duration::from_secs(20);

/// Incidents at one time.
#[derive(Debug, Clone, Default)]
pub struct IncidentSet {
    pub incidents: Vec<Incident>,
    /// True if an alarm that is not among them is over.
    pub is_settled: bool,
}

/// Messages that are due at one time.
#[derive(Debug, Default)]
pub struct DuePlan {
    pub messages: Vec<DueMessage>,
    /// Time at which more may be due although no incident changes.
    pub next_at: Option<Timestamp>,
    /// Incidents that were removed before their end was delivered.
    pub missed: u64,
    /// Messages that the rate limit suppressed.
    pub suppressed: u64,
    /// True if the ledger has changed.
    pub is_changed: bool,
}

/// Times of the newest messages, for the rate limit.
#[derive(Debug, Default)]
pub struct SendTimes(VecDeque<Timestamp>);

impl SendTimes {
    /// Records the time of a message.
    pub fn record(&mut self, now: Timestamp) {
        self.0.push_back(now);
    }

    /// Returns the number of messages that may be sent now.
    fn room(&mut self, settings: &ReceiverSettings, now: Timestamp) -> usize {
        while self
            .0
            .front()
            .is_some_and(|at| now.since(*at) >= settings.limit_window())
        {
            self.0.pop_front();
        }
        settings.limit.saturating_sub(self.0.len())
    }

    /// Returns the time at which there is room again.
    fn room_at(&self, settings: &ReceiverSettings) -> Option<Timestamp> {
        self.0.front().map(|at| at.after(settings.limit_window()))
    }
}

/// Plans the messages of one receiver.
pub fn plan(
    ledger: &mut DeliveryLedger,
    set: &IncidentSet,
    settings: &ReceiverSettings,
    sends: &mut SendTimes,
    now: Timestamp,
) -> DuePlan {
    let mut plan = DuePlan {
        missed: remove_unknown(ledger, set),
        ..DuePlan::default()
    };
    plan.is_changed = plan.missed > 0;
    let cleared = if set.is_settled {
        cleared_alarms(ledger, set, now)
    } else {
        Vec::new()
    };
    for incident in set.incidents.iter().chain(&cleared) {
        let entry = ledger.entries.get(&incident.key.to_string());
        let entry = entry.filter(|entry| entry.is_of(incident));
        if ledger.is_new && entry.is_none() && incident.stage.is_end() {
            ledger.record(incident, false);
            plan.is_changed = true;
            continue;
        }
        match due(entry, incident, settings, now) {
            DueDecision::Now(event) => plan.messages.push(DueMessage {
                event,
                incident: incident.clone(),
                summarizes: 0,
            }),
            DueDecision::At(at) => plan.next_at = Some(plan.next_at.map_or(at, |next| next.min(at))),
            DueDecision::Silently => {
                ledger.record(incident, false);
                plan.is_changed = true;
            }
            DueDecision::Never => {}
        }
    }
    if ledger.is_new {
        ledger.is_new = false;
        plan.is_changed = true;
    }
    // The gravest first; among equals the oldest.
    let rank = |message: &DueMessage| (std::cmp::Reverse(message.incident.severity), message.incident.opened_at);
    plan.messages.sort_by_key(rank);
    if settings.kind != ReceiverKind::Alertmanager {
        limit(&mut plan, ledger, settings, sends, now);
    }
    plan
}

/// Removes entries of incidents that are gone. Returns the number of those of which the receiver has no end.
fn remove_unknown(ledger: &mut DeliveryLedger, set: &IncidentSet) -> u64 {
    let known: BTreeSet<String> = set.incidents.iter().map(|incident| incident.key.to_string()).collect();
    let mut missed = 0;
    ledger.entries.retain(|key, entry| {
        let is_alarm = matches!(
            entry.active.as_deref(),
            Some(Incident {
                key: IncidentKey::Alarm { .. },
                ..
            })
        );
        if known.contains(key) || is_alarm {
            return true;
        }
        missed += u64::from(entry.is_sent && entry.active.is_some());
        false
    });
    missed
}

/// Returns the alarms of the ledger that are no longer raised, as ended.
fn cleared_alarms(ledger: &DeliveryLedger, set: &IncidentSet, now: Timestamp) -> Vec<Incident> {
    let raised: BTreeSet<&IncidentKey> = set.incidents.iter().map(|incident| &incident.key).collect();
    let active = ledger.entries.values().filter_map(|entry| entry.active.as_deref());
    let gone = active.filter(|alarm| matches!(alarm.key, IncidentKey::Alarm { .. }) && !raised.contains(&alarm.key));
    gone.map(|alarm| alarm.cleared(now)).collect()
}

/// Decision about an incident.
enum DueDecision {
    Now(&'static str),
    At(Timestamp),
    /// Recorded without a message.
    Silently,
    Never,
}

fn due(entry: Option<&LedgerEntry>, incident: &Incident, settings: &ReceiverSettings, now: Timestamp) -> DueDecision {
    let is_sent = entry.is_some_and(|entry| entry.is_sent);
    let is_selected = if incident.only_to.is_empty() {
        incident.severity >= settings.min_severity
            && settings.selects_job(incident.job.as_ref())
            && (settings.drills || !incident.is_drill)
    } else {
        incident.only_to.contains(&settings.name)
    };
    if !is_selected && !is_sent || entry.is_some_and(|entry| entry.mark == incident.mark()) {
        return DueDecision::Never;
    }
    let is_end = incident.stage.is_end();
    if is_end && !is_sent {
        let is_suppressed = entry.is_some() && incident.stage != IncidentStage::JobStopped;
        if is_suppressed || settings.kind.holds_incidents() {
            return DueDecision::Silently;
        }
    }
    let waited = incident.opened_at.after(Duration::from_secs(settings.wait_s));
    if incident.stage == IncidentStage::Opened && now < waited {
        return DueDecision::At(waited);
    }
    let ends_held_incident = is_end && settings.kind.holds_incidents();
    if is_held(incident, settings, now) && !ends_held_incident {
        return DueDecision::At(now.after(HELD_CHECK));
    }
    DueDecision::Now(event(entry, incident))
}

fn is_held(incident: &Incident, settings: &ReceiverSettings, now: Timestamp) -> bool {
    let is_quiet = settings.quiet_hours.iter().any(|hours| hours.contains(now))
        || settings.maintenance.iter().any(|window| window.contains(now));
    is_quiet && !settings.quiet_except.contains(&incident.severity)
}

fn event(entry: Option<&LedgerEntry>, incident: &Incident) -> &'static str {
    if incident.is_report() {
        return "report";
    }
    let verdict = IncidentStage::Verdict.name();
    let had_verdict = entry.is_some_and(|entry| entry.is_sent && entry.mark.starts_with(verdict));
    if incident.stage == IncidentStage::Verdict && had_verdict {
        return "verdict-changed";
    }
    incident.stage.name()
}

/// Suppresses messages beyond the rate limit, and adds the summary of suppressed ones once there is room.
fn limit(
    plan: &mut DuePlan,
    ledger: &mut DeliveryLedger,
    settings: &ReceiverSettings,
    sends: &mut SendTimes,
    now: Timestamp,
) {
    let mut room = sends.room(settings, now);
    if ledger.suppressed > 0 && room > 0 {
        room -= 1;
        plan.messages.insert(0, summary(ledger, settings, now));
    }
    let messages = std::mem::take(&mut plan.messages);
    for message in messages {
        let incident = &message.incident;
        let entry = ledger.entries.get(&incident.key.to_string());
        // The end of a thread is sent: otherwise it would stand open at the receiver.
        let ends_thread = incident.stage.is_end() && entry.is_some_and(|entry| entry.is_sent);
        let is_notice = matches!(incident.key, IncidentKey::Notice(_));
        if ends_thread || is_notice {
            plan.messages.push(message);
        } else if room > 0 {
            room -= 1;
            plan.messages.push(message);
        } else {
            ledger.suppress(incident, now);
            plan.suppressed += 1;
            plan.is_changed = true;
        }
    }
    if ledger.suppressed > 0
        && let Some(at) = sends.room_at(settings)
    {
        plan.next_at = Some(plan.next_at.map_or(at, |next| next.min(at)));
    }
}

fn summary(ledger: &DeliveryLedger, settings: &ReceiverSettings, now: Timestamp) -> DueMessage {
    let count = ledger.suppressed;
    let noun = if count == 1 { "message was" } else { "messages were" };
    let since = ledger.suppressed_since.unwrap_or(now);
    let title = format!("{count} {noun} suppressed since {since}");
    let details = vec![format!(
        "The limit of receiver {} is {} messages in {} s.",
        settings.name, settings.limit, settings.limit_window_s
    )];
    DueMessage {
        event: "suppressed",
        incident: Incident::notice(NoticeKind::Suppressed, title, details, now),
        summarizes: count,
    }
}
