//! A stream: one log of one writer.

use rankguard_model::{Rank, Source};

use crate::line::LineClock;

/// What a reader knows of a stream beyond its lines.
#[derive(Debug, Clone)]
pub struct Stream {
    /// The collector.
    pub source: Source,
    /// The rank that wrote it, where it is one rank's own.
    pub rank: Option<Rank>,
    /// How to read its clocks.
    pub clock: LineClock,
}

impl Stream {
    /// A stream of this source of which nothing else is known.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            rank: None,
            clock: LineClock::default(),
        }
    }
}
