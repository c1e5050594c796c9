//! Restart position of a line reader while triage holds some lines back.
//!
//! Triage emits complete observations and holds those that may grow. The stored position is that of the oldest held
//! line. The observations already reported from later lines are stored beside it, so that the next agent, which reads
//! these lines again, does not report them twice (RG-4, RG-5).

use std::collections::VecDeque;
use std::fmt::Write as _;

use rankguard_faults::{LogObservation, Triage};

/// Most remembered lines, and most remembered observations. For those that exceed it only the line numbers are
/// recorded; no position among these lines is returned until triage has released all of them.
const LINES: usize = 1 << 16;
/// Most observations that are stored beside a position.
const TOLD: usize = 256;

/// Positions and reported observations of the lines that triage may hold. `P` is a position that a reader can resume
/// at.
#[derive(Debug)]
pub(crate) struct HeldLines<P> {
    /// Line numbers and positions at which a reader can resume, ascending.
    places: VecDeque<(u64, P)>,
    /// Observations already reported from lines that will be read again.
    told: Vec<ReportedObservation>,
    /// Observations that an earlier agent reported from the lines that are read again.
    known: Vec<ReportedObservation>,
    /// First and last line number of the newest lines that exceeded [`LINES`].
    placeless: Option<(u64, u64)>,
    /// Greatest line number of the observations that exceeded [`LINES`].
    untold: u64,
}

/// Reported observation, by its lines and a hash of its text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReportedObservation {
    first: u64,
    last: u64,
    key: u64,
    what: u64,
    repeats: u32,
}

/// Position to store for a restart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RestartPosition<P> {
    /// Behind the last line that was read.
    Behind,
    /// Position, and the observations already reported from the lines after it.
    At(P, String),
    /// Unknown because too many lines or observations are held.
    Unknown,
}

impl<P: Clone> HeldLines<P> {
    /// Parses the observations that an earlier agent stored beside its position.
    pub(crate) fn after(left: &str) -> Self {
        let known = left.split(';').filter_map(|entry| {
            let mut parts = entry.split(',');
            let key: u64 = parts.next()?.parse().ok()?;
            Some(ReportedObservation {
                first: 0,
                last: 0,
                // Stored offsets begin at 0, line numbers at 1.
                key: key.checked_add(1)?,
                what: u64::from_str_radix(parts.next()?, 16).ok()?,
                repeats: parts.next()?.parse().ok()?,
            })
        });
        Self {
            places: VecDeque::new(),
            told: Vec::new(),
            known: known.take(TOLD).collect(),
            placeless: None,
            untold: 0,
        }
    }

    /// Records the position of a line before it is passed to triage.
    pub(crate) fn note(&mut self, triage: &Triage, line_no: u64, place: P) {
        if !triage.has_pending() {
            self.settle();
        }
        if self.places.len() < LINES {
            self.places.push_back((line_no, place));
            return;
        }
        match &mut self.placeless {
            // The lines before found room again in the meantime, so that this is a new range.
            Some((_, last)) if self.places.back().is_none_or(|(placed, _)| *placed < *last) => *last = line_no,
            placeless => *placeless = Some((line_no, line_no)),
        }
    }

    /// Forgets everything: no line will be read again.
    fn settle(&mut self) {
        self.places.clear();
        self.places.shrink_to(TOLD);
        self.told.clear();
        self.placeless = None;
        self.untold = 0;
    }

    /// Records an observation. Returns the part that was not reported before, or none.
    pub(crate) fn unreported_part(&mut self, mut observation: LogObservation) -> Option<LogObservation> {
        let what = fingerprint(&observation.text);
        let lines = observation.line_no..=observation.last_line_no;
        let mut before = 0_u32;
        self.known.retain(|known| {
            let same = known.what == what && lines.contains(&known.key);
            before = before.saturating_add(if same { known.repeats } else { 0 });
            !same
        });
        if self.told.len() >= LINES {
            self.untold = self.untold.max(observation.last_line_no);
        } else {
            self.told.push(ReportedObservation {
                first: observation.line_no,
                last: observation.last_line_no,
                key: observation.key_line_no,
                what,
                repeats: observation.repeats,
            });
        }
        if before >= observation.repeats {
            return None;
        }
        observation.repeats -= before;
        Some(observation)
    }

