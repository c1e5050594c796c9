//! Readers of foreign text, host lists and names.

use rankguard_slurm::{NameMap, NameMapError, NodeAvailability, NodeLimit, NodeListing, host_list, reason};

/// Output of `scontrol --all --oneliner show node` of Slurm 22.05.8.
const REAL: &str = include_str!("scontrol_nodes.txt");

fn closed(reason: &str) -> NodeAvailability {
    NodeAvailability::Closed {
        reason: reason.to_owned(),
        user: Some("root".to_owned()),
    }
}

#[test]
fn states_and_reasons_of_a_real_slurm_are_read() {
    let listing = NodeListing::parse(REAL);
    assert_eq!(listing.problems, Vec::<String>::new());
    let mirror = NodeAvailability::Mirrored {
        reason: "rankguard: case 12: gpu-xid-79 on gpu-04:3 (auto-resume)".to_owned(),
        is_down: false,
    };
    let wanted = [
        // Extended by a person, who owns it from then on.
        ("gpu-01", closed("rankguard: case 9: x (auto-resume) hands off, ada")),
        ("gpu-02", NodeAvailability::Silent),
        // `scontrol` removes a quote at the end; a comment follows the reason.
        ("gpu-03", closed("fan broken; ticket \"4711")),
        ("gpu-04", mirror),
        ("gpu-05", closed("line one")),
        ("gpu-06", closed("PSU")),
        ("gpu-07", NodeAvailability::Open),
    ];
    let found = listing
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), node.availability.clone()));
    assert_eq!(found.collect::<Vec<_>>(), wanted);
}

/// Returns the use of a node with this state and the rest of its line.
fn availability(state: &str, rest: &str) -> NodeAvailability {
    let line = format!("NodeName=n1 OS=Linux 6.1 State={state} ThreadsPerCore=1 Partitions=main {rest}\n");
    let mut listing = NodeListing::parse(&line);
    assert_eq!(listing.problems, Vec::<String>::new());
    listing.nodes.remove(0).availability
}

#[test]
fn flags_and_marks_of_states_are_read() {
    let stamp = "[root@2026-11-30T12:40:36]";
    for open in [
        "IDLE",
        "MIXED",
        "ALLOCATED+NOT_RESPONDING",
        "IDLE*",
        "IDLE+MAINTENANCE",
        "IDLE+POWERED_DOWN",
        "UNKNOWN",
    ] {
        assert_eq!(availability(open, ""), NodeAvailability::Open, "{open}");
    }
    for out in [
        "IDLE+DRAIN",
        "ALLOCATED+DRAIN",
        "DOWN*+DRAIN",
        "DOWN+DRAIN+NOT_RESPONDING",
        "MIXED+FAIL",
        "DOWN",
    ] {
        let found = availability(out, &format!("Reason=fan {stamp}"));
        assert_eq!(found, closed("fan"), "{out}");
    }
    let silent = format!("Reason=Not responding {stamp}");
    assert_eq!(availability("DOWN+NOT_RESPONDING", &silent), NodeAvailability::Silent);
    assert_eq!(availability("DOWN*", &silent), NodeAvailability::Silent);
    assert_eq!(availability("FUTURE", ""), NodeAvailability::Silent);
    // A drain of a silent node is a decision of a person.
    assert_eq!(availability("DOWN*+DRAIN", &silent), closed("Not responding"));
    let none = NodeAvailability::Closed {
        reason: String::new(),
        user: None,
    };
    assert_eq!(availability("IDLE+DRAIN", ""), none);

    let mirror = format!("Reason=rankguard: case 1: x (auto-resume) {stamp}");
    assert!(matches!(
        availability("IDLE+DRAIN", &mirror),
        NodeAvailability::Mirrored { is_down: false, .. }
    ));
    assert!(matches!(
        availability("DOWN+DRAIN", &mirror),
        NodeAvailability::Mirrored { is_down: true, .. }
    ));
    // After its drain was lifted, a node that was down besides retains the text.
    assert_eq!(availability("DOWN", &mirror), NodeAvailability::Silent);
    assert!(matches!(
        availability("IDLE+FAIL", &mirror),
        NodeAvailability::Closed { .. }
    ));
}

#[test]
fn text_that_imitates_fields_is_a_problem_or_a_reason_of_a_person() {
    for line in [
        "NodeName=n1 OS=x State=IDLE State=IDLE+DRAIN ThreadsPerCore=1",
        "NodeName=n1 OS=x Reason=rankguard: x (auto-resume) [a@2026-11-30T12:40:36] State=IDLE+DRAIN Reason=y [b@2026-11-30T12:40:36]",
        "NodeName=n1 State=IDLE+DRAIN Reason=z State=IDLE [b@2026-11-30T12:40:36]",
        "NodeName=n[1-9] State=IDLE",
        "NodeName=ALL State=IDLE",
        "NodeName= State=IDLE",
        "NodeName=n1 CPUTot=1",
    ] {
        let listing = NodeListing::parse(line);
        assert!(
            listing.nodes.is_empty() && listing.problems.len() == 1,
            "{line}: {listing:?}"
        );
    }
    // Stamps inside a reason.
    let inside = "Reason=a [b@c] d [root@2026-11-30T12:41:26] e [root@2026-11-30T12:42:35]";
    assert_eq!(
        availability("IDLE+DRAIN", inside),
        closed("a [b@c] d [root@2026-11-30T12:41:26] e")
    );
    // Further lines stand behind the stamp: the mirror was extended.
    let extended = "Reason=rankguard: x (auto-resume) [root@2026-11-30T12:40:36]        and mine";
    assert_eq!(
        availability("IDLE+DRAIN", extended),
        closed("rankguard: x (auto-resume)")
    );
    // Without a stamp nothing proves where the reason ends.
    let unstamped = NodeAvailability::Closed {
        reason: "rankguard: x (auto-resume)".to_owned(),
        user: None,
    };
    assert_eq!(
        availability("IDLE+DRAIN", "Reason=rankguard: x (auto-resume)"),
        unstamped
    );
}

