//! Times that notices announce for the end of a machine: a spot instance, a maintenance.
//!
//! AWS gives the time as in `Instance will be interrupted at 2026-11-27T09:02:00Z`, Azure's scheduled events as in
//! `NotBefore: 'Mon, 19 Sep 2016 18:29:47 GMT'`.

use std::time::Duration;

use rankguard_faults::line::{LineClock, parse};
use rankguard_faults::{LogObservation, classes};
use rankguard_model::Timestamp;

use crate::pod_ends::moment;

/// Longest time from a notice to the announced end.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Characters that enclose a time in a message.
const MARKS: [char; 8] = ['"', '\'', ',', ';', '(', ')', '[', ']'];

/// Returns the time that a notice of the end of a machine announces.
pub(crate) fn announced_end(observation: &LogObservation, at: Option<Timestamp>) -> Option<Timestamp> {
    let of_notice = |class: &str| [classes::MAINTENANCE, classes::PREEMPTED].contains(&class);
    let at = at.filter(|_| observation.marks.iter().any(|mark| of_notice(mark.class.as_str())))?;
    let text = observation.text.as_str();
    let words = text.split(|c: char| c.is_whitespace() || MARKS.contains(&c));
    let stated = words.filter(|word| is_date(word)).filter_map(|word| {
        // A clock alone is no message.
        parse(&format!("{word} end"), &LineClock::default()).at
    });
    let lower = text.to_ascii_lowercase();
    let in_words = ["not before", "notbefore"].iter().find_map(|words| {
        let rest = &text[lower.find(words)? + words.len()..];
        moment(rest.trim_start_matches(|c: char| !c.is_ascii_alphabetic()))
    });
    stated
        .chain(in_words)
        .filter(|end| *end > at && end.since(at) <= LONGEST)
        .max()
}

fn is_date(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() >= 19 && bytes[4] == b'-' && bytes[10] == b'T' && bytes[..4].iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use crate::reading::{StreamOrigin, StreamReader};

    fn check(line: &str, expect: Option<&str>) {
        let mut reader = StreamReader::new(StreamOrigin::default());
        reader.push_block(format!("{line}\n").as_bytes());
        let stream = reader.finish();
        let found = stream.seen.iter().find_map(|seen| seen.announced);
        assert_eq!(found.map(|at| at.to_string()).as_deref(), expect, "{line}");
    }

    #[test]
    fn notices_announce_a_time() {
        check(
            "2026/11/27 09:00:00 INF event={\"Kind\":\"SPOT_ITN\",\"Description\":\"Spot ITN received. Instance will be \
             interrupted at 2026-11-27T09:02:00Z \\n\"}",
            Some("2026-11-27T09:02:00.000Z"),
        );
        check(
            "2026-11-27T09:00:00Z spot instance interruption notice: Node 'a1' is preempted [Not before: 'Fri, 27 Nov 2026 \
             09:00:30 GMT']",
            Some("2026-11-27T09:00:30.000Z"),
        );
        check(
            "2026-11-27T09:00:00Z job 4 preempted, started at 2026-11-27T07:00:00Z",
            None,
        );
    }
}