    /// Returns the restart position. Requires that all observations which triage emitted were passed to [`HeldLines::unreported_part`].
    pub(crate) fn restart_position(&mut self, triage: &Triage) -> RestartPosition<P> {
        let Some(held) = triage.oldest_pending_line() else {
            self.settle();
            return RestartPosition::Behind;
        };
        // An observation of several lines must be read again as a whole.
        let mut from = held;
        loop {
            let torn = self.told.iter().filter(|told| told.first < from && told.last >= from);
            match torn.map(|told| told.first).min() {
                Some(earlier) => from = earlier,
                None => break,
            }
        }
        while self.places.get(1).is_some_and(|(line_no, _)| *line_no <= from) {
            self.places.pop_front();
        }
        self.told.retain(|told| told.last >= from);
        let between = |first: u64| {
            self.placeless
                .is_some_and(|(missing, last)| missing <= from && first <= last)
        };
        let known = self.untold < from && self.told.len() <= TOLD;
        let place = self
            .places
            .front()
            .filter(|(first, _)| *first <= from && !between(*first));
        let Some((first, place)) = place.filter(|_| known) else {
            return RestartPosition::Unknown;
        };
        let mut beside = String::new();
        for told in &self.told {
            let _ = write!(
                beside,
                ";{},{:x},{}",
                told.key.saturating_sub(*first),
                told.what,
                told.repeats
            );
        }
        RestartPosition::At(place.clone(), beside)
    }
}

