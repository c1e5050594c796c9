//! Injected lines, through a triage of their own: what is really read stays what it is, and what is made up is marked.

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

/// Streams that are kept: the kernel's and those of some ranks.
const STREAMS: usize = 64;

/// The streams of injected lines so far.
pub(super) struct Lines {
    intake: Intake,
    roster: Roster,
    spool: Arc<Spool>,
    /// Of their own, unless the GPUs are made up as well: a made-up line must not stand for a real event.
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
    /// Of an agent; `xids` are those of the collectors where the GPUs are made up.
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

    /// When there is something to report although no line comes.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.streams.iter().filter_map(|stream| stream.triage.deadline()).min()
    }

    /// A writer writes these lines now, on the clock by which triage waits.
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
        // The newest last; the oldest goes when there are too many.
        self.streams.push(stream);
        if self.streams.len() > STREAMS {
            let mut oldest = self.streams.remove(0);
            let rest = oldest.triage.flush();
            oldest.report(rest);
        }
    }

    /// Reports what has become complete; with `all`, everything that is held.
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
            // They are written now, whatever a copied line says of its moment.
            observation.at = None;
            let sighting = self.reporter.sighting(&self.writer, observation, now, true);
            self.reporter.intake.push(sighting.synthetic(true));
        }
    }
}
