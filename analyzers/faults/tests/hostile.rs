//! Foreign text: for any content the reader returns a value and does not panic (RG-11).

use proptest::prelude::*;
use rankguard_faults::line::{LineClock, clean, parse};
use rankguard_faults::{Catalogue, SignatureMatcher, StreamContext, Triage, explain};
use rankguard_model::{EvidenceSource, Timestamp};

/// Fragments that parsers react to, so that random text gets past the first byte.
const PIECES: [&str; 24] = [
    "6,1,2,-;",
    "[  1.000001]",
    "<6>",
    "kern :warn : ",
    "2025-01-21T04:41:44,283302+00:00 ",
    "Feb 30 99:99:99 h kernel: ",
    "[rank3]: ",
    "[default1]:",
    "3: ",
    "(A pid=1, ip=",
    "NVRM: Xid (PCI:0000:1b:00): ",
    "79, ",
    "SXid (",
    "Killed process 1 (x)",
    "x invoked oom-killer",
    "Traceback (most recent call last):",
    "  File \"a\", line 1, in f",
    "KeyError: 'x'",
    "\r",
    "\u{1b}[31m",
    "\u{1b}]0;",
    "During handling of the above exception",
    "CUDA out of memory",
    "9999-99-99 99:99:99.999999999999",
];

fn line() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => proptest::sample::select(&PIECES[..]).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_a_reader_panic(lines in proptest::collection::vec(line(), 0..12), kernel in any::<bool>()) {
        let source = if kernel { EvidenceSource::KernelLog } else { EvidenceSource::JobLog };
        let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(source));
        let mut now = Timestamp(0);
        let mut seen = Vec::new();
        for line in &lines {
            now = Timestamp(now.0 + 90_000_000);
            seen.extend(triage.push(line, now));
            seen.extend(triage.poll(now));
        }
        seen.extend(triage.flush());
        for observation in &seen {
            prop_assert!(!observation.marks.is_empty());
            prop_assert!(observation.repeats >= 1);
            prop_assert!(observation.line_no >= 1 && observation.line_no <= observation.last_line_no);
            prop_assert!(observation.last_line_no <= lines.len() as u64);
            for mark in &observation.marks {
                prop_assert!(Catalogue::builtin().class(&mark.class).is_some(), "{}", mark.class);
            }
        }
        prop_assert!(triage.flush().is_empty());
    }

    #[test]
    fn what_is_left_of_a_line_is_a_part_of_it(line in line()) {
        let cleaned = clean(&line);
        let parsed = parse(&cleaned, &LineClock::default());
        prop_assert!(cleaned.ends_with(parsed.text));
    }

    #[test]
    fn explain_takes_anything(query in line()) {
        explain(Catalogue::builtin(), &SignatureMatcher::builtin(), &query);
    }
}
