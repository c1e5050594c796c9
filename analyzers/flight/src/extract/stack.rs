//! Parser of stacks: a list of frames, or text printed by the C++ side.

use std::sync::Arc;

use crate::dump::StackFrame;
use rankguard_pickle::ValueId;

use super::DumpExtractor;

/// Maximum number of frames of one stack.
const FRAMES: usize = 128;
/// Maximum length of a printed stack, bytes.
const PRINTED_BYTES: usize = 16 << 10;

impl DumpExtractor<'_, '_> {
    pub(super) fn stack(&mut self, id: ValueId) -> Arc<[StackFrame]> {
        let tree = self.tree;
        let mut numbers = Vec::new();
        if let Some(items) = tree.items(id) {
            for item in items.iter().take(FRAMES) {
                if !self.spend(4) {
                    break;
                }
                numbers.extend(self.frame(*item));
            }
        } else if let Some(text) = tree.text(id, PRINTED_BYTES)
            && self.spend(text.len() as u64 / 16 + 1)
        {
            for line in text.lines().take(FRAMES) {
                let frame = self.printed_frame(line);
                numbers.extend(frame.map(|frame| self.interner.frame(frame)));
            }
        }
        self.interner.stack(numbers)
    }

    /// Returns the number of a frame.
    fn frame(&mut self, id: ValueId) -> Option<u32> {
        if let Some(known) = self.interner.known_frame(id) {
            return Some(known);
        }
        let tree = self.tree;
        let mut function = None;
        let mut file = None;
        let mut line = None;
        for (field, content) in tree.pairs(id)?.take(16) {
            match tree.bytes(field).unwrap_or_default() {
                b"name" => function = self.name(content),
                b"filename" => file = self.name(content),
                b"line" => line = tree.integer(content),
                _ => {}
            }
        }
        let frame = StackFrame {
            function: function?,
            file: file?,
            line: line.unwrap_or(0),
        };
        Some(self.interner.frame_at(id, frame))
    }

    /// Parses `#0 all_reduce from torch/distributed/distributed_c10d.py:2696`
    fn printed_frame(&mut self, line: &str) -> Option<StackFrame> {
        let (_, rest) = line.trim().strip_prefix('#')?.split_once(' ')?;
        let (function, place) = rest.split_once(" from ")?;
        let (file, number) = place.rsplit_once(':')?;
        let line = number.parse().ok()?;
        Some(StackFrame {
            function: self.interner.text(function),
            file: self.interner.text(file),
            line,
        })
    }
}
