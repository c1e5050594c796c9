//! Signs in an order that proves nothing: a moment apart, by several clocks or by the time at which they were noticed.

use crate::world::{World, mark, on_node, rank_of, reasons};
use rankguard_diagnosis::ConcludedDraft;
use rankguard_model::{CaseFinding, Classification, Entity, ProcessExit, Role, Timestamp};

const KILL: ProcessExit = ProcessExit::Signal(9);
const ABORT: ProcessExit = ProcessExit::Signal(6);
const FAILED: ProcessExit = ProcessExit::Code(1);
const GLOO: &str = "RuntimeError: [gloo/transport/tcp/pair.cc:545] Connection closed by peer [127.0.0.1]:40877";

fn lost_peer() -> Classification {
    mark("remote-worker-lost", Role::Cascade, 0.78)
}

fn findings_of<'a>(case: &'a ConcludedDraft, entity: &Entity) -> Vec<&'a CaseFinding> {
    case.findings
        .iter()
        .filter(|finding| finding.entity == *entity)
        .collect()
}

/// The agent of a killed rank noticed its end after the peer of another node had written its lost connection and ended.
#[test]
fn a_lost_connection_a_moment_before_the_end_of_the_peer_follows_from_it_rg_7() {
    for peer in [0, 5] {
        let mut world = World::new();
        world.says(1_000, peer, GLOO, lost_peer());
        world.exits(1_017, peer, FAILED).exits(1_039, 4, KILL);
        let case = world.settle();
        assert_eq!(case.verdict.blamed, rank_of(4));
        for finding in findings_of(&case, &rank_of(peer)) {
            assert_eq!(finding.role, Role::Cascade, "{finding:?}");
        }
        assert_eq!(case.first_at, Timestamp::from_millis(1_039), "the end is the cause");
        let text = reasons(&case);
        let loss = "At about the same time (39 ms earlier, which proves no order), the log of rank";
        assert!(text.contains(loss), "{text}");
        assert!(
            text.contains("reports remote-worker-lost, which follows from it"),
            "{text}"
        );
        let end = format!("At about the same time (22 ms earlier, which proves no order), rank {peer} on node");
        assert!(text.contains(&end), "{text}");
        assert!(!text.contains("does not explain it"), "{text}");
    }
}

/// A connection that was lost long before is another failure's.
#[test]
fn a_lost_connection_long_before_an_end_does_not_follow_from_it() {
    let mut world = World::new();
    world.says(1_000, 0, GLOO, lost_peer()).exits(5_000, 4, KILL);
    let case = world.settle();
    let losses = findings_of(&case, &rank_of(0));
    assert!(losses.iter().all(|finding| finding.role != Role::Cascade), "{losses:?}");
}

/// The later error has the higher confidence.
#[test]
fn of_two_errors_that_ranks_raise_for_their_own_reasons_the_first_is_the_cause() {
    let mut world = World::new();
    let value = mark("python-value-error", Role::Root, 0.7);
    world
        .says(1_000, 0, "ValueError: bad lr", value)
        .exits(1_010, 0, FAILED);
    let file = mark("file-not-found", Role::Root, 0.95);
    let text = "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'";
    world.says(1_300, 1, text, file).exits(1_310, 1, FAILED);
    let case = world.settle();
    assert_eq!(case.verdict.blamed, rank_of(0), "{}", reasons(&case));
    assert_eq!(case.verdict.class.as_str(), "python-value-error");
    let text = reasons(&case);
    assert!(
        text.contains("300 ms later, the log of rank 1 reports file-not-found, which is a fault of its own."),
        "{text}"
    );
    assert!(
        text.contains("rank 1 on node n1 ended (exit code 1), after an error of its own."),
        "{text}"
    );
    let error = findings_of(&case, &rank_of(1))[0];
    assert_eq!(error.role, Role::Root, "{error:?}");
}

/// A rank that lost its peer before raises its error because of that.
#[test]
fn an_error_after_a_lost_peer_is_none_of_its_own() {
    let mut world = World::new();
    world.says(
        1_000,
        0,
        "ValueError: bad lr",
        mark("python-value-error", Role::Root, 0.9),
    );
    world.exits(1_010, 0, FAILED).says(1_100, 1, GLOO, lost_peer());
    world.says(1_200, 1, "KeyError: 'grads'", mark("key-error", Role::Root, 0.95));
    world.exits(1_210, 1, FAILED);
    let case = world.settle();
    assert_eq!(case.verdict.blamed, rank_of(0), "{}", reasons(&case));
    let own = findings_of(&case, &rank_of(1));
    assert!(own.iter().all(|finding| finding.role != Role::Root), "{own:#?}");
}

