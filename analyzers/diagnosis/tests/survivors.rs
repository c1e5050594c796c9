//! Survivors beside the process or rank that a first cause names, and ranks that end alike.

use crate::world::{World, class, gpu, key_error, line, mark, node, oom_kills, rank_of, reasons, with};
use rankguard_diagnosis::{CallerFact, ConcludedDraft};
use rankguard_faults::{Catalogue, SignatureMatcher};
use rankguard_model::{CaseFinding, Entity, EvidenceSource, ProcessExit, Role, Timestamp};

const KILL: ProcessExit = ProcessExit::Signal(9);

fn roles_of_rank(case: &ConcludedDraft, rank: u32) -> Vec<Role> {
    let of_rank = case.findings.iter().filter(|finding| finding.entity == rank_of(rank));
    of_rank.map(|finding| finding.role).collect()
}

fn loses_peer(world: &mut World, ms: i64, rank: u32) {
    let lost = mark("remote-worker-lost", Role::Cascade, 0.9);
    world.says(ms, rank, "socketProgress: Connection closed by remote peer", lost);
    world.exits(ms, rank, ProcessExit::Code(1));
}

#[test]
fn a_survivor_beside_a_killed_rank_is_not_where_the_cause_sits() {
    let mut world = World::new();
    oom_kills(&mut world, 1_000, 3);
    loses_peer(&mut world, 1_060, 2);
    let case = world.settle();
    let text = reasons(&case);
    assert!(
        text.contains("rank 3 on node n2 ended (signal 9 (exit code 137)), where the cause sits."),
        "{text}"
    );
    assert!(
        text.contains("rank 2 on node n2 ended (exit code 1), on the node of the blamed rank."),
        "{text}"
    );
}

#[test]
fn a_fault_that_names_a_process_is_confirmed_by_the_end_of_that_process_only() {
    let mut world = World::new();
    let contained = with(mark("gpu-ecc-contained", Role::Root, 0.95), &[("pid", "1002")]);
    world.kernel(
        1_000,
        gpu(2),
        "NVRM: Xid (PCI:0000:9b:00): 94, pid=1002, Contained",
        contained,
    );
    world.exits(1_594, 2, KILL);
    loses_peer(&mut world, 1_650, 3);
    let case = world.settle();
    assert_eq!(class(&case), "gpu-ecc-contained");
    assert_eq!(roles_of_rank(&case, 2), [Role::Confirmation]);
    assert_eq!(roles_of_rank(&case, 3), [Role::Cascade; 2]);
    let text = reasons(&case);
    assert!(
        text.contains("Rank 2 on node n2, the process that it names, ended after it."),
        "{text}"
    );
    assert!(
        text.contains("rank 3 on node n2 ended (exit code 1), on the same node, as survivors do."),
        "{text}"
    );
}

/// The agent of node 2 ends, and rank 0 on node 1 aborts.
fn aborts_beside_lost_agent(act: impl FnOnce(&mut World)) -> ConcludedDraft {
    let mut world = World::new();
    let fact = CallerFact::AgentEnded {
        node: node(2),
        since: Timestamp::from_millis(1_000),
    };
    act(&mut world);
    let now = Timestamp::from_millis(1_200);
    let changes = world
        .diagnosis
        .observe_fact(now, &fact, &world.context, Catalogue::builtin());
    world.changes.extend(changes);
    world.settle()
}

#[test]
fn a_rank_that_aborts_before_a_peer_is_lost_fails_by_itself() {
    let case = aborts_beside_lost_agent(|world| {
        world.exits(1_056, 0, ProcessExit::Signal(6));
        loses_peer(world, 1_157, 1);
    });
    assert_eq!(class(&case), "node-agent-silent");
    let own: Vec<&str> = case.separate.iter().map(|own| own.verdict.class.as_str()).collect();
    assert_eq!(own, ["process-aborted"]);
    assert!(
        reasons(&case).contains("rank 0 on node n1 ended (signal 6 (exit code 134)), which is a failure of its own.")
    );
}

#[test]
fn a_rank_that_aborts_for_a_lost_peer_follows_from_the_lost_agent() {
    let complains = aborts_beside_lost_agent(|world| {
        let lost = mark("remote-worker-lost", Role::Cascade, 0.9);
        world.says(1_150, 0, "socketProgress: Connection closed by remote peer", lost);
        world.exits(1_157, 0, ProcessExit::Signal(6));
    });
    let follows = aborts_beside_lost_agent(|world| {
        loses_peer(world, 1_050, 1);
        world.exits(1_157, 0, ProcessExit::Signal(6));
    });
    for case in [complains, follows] {
        assert_eq!(case.separate, [], "{}", reasons(&case));
    }
}

#[test]
fn a_job_that_stands_is_described_as_of_the_time_at_which_it_was_noticed() {
    let mut world = World::new();
    world.stalls(1_000, 9_000);
    let case = world.settle();
    let seen = Timestamp::from_millis(9_000);
    let since = Timestamp::from_millis(1_000);
    let wanted = format!("as of {seen}, job train has completed no step since {since}");
    assert_eq!(case.findings[0].text, wanted);
}

/// Both ranks of a node end with `code`, the second one later.
fn ends_alike(code: i32, later: i64) -> ConcludedDraft {
    let mut world = World::new();
    world.exits(1_000, 1, ProcessExit::Code(code));
    world.exits(1_000 + later, 0, ProcessExit::Code(code));
    world.settle()
}

