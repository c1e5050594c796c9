//! Injected lines, with a triage of their own, so that they stay separate from real lines and are marked as synthetic.

use std::sync::Arc;

use rankguard_faults::{Observation, Triage};
use rankguard_model::{Source, Timestamp};

use super::means::Means;
use crate::clock;
use crate::collectors::gpu::Xids;
use crate::collectors::observe::{Reporter, Writer};
use crate::intake::Intake;
use crate::knowledge::Knowledge;
use crate::ranks::Roster;
use crate::spool::Spool;
use crate::uses::Uses;

/// Most streams that are retained: the kernel's and those of some ranks.
const STREAMS: usize = 64;

/// Streams of injected lines.
pub(super) struct Lines {
    intake: Intake,
    roster: Roster,
    spool: Arc<Spool>,
    /// Separate from the collectors' unless the GPUs are simulated too: an injected line must not match a real event.
    xids: Xids,
    knowledge: Knowledge,
    uses: Uses,
    streams: Vec<Stream>,
}

struct Stream {
    writer: Writer,
    reporter: Reporter,
    triage: Triage,
}

impl Lines {
    /// Creates the streams; `xids` are those of the collectors if the GPUs are simulated.
    pub(super) fn new(means: &Means, xids: Xids) -> Self {
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
    pub(super) fn write(&mut self, now: Timestamp, writer: Writer, lines: &[String]) {
        let place = self.streams.iter().position(|stream| stream.writer == writer);
        let mut stream = match place {
            Some(place) => self.streams.remove(place),
            None => self.open(writer),
        };
        stream.triage.reload(self.knowledge.matcher());
        for line in lines {
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
            let observations = match all {
                true => stream.triage.flush(),
                false => stream.triage.poll(now),
            };
            stream.report(observations);
        }
    }

    fn open(&self, writer: Writer) -> Stream {
        let reporter = Reporter {
            source: match writer {
                Writer::Kernel => Source::KernelLog,
                Writer::Rank(_) | Writer::Unknown => Source::JobLog,
            },
            intake: self.intake.clone(),
            roster: self.roster.clone(),
            spool: self.spool.clone(),
            xids: self.xids.clone(),
            knowledge: self.knowledge.clone(),
            uses: self.uses.clone(),
        };
        let rank = match &writer {
            Writer::Rank(rank) => Some(rank.rank),
            Writer::Kernel | Writer::Unknown => None,
        };
        Stream {
            triage: crate::collectors::triage(&reporter, rank, None),
            writer,
            reporter,
        }
    }
}

impl Stream {
    fn report(&self, observations: Vec<Observation>) {
        let now = clock::now();
        for mut observation in observations {
            // The lines are written now, even if a copied line carries an old time stamp.
            observation.at = None;
            let sighting = self.reporter.sighting(&self.writer, observation, now, true);
            self.reporter.intake.push(sighting.synthetic(true));
        }
    }
}
