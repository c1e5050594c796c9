//! Python tracebacks, chained ones included, as one unit each. Every rank has its own tracker, so interleaved
//! tracebacks of several ranks are separated by their prefixes.
//!
//! Indentation is used but not required, because log collectors and editors lose it.

mod conversion;
mod formatted;
mod line_kinds;
mod writer_prefix;

use rankguard_model::{Rank, Timestamp};

use crate::line::ParsedLine;
use formatted::FormattedLine;
pub(super) use line_kinds::opens;
use line_kinds::{
    EXCEPTION, FRAME, TreeMargin, announced, begins, dedent, indent, is_chain, is_farewell, is_header, margin, nested,
};
use writer_prefix::WriterPrefix;

/// Maximum number of retained frames; a recursion prints thousands.
const FRAMES: usize = 256;
/// Maximum number of retained exceptions of a chain or a group.
const SEGMENTS: usize = 64;
/// Maximum number of retained message lines after the first.
const MESSAGE_LINES: usize = 24;
/// Number of foreign lines inside a traceback after which it counts as truncated.
const FOREIGN: u32 = 32;

#[derive(Debug, Default)]
pub(super) struct TracebackTracker {
    open: Option<OpenTraceback>,
    /// True if the previous line announced that the next exception is ignored.
    ignored: bool,
}

/// Relation of a line to the open unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineRelation {
    /// Part of the unit.
    Taken,
    /// The unit ended before this line.
    Closed,
    /// Not part of the unit, which continues.
    Other,
}

#[derive(Debug)]
pub(super) struct OpenTraceback {
    segments: Vec<ExceptionSegment>,
    /// True if the interpreter announced that the exception is ignored.
    ignored: bool,
    /// True if it began with a frame: without an exception it is only a printed stack.
    headless: bool,
    /// Indentation of the whole traceback, bytes.
    indent: usize,
    /// Text that a collector puts before each line, as far as no parser of prefixes knows it.
    prefix: WriterPrefix,
    /// Exception type before the header, as notebooks print it.
    announced: Option<String>,
    /// True if its frames are formatted by a notebook or in a box.
    drawn: bool,
    /// True if the next line may be source text of the last frame.
    code_next: bool,
    /// True after the sentence between chained exceptions.
    chained: bool,
    foreign: u32,
    at: Option<Timestamp>,
    rank: Option<Rank>,
    local_rank: Option<u32>,
    host: Option<String>,
    first_line: u64,
    last_line: u64,
    /// Line number of the last exception; of the header until there is one.
    key_line: u64,
}

#[derive(Debug, Default)]
struct ExceptionSegment {
    frames: Vec<TracebackFrame>,
    /// `Type: message`; `message` holds the lines after the first.
    exception: Option<String>,
    /// Number of the line of the exception.
    line: u64,
    message: Vec<String>,
}

#[derive(Debug, Clone)]
struct TracebackFrame {
    file: String,
    line: String,
    function: String,
    code: String,
}

impl ExceptionSegment {
    /// Returns true if it is the location of a syntax error, which names no function.
    fn has_place(&self) -> bool {
        self.frames.first().is_some_and(|frame| frame.function.is_empty())
    }
}

impl TracebackTracker {
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn take(&mut self) -> Option<OpenTraceback> {
        self.open.take()
    }

    pub(super) fn accept(&mut self, line: &ParsedLine<'_>, line_no: u64) -> LineRelation {
        let text = line.text;
        match &mut self.open {
            Some(unit) => {
                let before = unit.exceptions();
                let step = unit.accept(text);
                if step == LineRelation::Taken {
                    unit.last_line = line_no;
                }
                if unit.exceptions() > before {
                    unit.key_line = line_no;
                    let mut raised = unit.segments.iter_mut().rev();
                    if let Some(segment) = raised.find(|segment| segment.exception.is_some()) {
                        segment.line = line_no;
                    }
                }
                step
            }
            // A syntax error of the main program has only its location and no header; a truncated log may lack the
            // header too.
            None if begins(text) => {
                let mut unit = OpenTraceback::new(line, line_no);
                unit.ignored = std::mem::take(&mut self.ignored);
                if !is_header(text) {
                    unit.headless = true;
                    unit.accept(text);
                }
                self.open = Some(unit);
                LineRelation::Taken
            }
            None => {
                self.ignored = is_farewell(text);
                LineRelation::Other
            }
        }
    }
}

