//! Task of one receiver: plans, sends, records, and waits. A receiver that hangs or fails delays only its own messages.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rankguard_model::{ReceiverView, Timestamp};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::client::DeliveryError;
use crate::format::alertmanager::PostedAlert;
use crate::incident::Incident;
use crate::ledger::{DeliveryLedger, DueMessage};
use crate::planner::{DuePlan, IncidentSet, SendTimes, plan};
use crate::sender::MessageSender;
use crate::settings::ReceiverKind;

/// Pause after the first failure, and its limit after further ones.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// Interval at which active alerts are sent to Alertmanager again.
const REFRESH: Duration = Duration::from_secs(60);
/// Longest sleep while nothing is due.
const IDLE: Duration = Duration::from_secs(3_600);

/// Incidents with the time of their evaluation.
#[derive(Debug)]
pub(crate) struct TimedIncidents {
    pub(crate) set: IncidentSet,
    pub(crate) at: Timestamp,
    pub(crate) evaluated: Instant,
}

impl TimedIncidents {
    fn now(&self) -> Timestamp {
        self.at.after(self.evaluated.elapsed())
    }
}

/// Counts of all receivers, which the task of each updates.
pub(crate) type SharedViews = Arc<Mutex<Vec<ReceiverView>>>;

/// Task of one receiver.
pub(crate) struct ReceiverTask {
    pub(crate) sender: MessageSender,
    pub(crate) cluster: String,
    pub(crate) ledger: DeliveryLedger,
    pub(crate) ledger_file: PathBuf,
    pub(crate) views: SharedViews,
    pub(crate) sends: SendTimes,
    pub(crate) backoff: Duration,
    /// Time at which active alerts were posted last.
    pub(crate) refreshed: Option<Instant>,
}

impl ReceiverTask {
    /// Runs until the sender of incidents is dropped, or `stop` is true; returns what a successor continues with. A delivery in
    /// progress ends before.
    pub(crate) async fn run(
        mut self,
        mut incidents: watch::Receiver<Option<Arc<TimedIncidents>>>,
        mut stop: watch::Receiver<bool>,
    ) -> Self {
        loop {
            if *stop.borrow_and_update() {
                return self;
            }
            let timed = incidents.borrow_and_update().clone();
            let pause = match timed {
                Some(timed) => self.round(&timed).await,
                None => RoundEnd::Wait(IDLE),
            };
            let is_ended = match pause {
                RoundEnd::Again => incidents.has_changed().is_err(),
                RoundEnd::BackOff(pause) => tokio::select! {
                    changed = stop.changed() => changed.is_err(),
                    () = sleep(pause) => incidents.has_changed().is_err(),
                },
                RoundEnd::Wait(pause) => tokio::select! {
                    changed = incidents.changed() => changed.is_err(),
                    changed = stop.changed() => changed.is_err(),
                    () = sleep(pause) => false,
                },
            };
            if is_ended {
                return self;
            }
        }
    }

    /// Plans, and sends the first message that is due, or all alerts.
    async fn round(&mut self, timed: &TimedIncidents) -> RoundEnd {
        let now = timed.now();
        let settings = self.sender.settings().clone();
        let mut due = plan(&mut self.ledger, &timed.set, &settings, &mut self.sends, now);
        self.count(|view| {
            view.missed += due.missed;
            view.suppressed += due.suppressed;
            view.waiting = due.messages.len() as u64;
        });
        if due.is_changed {
            self.save();
        }
        if settings.kind == ReceiverKind::Alertmanager {
            return self.post_alerts(due, now).await;
        }
        if due.messages.is_empty() {
            return RoundEnd::Wait(
                due.next_at
                    .map_or(IDLE, |at| at.since(now))
                    .max(Duration::from_millis(50)),
            );
        }
        let message = due.messages.remove(0);
        let delivery = self.sender.send(&message, now).await;
        if !matches!(delivery, Err(DeliveryError::Failed { .. })) {
            if delivery.is_ok() {
                self.ledger.delivered(&message);
            } else {
                self.ledger.refused(&message);
            }
            self.sends.record(now);
            self.save();
        }
        self.conclude(delivery, 1)
    }

