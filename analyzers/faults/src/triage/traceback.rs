//! Python tracebacks, chained ones included, as one unit each. Every rank has its own tracker, so tracebacks that ranks print
//! through each other come apart by their prefixes.
//!
//! Indentation is a help, not a condition: collectors and editors lose it.

use std::sync::LazyLock;

use rankguard_model::{ClassId, Mark, Rank, Role, Source, Timestamp};
use regex::Regex;

use super::{CONTEXT, Observation, frames};
use crate::line::ParsedLine;
use crate::matcher::Matcher;

/// Frames kept; a recursion prints thousands.
const FRAMES: usize = 256;
/// Exceptions of a chain or a group that are kept.
const SEGMENTS: usize = 64;
/// Lines of a message after its first that are kept.
const MESSAGE_LINES: usize = 24;
/// Foreign lines in the middle after which the traceback is taken as cut off.
const FOREIGN: u32 = 32;

static FRAME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$"#)
        .expect("a constant pattern")
});
static EXCEPTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(?:\w+: )?(?P<type>(?:[A-Za-z_]\w*\.)*(?:[A-Z_]\w*|timeout|error|gaierror|herror)(?:\([\w.]+\))?)(?::(?:\s(?P<message>.*))?)?$")
        .expect("a constant pattern")
});

#[derive(Debug, Default)]
pub(super) struct Tracker {
    open: Option<Unit>,
    /// The line before said that what follows is ignored.
    ignored: bool,
}

/// What a line was to the tracker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Part of the unit.
    Taken,
    /// The unit ended before this line.
    Closed,
    /// Not part of it, and it goes on.
    Other,
}

#[derive(Debug)]
pub(super) struct Unit {
    segments: Vec<Segment>,
    /// The interpreter said that it is ignored.
    ignored: bool,
    /// Indentation of the whole traceback, bytes.
    indent: usize,
    /// The type that stands before the header, as notebooks print it.
    announced: Option<String>,
    /// The next line may be source text of the frame before it.
    code_next: bool,
    /// The sentence between chained exceptions was read.
    chained: bool,
    foreign: u32,
    at: Option<Timestamp>,
    rank: Option<Rank>,
    local_rank: Option<u32>,
    host: Option<String>,
    first_line: u64,
    last_line: u64,
    /// Where the last exception stands; the header until there is one.
    key_line: u64,
}

#[derive(Debug, Default)]
struct Segment {
    frames: Vec<Frame>,
    /// `Type: message`, and the lines of the message after the first.
    exception: Option<String>,
    message: Vec<String>,
}

#[derive(Debug, Clone)]
struct Frame {
    file: String,
    line: String,
    function: String,
    code: String,
}

fn is_header(text: &str) -> bool {
    text.contains("Traceback (most recent call last)")
}

fn is_chain(text: &str) -> bool {
    text.contains("During handling of the above exception") || text.contains("The above exception was the direct cause")
}

/// `ValueError: Traceback (most recent call last):`: an exception whose message is the traceback of another process, as data
/// loaders of before 2019 raise it. What happened is at the end of that one.
fn nested(text: &str) -> Option<&str> {
    let (kind, _) = text.trim_start().split_once(": Traceback (most recent call last)")?;
    (!kind.is_empty() && !kind.contains(char::is_whitespace)).then_some(kind)
}

/// `ZeroDivisionError                 Traceback (most recent call last)`: how notebooks head it.
fn announced(text: &str) -> Option<&str> {
    let (kind, _) = text.split_once("Traceback (most recent call last)")?;
    let word = kind.trim();
    let spaced = kind.ends_with("  ") && !word.is_empty();
    (spaced
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte)))
    .then_some(word)
}

/// The indentation that a header shares with its whole traceback; the tree of an exception group has its own margin.
fn indent(header: &str) -> usize {
    let trimmed = header.trim_start();
    if trimmed.starts_with("Traceback") {
        header.len() - trimmed.len()
    } else {
        0
    }
}

/// A line without the indentation that the whole traceback has.
fn dedent(text: &str, indent: usize) -> &str {
    let own = text.len() - text.trim_start_matches([' ', '\t']).len();
    &text[own.min(indent)..]
}

/// How the traceback of an exception group draws its tree.
enum Margin<'a> {
    None,
    /// `  | text`: a line of the group or of one of its exceptions.
    Bar(&'a str),
    /// `  +-+---------------- 1 ----------------`
    Rule,
}

