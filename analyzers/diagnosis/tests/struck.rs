//! Ranks that a signal ended, peers that lost them, and programs that ended themselves.

use crate::world::{World, mark, rank_of};
use rankguard_diagnosis::ConcludedDraft;
use rankguard_model::{
    Classification, EXIT_MESSAGE, Entity, EvidenceBody, EvidenceSource, ProcessExit, Role, SUPERVISOR_LOST,
};

const GLOO: &str = "RuntimeError: [gloo/transport/tcp/pair.cc:545] Read error [127.0.0.1]:40877: Connection reset by peer. This is \
                    typically caused by a remote worker hanging or bugs in the application.";

fn lost_peer() -> Classification {
    mark("remote-worker-lost", Role::Cascade, 0.78)
}

fn exit_message(text: &str) -> Classification {
    Classification {
        signature: EXIT_MESSAGE.into(),
        fields: [("exit", "1"), ("message", text)].into(),
        ..mark("uncaught-exception", Role::Root, 0.6)
    }
}

fn check(case: &ConcludedDraft, class: &str, blamed: &Entity) {
    assert_eq!(
        (case.verdict.class.as_str(), &case.verdict.blamed),
        (class, blamed),
        "{case:#?}"
    );
}

#[test]
fn a_killed_rank_is_the_cause_though_its_peers_report_first_rg_7() {
    let mut world = World::new();
    world
        .says(1_000, 1, GLOO, lost_peer())
        .says(1_005, 3, GLOO, lost_peer());
    world.exits(1_012, 2, ProcessExit::Signal(9));
    world
        .exits(1_900, 1, ProcessExit::Code(1))
        .exits(1_910, 3, ProcessExit::Code(1));
    check(&world.settle(), "killed-by-signal", &rank_of(2));
}

#[test]
fn a_survivor_that_aborts_after_its_report_is_not_the_cause_rg_7() {
    let mut world = World::new();
    world
        .says(1_000, 1, GLOO, lost_peer())
        .exits(1_100, 1, ProcessExit::Signal(6));
    world.exits(1_150, 2, ProcessExit::Signal(9));
    check(&world.settle(), "killed-by-signal", &rank_of(2));
}

#[test]
fn a_program_that_ends_itself_is_named_by_its_words() {
    let mut world = World::new();
    world.says(1_000, 1, "config wrong", exit_message("config wrong"));
    world.exits(1_000, 1, ProcessExit::Code(1));
    let case = world.settle();
    check(&case, "uncaught-exception", &rank_of(1));
    assert_eq!(case.headline, "config wrong");
    let advice = &case.verdict.mitigation.advice;
    assert_eq!(advice, "Read the message with which the program ended itself.");
    let text: Vec<&str> = case.reasoning.iter().map(|entry| entry.text.as_str()).collect();
    assert!(
        text.join("\n")
            .contains("the program ended itself and gave this reason"),
        "{text:?}"
    );
}

#[test]
fn the_message_of_an_end_and_the_same_line_of_the_log_are_one_fact() {
    let line = "RuntimeError: DataLoader worker (pid(s) 26833) exited unexpectedly";
    let check = |is_message_first: bool| {
        let mut world = World::new();
        let known = mark("dataloader-worker-crash", Role::Root, 0.8);
        if is_message_first {
            world
                .says(1_000, 1, line, exit_message(line))
                .says(1_003, 1, line, known);
        } else {
            world
                .says(1_003, 1, line, known)
                .says(1_000, 1, line, exit_message(line));
        }
        world.exits(1_000, 1, ProcessExit::Code(1));
        let case = world.settle();
        assert_eq!(case.verdict.class.as_str(), "dataloader-worker-crash");
        let same = case.findings.iter().filter(|finding| finding.text == line);
        assert_eq!(same.count(), 1, "{:#?}", case.findings);
        let has_message = case
            .reasoning
            .iter()
            .any(|entry| entry.text.contains("uncaught-exception"));
        assert!(!has_message, "{:#?}", case.reasoning);
    };
    check(true);
    check(false);
}

#[test]
fn the_words_of_survivors_are_not_the_cause_rg_7() {
    let mut world = World::new();
    world.exits(1_000, 2, ProcessExit::Signal(9));
    world.says(1_300, 1, "lost rank 2", exit_message("lost rank 2"));
    world.exits(1_300, 1, ProcessExit::Code(1));
    check(&world.settle(), "killed-by-signal", &rank_of(2));
}

