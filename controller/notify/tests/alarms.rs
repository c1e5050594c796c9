//! Alarms over a series of facts.

use rankguard_model::{CaseState, JobId, NodeId, Severity, Timestamp};
use rankguard_notify::{
    AlarmBoard, AlarmLimits, CaseFacts, ClusterFacts, DeliveryLedger, Incident, IncidentSet, JobFacts, NodeCounts,
    ReceiverKind, ReceiverSettings, SendTimes, plan,
};

use crate::common::{at, case};

fn facts(now: Timestamp) -> ClusterFacts {
    ClusterFacts {
        at: now,
        started_at: at(0),
        ..ClusterFacts::default()
    }
}

fn job() -> JobFacts {
    JobFacts {
        job: JobId::from("vision"),
        restarts: Vec::new(),
        fruitless: 0,
        fruitless_max: 5,
        nodes: 8,
        nodes_min: 8,
    }
}

fn titles(board: &mut AlarmBoard, facts: &ClusterFacts, now: Timestamp) -> Vec<String> {
    board
        .evaluate(facts, now)
        .into_iter()
        .map(|alarm| alarm.title)
        .collect()
}

#[test]
fn restarts_within_the_window_raise_a_storm_and_older_ones_do_not() {
    let mut board = AlarmBoard::new(AlarmLimits::default());
    let restarts: Vec<Timestamp> = (0..5).map(|nth| at(nth * 100)).collect();
    let with = |now, restarts| ClusterFacts {
        jobs: vec![JobFacts { restarts, ..job() }],
        ..facts(now)
    };
    let found = titles(&mut board, &with(at(500), restarts.clone()), at(500));
    assert_eq!(found, ["job vision was restarted 5 times after failures within 3600 s"]);
    assert_eq!(
        titles(&mut board, &with(at(3_600), restarts.clone()), at(3_600)),
        [""; 0]
    );
    assert_eq!(
        titles(&mut board, &with(at(500), restarts[1..].to_vec()), at(500)),
        [""; 0]
    );
}

#[test]
fn restarts_without_progress_raise_an_alarm() {
    let mut board = AlarmBoard::new(AlarmLimits::default());
    let mut with = |fruitless| {
        let facts = ClusterFacts {
            jobs: vec![JobFacts { fruitless, ..job() }],
            ..facts(at(10))
        };
        titles(&mut board, &facts, at(10))
    };
    assert_eq!(with(2), [""; 0]);
    assert_eq!(
        with(3),
        ["job vision was restarted 3 times after failures without progress in between"]
    );
}

/// Drills, cases without a verdict and cases that blame a rank make no node suspect.
#[test]
fn cases_that_blame_one_node_make_it_suspect() {
    let mut board = AlarmBoard::new(AlarmLimits::default());
    let recovered = |id| case(id, CaseState::Recovered);
    let others = [
        CaseFacts {
            node: Some(NodeId::from("n2")),
            ..recovered(4)
        },
        CaseFacts {
            is_drill: true,
            ..recovered(5)
        },
        case(6, CaseState::Open),
        CaseFacts {
            blames_node: false,
            ..recovered(7)
        },
    ];
    let mut with = |cases: Vec<CaseFacts>, now| {
        let cases = cases.into_iter().chain(others.clone()).collect();
        titles(&mut board, &ClusterFacts { cases, ..facts(now) }, now)
    };
    assert_eq!(with(vec![recovered(1), recovered(2)], at(90)), [""; 0]);
    let three = vec![recovered(1), recovered(2), recovered(3)];
    assert_eq!(
        with(three.clone(), at(90)),
        ["3 cases of the last 24 h blame node n1 or a part of it"]
    );
    assert_eq!(with(three, at(86_400)), [""; 0]);
}

#[test]
fn few_free_nodes_raise_an_alarm_while_a_job_runs() {
    let limits = AlarmLimits {
        spares_min: 2,
        ..AlarmLimits::default()
    };
    let mut board = AlarmBoard::new(limits);
    let nodes = NodeCounts {
        known: 9,
        free: 1,
        ..NodeCounts::default()
    };
    let idle = ClusterFacts { nodes, ..facts(at(10)) };
    assert_eq!(titles(&mut board, &idle, at(10)), [""; 0]);
    let busy = ClusterFacts {
        jobs: vec![job()],
        ..idle
    };
    let found = board.evaluate(&busy, at(10));
    assert_eq!(found[0].title, "1 nodes are free, fewer than the 2 configured");
    assert_eq!(
        found[0].details,
        ["Of 1 running jobs, 1 cannot run with one node fewer."]
    );
}