fn margin(text: &str) -> Margin<'_> {
    let drawn = text.trim_start_matches(' ');
    if drawn.starts_with("+-") && drawn.contains("------") {
        return Margin::Rule;
    }
    match drawn.strip_prefix('|') {
        Some(inner) if drawn.len() < text.len() => Margin::Bar(inner.strip_prefix(' ').unwrap_or(inner)),
        _ => Margin::None,
    }
}

/// Whether a line begins a traceback, or says that the one that follows means nothing.
pub(super) fn opens(text: &str) -> bool {
    begins(text) || is_farewell(text)
}

fn begins(text: &str) -> bool {
    is_header(text) || headless(text)
}

/// What the interpreter says before an exception of a destructor or an exit handler: the program goes on, or is over.
fn is_farewell(text: &str) -> bool {
    [
        "Exception ignored in",
        "Exception ignored on",
        "Error in atexit._run_exitfuncs",
        "--- Logging error ---",
    ]
    .iter()
    .any(|words| text.contains(words))
}

impl Tracker {
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn take(&mut self) -> Option<Unit> {
        self.open.take()
    }

    pub(super) fn accept(&mut self, line: &ParsedLine<'_>, line_no: u64) -> Step {
        let text = line.text;
        match &mut self.open {
            Some(unit) => {
                let before = unit.exceptions();
                let step = unit.accept(text);
                if step == Step::Taken {
                    unit.last_line = line_no;
                }
                if unit.exceptions() > before {
                    unit.key_line = line_no;
                }
                step
            }
            // A syntax error of the main program has no header, only its place.
            None if begins(text) => {
                let mut unit = Unit::new(line, line_no);
                unit.ignored = std::mem::take(&mut self.ignored);
                if !is_header(text) {
                    unit.accept(text);
                }
                self.open = Some(unit);
                Step::Taken
            }
            None => {
                self.ignored = is_farewell(text);
                Step::Other
            }
        }
    }
}

/// `  File "train.py", line 3`, with nothing behind it.
fn headless(text: &str) -> bool {
    text.trim_start().starts_with("File \"")
        && FRAME
            .captures(text)
            .is_some_and(|frame| frame.name("function").is_none())
}

