//! Kernel log of journald: records that a child process (`journalctl -o json`) prints, one a line.
//!
//! Used if the ring cannot be opened. The journal's cursor of the last record survives restarts of the agent. A printer
//! that ends is a gap and is started again, after growing pauses.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rankguard_faults::{LogObservation, Triage};
use rankguard_model::{EvidenceSource, Timestamp};
use rustix::process::Signal;
use serde_json::Value;

use super::observe::{LineOrigin, LineReporter, ReadTimes};
use super::stream::triage;
use super::uptime::boot_moment;
use super::wait::{pause, wait_readable};
use crate::clock;
use crate::pending_evidence::{PendingEvidence, ReaderCursor};
use crate::stop_flag::StopFlag;

/// Key of the stored position.
const KEY: &str = "kernel-journal";
/// Longest record, bytes; longer ones are not from the kernel.
const RECORD: usize = 256 << 10;
/// Most records of one poll.
const LOOK: usize = 4_096;
/// First and longest pause before a printer that ended is started again.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// Record of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JournalRecord {
    cursor: String,
    /// Time at which journald received it.
    pub(super) at: Option<Timestamp>,
    /// Lines in the format of the kernel's ring: `priority,sequence,microseconds,-;text`.
    pub(super) lines: Vec<String>,
}

/// Parses a record; none if the line is not one. The journal prints text that is not UTF-8 as an array of bytes.
pub(super) fn record(line: &str) -> Option<JournalRecord> {
    let fields: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let message = match fields.get("MESSAGE")? {
        Value::String(message) => message.clone(),
        Value::Array(bytes) => {
            let bytes: Option<Vec<u8>> = bytes
                .iter()
                .map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()))
                .collect();
            String::from_utf8_lossy(&bytes?).into_owned()
        }
        _ => return None,
    };
    let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
    let priority = number("PRIORITY").unwrap_or(6);
    // The kernel's own stamp, if the journal has it.
    let micros = number("_SOURCE_MONOTONIC_TIMESTAMP").or_else(|| number("__MONOTONIC_TIMESTAMP"));
    let told = |line: &str| match micros {
        Some(micros) => format!("{priority},0,{micros},-;{line}"),
        None => line.to_owned(),
    };
    Some(JournalRecord {
        cursor: text("__CURSOR")?.to_owned(),
        at: number("__REALTIME_TIMESTAMP")
            .and_then(|micros| i64::try_from(micros).ok()?.checked_mul(1_000))
            .map(Timestamp),
        lines: message.lines().map(told).collect(),
    })
}

/// Child process that prints records.
pub(super) struct JournalProcess {
    child: Child,
    out: ChildStdout,
    buffer: Vec<u8>,
    /// True while the rest of an over-long line is skipped.
    skip: bool,
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JournalRead {
    /// No more data for now.
    Waits,
    /// More data may be available at once.
    More,
    /// The child closed its output.
    Ended,
}

impl JournalProcess {
    /// Starts `words` with `arguments`. The kernel kills the child when the thread that started it ends.
    pub(super) fn start(words: &[OsString], arguments: &[String]) -> io::Result<Self> {
        let (program, first) = words
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program prints the journal"))?;
        let mut command = Command::new(program);
        command
            .args(first)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        let die = || rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from);
        // SAFETY: between fork and exec only prctl is called, which is async-signal-safe.
        unsafe {
            command.pre_exec(die);
        }
        let mut child = command.spawn()?;
        let Some(out) = child.stdout.take() else {
            return Err(io::Error::other("it has no output"));
        };
        rustix::io::ioctl_fionbio(&out, true)?;
        Ok(Self {
            child,
            out,
            buffer: Vec::new(),
            skip: false,
        })
    }

    /// Returns the child's standard output.
    pub(super) fn out(&self) -> &ChildStdout {
        &self.out
    }

