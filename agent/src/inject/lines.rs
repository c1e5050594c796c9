//! Injected lines, with a triage of their own, so that they stay separate from real lines and are marked as synthetic.

use std::collections::VecDeque;
use std::sync::Arc;

use rankguard_faults::{LogObservation, Triage};
use rankguard_model::{EvidenceSource, Timestamp};

use super::context::InjectionContext;
use crate::catalogue_handle::CatalogueHandle;
use crate::clock;
use crate::collectors::gpu::XidMerger;
use crate::collectors::observe::{LineOrigin, LineReporter};
use crate::intake::EvidenceIntake;
use crate::mount_users::MountUsers;
use crate::roster::RankRoster;
use crate::spool::Spool;

/// Most streams that are retained: the kernel's and those of some ranks.
const STREAMS: usize = 64;

/// Most lines of a stream of which the time of writing is retained: triage holds a line for less than a second.
const WRITTEN: usize = 4096;

/// Streams of injected lines.
pub(super) struct InjectedLines {
    intake: EvidenceIntake,
    roster: RankRoster,
    spool: Arc<Spool>,
    /// Separate from the collectors' unless the GPUs are simulated too: an injected line must not match a real event.
    xids: XidMerger,
    knowledge: CatalogueHandle,
    uses: MountUsers,
    streams: Vec<InjectedStream>,
}

struct InjectedStream {
    writer: LineOrigin,
    reporter: LineReporter,
    triage: Triage,
    /// Number of lines so far.
    lines: u64,
    /// Number of each line, from 1, and the time at which it was written.
    written: VecDeque<(u64, Timestamp)>,
}

impl InjectedLines {
    /// Creates the streams; `xids` are those of the collectors if the GPUs are simulated.
    pub(super) fn new(means: &InjectionContext, xids: XidMerger) -> Self {
        Self {
            intake: means.intake.clone(),
            roster: means.roster.clone(),
            spool: means.spool.clone(),
            knowledge: means.knowledge.clone(),
            uses: means.uses.clone(),
            xids,
            streams: Vec::new(),
        }
    }

    /// Returns the time at which a held observation is due even if no line comes.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.streams.iter().filter_map(|stream| stream.triage.deadline()).min()
    }

    /// Passes lines of a writer to its triage; `now` is on the clock by which triage waits.
    pub(super) fn write(&mut self, now: Timestamp, writer: LineOrigin, lines: &[String]) {
        let place = self.streams.iter().position(|stream| stream.writer == writer);
        let mut stream = match place {
            Some(place) => self.streams.remove(place),
            None => self.open(writer),
        };
        stream.triage.reload(self.knowledge.matcher());
        for line in lines {
            stream.note_write(clock::now());
            let observations = stream.triage.push(line, now);
            stream.report(observations);
        }
        // The newest stream is last; the oldest is flushed and dropped beyond the limit.
        self.streams.push(stream);
        if self.streams.len() > STREAMS {
            let mut oldest = self.streams.remove(0);
            let rest = oldest.triage.flush();
            oldest.report(rest);
        }
    }

    /// Reports completed observations; with `all`, everything that is held.
    pub(super) fn poll(&mut self, now: Timestamp, all: bool) {
        for stream in &mut self.streams {
            let observations = if all {
                stream.triage.flush()
            } else {
                stream.triage.poll(now)
            };
            stream.report(observations);
        }
    }

    fn open(&self, writer: LineOrigin) -> InjectedStream {
        let reporter = LineReporter {
            source: match writer {
                LineOrigin::Kernel => EvidenceSource::KernelLog,
                LineOrigin::Rank(_) | LineOrigin::Unknown => EvidenceSource::JobLog,
            },
            intake: self.intake.clone(),
            roster: self.roster.clone(),
            spool: self.spool.clone(),
            xids: self.xids.clone(),
            knowledge: self.knowledge.clone(),
            uses: self.uses.clone(),
        };
        let rank = match &writer {
            LineOrigin::Rank(rank) => Some(rank.rank),
            LineOrigin::Kernel | LineOrigin::Unknown => None,
        };
        InjectedStream {
            triage: crate::collectors::triage(&reporter, rank, None),
            writer,
            reporter,
            lines: 0,
            written: VecDeque::new(),
        }
    }
}

impl InjectedStream {
    fn note_write(&mut self, at: Timestamp) {
        self.lines += 1;
        self.written.push_back((self.lines, at));
        if self.written.len() > WRITTEN {
            self.written.pop_front();
        }
    }

    /// Returns the time at which a line was written. Triage holds it for repeats and for the lines below it.
    fn written_at(&self, line: u64) -> Option<Timestamp> {
        let at = self.written.binary_search_by_key(&line, |(number, _)| *number).ok()?;
        self.written.get(at).map(|(_, at)| *at)
    }

    fn report(&self, observations: Vec<LogObservation>) {
        for mut observation in observations {
            // The time of writing counts, even if a copied line carries an old time stamp.
            observation.at = None;
            let at = self.written_at(observation.line_no).unwrap_or_else(clock::now);
            let sighting = self.reporter.sighting(&self.writer, observation, at, true);
            self.reporter.intake.push(sighting.synthetic(true));
        }
    }
}