impl Unit {
    fn new(line: &ParsedLine<'_>, line_no: u64) -> Self {
        Self {
            segments: vec![Segment::default()],
            ignored: false,
            indent: indent(line.text),
            announced: announced(line.text).map(str::to_owned),
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

    /// Exceptions read so far.
    fn exceptions(&self) -> usize {
        self.segments
            .iter()
            .filter(|segment| segment.exception.is_some())
            .count()
    }

    fn segment(&mut self) -> &mut Segment {
        if self.segments.is_empty() {
            self.segments.push(Segment::default());
        }
        let last = self.segments.len() - 1;
        &mut self.segments[last]
    }

    fn accept(&mut self, text: &str) -> Step {
        let text = dedent(text, self.indent);
        let step = |unit: &mut Self, text: &str| {
            if unit.segment().exception.is_some() {
                unit.tail(text)
            } else {
                unit.frames(text)
            }
        };
        match margin(text) {
            Margin::None => step(self, text),
            Margin::Rule => {
                self.chained |= self.segment().exception.is_some();
                Step::Taken
            }
            Margin::Bar(text) => {
                // What stands behind the bar belongs to the group, whatever it is.
                if step(self, text) != Step::Taken {
                    self.note(text);
                }
                Step::Taken
            }
        }
    }

    /// Another line of the last message.
    fn note(&mut self, text: &str) {
        let message = &mut self.segment().message;
        if message.len() < MESSAGE_LINES {
            message.push(text.trim().to_owned());
        }
    }

    /// Before the exception's line.
    fn frames(&mut self, text: &str) -> Step {
        if let Some(kind) = nested(text)
            && !self.segment().frames.is_empty()
        {
            self.segment().exception = Some(kind.to_owned());
            self.segments.push(Segment::default());
            self.code_next = false;
            return Step::Taken;
        }
        if is_header(text) {
            // Cut off and begun again, or another writer without a prefix.
            let empty = self.segment().frames.is_empty();
            return if empty { Step::Taken } else { Step::Closed };
        }
        if let Some(frame) = FRAME.captures(text) {
            let group = |name: &str| frame.name(name).map_or(String::new(), |m| m.as_str().to_owned());
            let frame = Frame {
                file: group("file"),
                line: group("line"),
                function: group("function"),
                code: String::new(),
            };
            let frames = &mut self.segment().frames;
            if frames.len() == FRAMES {
                frames.remove(FRAMES / 2);
            }
            frames.push(frame);
            self.code_next = true;
            return Step::Taken;
        }
        let indented = text.starts_with([' ', '\t']);
        let trimmed = text.trim();
        // Copies lose or gain a blank; what is named an error and says more is no source text.
        let named = trimmed
            .split_once(": ")
            .is_some_and(|(kind, _)| kind.ends_with("Error") || kind.ends_with("Exception"));
        if (!indented || named) && EXCEPTION.is_match(trimmed) {
            self.segment().exception = Some(trimmed.to_owned());
            return Step::Taken;
        }
        if indented || self.code_next {
            if self.code_next
                && let Some(frame) = self.segment().frames.last_mut()
            {
                frame.code = trimmed[..trimmed.floor_char_boundary(256)].to_owned();
            }
            self.code_next = false;
            return Step::Taken;
        }
        let marker = !trimmed.is_empty() && trimmed.bytes().all(|b| b"^~ ".contains(&b));
        if trimmed.is_empty() || marker || trimmed.starts_with("[Previous line repeated") {
            return Step::Taken;
        }
        self.foreign += 1;
        if self.foreign > FOREIGN {
            Step::Closed
        } else {
            Step::Other
        }
    }

    /// After the exception's line.
    fn tail(&mut self, text: &str) -> Step {
        if is_chain(text) {
            self.chained = true;
            return Step::Taken;
        }
        let bare = self.chained && EXCEPTION.is_match(text.trim());
        if bare && self.segments.len() < SEGMENTS {
            self.chained = false;
            self.segments.push(Segment {
                exception: Some(text.trim().to_owned()),
                ..Segment::default()
            });
            return Step::Taken;
        }
        if is_header(text) {
            if !self.chained || self.segments.len() >= SEGMENTS {
                return Step::Closed;
            }
            self.chained = false;
            self.code_next = false;
            self.segments.push(Segment::default());
            return Step::Taken;
        }
        if text.trim().is_empty() {
            return Step::Taken;
        }
        let segment = self.segment();
        if text.starts_with([' ', '\t']) && segment.message.len() < MESSAGE_LINES {
            segment.message.push(text.trim().to_owned());
            return Step::Taken;
        }
        Step::Closed
    }

    /// What is left when the end was cut off: the type that was announced.
    fn complete(&mut self) {
        if let Some(announced) = self.announced.take()
            && self.segment().exception.is_none()
        {
            self.segment().exception = Some(announced);
        }
    }

    pub(super) fn observation(mut self, matcher: &Matcher, source: Source) -> Observation {
        self.complete();
        if self.segments.len() > 1
            && self
                .segments
                .last()
                .is_some_and(|s| s.exception.is_none() && s.frames.is_empty())
        {
            self.segments.pop();
        }
        let mut marks: Vec<Mark> = Vec::new();
        for segment in &self.segments {
            for text in segment.exception.iter().chain(&segment.message) {
                for mark in matcher.marks(source, text) {
                    if !marks
                        .iter()
                        .any(|known| known.class == mark.class && known.signature == mark.signature)
                    {
                        marks.push(mark);
                    }
                }
            }
        }
        marks.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
        let last = self.segments.last();
        let exception = last.and_then(|segment| segment.exception.clone());
        if self.is_shutdown() {
            marks.clear();
            marks.push(Mark {
                class: ClassId::from("none"),
                role: Role::Noise,
                confidence: 0.9,
                signature: "python-shutdown".to_owned(),
                fields: std::collections::BTreeMap::new(),
            });
        }
        if let Some(code) = self.assertion() {
            marks.extend(matcher.marks(source, code));
            marks.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
        }
        if marks.is_empty() && self.is_launchers() {
            marks.push(Mark {
                class: ClassId::from("launcher-child-failed"),
                role: Role::Cascade,
                confidence: 0.4,
                signature: "launcher-traceback".to_owned(),
                fields: std::collections::BTreeMap::new(),
            });
        }
        if marks.is_empty() {
            marks.push(Mark {
                class: ClassId::from("uncaught-exception"),
                role: Role::Root,
                confidence: if exception.is_some() { 0.45 } else { 0.3 },
                signature: "python-traceback".to_owned(),
                fields: std::collections::BTreeMap::new(),
            });
        }
        let mut facts: Vec<(&str, String)> = Vec::new();
        if let Some(captures) = exception.as_deref().and_then(|text| EXCEPTION.captures(text)) {
            let group = |name: &str| captures.name(name).map_or(String::new(), |m| m.as_str().to_owned());
            facts.push(("exception", group("type")));
            let message = group("message");
            facts.push(("message", message[..message.floor_char_boundary(512)].to_owned()));
        }
        if let Some(frame) = self.blamed_frame() {
            facts.push(("file", frame.file.clone()));
            facts.push(("line", frame.line.clone()));
            facts.push(("function", frame.function.clone()));
            facts.push(("code", frame.code.clone()));
        }
        let innermost_first = || last.into_iter().flat_map(|segment| segment.frames.iter().rev());
        facts.push((
            "functions",
            frames::told(innermost_first().map(|frame| frame.function.as_str())),
        ));
        facts.push((
            "packages",
            frames::told(innermost_first().map(|frame| frames::package(&frame.file))),
        ));
        if self.segments.len() > 1
            && let Some(cause) = self.segments.first().and_then(|segment| segment.exception.clone())
        {
            facts.push(("cause", cause));
        }
        for mark in &mut marks {
            for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
                mark.fields.entry((*name).to_owned()).or_insert_with(|| value.clone());
            }
        }
        Observation {
            text: exception.unwrap_or_else(|| "Traceback (most recent call last): (cut off)".to_owned()),
            context: self.context(),
            repeats: 1,
            marks,
            at: self.at,
            since_boot_us: None,
            rank: self.rank,
            local_rank: self.local_rank,
            host: self.host,
            device: None,
            line_no: self.first_line,
            last_line_no: self.last_line,
            key_line_no: self.key_line,
        }
    }

    /// Whether it is the launcher's own, which ends with its children: every frame is the launcher's or the interpreter's.
    fn is_launchers(&self) -> bool {
        let launcher = |frame: &Frame| {
            let file = frame.file.replace('\\', "/");
            [
                "torch/distributed/run",
                "torch/distributed/launch",
                "torch/distributed/elastic",
                "accelerate/commands",
                "deepspeed/launcher",
            ]
            .iter()
            .any(|part| file.contains(part))
        };
        let outer = |frame: &Frame| frames::package(&frame.file) == "python" || frame.file.contains("/bin/");
        let mut all = self.segments.iter().flat_map(|segment| &segment.frames).peekable();
        all.peek().is_some() && all.clone().any(launcher) && all.all(|frame| launcher(frame) || outer(frame))
    }

    /// The assertion that failed, where the exception itself says nothing of it.
    fn assertion(&self) -> Option<&str> {
        let last = self.segments.last()?;
        let silent = last.exception.as_deref().is_none_or(|text| text == "AssertionError");
        let code = last.frames.last()?.code.as_str();
        (silent && code.starts_with("assert ") && !self.is_shutdown()).then_some(code)
    }

    /// Whether it is an exception of a destructor or of an exit handler, which ends nothing.
    fn is_shutdown(&self) -> bool {
        let ending = |frame: &Frame| matches!(frame.function.as_str(), "__del__" | "_run_exitfuncs" | "_exit_function");
        let over = |text: &String| text.contains("Python is likely shutting down");
        self.ignored
            || self.segments.iter().flat_map(|segment| &segment.frames).any(ending)
            || self.segments.iter().flat_map(|segment| &segment.exception).any(over)
    }

    /// The innermost frame that is not of a library: where a person should look.
    fn blamed_frame(&self) -> Option<&Frame> {
        let segments = self.segments.iter().rev();
        let mut innermost = None;
        for segment in segments {
            if let Some(frame) = segment.frames.iter().rev().find(|frame| is_users(&frame.file)) {
                return Some(frame);
            }
            innermost = innermost.or(segment.frames.last());
        }
        innermost
    }

    fn context(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for segment in &self.segments {
            for frame in &segment.frames {
                let place = if frame.function.is_empty() {
                    format!("  File \"{}\", line {}", frame.file, frame.line)
                } else {
                    format!("  File \"{}\", line {}, in {}", frame.file, frame.line, frame.function)
                };
                lines.push(place);
                if !frame.code.is_empty() {
                    lines.push(format!("    {}", frame.code));
                }
            }
            lines.extend(segment.exception.iter().cloned());
            lines.extend(segment.message.iter().cloned());
        }
        // The last exception is the observation's own text.
        if let Some(own) = self.segments.last().and_then(|segment| segment.exception.as_ref())
            && let Some(at) = lines.iter().rposition(|line| line == own)
        {
            lines.remove(at);
        }
        let surplus = lines.len().saturating_sub(CONTEXT);
        lines.drain(..surplus);
        lines
    }
}

fn is_users(file: &str) -> bool {
    let library = [
        "site-packages",
        "dist-packages",
        "/lib/python",
        "importlib",
        "/multiprocessing/",
        "\\lib\\",
    ];
    !file.starts_with('<') && !library.iter().any(|part| file.contains(part))
}
