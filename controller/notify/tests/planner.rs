//! Messages of one receiver over the life of cases.

use std::collections::BTreeSet;
use std::slice::from_ref;

use rankguard_model::{CaseState, Severity, Timestamp};
use rankguard_notify::{
    CaseFacts, DeliveryLedger, Incident, IncidentSet, ReceiverKind, ReceiverSettings, SendTimes, plan,
};

use crate::common::{at, case};

/// Receiver that takes every message, and its ledger.
struct Receiver {
    settings: ReceiverSettings,
    ledger: DeliveryLedger,
    sends: SendTimes,
    suppressed: u64,
}

impl Receiver {
    fn new(settings: ReceiverSettings) -> Self {
        Self {
            settings,
            ledger: DeliveryLedger::new(),
            sends: SendTimes::default(),
            suppressed: 0,
        }
    }

    fn webhook() -> Self {
        Self::new(ReceiverSettings::new("hook", ReceiverKind::Webhook))
    }

    /// Delivers what is due; returns event and key of each message.
    fn deliver(&mut self, cases: &[CaseFacts], now: Timestamp) -> Vec<String> {
        let set = IncidentSet {
            incidents: cases.iter().map(Incident::of_case).collect(),
            is_settled: true,
        };
        let due = plan(&mut self.ledger, &set, &self.settings, &mut self.sends, now);
        self.suppressed += due.suppressed;
        let deliver = |message: &rankguard_notify::DueMessage| {
            self.ledger.delivered(message);
            self.sends.record(now);
            let count = if message.summarizes > 0 {
                format!(" {}", message.summarizes)
            } else {
                String::new()
            };
            format!("{} {}{count}", message.event, message.incident.key)
        };
        due.messages.iter().map(deliver).collect()
    }
}

#[test]
fn a_case_is_one_thread_and_nothing_is_sent_twice() {
    let mut receiver = Receiver::webhook();
    let open = |id| CaseFacts {
        class: "unknown".into(),
        ..case(id, CaseState::Open)
    };
    assert_eq!(receiver.deliver(&[open(1)], at(1)), [""; 0], "the verdict may be near");
    assert_eq!(receiver.deliver(&[open(1)], at(10)), ["opened case/1"]);
    let concluded = case(1, CaseState::Recovering);
    assert_eq!(receiver.deliver(from_ref(&concluded), at(11)), ["verdict case/1"]);
    assert_eq!(receiver.deliver(from_ref(&concluded), at(12)), [""; 0]);
    let changed = CaseFacts {
        class: "nic-down".into(),
        ..concluded
    };
    assert_eq!(receiver.deliver(from_ref(&changed), at(13)), ["verdict-changed case/1"]);
    let recovered = CaseFacts {
        state: CaseState::Recovered,
        ended_at: Some(at(14)),
        ..changed
    };
    assert_eq!(receiver.deliver(from_ref(&recovered), at(14)), ["recovered case/1"]);
    assert_eq!(receiver.deliver(&[recovered], at(15)), [""; 0]);
}

/// The end of a stopped job is reported once, also when the job is removed or submitted again.
#[test]
fn a_stopped_job_is_reported_once() {
    let mut receiver = Receiver::webhook();
    receiver.deliver(&[], at(0));
    let stopped = CaseFacts {
        is_job_stopped: true,
        ..case(1, CaseState::Closed)
    };
    assert_eq!(receiver.deliver(&[stopped], at(31)), ["job-stopped case/1"]);
    assert_eq!(receiver.deliver(&[case(1, CaseState::Closed)], at(40)), [""; 0]);
}

/// A new receiver learns of open cases only; one that was away learns of cases that ended meanwhile.
#[test]
fn what_was_missed_is_sent_and_old_cases_are_not() {
    let mut receiver = Receiver::webhook();
    let open = case(2, CaseState::FaultPresent);
    let sent = receiver.deliver(&[case(1, CaseState::Recovered), open.clone()], at(40));
    assert_eq!(sent, ["verdict case/2"]);
    let later = case(3, CaseState::Recovered);
    assert_eq!(
        receiver.deliver(&[case(1, CaseState::Recovered), open, later], at(50)),
        ["recovered case/3"]
    );
}

/// A journal that was lost begins case numbers again.
#[test]
fn the_same_number_of_another_case_is_another_thread() {
    let mut receiver = Receiver::webhook();
    assert_eq!(
        receiver.deliver(&[case(1, CaseState::Recovering)], at(1)),
        ["verdict case/1"]
    );
    let other = CaseFacts {
        opened_at: at(100),
        ..case(1, CaseState::Recovering)
    };
    assert_eq!(receiver.deliver(&[other], at(101)), ["verdict case/1"]);
}

#[test]
fn severity_jobs_and_drills_select_what_is_sent() {
    let mut settings = ReceiverSettings::new("hook", ReceiverKind::Webhook);
    settings.min_severity = Severity::Failure;
    settings.jobs = vec!["vis*".to_owned()];
    settings.drills = false;
    let mut receiver = Receiver::new(settings);
    let recovering = |id| case(id, CaseState::Recovering);
    let cases = [
        recovering(1),
        CaseFacts {
            severity: Severity::Warning,
            ..recovering(2)
        },
        CaseFacts {
            job: Some("speech".into()),
            ..recovering(3)
        },
        CaseFacts {
            job: None,
            ..recovering(4)
        },
        CaseFacts {
            is_drill: true,
            ..recovering(5)
        },
    ];
    assert_eq!(receiver.deliver(&cases, at(1)), ["verdict case/1"]);
    // Its thread is ended, although it would not be opened with this severity.
    let ended = CaseFacts {
        severity: Severity::Info,
        ..case(1, CaseState::Recovered)
    };
    assert_eq!(receiver.deliver(&[ended], at(31)), ["recovered case/1"]);
}

