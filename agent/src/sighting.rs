//! What a collector hands over: evidence before it has a number.

use rankguard_model::{Body, Entity, Mark, Source, Timestamp};

use crate::clock;

/// One thing that was seen, on the node's own clock.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sighting {
    pub(crate) at: Timestamp,
    pub(crate) source: Source,
    pub(crate) entity: Entity,
    pub(crate) body: Body,
    pub(crate) marks: Vec<Mark>,
    /// Whether it may not wait for others to share a commit.
    pub(crate) urgent: bool,
    /// Where its reader stands after it: stored in the same commit, so that a restart neither repeats nor skips it.
    pub(crate) cursor: Option<Cursor>,
    /// Whether it must be stored in the same commit as the one after it, which carries the reader's position: else a kill
    /// between two commits would have it read again.
    pub(crate) joined: bool,
    /// Whether it is the work of an injection or a simulation.
    pub(crate) synthetic: bool,
}

/// The position of a reader in what it reads; an empty value ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl Sighting {
    /// Seen now.
    pub(crate) fn now(source: Source, entity: Entity, body: Body) -> Self {
        let urgent = !is_droppable(&body);
        Self {
            at: clock::now(),
            source,
            entity,
            body,
            marks: Vec::new(),
            urgent,
            cursor: None,
            joined: false,
            synthetic: false,
        }
    }

    pub(crate) fn at(mut self, at: Timestamp) -> Self {
        self.at = at;
        self
    }

    pub(crate) fn marked(mut self, marks: Vec<Mark>) -> Self {
        // A sample that names a failure class is a failure's evidence, not a statistic.
        self.urgent |= !marks.is_empty();
        self.marks = marks;
        self
    }

    pub(crate) fn urgent(mut self) -> Self {
        self.urgent = true;
        self
    }

    /// Made up, if so; what is once is not taken back.
    pub(crate) fn synthetic(mut self, synthetic: bool) -> Self {
        self.synthetic |= synthetic;
        self
    }

    #[cfg(test)]
    pub(crate) fn with_cursor(mut self, cursor: Option<Cursor>) -> Self {
        self.cursor = cursor;
        self
    }

    /// Whether it is among the first to go when there is no room.
    pub(crate) fn is_droppable(&self) -> bool {
        is_droppable(&self.body) && self.marks.is_empty()
    }
}

/// Samples and progress are superseded by the next ones; everything else happens once.
pub(crate) fn is_droppable(body: &Body) -> bool {
    matches!(body, Body::Progress { .. } | Body::Sample { .. })
}