/// Returns the FNV-1a hash, 64 bits. It is stored, so that it must be the same in every version of the agent.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use rankguard_faults::{SignatureMatcher, StreamContext};
    use rankguard_model::{EvidenceSource, Timestamp};

    use super::*;

    fn xid(device: &str) -> String {
        format!("NVRM: Xid (PCI:0000:{device}:00): 79, pid=1, name=python, GPU has fallen off the bus.")
    }

    /// Reader of a list of lines that is stopped and restarted at the stored position.
    struct Reader {
        triage: Triage,
        held: HeldLines<usize>,
        base: usize,
        at: usize,
    }

    impl Reader {
        fn new(at: usize, left: &str) -> Self {
            Self {
                triage: Triage::new(
                    SignatureMatcher::builtin(),
                    StreamContext::new(EvidenceSource::KernelLog),
                ),
                held: HeldLines::after(left),
                base: at,
                at,
            }
        }

        fn report(&mut self, seen: Vec<LogObservation>, told: &mut Vec<(String, u32)>) {
            for observation in seen {
                let told_now = self.held.unreported_part(observation);
                told.extend(told_now.map(|it| (it.text, it.repeats)));
            }
        }

        fn read(&mut self, line: &str, now: Timestamp, told: &mut Vec<(String, u32)>) {
            self.held.note(&self.triage, (self.at - self.base) as u64 + 1, self.at);
            self.at += 1;
            let seen = self.triage.push(line, now);
            self.report(seen, told);
        }

        fn position(&mut self) -> (usize, String) {
            match self.held.restart_position(&self.triage) {
                RestartPosition::Behind => (self.at, String::new()),
                RestartPosition::At(place, left) => (place, left),
                RestartPosition::Unknown => panic!("there are few lines"),
            }
        }
    }

    /// RG-4, RG-5: every line is reported once, at whatever point the reader is stopped.
    #[test]
    fn whatever_is_held_at_the_end_is_told_once_by_whoever_comes_next() {
        let mut lines = Vec::new();
        for number in 0..12 {
            lines.push(xid(&format!("{number:02x}")));
            lines.push("eth0: link is up".to_owned());
            // A repeated line: one observation with a count, as long as triage holds the first.
            lines.push(xid(&format!("{:02x}", number / 2 * 2)));
        }
        for every in 1..lines.len() {
            let mut told = Vec::new();
            let mut reader = Reader::new(0, "");
            for turn in 0.. {
                // Ends of groups fall between the lines in many ways.
                let now = Timestamp::from_millis(turn * 90);
                if reader.at < lines.len() {
                    let line = lines[reader.at].clone();
                    reader.read(&line, now, &mut told);
                } else if reader.triage.deadline().is_none() {
                    break;
                }
                let seen = reader.triage.poll(now);
                reader.report(seen, &mut told);
                let (at, left) = reader.position();
                let every = i64::try_from(every).expect("few");
                // The reader is restarted a few times; the last one runs to the end.
                if turn % every == every - 1 && turn < 60 {
                    reader = Reader::new(at, &left);
                }
                assert!(turn < 10_000, "it gets on");
            }
            let count = |device: &str| -> u32 {
                let of = told.iter().filter(|(text, _)| text.contains(device));
                of.map(|(_, repeats)| repeats).sum()
            };
            for number in 0..12 {
                let device = format!("0000:{number:02x}:00");
                let wanted = lines.iter().filter(|line| line.contains(&device)).count();
                assert_eq!(
                    count(&device) as usize,
                    wanted,
                    "{device}, a death every {every} turns: {told:?}"
                );
            }
        }
    }

    /// RG-4: a reader that starts late on a busy log exceeds its limits first and recovers.
    #[test]
    fn a_stream_that_never_rests_has_a_position_again_soon_after_a_flood() {
        let mut reader = Reader::new(0, "");
        let mut told = Vec::new();
        let device = |number: usize| format!("{:02x}{:02x}", number >> 8, number & 0xff);
        let mut unknown = 0;
        for number in 0..3_000 {
            // A thousand lines at once, then one every 50 ms.
            let since = i64::try_from(number).expect("few") - 1_000;
            let now = Timestamp::from_millis(since.max(0) * 50);
            reader.read(&xid(&device(number)), now, &mut told);
            if number < 1_000 {
                continue;
            }
            let seen = reader.triage.poll(now);
            reader.report(seen, &mut told);
            let known = reader.held.restart_position(&reader.triage) != RestartPosition::Unknown;
            unknown = if known { unknown } else { number };
        }
        assert!(reader.triage.has_pending(), "it never rests");
        assert!(unknown < 1_100, "there is no position until line {unknown}");
        let (at, left) = reader.position();
        let mut next = Reader::new(at, &left);
        for number in at..3_000 {
            next.read(&xid(&device(number)), Timestamp::from_millis(0), &mut told);
        }
        let rest = next.triage.flush();
        next.report(rest, &mut told);
        assert_eq!(told.len(), 3_000);
        assert!(told.iter().all(|(_, repeats)| *repeats == 1));
    }

    #[test]
    fn lines_without_a_place_have_no_position_among_them_and_later_ones_do() {
        let mut reader = Reader::new(0, "");
        let mut told = Vec::new();
        // All lines are held: they have the same time and few kinds.
        let lines = LINES + 10;
        for number in 0..lines {
            reader.read(
                &xid(&format!("{:02x}", number % 7)),
                Timestamp::from_millis(0),
                &mut told,
            );
        }
        assert_eq!(reader.held.placeless, Some((LINES as u64 + 1, lines as u64)));
        let line = xid("ff");
        reader.read(&line, Timestamp::from_millis(1_950), &mut told);
        let seen = reader.triage.poll(Timestamp::from_millis(2_100));
        reader.report(seen, &mut told);
        // The observation that is still held also came when there was no room.
        assert!(reader.triage.has_pending());
        assert_eq!(reader.held.restart_position(&reader.triage), RestartPosition::Unknown);
        reader.read(&xid("fe"), Timestamp::from_millis(2_120), &mut told);
        let seen = reader.triage.poll(Timestamp::from_millis(2_200));
        reader.report(seen, &mut told);
        assert_eq!(
            reader.held.restart_position(&reader.triage),
            RestartPosition::At(lines + 1, String::new())
        );
    }

    #[test]
    fn what_stands_beside_a_position_is_foreign() {
        for left in [
            "",
            ";",
            ";x,y,z",
            ";1,2",
            ";18446744073709551615,ff,1",
            "1,zz,1;;;3,ff,4294967296",
        ] {
            assert_eq!(HeldLines::<u64>::after(left).known, [], "{left}");
        }
        assert_eq!(HeldLines::<u64>::after(";4,ff,2").known.len(), 1);
    }
}
