//! Excerpt: lines of several streams within a bound of bytes.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;

use crate::redact::Redactor;

/// First lines of a stream that a sample keeps.
const HEAD: usize = 6;
/// Alarming lines of different form that a sample keeps.
const ALARMS: usize = 24;
/// Last lines of a stream that a sample keeps.
const TAIL: usize = 40;
/// Characters of a line that an excerpt shows.
const LINE_CHARS: usize = 400;
/// Characters of the form of a line.
const FORM_CHARS: usize = 120;
/// Bytes of a line that are kept until its end.
const LINE_BYTES: usize = 16 << 10;
/// Least bytes of a stream in an excerpt; streams that would have less are left out.
const STREAM_BYTES: usize = 600;

/// Words of lines that report something unusual.
static ALARM: LazyLock<Regex> = LazyLock::new(|| {
    let words = concat!(
        r"(?i)\b(?:error|errors|fatal|critical|fail|failed|failure|failing|exception|traceback|abort|aborted|killed|signal",
        r"|sigkill|sigterm|sigsegv|segfault|segmentation|panic|xid|sxid|out of memory|oom|timeout|timed out|refused|reset",
        r"|unreachable|denied|no space|lost|dead|down|corrupt|corrupted|nan|inf|preempted|evicted|exited|exitcode|cancelled",
        r"|terminated|unavailable|not responding|fallen)\b|[a-z]error\b|exit code|exit status",
    );
    Regex::new(words).expect("a constant pattern")
});

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SampledLine {
    /// Number in the stream, from 1.
    number: u64,
    text: String,
}

/// First, alarming and last lines of a stream.
#[derive(Debug, Clone, Default)]
pub struct StreamSample {
    title: String,
    head: Vec<SampledLine>,
    alarms: Vec<SampledLine>,
    tail: VecDeque<SampledLine>,
    /// Forms of the alarming lines: digits are equal.
    forms: BTreeSet<String>,
    /// Beginning of the line of which the end was not read yet.
    partial: Vec<u8>,
    lines: u64,
}

impl StreamSample {
    /// Makes an empty sample of a stream with this title.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            ..Self::default()
        }
    }

    /// Adds the next line of the stream.
    pub fn push(&mut self, line: &str) {
        self.lines += 1;
        if line.trim().is_empty() {
            return;
        }
        let sampled = || SampledLine {
            number: self.lines,
            text: line.chars().take(LINE_CHARS).collect(),
        };
        if self.head.len() < HEAD {
            self.head.push(sampled());
        }
        if self.alarms.len() < ALARMS && ALARM.is_match(line) && self.forms.insert(form(line)) {
            self.alarms.push(sampled());
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(sampled());
    }

    /// Adds the next bytes of the stream; [`Self::finish`] adds a last line without an end.
    pub fn push_block(&mut self, block: &[u8]) {
        let mut parts = block.split(|byte| *byte == b'\n');
        let last = parts.next_back().unwrap_or_default();
        for part in parts {
            self.extend_partial(part);
            self.finish_line();
        }
        self.extend_partial(last);
    }

    /// Adds the last line if it has no end.
    pub fn finish(&mut self) {
        if !self.partial.is_empty() {
            self.finish_line();
        }
    }

    fn extend_partial(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES.saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn finish_line(&mut self) {
        let bytes = std::mem::take(&mut self.partial);
        let line = String::from_utf8_lossy(&bytes);
        // A bar of progress is drawn again and again on one line.
        let line = line.trim_end_matches('\r');
        self.push(line.rsplit('\r').next().unwrap_or(line));
    }

    /// Returns the texts of the kept lines.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let lines = self.head.iter().chain(&self.alarms).chain(&self.tail);
        lines.map(|line| line.text.as_str())
    }

    /// Returns lines within a bound of bytes, in the order of the stream. Early alarms come before last lines, and these
    /// before later alarms and first lines, if not all have room.
    fn within(&self, bytes: usize) -> BTreeSet<&SampledLine> {
        let early = self.alarms.len().min(8);
        let by_weight = self.alarms[..early]
            .iter()
            .chain(self.tail.iter().rev())
            .chain(&self.alarms[early..])
            .chain(&self.head);
        let mut left = bytes;
        let mut chosen = BTreeSet::new();
        for line in by_weight {
            let size = line.text.len() + 12;
            if !chosen.contains(line) && size <= left {
                left -= size;
                chosen.insert(line);
            }
        }
        chosen
    }
}

/// Returns the beginning of a line with equal digits.
fn form(line: &str) -> String {
    let digit = |c: char| if c.is_ascii_digit() { '0' } else { c };
    line.trim().chars().take(FORM_CHARS).map(digit).collect()
}