    /// Passes the complete lines that are available to `take`.
    pub(super) fn read(&mut self, mut take: impl FnMut(&str)) -> io::Result<JournalRead> {
        let mut bytes = [0; 64 << 10];
        let mut lines = 0;
        while lines < LOOK {
            let count = match self.out.read(&mut bytes) {
                Ok(0) => return Ok(JournalRead::Ended),
                Ok(count) => count,
                Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => return Ok(JournalRead::Waits),
                Err(problem) if problem.kind() == io::ErrorKind::Interrupted => continue,
                Err(problem) => return Err(problem),
            };
            self.buffer.extend_from_slice(&bytes[..count]);
            let mut from = 0;
            while let Some(length) = memchr_newline(&self.buffer[from..]) {
                if !std::mem::take(&mut self.skip) {
                    take(&String::from_utf8_lossy(&self.buffer[from..from + length]));
                }
                lines += 1;
                from += length + 1;
            }
            self.buffer.drain(..from);
            if self.buffer.len() > RECORD {
                self.buffer.clear();
                self.skip = true;
            }
        }
        Ok(JournalRead::More)
    }
}

fn memchr_newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

impl Drop for JournalProcess {
    fn drop(&mut self) {
        // The kill fails if the child has ended, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reader of the kernel's lines of this boot.
pub(super) struct JournalReader<'a> {
    words: &'a [OsString],
    reporter: &'a LineReporter,
    triage: Triage,
    times: ReadTimes,
    /// Cursor of the newest record that was read.
    newest: Option<String>,
    stored: Option<ReaderCursor>,
    live: bool,
}

impl<'a> JournalReader<'a> {
    /// Creates a reader that resumes at the stored position.
    pub(super) fn new(words: &'a [OsString], reporter: &'a LineReporter) -> Self {
        Self {
            words,
            reporter,
            triage: triage(reporter, None, Some(boot_moment())),
            times: ReadTimes::default(),
            newest: reporter.stored(KEY),
            stored: None,
            live: false,
        }
    }

    /// Runs the printer and restarts it until `stop` is set.
    pub(super) fn follow(mut self, interval: Duration, stop: &StopFlag) {
        let mut again = AGAIN;
        loop {
            let why = match JournalProcess::start(self.words, &self.arguments()) {
                Ok(mut printer) => match self.listen(&mut printer, interval, stop) {
                    Ok(()) => break,
                    Err(problem) => problem,
                },
                Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
                    let what = format!("the kernel log is not read: the journal cannot be printed: {problem}");
                    self.reporter.intake.gap(EvidenceSource::KernelLog, what, None);
                    break;
                }
                Err(problem) => problem,
            };
            if again == AGAIN {
                let what = format!("the reader of the kernel's journal ended and is started again: {why}");
                self.reporter.intake.gap(EvidenceSource::KernelLog, what, None);
            }
            if stop.wait(again) {
                break;
            }
            again = (again * 2).min(AGAIN_MOST);
        }
        let rest = self.triage.flush();
        self.hand_over(rest, clock::now());
    }

    fn arguments(&self) -> Vec<String> {
        let mut words: Vec<String> = ["-k", "-o", "json", "--no-pager", "--follow"].map(str::to_owned).into();
        match &self.newest {
            Some(cursor) => words.push(format!("--after-cursor={cursor}")),
            // All of this boot; without the option only the last ten lines are printed.
            None => words.push("--lines=all".to_owned()),
        }
        words
    }

    /// Reads records until `stop` is set. Returns an error if the printer ended.
    fn listen(&mut self, printer: &mut JournalProcess, interval: Duration, stop: &StopFlag) -> io::Result<()> {
        while !stop.stopped() {
            self.triage.reload(self.reporter.knowledge.matcher());
            // As for files: lines are dated by the wall clock, and triage waits by the monotonic clock.
            let now = clock::now();
            let steady = clock::steady();
            let mut observations = Vec::new();
            let printed = printer.read(|line| {
                let Some(record) = record(line) else { return };
                for line in &record.lines {
                    self.times.note(now, self.live);
                    observations.extend(self.triage.push(line, steady));
                }
                self.newest = Some(record.cursor);
            })?;
            observations.extend(self.triage.poll(steady));
            self.hand_over(observations, now);
            match printed {
                JournalRead::Ended => return Err(io::Error::other("it closed its output")),
                JournalRead::More => {}
                JournalRead::Waits => {
                    self.live = true;
                    stop.record_poll(interval);
                    wait_readable(&printer.out, pause(interval, self.triage.deadline(), clock::steady()));
                }
            }
        }
        Ok(())
    }