impl OpenTraceback {
    fn new(line: &ParsedLine<'_>, line_no: u64) -> Self {
        Self {
            segments: vec![ExceptionSegment::default()],
            ignored: false,
            headless: false,
            indent: indent(line.text),
            prefix: WriterPrefix::of_header(line.text),
            announced: announced(line.text).map(str::to_owned),
            drawn: announced(line.text).is_some() || formatted::opens_box(line.text),
            code_next: false,
            chained: false,
            foreign: 0,
            at: line.at,
            rank: line.rank,
            local_rank: line.local_rank,
            host: line.host.map(str::to_owned),
            first_line: line_no,
            last_line: line_no,
            key_line: line_no,
        }
    }

    /// Returns true if it has neither a header nor an exception: warnings print stacks too, followed by other text.
    pub(super) fn is_stack_only(&self) -> bool {
        let named = |text: &str| {
            let kind = text.split([':', '(']).next().unwrap_or(text).trim_end();
            ["Error", "Exception", "Exit", "Interrupt", "Failure", "Iteration"]
                .iter()
                .any(|end| kind.ends_with(end))
                || kind.contains('.')
        };
        let raising = |segment: &ExceptionSegment| {
            let code = segment.frames.last().map_or("", |frame| frame.code.as_str());
            segment.exception.is_none() && (code.starts_with("raise ") || code.starts_with("assert "))
        };
        let says = |segment: &ExceptionSegment| segment.exception.as_deref().is_some_and(named) || raising(segment);
        self.headless
            && self
                .segments
                .iter()
                .any(|segment| !segment.frames.is_empty() && !segment.has_place())
            && !self.segments.iter().any(says)
    }

    /// Returns the number of exceptions read so far.
    fn exceptions(&self) -> usize {
        self.segments
            .iter()
            .filter(|segment| segment.exception.is_some())
            .count()
    }

    fn segment(&mut self) -> &mut ExceptionSegment {
        if self.segments.is_empty() {
            self.segments.push(ExceptionSegment::default());
        }
        let last = self.segments.len() - 1;
        &mut self.segments[last]
    }

    fn accept(&mut self, text: &str) -> LineRelation {
        let text = dedent(self.prefix.strip(text), self.indent);
        let step = |unit: &mut Self, text: &str| {
            if unit.segment().exception.is_some() {
                unit.tail(text)
            } else {
                unit.frames(text)
            }
        };
        match margin(text) {
            TreeMargin::None => step(self, text),
            TreeMargin::Rule => {
                self.chained |= self.segment().exception.is_some();
                LineRelation::Taken
            }
            TreeMargin::Bar(text) => {
                // Any text after the bar belongs to the exception group.
                if step(self, text) != LineRelation::Taken {
                    self.note(text);
                }
                LineRelation::Taken
            }
        }
    }

    /// Adds a frame to the segment.
    fn frame(&mut self, file: &str, line: &str, function: &str) {
        let frames = &mut self.segment().frames;
        if frames.len() == FRAMES {
            frames.remove(FRAMES / 2);
        }
        frames.push(TracebackFrame {
            file: file.to_owned(),
            line: line.to_owned(),
            function: function.to_owned(),
            code: String::new(),
        });
    }

