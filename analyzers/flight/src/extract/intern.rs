//! Interning of values that many entries share.
//!
//! Stacks repeat most: a few hundred frames, written once and referenced by each entry. The result of a tree value is
//! cached by its id, and stacks are compared by the numbers of their frames.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::dump::StackFrame;
use rankguard_pickle::ValueId;

#[derive(Default)]
pub(super) struct ValueInterner {
    texts: BTreeSet<Arc<str>>,
    text_at: ValueCache<Arc<str>>,
    shapes: BTreeSet<Arc<[Vec<i64>]>>,
    lists: BTreeSet<Arc<[Arc<str>]>>,
    frames: Vec<StackFrame>,
    frame_numbers: BTreeMap<StackFrame, u32>,
    frame_at: ValueCache<u32>,
    stacks: BTreeMap<Vec<u32>, Arc<[StackFrame]>>,
}

/// Results of tree values, by id.
struct ValueCache<T> {
    /// Index in `values` plus one; 0 for an unknown id.
    numbers: Vec<u32>,
    values: Vec<T>,
}

impl<T> Default for ValueCache<T> {
    fn default() -> Self {
        ValueCache {
            numbers: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl<T: Clone> ValueCache<T> {
    fn get(&self, id: ValueId) -> Option<T> {
        let number = self.numbers.get(id as usize).copied().filter(|number| *number > 0)?;
        self.values.get(number as usize - 1).cloned()
    }

    fn put(&mut self, id: ValueId, value: T) {
        let place = id as usize;
        if self.numbers.len() <= place {
            self.numbers.resize(place + 1, 0);
        }
        self.values.push(value);
        self.numbers[place] = self.values.len() as u32;
    }
}

impl ValueInterner {
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        shared(&mut self.texts, text)
    }

    /// Returns the cached result of a value.
    pub(super) fn known_text(&self, id: ValueId) -> Option<Arc<str>> {
        self.text_at.get(id)
    }

    pub(super) fn text_at(&mut self, id: ValueId, text: &str) -> Arc<str> {
        let text = self.text(text);
        self.text_at.put(id, text.clone());
        text
    }

    pub(super) fn shapes(&mut self, shapes: &[Vec<i64>]) -> Arc<[Vec<i64>]> {
        shared(&mut self.shapes, shapes)
    }

    pub(super) fn list(&mut self, list: &[Arc<str>]) -> Arc<[Arc<str>]> {
        shared(&mut self.lists, list)
    }

    pub(super) fn known_frame(&self, id: ValueId) -> Option<u32> {
        self.frame_at.get(id)
    }

    pub(super) fn frame_at(&mut self, id: ValueId, frame: StackFrame) -> u32 {
        let number = self.frame(frame);
        self.frame_at.put(id, number);
        number
    }

    /// Returns the number of a frame.
    pub(super) fn frame(&mut self, frame: StackFrame) -> u32 {
        if let Some(number) = self.frame_numbers.get(&frame) {
            return *number;
        }
        let number = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.frame_numbers.insert(frame, number);
        number
    }

    /// Returns the stack with these frame numbers.
    pub(super) fn stack(&mut self, numbers: Vec<u32>) -> Arc<[StackFrame]> {
        if let Some(known) = self.stacks.get(&numbers) {
            return known.clone();
        }
        let stack: Arc<[StackFrame]> = numbers
            .iter()
            .map(|number| self.frames[*number as usize].clone())
            .collect();
        self.stacks.insert(numbers, stack.clone());
        stack
    }
}

fn shared<T: ?Sized + Ord>(known: &mut BTreeSet<Arc<T>>, value: &T) -> Arc<T>
where
    Arc<T>: for<'v> From<&'v T>,
{
    if let Some(found) = known.get(value) {
        return found.clone();
    }
    let new: Arc<T> = Arc::from(value);
    known.insert(new.clone());
    new
}
