//! Stream: one log of one writer.

use rankguard_model::{Rank, Source};

use crate::line::LineClock;

/// Properties of a stream that its lines do not contain.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Source of the evidence.
    pub source: Source,
    /// Rank that wrote it, if the stream belongs to one rank.
    pub rank: Option<Rank>,
    /// Context for its clocks.
    pub clock: LineClock,
}

impl Stream {
    /// Creates a stream of a source without further knowledge.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            rank: None,
            clock: LineClock::default(),
        }
    }
}
