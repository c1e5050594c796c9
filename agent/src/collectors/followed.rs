//! A followed file together with its triage: bytes in, sightings out, and the position that a restart goes on from.

use std::path::PathBuf;
use std::time::Instant;

use rankguard_faults::{Matcher, Observation, Stream, Triage};
use rankguard_model::{Rank, Timestamp};

use super::file::{Follower, Seen, Start};
use super::kmsg::{self, Counter};
use super::observe::{ReadTimes, Reporter, Writer};
use crate::clock;
use crate::sighting::{Cursor, Sighting};

/// One file of one writer.
pub(crate) struct Followed {
    writer: Writer,
    follower: Follower,
    triage: Triage,
    times: ReadTimes,
    /// Records of the kernel's ring are counted where the file holds some.
    counter: Counter,
    /// Name of the stored position; none for files that do not outlive the agent.
    key: Option<String>,
    /// Whether the end has been reached once: what comes from then on has just been written.
    live: bool,
}

/// A triage for one stream. Clocks without a year are read in this one.
pub(crate) fn triage(reporter: &Reporter, rank: Option<Rank>, boot: Option<Timestamp>) -> Triage {
    let mut stream = Stream::new(reporter.source);
    stream.rank = rank;
    stream.clock.boot = boot;
    stream.clock.year = clock::now().to_string().get(..4).and_then(|year| year.parse().ok());
    Triage::new(Matcher::builtin(), stream)
}

impl Followed {
    pub(crate) fn new(
        path: impl Into<PathBuf>,
        start: Start,
        writer: Writer,
        key: Option<String>,
        reporter: &Reporter,
    ) -> Self {
        let rank = match &writer {
            Writer::Rank(entity) => entity.rank(),
            Writer::Kernel | Writer::Unknown => None,
        };
        Self {
            writer,
            follower: Follower::new(path, start),
            triage: triage(reporter, rank, None),
            times: ReadTimes::default(),
            counter: Counter::default(),
            key,
            live: false,
        }
    }

    /// Whether the file is, or was, there.
    pub(crate) fn is_open(&self) -> bool {
        self.follower.position().is_some()
    }

    /// When there will be something to give although nothing is added to the file.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.triage.deadline()
    }

    /// Reads what is new and reports what has become complete.
    pub(crate) fn look(&mut self, reporter: &Reporter) {
        self.take(reporter, false);
    }

    /// Reads to the end and reports everything that is held: nothing more will be written, or nobody is there to read it.
    pub(crate) fn finish(&mut self, reporter: &Reporter) {
        self.take(reporter, true);
    }

    fn take(&mut self, reporter: &Reporter, finish: bool) {
        let mut seen = Vec::new();
        let now = clock::now();
        let ended = if finish {
            self.follower.finish(Instant::now(), &mut seen);
            true
        } else {
            self.follower.look(Instant::now(), &mut seen)
        };
        let mut sightings = Vec::new();
        for one in seen {
            match one {
                Seen::Line(text) => self.line(&text, now, reporter, &mut sightings),
                Seen::Problem { what, lost } => sightings.push(reporter.gap(&self.writer, what, lost)),
            }
        }
        self.live |= ended;
        let rest = if finish { self.triage.flush() } else { self.triage.poll(now) };
        self.report(rest, now, reporter, &mut sightings);
        // While triage holds something back, a restart must read it again.
        let settled = self.triage.deadline().is_none();
        let cursor = self.key.as_ref().filter(|_| settled).and_then(|key| {
            Some(Cursor {
                key: key.clone(),
                value: self.follower.position()?,
            })
        });
        reporter.push(sightings, cursor.as_ref());
    }

    fn line(&mut self, text: &str, now: Timestamp, reporter: &Reporter, sightings: &mut Vec<Sighting>) {
        if let (Writer::Kernel, Some(head)) = (&self.writer, kmsg::head(text)) {
            let missing = self.counter.take(head.seq);
            if missing > 0 {
                let what = format!("kernel log records before {} are missing", head.seq);
                sightings.push(reporter.gap(&self.writer, what, Some(missing)));
            }
        }
        self.times.note(now, self.live);
        let observations = self.triage.push(text, now);
        self.report(observations, now, reporter, sightings);
    }

    fn report(
        &self,
        observations: Vec<Observation>,
        now: Timestamp,
        reporter: &Reporter,
        sightings: &mut Vec<Sighting>,
    ) {
        for observation in observations {
            let (read, live) = self.times.of(observation.line_no).unwrap_or((now, self.live));
            sightings.push(reporter.sighting(&self.writer, observation, read, live));
        }
    }
}
