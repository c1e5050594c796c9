#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn scanner(patterns: &[&str]) -> SequenceScanner {
    let mut builder = ScannerBuilder::new();
    for (owner, pattern) in (0..).zip(patterns) {
        let need = builder.need(Some(pattern), &[""; 0]);
        builder.add(owner, need.unwrap());
    }
    builder.build()
}

fn owners(scanner: &SequenceScanner, text: &str) -> Vec<u16> {
    let mut all = Vec::new();
    scanner.owners(text.as_bytes(), &mut |owner| all.push(owner));
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn what_a_pattern_needs_is_found_at_every_place_of_a_word() {
    let scanner = scanner(&[r"\bnan\b", r"(?i)CUDA error: (?:an illegal|misaligned)", r"Xid \(PCI"]);
    for shift in 0..9 {
        let before = "=".repeat(shift);
        for after in ["", " ", ", next", "=="] {
            assert_eq!(owners(&scanner, &format!("{before}nan{after}")), [0]);
            assert_eq!(owners(&scanner, &format!("{before}NVRM: Xid (PCI:0{after}")), [2]);
        }
        assert_eq!(
            owners(&scanner, &format!("{before}cuda ERROR: misaligned address")),
            [1]
        );
    }
}

#[test]
fn a_word_inside_a_longer_one_is_not_wanted() {
    let scanner = scanner(&[r"\bnan\b"]);
    for text in ["banana", "nano", "xnan", "nan_count"] {
        assert!(!scanner.wants(text.as_bytes()), "{text}");
    }
}

#[test]
fn lines_that_hold_something_are_found_in_their_order() {
    let scanner = scanner(&["needle", r"\bpin\b"]);
    let text = b"nothing here\npin\nhay needle hay\npin";
    let mut found = Vec::new();
    scanner.each(text, 0, text.len(), &mut |_, at| {
        let start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |at| at + 1);
        let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |more| at + more);
        found.push(std::str::from_utf8(&text[start..end]).unwrap());
        true
    });
    assert_eq!(found, ["pin", "hay needle hay", "pin"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks that the scanner finds a text that a pattern matches, at any offset.
    #[test]
    fn no_match_is_missed(
        which in 0_usize..PATTERNS.len(),
        before in "[a-z (]{0,9}",
        after in "[a-z )]{0,9}",
        seed in any::<u64>(),
    ) {
        let regex = regex::Regex::new(PATTERNS[which]).unwrap();
        let text = format!("{before} {} {after}", EXAMPLES[which][usize::try_from(seed % EXAMPLES[which].len() as u64).unwrap()]);
        prop_assert!(regex.is_match(&text), "{text}");
        static ALL: std::sync::LazyLock<SequenceScanner> = std::sync::LazyLock::new(|| scanner(&PATTERNS));
        prop_assert!(owners(&ALL, &text).contains(&u16::try_from(which).unwrap()), "{text}");
    }
}

const PATTERNS: [&str; 5] = [
    r"(?i)(?:job|step)\b.*\bTIMEOUT\b|walltime",
    r"no (?:IB|RDMA|active IB) devices? (?:were )?(?:found|detected)",
    r"exit ?codes?\s*[:=]?\s*-9\b",
    r"\bloss\b\W+(?:is )?(?:nan|inf)\b",
    r"(?i)\brank:? ?\d+ (?:died|lost)",
];
const EXAMPLES: [&[&str]; 5] = [
    &["Step 3 timeout", "JOB 4 hit TimeOut.", "walltime"],
    &["no IB device found", "no active IB devices were detected"],
    &["exit code: -9", "exitcodes=-9", "exit code   -9"],
    &["loss is nan", "loss = inf", "loss: nan"],
    &["RANK: 12 died", "rank7 lost"],
];