/// A flood: the limit holds, the number of suppressed messages is stated, and no thread stands open.
#[test]
fn a_flood_is_limited_and_counted() {
    let mut settings = ReceiverSettings::new("hook", ReceiverKind::Webhook);
    (settings.limit, settings.limit_window_s) = (5, 60);
    let mut receiver = Receiver::new(settings);
    receiver.deliver(&[], at(0));
    let flood: Vec<CaseFacts> = (1..=100).map(|id| case(id, CaseState::Recovering)).collect();
    let sent = receiver.deliver(&flood, at(1));
    assert_eq!((sent.len(), receiver.suppressed), (5, 95), "{sent:?}");
    assert_eq!(receiver.deliver(&flood, at(2)), [""; 0]);
    let ended: Vec<CaseFacts> = (1..=100).map(|id| case(id, CaseState::Recovered)).collect();
    let ends = receiver.deliver(&ended, at(31));
    let opened: BTreeSet<_> = sent.iter().map(|text| text.replace("verdict", "recovered")).collect();
    assert_eq!(
        ends.iter().cloned().collect::<BTreeSet<_>>(),
        opened,
        "each open thread ends"
    );
    assert_eq!(receiver.deliver(&ended, at(92)), ["suppressed notice/suppressed 95"]);
    assert_eq!(receiver.deliver(&ended, at(200)), [""; 0], "the summary is sent once");
}

/// A receiver that refuses a message is not sent it again, the summary included.
#[test]
fn a_refused_message_is_not_repeated() {
    let mut settings = ReceiverSettings::new("hook", ReceiverKind::Webhook);
    (settings.limit, settings.limit_window_s) = (1, 60);
    let mut receiver = Receiver::new(settings);
    let mut refuse = |cases: &[CaseFacts], now| {
        let set = IncidentSet {
            incidents: cases.iter().map(Incident::of_case).collect(),
            is_settled: true,
        };
        let due = plan(&mut receiver.ledger, &set, &receiver.settings, &mut receiver.sends, now);
        due.messages.iter().for_each(|message| receiver.ledger.refused(message));
        receiver.sends.record(now);
        due.messages.len()
    };
    let cases = [case(1, CaseState::Recovering), case(2, CaseState::Recovering)];
    assert_eq!(refuse(&cases, at(1)), 1, "the other one is suppressed");
    assert_eq!(refuse(&cases, at(62)), 1, "the summary");
    assert_eq!(refuse(&cases, at(124)), 0);
}

#[test]
fn quiet_hours_hold_messages_back_until_they_end() {
    let mut settings = ReceiverSettings::new("hook", ReceiverKind::Webhook);
    // 2027-01-15T08:00:00Z is the start of the tests.
    settings.quiet_hours = vec!["08:00-09:00".parse().unwrap()];
    settings.quiet_except = vec![Severity::Failure];
    let mut receiver = Receiver::new(settings);
    receiver.deliver(&[], at(0));
    let warning = CaseFacts {
        severity: Severity::Warning,
        ..case(1, CaseState::FaultPresent)
    };
    let failure = case(2, CaseState::Recovering);
    let cases = [warning, failure];
    assert_eq!(receiver.deliver(&cases, at(60)), ["verdict case/2"]);
    assert_eq!(receiver.deliver(&cases, at(3_599)), [""; 0]);
    assert_eq!(receiver.deliver(&cases, at(3_600)), ["verdict case/1"]);
}

/// A pager is resolved during maintenance, and is not called for a case that ended before it could be.
#[test]
fn a_receiver_that_holds_incidents_gets_their_ends() {
    let mut settings = ReceiverSettings::new("pager", ReceiverKind::Pagerduty);
    settings.maintenance = vec!["2027-01-15T08:00:20Z/2027-01-15T09:00:00Z".parse().unwrap()];
    let mut receiver = Receiver::new(settings);
    receiver.deliver(&[], at(0));
    assert_eq!(
        receiver.deliver(&[case(1, CaseState::Recovering)], at(1)),
        ["verdict case/1"]
    );
    let during = [case(1, CaseState::Recovered), case(2, CaseState::Recovering)];
    assert_eq!(receiver.deliver(&during, at(31)), ["recovered case/1"]);
    let after = [case(1, CaseState::Recovered), case(2, CaseState::Recovered)];
    assert_eq!(receiver.deliver(&after, at(3_700)), [""; 0]);
}

#[test]
fn messages_name_failure_place_action_and_command_and_no_more() {
    let mut facts = case(7, CaseState::Recovering);
    facts.plan = Some("swap in a spare, generation 2 with 8 ranks on 2 nodes".to_owned());
    facts.cordoned = vec!["n1".into()];
    let incident = Incident::of_case(&facts);
    assert_eq!(incident.title, "case 7: gpu-fallen-off-bus interrupted job vision");
    let details = [
        "Where: node n1, gpu 0000:9b:00, rank 3 failed first (confidence 90 %).",
        "Generation 1 of the job failed.",
        "Plan: swap in a spare, generation 2 with 8 ranks on 2 nodes.",
        "Cordoned for this case: n1.",
    ];
    assert_eq!(incident.details, details);
    assert_eq!(incident.command, "rankguard cases show 7");
}