#[test]
fn foreign_text_becomes_one_short_plain_line_that_is_recognised() {
    let hostile = format!("a\n\u{1b}[31m\"b\"; c\u{202e}é{}", "x".repeat(400));
    let drain = reason::drain_reason(&[&hostile]);
    assert!(drain.starts_with("rankguard: a [31m'b', c ?xxx"), "{drain}");
    assert!(drain.len() <= 255 && drain.chars().all(|letter| letter.is_ascii_graphic() || letter == ' '));
    assert!(reason::is_mirrored_drain(&drain));
    let cordon = reason::cordon_reason(&hostile, Some("a\tb"));
    assert!(
        cordon.starts_with("slurm drain: a [31m'b', c ?xxx") && cordon.ends_with(" (set by a b)"),
        "{cordon}"
    );
    assert!(!cordon.contains(';') && reason::is_mirrored_cordon(&cordon));
    assert_eq!(reason::cordon_reason("", None), "slurm drain: no reason given");
    assert_eq!(
        reason::drain_reason(&["case 1: x", "ticket"]),
        "rankguard: case 1: x, ticket (auto-resume)"
    );
    for of_a_person in [
        "rankguard: x",
        "rankguard: x (auto-resume) y",
        "Rankguard: x (auto-resume)",
        "fan",
        "",
    ] {
        assert!(!reason::is_mirrored_drain(of_a_person), "{of_a_person}");
    }
}

#[test]
fn host_lists_are_short_and_exact() {
    for (names, wanted) in [
        (&["gpu-07", "gpu-03"][..], "gpu-[03,07]"),
        (&["gpu-08", "gpu-09", "gpu-10", "gpu-9", "gpu-10"], "gpu-9,gpu-[08-10]"),
        (&["gpu-99", "gpu-100", "login"], "gpu-100,gpu-99,login"),
        (
            &["a1b2", "a1b3", "7", "n00000000000000000001"],
            "7,a1b[2-3],n00000000000000000001",
        ),
        (&["gpu-01.example", "gpu-02.example"], "gpu-01.example,gpu-02.example"),
        (&[], ""),
    ] {
        assert_eq!(host_list(names.iter().copied()), wanted);
    }
}

#[test]
fn names_match_if_equal_or_short_against_full_or_given() {
    let map = NameMap::parse("# racks\nr1u7 gpu-07.example  # spare\n\n").expect("two names a line");
    let slurm = ["r1u7", "gpu-01", "gpu-02", "gpu-03", "login", "c.one", "gpu-04.a"];
    let rankguard = [
        "gpu-07.example",
        "gpu-01",
        "gpu-02.example",
        "gpu-03.a",
        "gpu-03.b",
        "c.two",
        "gpu-04",
    ];
    let pairs = map.pair(slurm, rankguard);
    let known: Vec<(&str, &str)> = pairs.known.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let wanted = [
        ("gpu-01", "gpu-01"),
        ("gpu-02", "gpu-02.example"),
        ("gpu-04.a", "gpu-04"),
        ("r1u7", "gpu-07.example"),
    ];
    assert_eq!(known, wanted);
    assert_eq!(pairs.only_scheduler, ["c.one", "gpu-03", "login"]);
    assert_eq!(pairs.only_rankguard, ["c.two", "gpu-03.a", "gpu-03.b"]);

    assert_eq!(NameMap::parse("a b c"), Err(NameMapError::Form { line: 1 }));
    for twice in ["a b\na c", "a c\nb c"] {
        assert!(
            matches!(NameMap::parse(twice), Err(NameMapError::Twice { line: 2, .. })),
            "{twice}"
        );
    }
}

#[test]
fn limits_are_numbers_or_shares() {
    let nodes = |text: &str, total| text.parse::<NodeLimit>().map(|limit| limit.nodes(total));
    assert_eq!(nodes("3", 1000), Ok(3));
    assert_eq!(nodes("10%", 1000), Ok(100));
    assert_eq!(nodes("10%", 6), Ok(1));
    assert_eq!((nodes("0", 9), nodes("0%", 9), nodes("100%", 9)), (Ok(0), Ok(0), Ok(9)));
    for wrong in ["", "%", "-1", "101%", "10 %", "ten"] {
        assert!(wrong.parse::<NodeLimit>().is_err(), "{wrong:?}");
    }
}