#[test]
fn ranks_that_end_with_a_code_of_the_program_are_equal() {
    let case = ends_alike(3, 159);
    assert_eq!(case.verdict.root_rank, None, "{}", reasons(&case));
    assert!(matches!(case.verdict.blamed, Entity::Job { .. }));
    assert_eq!(roles_of_rank(&case, 0), [Role::Confirmation]);
    let text = reasons(&case);
    assert!(
        text.contains("159 ms later, rank 0 on node n1 ended (exit code 3), and nothing shows that"),
        "{text}"
    );
    // An exception for a lost peer ends with code 1, and a rank may react to the end of another after a while.
    for (code, later) in [(1, 159), (3, 900)] {
        let case = ends_alike(code, later);
        assert_eq!(
            case.verdict.root_rank,
            Some(rank_of(1).rank().expect("a rank")),
            "{code}"
        );
        assert_eq!(roles_of_rank(&case, 0), [Role::Cascade], "{code}");
    }
}

/// Two ranks raise the same error of the program; neither ended because of the other.
#[test]
fn ranks_that_raise_the_same_error_are_no_cascade_of_each_other_rg_7() {
    let text = "ValueError: expected 4 labels but got 5";
    let marks = SignatureMatcher::builtin().marks(EvidenceSource::JobLog, text);
    assert!(!marks.is_empty());
    let mut world = World::new();
    for (ms, rank) in [(1_000, 0), (1_047, 1)] {
        world.at(ms, EvidenceSource::JobLog, rank_of(rank), line(text), marks.clone());
    }
    world
        .exits(1_100, 0, ProcessExit::Code(1))
        .exits(1_140, 1, ProcessExit::Code(1))
        .exits(1_200, 4, ProcessExit::Code(1));
    let case = world.settle();
    let role = |rank: u32| {
        let is_end = |finding: &&CaseFinding| finding.entity == rank_of(rank) && finding.text.starts_with("process ");
        let end = case.findings.iter().find(is_end).unwrap();
        (end.role, end.why.as_str())
    };
    assert_eq!(
        role(1),
        (
            Role::Confirmation,
            "The rank raised the same error itself and ended by it."
        )
    );
    // Rank 4 raised none.
    assert_eq!(role(4).0, Role::Cascade);
}

#[test]
fn a_stall_that_was_found_before_the_first_cause_is_no_consequence_of_it() {
    for (found, role) in [(9_000, Role::Noise), (16_000, Role::Cascade)] {
        let mut world = World::new();
        if found < 15_000 {
            world.stalls(1_000, found);
        }
        world.says(15_000, 1, "KeyError: 'labels'", key_error());
        if found > 15_000 {
            world.stalls(1_000, found);
        }
        world.exits(15_100, 1, ProcessExit::Code(1));
        let case = world.settle();
        assert_eq!(class(&case), "key-error");
        let mut findings = case.findings.iter();
        let stall = findings.find(|finding| finding.text.starts_with("as of "));
        assert_eq!(stall.map(|stall| stall.role), Some(role), "{}", reasons(&case));
    }
}

/// A program starts torchrun as its only rank. Its worker of local rank 1 is killed; the other reports the lost connection, and
/// torchrun ends it.
#[test]
fn an_end_that_torchrun_observed_first_explains_what_its_other_workers_report() {
    let launcher = |signature: &str, class: &str, role: Role, fields: &[(&str, &str)]| {
        let mut mark = mark(class, role, 0.62);
        mark.signature = signature.into();
        with(mark, fields)
    };
    let mut world = World::new();
    world.says(
        1_000,
        0,
        "[rank0]: RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:38629",
        mark("remote-worker-lost", Role::Cascade, 0.7),
    );
    let closing = launcher("launcher-closing", "external-termination", Role::Cascade, &[]);
    world.says(1_047, 0, "Sending process 5533 closing signal SIGTERM", closing);
    let fields = [("exitcode", "-9"), ("local_rank", "1"), ("pid", "5537")];
    let failed = launcher(
        "elastic-child-failed",
        "launcher-child-failed",
        Role::Confirmation,
        &fields,
    );
    let text = "failed (exitcode: -9) local_rank: 1 (pid: 5537) of binary: python";
    let killed = launcher("exit-minus-nine", "killed-by-signal", Role::Confirmation, &[]);
    world.at(
        1_115,
        EvidenceSource::JobLog,
        rank_of(0),
        line(text),
        vec![failed, killed],
    );
    let fields = [("signal", "15"), ("name", "SIGTERM"), ("pid", "5533")];
    let closed = launcher("elastic-signal", "killed-by-signal", Role::Confirmation, &fields);
    world.says(
        1_112,
        0,
        "  traceback : Signal 15 (SIGTERM) received by PID 5533",
        closed,
    );
    world.exits(1_700, 0, ProcessExit::Code(1));
    let case = world.settle();
    assert_eq!(class(&case), "killed-by-signal", "{}", reasons(&case));
    assert_eq!(case.findings[0].text, text, "{}", reasons(&case));
    assert!(
        reasons(&case).contains("process 5537 of local rank 1 by SIGKILL first"),
        "{}",
        reasons(&case)
    );
}