/// A restart of the controller is no alarm while agents join again; later it is, with the numbers.
#[test]
fn nodes_that_are_not_heard_raise_an_alarm_after_a_minute() {
    let mut board = AlarmBoard::new(AlarmLimits::default());
    let blind = |now| ClusterFacts {
        nodes: NodeCounts {
            known: 8,
            lost: 1,
            unjoined: 1,
            ..NodeCounts::default()
        },
        ..facts(now)
    };
    assert_eq!(titles(&mut board, &blind(at(1)), at(1)), [""; 0]);
    assert_eq!(titles(&mut board, &blind(at(60)), at(60)), [""; 0]);
    let found = board.evaluate(&blind(at(61)), at(61));
    assert_eq!(
        found[0].title,
        "nothing is received from 2 of 8 nodes; failures there are not seen"
    );
    assert_eq!(
        found[0].details[0],
        "Lost: 1. Without a session: 0. Not joined since the controller started: 1."
    );
    let one = ClusterFacts {
        nodes: NodeCounts {
            known: 8,
            lost: 1,
            ..NodeCounts::default()
        },
        ..facts(at(70))
    };
    assert_eq!(
        titles(&mut board, &one, at(70)),
        [""; 0],
        "an eighth is below the share"
    );
}

/// Facts that are out of date prove nothing: raised alarms stay, and the controller is reported as stuck.
#[test]
fn a_controller_that_is_stuck_or_cannot_write_is_reported() {
    let mut board = AlarmBoard::new(AlarmLimits::default());
    let degraded = ClusterFacts {
        degraded: Some("the disk is full".to_owned()),
        ..facts(at(10))
    };
    let found = board.evaluate(&degraded, at(10));
    assert_eq!(found[0].details, ["Cause: the disk is full"]);
    let later = board.evaluate(&degraded, at(75));
    let names: Vec<String> = later.iter().map(|alarm| alarm.key.to_string()).collect();
    assert_eq!(names, ["alarm/controller-degraded", "alarm/controller-stuck"]);
    assert_eq!(later[1].details, ["The newest state is 65 s old."]);
    assert_eq!(titles(&mut board, &facts(at(76)), at(76)), [""; 0]);
}

/// A restarted controller neither repeats an alarm that holds nor forgets to clear one that ended meanwhile.
#[test]
fn an_alarm_is_raised_once_and_cleared_once_over_a_restart() {
    let settings = ReceiverSettings::new("hook", ReceiverKind::Webhook);
    let mut ledger = DeliveryLedger::new();
    let mut sends = SendTimes::default();
    let mut deliver = |incidents: Vec<Incident>, is_settled, now| {
        let set = IncidentSet { incidents, is_settled };
        let due = plan(&mut ledger, &set, &settings, &mut sends, now);
        due.messages.iter().for_each(|message| ledger.delivered(message));
        due.messages.iter().map(|message| message.event).collect::<Vec<_>>()
    };
    let with = |fruitless, now| ClusterFacts {
        jobs: vec![JobFacts { fruitless, ..job() }],
        ..facts(now)
    };
    let mut board = AlarmBoard::new(AlarmLimits::default());
    assert_eq!(
        deliver(board.evaluate(&with(3, at(10)), at(10)), false, at(10)),
        ["raised"]
    );
    assert_eq!(
        deliver(board.evaluate(&with(4, at(11)), at(11)), false, at(11)),
        [""; 0]
    );
    let mut board = AlarmBoard::new(AlarmLimits::default());
    assert_eq!(
        deliver(board.evaluate(&with(4, at(20)), at(20)), false, at(20)),
        [""; 0]
    );
    assert_eq!(
        deliver(board.evaluate(&with(0, at(21)), at(21)), false, at(21)),
        [""; 0]
    );
    assert_eq!(
        deliver(board.evaluate(&with(0, at(90)), at(90)), true, at(90)),
        ["cleared"]
    );
    assert_eq!(deliver(board.evaluate(&with(0, at(91)), at(91)), true, at(91)), [""; 0]);
    assert_eq!(
        deliver(board.evaluate(&with(3, at(92)), at(92)), true, at(92)),
        ["raised"]
    );
}

/// The alarm names each part that fails; a journal that cannot be written is a failure, other parts are a warning.
#[test]
fn a_degraded_controller_names_what_fails() {
    let mut board = AlarmBoard::new(AlarmLimits::default());
    let impaired = vec![
        "audit log: cannot write; changes are refused".to_owned(),
        "tokens: full".to_owned(),
    ];
    let parts = ClusterFacts {
        impaired: impaired.clone(),
        ..facts(at(10))
    };
    let found = board.evaluate(&parts, at(10));
    assert_eq!((found.len(), found[0].severity), (1, Severity::Warning));
    assert!(found[0].title.ends_with(": audit log, tokens"), "{}", found[0].title);
    assert!(
        found[0].details[0].contains("changes are refused"),
        "{:?}",
        found[0].details
    );
    let all = ClusterFacts {
        degraded: Some("the disk is full".to_owned()),
        impaired,
        ..facts(at(20))
    };
    let found = board.evaluate(&all, at(20));
    assert_eq!((found.len(), found[0].severity), (1, Severity::Failure));
    assert!(
        found[0].title.contains("journal") && found[0].details.len() == 3,
        "{:?}",
        found[0]
    );
}