    /// Posts alerts that are due, and now and then those that are active.
    async fn post_alerts(&mut self, due: DuePlan, now: Timestamp) -> RoundEnd {
        let is_refresh = self.refreshed.is_none_or(|at| at.elapsed() >= REFRESH);
        let alerts = self.alerts(&due.messages, now);
        let next = due.next_at.map_or(REFRESH, |at| at.since(now)).min(REFRESH);
        if due.messages.is_empty() && (!is_refresh || alerts.is_empty()) {
            return RoundEnd::Wait(next.max(Duration::from_millis(50)));
        }
        let delivery = self.sender.post_alerts(&alerts).await;
        if !matches!(delivery, Err(DeliveryError::Failed { .. })) {
            for message in &due.messages {
                self.ledger.record(&message.incident, delivery.is_ok());
            }
            self.refreshed = Some(Instant::now());
            self.save();
        }
        self.conclude(delivery, due.messages.len() as u64)
    }

    /// Returns the alerts of due messages, and of the active incidents that are not among them.
    fn alerts(&self, messages: &[DueMessage], now: Timestamp) -> Vec<PostedAlert> {
        let cluster = self.cluster.as_str();
        let mut alerts = Vec::new();
        for (key, entry) in &self.ledger.entries {
            let is_due = messages.iter().any(|message| message.incident.key.to_string() == *key);
            if let Some(active) = entry.active.as_deref().filter(|_| entry.is_sent && !is_due) {
                alerts.push(PostedAlert::firing(cluster, active, now));
            }
        }
        for DueMessage { incident, .. } in messages {
            let entry = self.ledger.entries.get(&incident.key.to_string());
            let entry = entry.filter(|entry| entry.is_of(incident));
            let sent: Option<&Incident> = entry.and_then(|entry| entry.active.as_deref());
            let ended_at = incident.ended_at.unwrap_or(now);
            if incident.stage.is_end() {
                alerts.push(PostedAlert::resolved(cluster, sent.unwrap_or(incident), ended_at));
                continue;
            }
            let firing = PostedAlert::firing(cluster, incident, now);
            // Alertmanager would hold the alert with the old labels beside the new one.
            let old = sent.map(|sent| PostedAlert::resolved(cluster, sent, now));
            alerts.extend(old.filter(|old| !old.has_labels_of(&firing)));
            alerts.push(firing);
        }
        alerts
    }

    /// Counts a delivery of some messages, and returns what follows.
    fn conclude(&mut self, delivery: Result<(), DeliveryError>, messages: u64) -> RoundEnd {
        let name = self.sender.settings().name.clone();
        match delivery {
            Ok(()) => {
                let had_problem = self.count(|view| {
                    view.sent += messages;
                    view.waiting = view.waiting.saturating_sub(messages);
                    view.problem.take().is_some()
                });
                if had_problem {
                    info!(receiver = %name, "the receiver takes messages again");
                }
                self.backoff = BACKOFF_MIN;
                RoundEnd::Again
            }
            Err(DeliveryError::Refused(problem)) => {
                warn!(receiver = %name, %problem, "the receiver refuses a message, which is dropped");
                self.count(|view| {
                    view.refused += messages;
                    view.waiting = view.waiting.saturating_sub(messages);
                    view.problem = None;
                    view.refusal = Some(problem);
                });
                self.backoff = BACKOFF_MIN;
                RoundEnd::Again
            }
            Err(DeliveryError::Failed { problem, retry_after }) => {
                let pause = retry_after.unwrap_or_default().max(self.backoff);
                self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
                let is_new = self.count(|view| {
                    view.failed += 1;
                    let is_new = view.problem.as_ref() != Some(&problem);
                    view.problem = Some(problem.clone());
                    is_new
                });
                if is_new {
                    warn!(receiver = %name, %problem, "cannot deliver a message; it is tried again");
                }
                RoundEnd::BackOff(pause)
            }
        }
    }

    /// Changes the counts of the receiver. One that a reload has removed has none.
    fn count<T: Default>(&self, change: impl FnOnce(&mut ReceiverView) -> T) -> T {
        let name = &self.sender.settings().name;
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let view = views.iter_mut().find(|view| view.name == *name);
        view.map_or_else(T::default, change)
    }

    fn save(&self) {
        if let Err(problem) = self.ledger.write(&self.ledger_file) {
            let path = self.ledger_file.display();
            warn!(%path, %problem, "cannot record deliveries; a restart of the controller may repeat messages");
        }
    }
}

/// What follows a round.
enum RoundEnd {
    /// The next round begins at once.
    Again,
    /// Nothing is sent for some time.
    BackOff(Duration),
    /// The next round begins with a change, or after this time.
    Wait(Duration),
}