#[test]
fn a_silent_survivor_is_not_the_cause_beside_a_killed_rank_rg_7() {
    let mut world = World::new();
    world.exits(1_000, 1, ProcessExit::Signal(9));
    for rank in [0, 2, 4, 5] {
        world.says(1_020, rank, GLOO, lost_peer());
    }
    check(&world.settle(), "killed-by-signal", &rank_of(1));
}

/// The rank ended because its supervisor did.
#[test]
fn a_rank_that_ended_with_its_supervisor_is_described_so() {
    for has_peer in [true, false] {
        let mut world = World::new();
        let lost = Classification {
            signature: SUPERVISOR_LOST.into(),
            fields: [("supervisor", "812"), ("signal", "9")].into(),
            ..mark("none", Role::Noise, 0.0)
        };
        let body = EvidenceBody::RankExited {
            pid: 1001,
            exit: ProcessExit::Signal(9),
            ended_by_agent: false,
        };
        world.at(1_000, EvidenceSource::Ranks, rank_of(1), body, vec![lost]);
        if has_peer {
            world.says(1_020, 2, GLOO, lost_peer());
        }
        let case = world.settle();
        check(&case, "killed-by-signal", &rank_of(1));
        let text: Vec<&str> = case.reasoning.iter().map(|entry| entry.text.as_str()).collect();
        let text = text.join("\n");
        assert!(
            text.contains("Its supervisor, process 812 of the agent, was ended by SIGKILL"),
            "{text}"
        );
        assert!(!text.contains("no evidence names the sender"), "{text}");
    }
}

#[test]
fn ranks_that_ended_with_their_supervisor_need_no_sender() {
    let mut world = World::new();
    for (ms, rank, pid) in [(1_000, 2, 1002), (1_004, 3, 1003)] {
        let lost = Classification {
            signature: SUPERVISOR_LOST.into(),
            fields: [("supervisor", "812"), ("signal", "9")].into(),
            ..mark("none", Role::Noise, 0.0)
        };
        let body = EvidenceBody::RankExited {
            pid,
            exit: ProcessExit::Signal(9),
            ended_by_agent: false,
        };
        world.at(ms, EvidenceSource::Ranks, rank_of(rank), body, vec![lost]);
    }
    let case = world.settle();
    let text: Vec<&str> = case.reasoning.iter().map(|entry| entry.text.as_str()).collect();
    let text = text.join("\n");
    assert!(text.contains("Its supervisor, process 812 of the agent"), "{text}");
    assert!(!text.contains("nothing shows which was first"), "{text}");
    assert_eq!(
        case.findings
            .iter()
            .filter(|finding| finding.role == Role::Confirmation)
            .count(),
        1,
        "{:#?}",
        case.findings
    );
}

/// Python raises the exception for the signal.
#[test]
fn a_keyboard_interrupt_belongs_to_the_sigint_that_ends_its_rank() {
    let mut world = World::new();
    world.says(1_000, 1, "KeyboardInterrupt", mark("job-cancelled", Role::Cascade, 0.6));
    let case = world.exits(1_220, 1, ProcessExit::Signal(2)).settle();
    check(&case, "killed-by-signal", &rank_of(1));
    let why = &case.findings[0].why;
    assert_eq!(
        why,
        "It shows the cause that explains the rest; another sign of the same cause is earlier."
    );
    let raised = case.findings.iter().find(|finding| finding.text == "KeyboardInterrupt");
    assert_eq!(
        raised.map(|finding| finding.role),
        Some(Role::Confirmation),
        "{:#?}",
        case.findings
    );
}

#[test]
fn the_case_of_an_exception_names_file_and_line() {
    let mut world = World::new();
    let mut raised = mark("key-error", Role::Root, 0.9);
    raised.fields = [("file", "b.py"), ("line", "5")].into();
    world
        .says(1_000, 1, "KeyError: 'lr'", raised)
        .exits(1_010, 1, ProcessExit::Code(1));
    let case = world.settle();
    let first = &case.reasoning[0].text;
    assert!(
        first.contains("says \"KeyError: 'lr'\" (b.py:5); it reads as key-error"),
        "{first}"
    );
}