/// Redacted lines of several streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    pub(crate) text: String,
    /// Number of streams that it shows.
    pub streams: usize,
    /// Number of streams without room in it.
    pub left_out: usize,
}

impl Excerpt {
    /// Makes an excerpt of at most about `bytes` bytes. Streams share the bytes equally; if there are too many, those with
    /// the fewest alarming lines are left out.
    pub fn of(samples: &[StreamSample], redactor: &mut Redactor, bytes: usize) -> Self {
        let most = (bytes / STREAM_BYTES).max(1);
        let mut by_alarms: Vec<usize> = (0..samples.len()).filter(|at| samples[*at].lines > 0).collect();
        let with_lines = by_alarms.len();
        by_alarms.sort_by_key(|at| std::cmp::Reverse(samples[*at].alarms.len()));
        by_alarms.truncate(most);
        by_alarms.sort_unstable();
        let share = bytes / by_alarms.len().max(1);
        let mut text = String::new();
        for at in &by_alarms {
            let sample = &samples[*at];
            let title = redactor.line(&sample.title);
            let _ = writeln!(text, "=== {title}, {} lines", sample.lines);
            let mut last = 0;
            for line in sample.within(share.saturating_sub(title.len() + 24)) {
                if line.number > last + 1 {
                    text.push_str("...\n");
                }
                last = line.number;
                let _ = writeln!(text, "{}: {}", line.number, redactor.line(&line.text));
            }
            if last < sample.lines {
                text.push_str("...\n");
            }
        }
        Self {
            text,
            streams: by_alarms.len(),
            left_out: with_lines - by_alarms.len(),
        }
    }

    /// Returns true if there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.streams == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(title: &str, lines: impl IntoIterator<Item = String>) -> StreamSample {
        let mut sample = StreamSample::new(title);
        lines.into_iter().for_each(|line| sample.push(&line));
        sample
    }

    #[test]
    fn an_alarm_in_the_middle_of_a_long_log_is_kept_once() {
        let lines = (1..=10_000).map(|at| match at {
            4_000..=6_000 => format!("ERROR: shard {at} is unreadable"),
            _ => format!("step {at}"),
        });
        let text = Excerpt::of(&[sample("log", lines)], &mut Redactor::default(), 32 << 10).text;
        assert!(text.starts_with("=== log, 10000 lines\n1: step 1\n"), "{text}");
        assert!(
            text.contains("...\n4000: ERROR: shard 4000 is unreadable\n...\n9961: step 9961\n"),
            "{text}"
        );
        assert!(
            !text.contains("4001:") && text.ends_with("10000: step 10000\n"),
            "{text}"
        );
    }

    #[test]
    fn blocks_may_end_within_a_line() {
        let mut sample = StreamSample::new("log");
        for block in ["step 1\nst", "ep 2\n10%\r50%\r100%\r\n", "", "end"] {
            sample.push_block(block.as_bytes());
        }
        sample.finish();
        let excerpt = Excerpt::of(&[sample], &mut Redactor::default(), 1_000);
        assert_eq!(
            excerpt.text,
            "=== log, 4 lines\n1: step 1\n2: step 2\n3: 100%\n4: end\n"
        );
    }

    #[test]
    fn streams_share_the_bytes_and_quiet_ones_give_way() {
        let quiet = |at: usize| sample(&format!("quiet-{at}"), (0..50).map(|line| format!("step {line}")));
        let mut samples: Vec<_> = (0..99).map(quiet).collect();
        samples.insert(
            50,
            sample("loud", (0..50).map(|line| format!("failed {line} {}", "x".repeat(300)))),
        );
        let excerpt = Excerpt::of(&samples, &mut Redactor::default(), 6_000);
        assert_eq!((excerpt.streams, excerpt.left_out), (10, 90));
        assert!(excerpt.text.contains("=== loud, 50 lines"), "{}", excerpt.text);
        assert!(excerpt.text.len() <= 6_600, "{}", excerpt.text.len());
    }

    #[test]
    fn lines_and_titles_are_redacted() {
        let mut redactor = Redactor::new(["gpu-07".to_owned()], []);
        let samples = [sample("gpu-07/rank-3.log", ["token=abc on gpu-07".to_owned()])];
        let excerpt = Excerpt::of(&samples, &mut redactor, 1_000);
        assert_eq!(
            excerpt.text,
            "=== NODE_1/rank-3.log, 1 lines\n1: token=[secret] on NODE_1\n"
        );
    }

    #[test]
    fn nothing_makes_an_empty_excerpt() {
        assert!(Excerpt::of(&[StreamSample::new("empty")], &mut Redactor::default(), 1_000).is_empty());
    }
}
