//! Kernel ring as read from `/dev/kmsg`: one record a read, EAGAIN at the end, EPIPE if records were overwritten before
//! they could be read.

use std::io::{self, Read};

use rankguard_faults::{LogObservation, Triage};
use rankguard_model::Timestamp;

use super::held_lines::{HeldLines, RestartPosition};
use super::kmsg::{self, SequenceCounter};
use super::observe::{LineOrigin, LineReporter, ReadTimes};
use super::stream::triage;
use crate::pending_evidence::{PendingEvidence, ReaderCursor};

/// Longest record of the ring, bytes (PRINTKRB_RECORD_MAX with its properties is well below).
const RECORD_BYTES_MAX: usize = 8192;

/// Most records of one poll, so that a storm of messages cannot delay the check of the stop flag.
const LOOK_RECORDS_MAX: usize = 4096;

/// Stored position of a reader of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RingPosition {
    boot: String,
    seq: Option<u64>,
    /// Observations already reported from later records.
    told: String,
}

impl RingPosition {
    /// Parses the stored position if it is one of this boot; else returns the beginning of the ring.
    pub(crate) fn of_this_boot(boot: &str, stored: Option<&str>) -> Self {
        let of_this = stored
            .and_then(|stored| stored.split_once(' '))
            .filter(|(of_boot, _)| *of_boot == boot);
        let (seq, told) = of_this.map_or(("", ""), |(_, rest)| rest.split_once(';').unwrap_or((rest, "")));
        Self {
            boot: boot.to_owned(),
            seq: seq.parse().ok(),
            told: told.to_owned(),
        }
    }
}

/// Reader of the ring.
pub(crate) struct RingReader<R> {
    records: R,
    position: RingPosition,
    stored: Option<ReaderCursor>,
    counter: SequenceCounter,
    triage: Triage,
    times: ReadTimes,
    /// Positions are sequence numbers of records.
    held: HeldLines<u64>,
    lines: u64,
    live: bool,
    buffer: Vec<u8>,
}

impl<R: Read> RingReader<R> {
    /// Key of the stored position.
    pub(crate) const KEY: &'static str = "kernel-ring";

    /// Creates a reader that continues after `position`; `boot` is the time of the kernel's boot.
    pub(crate) fn new(records: R, position: RingPosition, boot: Timestamp, reporter: &LineReporter) -> Self {
        Self {
            records,
            counter: SequenceCounter::after(position.seq),
            held: HeldLines::after(&position.told),
            lines: 0,
            position,
            stored: None,
            triage: triage(reporter, None, Some(boot)),
            times: ReadTimes::default(),
            live: false,
            buffer: vec![0; RECORD_BYTES_MAX],
        }
    }

    /// Returns the time at which triage emits a held observation even if no record comes.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.triage.deadline()
    }

    /// Reads the available records and reports completed observations. An error means that the ring is no longer
    /// readable.
    ///
    /// `now` is the wall clock, by which lines are dated; `steady` is the monotonic clock, by which triage waits.
    pub(crate) fn look(&mut self, now: Timestamp, steady: Timestamp, reporter: &LineReporter) -> io::Result<()> {
        self.take(now, steady, reporter, |triage| triage.poll(steady))
    }

    /// Reads the available records, at most [`LOOK_RECORDS_MAX`], and reports all observations so far, also those that wait
    /// for repeats.
    pub(crate) fn report_all(&mut self, now: Timestamp, steady: Timestamp, reporter: &LineReporter) -> io::Result<()> {
        self.take(now, steady, reporter, Triage::release)
    }

    /// Reads the available records, and reports them and what `release` takes of the held ones.
    fn take(
        &mut self,
        now: Timestamp,
        steady: Timestamp,
        reporter: &LineReporter,
        release: impl FnOnce(&mut Triage) -> Vec<LogObservation>,
    ) -> io::Result<()> {
        let mut sightings = Vec::new();
        self.triage.reload(reporter.knowledge.matcher());
        let read = self.read(now, steady, reporter, &mut sightings);
        let rest = release(&mut self.triage);
        self.report(rest, now, reporter, &mut sightings);
        let cursor = self.cursor();
        reporter.push(sightings, cursor, &mut self.stored);
        read
    }

    /// Reports everything that triage holds.
    pub(crate) fn finish(&mut self, now: Timestamp, reporter: &LineReporter) {
        let mut sightings = Vec::new();
        let rest = self.triage.flush();
        self.report(rest, now, reporter, &mut sightings);
        let cursor = self.cursor();
        reporter.push(sightings, cursor, &mut self.stored);
    }

    fn read(
        &mut self,
        now: Timestamp,
        steady: Timestamp,
        reporter: &LineReporter,
        sightings: &mut Vec<PendingEvidence>,
    ) -> io::Result<()> {
        for _ in 0..LOOK_RECORDS_MAX {
            match self.records.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(bytes) => {
                    let record = String::from_utf8_lossy(&self.buffer[..bytes]).into_owned();
                    self.record(&record, (now, steady), reporter, sightings);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        self.live = true;
                        return Ok(());
                    }
                    io::ErrorKind::Interrupted => {}
                    // The next read returns the oldest record that is left; its number gives the count of lost records,
                    // unless none was read before.
                    io::ErrorKind::BrokenPipe => {
                        if self.counter.last().is_none() {
                            let what = "kernel log records were overwritten before they could be read".to_owned();
                            sightings.push(reporter.gap(&LineOrigin::Kernel, what, None));
                        }
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        record: &str,
        (now, steady): (Timestamp, Timestamp),
        reporter: &LineReporter,
        sightings: &mut Vec<PendingEvidence>,
    ) {
        let Some(head) = kmsg::head(record) else {
            let what = "a kernel log record has no readable head".to_owned();
            sightings.push(reporter.gap(&LineOrigin::Kernel, what, Some(1)));
            return;
        };
        if self.position.seq.is_some_and(|upto| head.seq <= upto) {
            return;
        }
        let missing = self.counter.take(head.seq);
        if missing > 0 {
            let what = format!(
                "kernel log records before {} were overwritten before they could be read",
                head.seq
            );
            sightings.push(reporter.gap(&LineOrigin::Kernel, what, Some(missing)));
        }
        self.held.note(&self.triage, self.lines + 1, head.seq);
        for line in record.lines() {
            self.lines += 1;
            self.times.note(now, self.live);
            let observations = self.triage.push(line, steady);
            self.report(observations, now, reporter, sightings);
        }
    }

    fn report(
        &mut self,
        observations: Vec<LogObservation>,
        now: Timestamp,
        reporter: &LineReporter,
        sightings: &mut Vec<PendingEvidence>,
    ) {
        for observation in observations {
            let Some(observation) = self.held.unreported_part(observation) else {
                continue;
            };
            let (read, live) = self.times.of(observation.line_no).unwrap_or((now, self.live));
            sightings.push(reporter.sighting(&LineOrigin::Kernel, observation, read, live));
        }
    }

    fn cursor(&mut self) -> Option<ReaderCursor> {
        let (after, told) = match self.held.restart_position(&self.triage) {
            RestartPosition::Behind => (self.counter.last()?, String::new()),
            RestartPosition::At(record, told) => (record.checked_sub(1)?, told),
            RestartPosition::Unknown => return None,
        };
        Some(ReaderCursor {
            key: Self::KEY.to_owned(),
            value: format!("{} {after}{told}", self.position.boot),
        })
    }
}

#[cfg(test)]
mod tests;