    fn hand_over(&mut self, observations: Vec<LogObservation>, now: Timestamp) {
        let sightings: Vec<PendingEvidence> = observations
            .into_iter()
            .map(|observation| {
                let (read, live) = self.times.of(observation.line_no).unwrap_or((now, self.live));
                self.reporter.sighting(&LineOrigin::Kernel, observation, read, live)
            })
            .collect();
        // While triage holds a line, the position does not move, so that a restart reads it again.
        let settled = self.newest.clone().filter(|_| self.triage.deadline().is_none());
        let cursor = settled.map(|value| ReaderCursor {
            key: KEY.to_owned(),
            value,
        });
        self.reporter.push(sightings, cursor, &mut self.stored);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Instant;

    use super::*;
    use crate::collectors::testing::{commit, reporter, told};

    const XID: &str = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4711, name=python, GPU has fallen off the bus.";

    fn line(cursor: &str, message: &str) -> String {
        format!(
            r#"{{"__CURSOR":"{cursor}","_SOURCE_MONOTONIC_TIMESTAMP":"1000000","PRIORITY":"4","MESSAGE":"{message}"}}"#
        )
    }

    #[test]
    fn records_are_read_in_every_form_that_the_journal_has() {
        let read = |text: &str| record(text).map(|record| record.lines);
        assert_eq!(
            read(&line("c", "a\\nb")),
            Some(vec!["4,0,1000000,-;a".to_owned(), "4,0,1000000,-;b".to_owned()])
        );
        assert_eq!(
            read(r#"{"__CURSOR":"c","MESSAGE":[104,105,255]}"#),
            Some(vec!["hi\u{fffd}".to_owned()])
        );
        for other in [
            "",
            "-- No entries --",
            "{}",
            r#"{"__CURSOR":"c","MESSAGE":null}"#,
            r#"{"MESSAGE":"x"}"#,
            r#"{"__CURSOR":"c","MESSAGE":[1,"x",999]}"#,
        ] {
            assert_eq!(record(other), None, "{other}");
        }
    }

    /// Runs a script instead of `journalctl` until evidence is reported.
    fn follow(script: &str, reporter: &LineReporter) -> Vec<PendingEvidence> {
        let words = ["sh", "-c", script, "journal"].map(OsString::from);
        let stop = StopFlag::default();
        std::thread::scope(|scope| {
            let journal = JournalReader::new(&words, reporter);
            scope.spawn(|| journal.follow(Duration::from_millis(5), &stop));
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut all = Vec::new();
            while all.is_empty() && Instant::now() < deadline {
                all.extend(commit(reporter));
                std::thread::yield_now();
            }
            stop.stop();
            all
        })
    }

    #[test]
    fn lines_become_evidence_and_a_restart_goes_on_after_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let reporter = reporter(EvidenceSource::KernelLog, folder.path());
        let asked = folder.path().join("asked");
        let script = format!(
            "echo \"$@\" >> {}; echo '{}'; exec sleep 600",
            asked.display(),
            line("s=1;i=7", XID)
        );
        let told_first: Vec<String> = follow(&script, &reporter).iter().map(told).collect();
        assert!(
            told_first[0].starts_with("node a, gpu 0000:9b:00 | gpu-fallen-off-bus"),
            "{told_first:?}"
        );
        commit(&reporter);
        follow(&script, &reporter);
        let asked = std::fs::read_to_string(asked).unwrap();
        let asked: Vec<&str> = asked.lines().collect();
        assert_eq!(
            asked,
            [
                "-k -o json --no-pager --follow --lines=all",
                "-k -o json --no-pager --follow --after-cursor=s=1;i=7"
            ]
        );
    }

    #[test]
    fn a_reader_that_ends_is_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        let reporter = reporter(EvidenceSource::KernelLog, folder.path());
        let all: Vec<String> = follow("echo garbage; exit 1", &reporter).iter().map(told).collect();
        assert!(all[0].contains("ended and is started again"), "{all:?}");
    }

    #[test]
    fn a_line_without_end_is_no_record_and_what_follows_is() {
        let script = format!("head -c 2000000 /dev/zero; echo; echo '{}'", line("c", "x"));
        let words = ["sh", "-c", &script].map(OsString::from);
        let mut printer = JournalProcess::start(&words, &[]).unwrap();
        let mut seen = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        while printer.read(|line| seen.extend(record(line))).unwrap() != JournalRead::Ended && Instant::now() < deadline
        {
            std::thread::yield_now();
        }
        assert_eq!(seen.len(), 1);
        assert!(printer.buffer.capacity() < 4 * RECORD);
    }
}
