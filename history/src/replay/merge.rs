//! Merge of several recordings in order of time.

use std::time::{Duration, Instant};

use rankguard_console::error::CliError;

use super::engine::ReplayEngine;
use super::feed::LogFeed;
use super::item::ReplayItem;
use super::recorded::EvidenceRecording;
use super::tally::ReplayTally;

/// Source of items in order of time.
pub(super) enum ItemStream {
    Log(Box<LogFeed>),
    Recorded(EvidenceRecording),
}

impl ItemStream {
    fn next(&mut self, engines: &[ReplayEngine], given: bool, tally: &mut ReplayTally) -> Option<ReplayItem> {
        match self {
            Self::Log(feed) => feed.next(engines, tally),
            Self::Recorded(recorded) => recorded.next(engines, given, tally),
        }
    }
}

/// Merges the items of all streams in order of time; ties go to the first stream.
pub(super) struct StreamMerge {
    pub(super) streams: Vec<ItemStream>,
    /// True if the first catalogue is not the built-in one.
    pub(super) given: bool,
    /// Speed factor relative to recorded time.
    pub(super) speed: f64,
    pub(super) begun: Instant,
}

impl StreamMerge {
    /// Passes every item to `take`, with the wait until it is due.
    pub(super) fn run(
        &mut self,
        engines: &[ReplayEngine],
        tally: &mut ReplayTally,
        mut take: impl FnMut(&ReplayItem, Duration, &mut ReplayTally) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let given = self.given;
        let mut heads: Vec<Option<ReplayItem>> = Vec::new();
        for stream in &mut self.streams {
            heads.push(stream.next(engines, given, tally));
        }
        let mut first = None;
        loop {
            let times = heads
                .iter()
                .enumerate()
                .filter_map(|(at, item)| Some((at, item.as_ref()?.at)));
            let Some((at, _)) = times.min_by_key(|(at, time)| (*time, *at)) else {
                return Ok(());
            };
            let Some(item) = heads[at].take() else { return Ok(()) };
            let since = item.at.0.saturating_sub(*first.get_or_insert(item.at.0)) as f64 / 1e9 / self.speed;
            let due = Duration::try_from_secs_f64(since.max(0.0)).unwrap_or_default();
            take(&item, due.saturating_sub(self.begun.elapsed()), tally)?;
            heads[at] = self.streams[at].next(engines, given, tally);
        }
    }

    pub(super) fn finish(self, tally: &mut ReplayTally) {
        for stream in self.streams {
            if let ItemStream::Log(feed) = stream {
                feed.finish(tally);
            }
        }
    }
}
