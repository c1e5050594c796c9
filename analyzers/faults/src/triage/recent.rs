//! Last lines of a stream from all writers: source of the context before a matched line.

use std::collections::VecDeque;

use super::lane::LaneKey;
use crate::line::raw::LinePart;
use crate::line::{self, LineClock, raw};

/// Maximum number of context lines before a matched line.
const CONTEXT: usize = 3;
/// Number of retained lines. With many ranks in one log, older lines of a rank are not available as context.
pub(super) const KEPT: usize = 64;
/// Maximum length of a context line, bytes.
const TEXT: usize = 1024;
/// Maximum number of bytes retained of a line: prefixes and text.
const BYTES: usize = TEXT + 256;

/// Buffer capacity that a retained line may keep, bytes.
const SHORT: usize = 256;

#[derive(Debug, Default)]
pub(super) struct RecentLines {
    lines: VecDeque<RetainedLine>,
}

/// Retained line; parsed only when context is requested.
#[derive(Debug)]
struct RetainedLine {
    line_no: u64,
    bytes: Vec<u8>,
    read: Option<(LaneKey, String)>,
}

impl RecentLines {
    /// Records a line and reuses the buffer of the oldest one.
    pub(super) fn remember(&mut self, line_no: u64, raw: &[u8]) {
        let mut line = match self.lines.pop_front() {
            Some(oldest) if self.lines.len() + 1 >= KEPT => oldest,
            other => {
                if let Some(other) = other {
                    self.lines.push_front(other);
                }
                RetainedLine {
                    line_no,
                    // Starts empty: most lines are short, and a node reads many streams.
                    bytes: Vec::new(),
                    read: None,
                }
            }
        };
        let shown = raw::shown(raw);
        line.line_no = line_no;
        line.bytes.clear();
        line.bytes.shrink_to(SHORT);
        line.bytes.extend_from_slice(&shown[..shown.len().min(BYTES)]);
        line.read = None;
        self.lines.push_back(line);
    }

    /// Returns the last lines of a lane before line `line_no`, oldest first.
    pub(super) fn before(&mut self, line_no: u64, lane: &LaneKey, clock: &LineClock) -> Vec<String> {
        let mut found = Vec::new();
        for line in self.lines.iter_mut().rev() {
            if found.len() == CONTEXT || line.line_no + (KEPT as u64) < line_no {
                break;
            }
            let (key, text) = line.read.get_or_insert_with(|| read(&line.bytes, clock));
            if line.line_no < line_no && key == lane && !text.trim().is_empty() {
                found.push(text.clone());
            }
        }
        found.reverse();
        found
    }
}

fn read(bytes: &[u8], clock: &LineClock) -> (LaneKey, String) {
    let mut read = ((None, None, None), String::new());
    raw::for_each_view(bytes, &mut |look| {
        if look.part == LinePart::Shown && read.1.is_empty() {
            let parsed = line::parse(&look.text, clock);
            let key = (parsed.host.map(str::to_owned), parsed.rank, parsed.local_rank);
            read = (key, parsed.text[..parsed.text.floor_char_boundary(TEXT)].to_owned());
        }
    });
    read
}
