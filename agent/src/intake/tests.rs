use rankguard_model::{ProcessExit, Step};

use super::*;

fn progress(step: u64) -> PendingEvidence {
    PendingEvidence::now(
        EvidenceSource::Ranks,
        Entity::Unknown,
        EvidenceBody::Progress {
            step: Step(step),
            loss: None,
            step_ms: 1.0,
            own_ms: None,
        },
    )
}

fn exit() -> PendingEvidence {
    PendingEvidence::now(
        EvidenceSource::Ranks,
        Entity::Unknown,
        EvidenceBody::RankExited {
            pid: 1,
            exit: ProcessExit::Code(1),
            ended_by_agent: false,
        },
    )
}

/// RG-4, RG-9.
#[test]
fn a_full_intake_drops_the_oldest_progress_and_says_how_many() {
    let intake = EvidenceIntake::with_capacity(NodeId::from("a"), 3);
    for step in 1..=3 {
        intake.push(progress(step));
    }
    intake.push(exit());
    intake.push(exit());
    let batch = intake.take(Duration::ZERO, 16);
    let steps: Vec<_> = batch.sightings.iter().map(|sighting| sighting.body.clone()).collect();
    assert_eq!(steps.len(), 4, "{steps:?}");
    assert!(matches!(steps[0], EvidenceBody::Progress { step: Step(3), .. }));
    assert!(matches!(steps[3], EvidenceBody::Gap { lost: Some(2), .. }));
}

#[test]
fn urgent_evidence_does_not_wait_for_company() {
    let intake = EvidenceIntake::new(NodeId::from("a"));
    intake.push(progress(1));
    intake.push(exit());
    let batch = intake.take(Duration::from_secs(3600), 16);
    assert_eq!(batch.sightings.len(), 2);
}

/// RG-4: after a crash between two commits the first part would be read again.
#[test]
fn what_one_look_gave_is_handed_out_as_one() {
    let intake = EvidenceIntake::new(NodeId::from("a"));
    intake.push(exit());
    intake.push_all(vec![exit(), exit(), exit(), exit()]);
    intake.push(exit());
    let counts = [2, 2, 2].map(|most| {
        intake.close();
        intake.take(Duration::ZERO, most).sightings.len()
    });
    assert_eq!(counts, [5, 1, 0]);
}

#[test]
fn a_closed_intake_hands_out_the_rest_and_then_nothing() {
    let intake = EvidenceIntake::new(NodeId::from("a"));
    intake.push(progress(1));
    intake.close();
    assert_eq!(intake.take(Duration::from_secs(3600), 16).sightings.len(), 1);
    assert!(intake.take(Duration::from_secs(3600), 16).is_empty());
}

fn cursor(value: &str) -> ReaderCursor {
    ReaderCursor {
        key: "log".to_owned(),
        value: value.to_owned(),
    }
}

/// RG-4: a crash between the two would lose the evidence before the position.
#[test]
fn a_position_never_overtakes_what_was_seen_before_it() {
    let intake = EvidenceIntake::new(NodeId::from("a"));
    intake.push(exit());
    intake.push(exit());
    intake.record_position(cursor("2"));
    let first = intake.take(Duration::from_secs(3600), 1);
    assert_eq!((first.sightings.len(), first.positions), (1, Vec::new()));
    let second = intake.take(Duration::from_secs(3600), 1);
    assert_eq!(
        (second.sightings.len(), second.positions.clone()),
        (1, vec![cursor("2")])
    );
    // A failed commit returns its position too, unless the reader has moved on.
    intake.put_back(second);
    let again = intake.take(Duration::from_secs(3600), 16);
    assert_eq!(again.positions, [cursor("2")]);
    intake.record_position(cursor("3"));
    intake.put_back(again);
    let newest = intake.take(Duration::from_secs(3600), 16);
    assert_eq!((newest.sightings.len(), newest.positions), (1, vec![cursor("3")]));
}

/// RG-4: otherwise the last evidence is reported again after a restart.
#[test]
fn what_was_seen_later_takes_the_place_of_a_position() {
    let intake = EvidenceIntake::new(NodeId::from("a"));
    intake.record_position(cursor("1"));
    intake.push(exit().with_cursor(Some(cursor("2"))));
    let batch = intake.take(Duration::from_secs(3600), 16);
    assert_eq!((batch.sightings.len(), batch.positions), (1, Vec::new()));
    intake.record_position(cursor("3"));
    intake.push(exit());
    let failed = intake.take(Duration::from_secs(3600), 16);
    intake.push(exit().with_cursor(Some(cursor("4"))));
    intake.put_back(failed);
    let batch = intake.take(Duration::from_secs(3600), 16);
    assert_eq!((batch.sightings.len(), batch.positions), (2, Vec::new()));
}

#[test]
fn a_position_alone_waits_for_company_and_is_handed_out_at_the_end() {
    let intake = EvidenceIntake::new(NodeId::from("a"));
    intake.record_position(cursor("1"));
    intake.push(exit());
    assert_eq!(intake.take(Duration::from_secs(3600), 16).positions, [cursor("1")]);
    intake.record_position(cursor("2"));
    intake.close();
    assert_eq!(intake.take(Duration::from_secs(3600), 16).positions, [cursor("2")]);
    assert!(intake.take(Duration::from_secs(3600), 16).is_empty());
}

#[test]
fn a_copy_of_what_is_taken_goes_out_and_steps_do_not() {
    let intake = EvidenceIntake::new(NodeId::from("a"));
    let copies = LogQueue::new("127.0.0.1:4317");
    intake.push(exit());
    intake.copy_to(copies.clone());
    intake.push_all(vec![exit(), progress(1), exit()]);
    assert_eq!(copies.view().waiting, 2);
}
