//! Stream: one log of one writer.

use rankguard_model::{EvidenceSource, Rank};

use crate::line::LineClock;

/// Properties of a stream that its lines do not contain.
#[derive(Debug, Clone)]
pub struct StreamContext {
    /// Source of the evidence.
    pub source: EvidenceSource,
    /// Rank that wrote it, if the stream belongs to one rank.
    pub rank: Option<Rank>,
    /// Context for its clocks.
    pub clock: LineClock,
}

impl StreamContext {
    /// Creates a stream of a source without further knowledge.
    pub fn new(source: EvidenceSource) -> Self {
        Self {
            source,
            rank: None,
            clock: LineClock::default(),
        }
    }
}