/// A lost peer raises an exception; it aborts no process.
#[test]
fn two_ranks_of_one_node_that_abort_together_blame_no_rank() {
    let mut world = World::new();
    world.exits(1_000, 0, ABORT).exits(1_090, 1, ABORT);
    let case = world.settle();
    assert!(
        matches!(case.verdict.blamed, Entity::Job { .. }),
        "{:?}",
        case.verdict.blamed
    );
    let roles: Vec<Role> = case.findings.iter().map(|finding| finding.role).collect();
    assert_eq!(roles, [Role::Root, Role::Confirmation]);
    assert!(
        reasons(&case).contains("nothing shows who sent the signals"),
        "{}",
        reasons(&case)
    );
    // A rank that reports a lost peer is a survivor; its watchdog aborts it.
    let mut world = World::new();
    world.exits(1_000, 0, ABORT).says(1_050, 1, GLOO, lost_peer());
    world.exits(1_090, 1, ABORT);
    assert_eq!(world.settle().verdict.blamed, rank_of(0));
}

#[test]
fn agents_that_fall_silent_together_are_no_cause_of_each_other() {
    let mut world = World::new();
    world.silent(1_000, 1).silent(1_001, 2);
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "node-agent-silent");
    assert_eq!(case.verdict.blamed, Entity::Unknown, "{}", reasons(&case));
    assert_eq!(case.verdict.blamed_part.as_deref(), Some("what nodes n1, n2 share"));
    let roles: Vec<Role> = case.findings.iter().map(|finding| finding.role).collect();
    assert_eq!(roles, [Role::Root, Role::Confirmation]);
    let text = reasons(&case);
    assert!(text.contains("2 nodes fell silent within 1 ms (n1, n2)"), "{text}");
    assert!(!text.contains("first cause"), "{text}");
    // One that falls silent later is no part of it.
    let mut world = World::new();
    world.silent(1_000, 1).silent(6_000, 2);
    let case = world.settle();
    assert_eq!(case.verdict.blamed, on_node(1), "{}", reasons(&case));
}

/// The first one returns before the verdict, and again: that is one fact, and the earliest silence remains the root.
#[test]
fn agents_that_ended_together_share_a_cause_that_is_no_network() {
    let mut world = World::new();
    world.agent_ends(1_043, 1).agent_ends(1_000, 2);
    world.agent_joins(2_200, 1).agent_joins(2_300, 1);
    let case = world.settle();
    assert_eq!(case.verdict.blamed, Entity::Unknown, "{}", reasons(&case));
    let root = case.findings.iter().find(|finding| finding.role == Role::Root);
    let root = root.expect("a root");
    assert_eq!(root.entity, on_node(2), "{:#?}", case.findings);
    let returns = case.findings.iter().filter(|finding| finding.text.contains("returned"));
    assert_eq!(returns.count(), 1, "{:#?}", case.findings);
    let text = reasons(&case);
    assert!(
        text.contains("agents of 2 nodes were last heard within 43 ms"),
        "{text}"
    );
    assert!(!text.contains("a switch"), "{text}");
}

/// What an older journal decided is decided again.
#[test]
fn journals_of_older_rules_blame_the_first_silent_node() {
    let mut world = World::new();
    world.diagnosis.set_fault_ends(false);
    world.silent(1_000, 1).silent(1_001, 2);
    assert_eq!(world.settle().verdict.blamed, on_node(1));
}

/// Of two ranks one waits in vain; the other one sleeps.
#[test]
fn ranks_that_report_no_timeout_beside_those_that_do_are_named() {
    let mut world = World::new();
    let text = "RuntimeError: [third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 15000ms for recv \
                operation to complete";
    for rank in [0, 2, 3, 4, 5] {
        world.says(1_000, rank, text, mark("nccl-timeout", Role::Cascade, 0.8));
        world.exits(1_010, rank, FAILED);
    }
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "nccl-timeout");
    let text = reasons(&case);
    assert!(
        text.contains("Rank 1 has reported no timeout, and the others have."),
        "{text}"
    );
    assert!(text.contains("The operation is one of gloo"), "{text}");
}
