//! Cache of judgements of the newest lines. A line is judged when it is selected and again when it is parsed, and a
//! failing log repeats lines; both reuse the first judgement.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::matcher::LineJudgement;

/// Number of cached lines.
const LINES: usize = 32;
/// Maximum length of a cached line, bytes.
const LENGTH: usize = 1_024;

/// Direct-mapped cache of lines and their judgements, indexed by a hash of the text.
#[derive(Debug, Default)]
pub(super) struct JudgementCache(RefCell<Vec<Option<CachedLine>>>);

/// Cached line with its judgement.
#[derive(Debug)]
struct CachedLine {
    text: String,
    said: Arc<LineJudgement>,
}

impl JudgementCache {
    /// Returns the judgement of a line, if cached.
    pub(super) fn of(&self, text: &str) -> Option<Arc<LineJudgement>> {
        let lines = self.0.borrow();
        let line = lines.get(place(text))?.as_ref()?;
        (line.text == text).then(|| Arc::clone(&line.said))
    }

    /// Stores a judgement and replaces the one in its slot.
    pub(super) fn remember(&self, text: &str, said: LineJudgement) -> Arc<LineJudgement> {
        let said = Arc::new(said);
        if text.len() <= LENGTH {
            let mut lines = self.0.borrow_mut();
            lines.resize_with(LINES, || None);
            lines[place(text)] = Some(CachedLine {
                text: text.to_owned(),
                said: Arc::clone(&said),
            });
        }
        said
    }

    /// Clears the cache, because another catalogue gives other judgements.
    pub(super) fn forget(&mut self) {
        self.0.get_mut().clear();
    }
}

fn place(text: &str) -> usize {
    // The hasher's keys are fixed, so the same log costs the same in every run.
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    (hasher.finish() % LINES as u64) as usize
}