    /// Reads a line of a formatted traceback; returns false if it is not one.
    fn draw(&mut self, text: &str) -> bool {
        match formatted::read(text) {
            Some(FormattedLine::Place { file, line, function }) => self.frame(file, line, function),
            Some(FormattedLine::Running { line, code }) => {
                if let Some(frame) = self.segment().frames.last_mut() {
                    line.clone_into(&mut frame.line);
                    frame.code = code[..code.floor_char_boundary(256)].to_owned();
                }
            }
            Some(FormattedLine::Ornament) => {}
            None => return false,
        }
        true
    }

    /// Adds a line to the last message.
    fn note(&mut self, text: &str) {
        let message = &mut self.segment().message;
        if message.len() < MESSAGE_LINES {
            message.push(text.trim().to_owned());
        }
    }

    /// Reads a line before the exception line.
    fn frames(&mut self, text: &str) -> LineRelation {
        if let Some(kind) = nested(text)
            && !self.segment().frames.is_empty()
        {
            self.segment().exception = Some(kind.to_owned());
            self.segments.push(ExceptionSegment::default());
            self.code_next = false;
            return LineRelation::Taken;
        }
        if is_header(text) {
            // Truncated and begun again, or another writer without a prefix.
            let empty = self.segment().frames.is_empty();
            return if empty {
                LineRelation::Taken
            } else {
                LineRelation::Closed
            };
        }
        if let Some(frame) = FRAME.captures(text) {
            let group = |name: &str| frame.name(name).map_or("", |m| m.as_str());
            self.frame(group("file"), group("line"), group("function"));
            self.code_next = true;
            return LineRelation::Taken;
        }
        if self.drawn && self.draw(text) {
            return LineRelation::Taken;
        }
        let indented = text.starts_with([' ', '\t']);
        let trimmed = text.trim();
        // Copies lose or gain a blank; a named error with a message is not source text.
        let named = trimmed
            .split_once(": ")
            .is_some_and(|(kind, _)| kind.ends_with("Error") || kind.ends_with("Exception"));
        if (!indented || named) && EXCEPTION.is_match(trimmed) {
            self.segment().exception = Some(trimmed.to_owned());
            return LineRelation::Taken;
        }
        if indented || self.code_next {
            if self.code_next
                && let Some(frame) = self.segment().frames.last_mut()
            {
                frame.code = trimmed[..trimmed.floor_char_boundary(256)].to_owned();
            }
            self.code_next = false;
            return LineRelation::Taken;
        }
        let marker = !trimmed.is_empty() && trimmed.bytes().all(|b| b"^~ ".contains(&b));
        if trimmed.is_empty() || marker || trimmed.starts_with("[Previous line repeated") {
            return LineRelation::Taken;
        }
        self.foreign += 1;
        if self.foreign > FOREIGN {
            LineRelation::Closed
        } else {
            LineRelation::Other
        }
    }

    /// Reads a line after the exception line.
    fn tail(&mut self, text: &str) -> LineRelation {
        if is_chain(text) {
            self.chained = true;
            return LineRelation::Taken;
        }
        let bare = self.chained && EXCEPTION.is_match(text.trim());
        if bare && self.segments.len() < SEGMENTS {
            self.chained = false;
            self.segments.push(ExceptionSegment {
                exception: Some(text.trim().to_owned()),
                ..ExceptionSegment::default()
            });
            return LineRelation::Taken;
        }
        if is_header(text) {
            // An exception from another process or thread is printed after the one that was raised from it.
            let caught = text.trim_start().starts_with("Original Traceback");
            if !(self.chained || caught) || self.segments.len() >= SEGMENTS {
                return LineRelation::Closed;
            }
            self.chained = false;
            self.code_next = false;
            self.segments.push(ExceptionSegment::default());
            return LineRelation::Taken;
        }
        if text.trim().is_empty() {
            return LineRelation::Taken;
        }
        let segment = self.segment();
        if text.starts_with([' ', '\t']) && segment.message.len() < MESSAGE_LINES {
            segment.message.push(text.trim().to_owned());
            return LineRelation::Taken;
        }
        LineRelation::Closed
    }
}
