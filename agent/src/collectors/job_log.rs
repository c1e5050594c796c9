//! What ranks write, and other log files of jobs.
//!
//! One thread follows all files. Which ranks there are is asked at every look; the files of a rank are read from their
//! beginning, and to their end when the rank is not listed any more. Extra files are read from where the agent stood, or
//! from their end at the first start: what they hold then is of unknown age, and said to be left out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rankguard_model::{Body, Entity, Timestamp};

use super::followed::Followed;
use super::file::Start;
use super::observe::{Reporter, Writer};
use super::{Stop, StreamName};
use crate::clock;
use crate::sighting::Sighting;

/// Files followed at once. Beyond it nothing new is taken until others end, which is told once (RG-9).
const FILES_MAX: usize = 4096;

/// The collector.
pub(crate) struct JobLog {
    reporter: Reporter,
    interval: Duration,
    stop: Stop,
    ranks: BTreeMap<PathBuf, (Entity, Followed)>,
    extra: Vec<Followed>,
    told_full: bool,
}

impl JobLog {
    pub(crate) fn new(
        reporter: Reporter,
        extra: &[PathBuf],
        cursors: &BTreeMap<String, String>,
        interval: Duration,
        stop: Stop,
    ) -> Self {
        let follow = |path: &PathBuf| {
            let key = format!("job-log {}", path.display());
            let start = cursors.get(&key).map_or(Start::End, |position| Start::At(position.clone()));
            Followed::new(path, start, Writer::Unknown, Some(key), &reporter)
        };
        let extra = extra.iter().map(follow).collect();
        Self {
            reporter,
            interval,
            stop,
            ranks: BTreeMap::new(),
            extra,
            told_full: false,
        }
    }

    /// Until asked to stop; then everything is read to its end once more.
    pub(crate) fn run(mut self) {
        loop {
            let stopping = self.stop.stopped();
            self.look(stopping);
            if stopping {
                return;
            }
            self.stop.wait(self.pause());
        }
    }

    /// What is held back by triage is due before the next look, sometimes.
    fn pause(&self) -> Duration {
        let followed = self.ranks.values().map(|(_, followed)| followed).chain(&self.extra);
        let due = followed.filter_map(Followed::deadline).min();
        pause(self.interval, due, clock::now())
    }

    /// One look at everything.
    pub(crate) fn look(&mut self, finish: bool) {
        self.refresh();
        let ranks = self.ranks.values_mut().map(|(_, followed)| followed);
        for followed in ranks.chain(&mut self.extra) {
            if finish {
                followed.finish(&self.reporter);
            } else {
                followed.look(&self.reporter);
            }
        }
    }

    fn refresh(&mut self) {
        let mut listed: BTreeMap<PathBuf, (Entity, StreamName)> = BTreeMap::new();
        for (path, entity, stream) in self.reporter.ranks.output_files() {
            listed.insert(path, (entity, stream));
        }
        let reporter = &self.reporter;
        self.ranks.retain(|path, (entity, followed)| {
            let stays = listed.get(path).is_some_and(|(now, _)| now == entity);
            if !stays {
                followed.finish(reporter);
            }
            stays
        });
        for (path, (entity, stream)) in listed {
            if self.ranks.contains_key(&path) {
                continue;
            }
            if self.ranks.len() >= FILES_MAX {
                if !std::mem::replace(&mut self.told_full, true) {
                    let what = format!("{stream} is not read: {FILES_MAX} files are followed already");
                    let body = Body::Gap { what, lost: None };
                    self.reporter.intake.push(Sighting::now(self.reporter.source, entity, body));
                }
                continue;
            }
            let writer = Writer::Rank(entity.clone());
            let followed = Followed::new(&path, Start::Beginning, writer, None, &self.reporter);
            self.ranks.insert(path, (entity, followed));
        }
    }
}

/// Time until the next look: the interval, or less when something is due.
pub(crate) fn pause(interval: Duration, due: Option<Timestamp>, now: Timestamp) -> Duration {
    let due = due.map_or(interval, |due| due.since(now));
    interval.min(due.max(Duration::from_millis(5)))
}

#[cfg(test)]
mod tests;
