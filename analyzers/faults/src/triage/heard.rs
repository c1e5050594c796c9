//! What the signatures said of the newest lines. A line is judged once when it is found worth a look and once more when it is
//! taken apart, and a log in trouble says the same line again and again: either way what was said is still here.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::matcher::Judgement;

/// Lines that are remembered.
const LINES: usize = 32;
/// A longer line is judged anew, bytes.
const LENGTH: usize = 1_024;

/// Lines with what was said of them, each at the place that its text gives it.
#[derive(Debug, Default)]
pub(super) struct Heard(RefCell<Vec<Option<Line>>>);

/// A line.
#[derive(Debug)]
struct Line {
    text: String,
    said: Arc<Judgement>,
}

impl Heard {
    /// What was said of a line, if it is remembered.
    pub(super) fn of(&self, text: &str) -> Option<Arc<Judgement>> {
        let lines = self.0.borrow();
        let line = lines.get(place(text))?.as_ref()?;
        (line.text == text).then(|| Arc::clone(&line.said))
    }

    /// Remembers it; whatever was at its place is forgotten.
    pub(super) fn remember(&self, text: &str, said: Judgement) -> Arc<Judgement> {
        let said = Arc::new(said);
        if text.len() <= LENGTH {
            let mut lines = self.0.borrow_mut();
            lines.resize_with(LINES, || None);
            lines[place(text)] = Some(Line {
                text: text.to_owned(),
                said: Arc::clone(&said),
            });
        }
        said
    }

    /// Another catalogue says other things.
    pub(super) fn forget(&mut self) {
        self.0.get_mut().clear();
    }
}

fn place(text: &str) -> usize {
    // Its keys are fixed, so the same log costs the same in every run.
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    (hasher.finish() % LINES as u64) as usize
}
