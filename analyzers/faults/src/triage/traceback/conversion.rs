//! Conversion of a complete traceback to one observation with marks, fields and context.

use rankguard_model::{ClassId, Classification, EvidenceSource, FieldValues, Role};

use super::line_kinds::EXCEPTION;
use super::{ExceptionSegment, OpenTraceback, TracebackFrame};
use crate::classes;
use crate::matcher::SignatureMatcher;
use crate::triage::frames;
use crate::triage::limits::CONTEXT;
use crate::triage::observation::LogObservation;

/// Field with the exception that has the class of the mark, if it is not the last one.
const REPORTED: &str = "reported";
/// Field with the number of the line of that exception, if the observation has another deciding line.
const REPORTED_LINE: &str = "reported_line";

/// Parses `Caught RuntimeError in replica 1 on device 1.`: data parallelism within one process numbers its replicas
/// like ranks.
fn replica(exception: &str) -> Option<&str> {
    let (_, rest) = exception.split_once(" in replica ")?;
    let (number, rest) = rest.split_once(' ')?;
    (rest.starts_with("on device") && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some(number)
}

impl TracebackFrame {
    /// Returns the package of the frame. A script that is run from a framework's checkout counts as the user's
    /// program.
    fn package(&self) -> &str {
        let installed = self.file.contains("site-packages") || self.file.contains("dist-packages");
        match frames::package(&self.file) {
            name if self.function == "<module>" && !installed && name != "python" => frames::PROGRAM,
            name => name,
        }
    }
}

impl OpenTraceback {
    /// Completes a truncated traceback with the announced type, or the one that the innermost frame was raising.
    fn complete(&mut self) {
        let announced = self.announced.take();
        let segment = self.segment();
        if segment.exception.is_none() {
            let raised = segment.frames.last().and_then(|frame| raised_by(&frame.code));
            segment.exception = announced.or(raised);
        }
    }

    pub(in crate::triage) fn observation(
        mut self,
        matcher: &SignatureMatcher,
        source: EvidenceSource,
    ) -> LogObservation {
        self.complete();
        if self.segments.len() > 1
            && self
                .segments
                .last()
                .is_some_and(|s| s.exception.is_none() && s.frames.is_empty())
        {
            self.segments.pop();
        }
        let mut marks: Vec<Classification> = Vec::new();
        for segment in self.decisive_segments(matcher, source) {
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
        let decisive: Vec<Option<(String, u64)>> = marks
            .iter()
            .map(|mark| self.decisive_exception(matcher, source, mark))
            .collect();
        let last_line = self.key_line;
        let best = decisive.first().cloned().flatten();
        for (mark, decisive) in marks.iter_mut().zip(decisive) {
            let line = decisive.as_ref().map_or(last_line, |(_, line)| *line);
            if let Some((text, _)) = decisive {
                mark.fields.fill(REPORTED, &text);
            }
            if best.as_ref().map_or(last_line, |(_, line)| *line) != line {
                mark.fields.fill(REPORTED_LINE, line.to_string());
            }
        }
        let last = self.segments.last();
        let exception = last.and_then(|segment| segment.exception.clone());
        if self.is_shutdown() {
            marks.clear();
            marks.push(Classification {
                class: ClassId::from(classes::NONE),
                role: Role::Noise,
                confidence: 0.9,
                signature: "python-shutdown".into(),
                fields: FieldValues::new(),
            });
        }
        if let Some(code) = self.assertion() {
            marks.extend(matcher.marks(source, code));
            marks.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
        }
        if marks.is_empty() && self.is_launchers() {
            marks.push(Classification {
                class: ClassId::from(classes::LAUNCHER_CHILD_FAILED),
                role: Role::Cascade,
                confidence: 0.4,
                signature: "launcher-traceback".into(),
                fields: FieldValues::new(),
            });
        }
        if marks.is_empty() {
            marks.push(Classification {
                class: ClassId::from(classes::UNCAUGHT_EXCEPTION),
                role: Role::Root,
                confidence: if exception.is_some() { 0.45 } else { 0.3 },
                signature: "python-traceback".into(),
                fields: FieldValues::new(),
            });
        }
        let mut facts: Vec<(&str, String)> = Vec::new();
        if let Some(captures) = exception.as_deref().and_then(|text| EXCEPTION.captures(text)) {
            let group = |name: &str| captures.name(name).map_or(String::new(), |m| m.as_str().to_owned());
            facts.push(("exception", group("type")));
            let message = group("message");
            facts.push(("message", message[..message.floor_char_boundary(512)].to_owned()));
        }
        let caught = || self.segments.iter().filter_map(|segment| segment.exception.as_deref());
        if let Some(replica) = caught().find_map(replica) {
            facts.push(("rank", replica.to_owned()));
        }
        if let Some(frame) = self.blamed_frame() {
            facts.push(("file", frame.file.clone()));
            facts.push(("line", frame.line.clone()));
            facts.push(("function", frame.function.clone()));
            facts.push(("code", frame.code.clone()));
        }
        if let Some(frame) = last.and_then(|segment| segment.frames.last()) {
            facts.push(("raising", frame.code.clone()));
        }
        let innermost_first = || last.into_iter().flat_map(|segment| segment.frames.iter().rev());
        facts.push((
            "functions",
            frames::format_list(innermost_first().map(|frame| frame.function.as_str())),
        ));
        facts.push((
            "packages",
            frames::format_list(innermost_first().map(TracebackFrame::package)),
        ));
        if self.segments.len() > 1
            && let Some(cause) = self.segments.first().and_then(|segment| segment.exception.clone())
        {
            facts.push(("cause", cause));
        }
        if let Some((_, line)) = best {
            self.key_line = line;
        }
        for mark in &mut marks {
            for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
                mark.fields.fill(*name, value);
            }
        }
        LogObservation {
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

    /// Returns text and line of the exception from which the last one was raised, if the mark is of it alone.
    fn decisive_exception(
        &self,
        matcher: &SignatureMatcher,
        source: EvidenceSource,
        mark: &Classification,
    ) -> Option<(String, u64)> {
        if self.segments.len() < 2 {
            return None;
        }
        let has_class = |segment: &&ExceptionSegment| {
            let texts = segment.exception.iter().chain(&segment.message);
            let mut marks = texts.flat_map(|text| matcher.marks(source, text));
            marks.any(|other| other.class == mark.class)
        };
        let segment = self.segments.iter().rev().find(has_class)?;
        let is_last = self.segments.last().is_some_and(|last| std::ptr::eq(last, segment));
        let text = segment.exception.clone().filter(|_| !is_last)?;
        Some((text, segment.line))
    }

    /// Returns the exceptions that describe the failure. If the last one is noise, as when an experiment tracker
    /// gives up, the exceptions from which it was raised are noise too.
    fn decisive_segments(&self, matcher: &SignatureMatcher, source: EvidenceSource) -> &[ExceptionSegment] {
        let means_nothing = |segment: &ExceptionSegment| {
            let marks = segment.exception.as_deref().map(|text| matcher.marks(source, text));
            marks.is_some_and(|marks| marks.first().is_some_and(|mark| mark.role == Role::Noise))
        };
        match self.segments.split_last() {
            Some((last, [_, ..])) if means_nothing(last) => std::slice::from_ref(last),
            _ => &self.segments,
        }
    }

    /// Returns true for the launcher's own traceback, which ends with its children: every frame is the launcher's or
    /// Python's.
    fn is_launchers(&self) -> bool {
        let launcher = |frame: &TracebackFrame| {
            let file = frame.file.replace('\\', "/");
            [
                "/bin/torchrun",
                "/bin/accelerate",
                "/bin/deepspeed",
                "torch/distributed/run",
                "torch/distributed/launch",
                "torch/distributed/elastic",
                "accelerate/commands",
                "deepspeed/launcher",
            ]
            .iter()
            .any(|part| file.contains(part))
        };
        let outer = |frame: &TracebackFrame| frames::package(&frame.file) == "python" || frame.file.contains("/bin/");
        let mut all = self.segments.iter().flat_map(|segment| &segment.frames).peekable();
        all.peek().is_some() && all.clone().any(launcher) && all.all(|frame| launcher(frame) || outer(frame))
    }

    /// Returns the failed assertion, if the exception has no message.
    fn assertion(&self) -> Option<&str> {
        let last = self.segments.last()?;
        let silent = last.exception.as_deref().is_none_or(|text| text == "AssertionError");
        let code = last.frames.last()?.code.as_str();
        (silent && code.starts_with("assert ") && !self.is_shutdown()).then_some(code)
    }

    /// Returns true for an exception of a destructor or exit handler, which ends nothing. In a chain the first
    /// exception decides: a process that dies of it runs its finalizers on the way.
    fn is_shutdown(&self) -> bool {
        let ending = |frame: &TracebackFrame| {
            matches!(
                frame.function.as_str(),
                "__del__" | "_exitfunc" | "_run_exitfuncs" | "_exit_function" | "_run_finalizers"
            )
        };
        let ends = |segment: &ExceptionSegment| segment.frames.iter().any(ending);
        let first = self.segments.first();
        let over = |text: &String| text.contains("Python is likely shutting down");
        self.ignored
            || self.segments.last().is_some_and(is_left_talking)
            || first.is_some_and(ends)
            || first.is_some_and(is_left_talking) && self.segments.last().is_some_and(ends)
            || self.segments.iter().flat_map(|segment| &segment.exception).any(over)
    }

    /// Returns the innermost frame outside libraries: the place to examine.
    fn blamed_frame(&self) -> Option<&TracebackFrame> {
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
        // The last exception is the text of the observation.
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
    let library = ["site-packages", "dist-packages", "importlib", "/multiprocessing/"];
    (!file.starts_with('<') || frames::is_cell(file))
        && !frames::is_standard(file)
        && !library.iter().any(|part| file.contains(part))
}

/// Returns the exception that a source line raises, as it would be printed: the type, and the start of a quoted
/// message. `raise ValueError("no such file")`, `assert len(indices) == total`.
fn raised_by(code: &str) -> Option<String> {
    if code.starts_with("assert ") {
        return Some("AssertionError".to_owned());
    }
    let raised = code.strip_prefix("raise ")?;
    let kind: &str = raised
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
        .next()?;
    if !kind.ends_with("Error") && !kind.ends_with("Exception") {
        return None;
    }
    let rest = &raised[kind.len()..];
    let message = rest
        .split_once(['"', '\''])
        .map(|(_, quoted)| quoted.trim_end_matches([')', '"', '\'', ',', '(']))
        .filter(|message| !message.is_empty());
    Some(message.map_or_else(|| kind.to_owned(), |message| format!("{kind}: {message}")))
}

/// Returns true if a communication helper of the program lost its peer: the peer ended for its own reasons, and the
/// end of these helper threads and processes ends nothing else.
fn is_left_talking(segment: &ExceptionSegment) -> bool {
    let text = segment.exception.as_deref().unwrap_or_default();
    let within = |file: &str, function: &str| {
        let mut frames = segment.frames.iter();
        frames.any(|frame| frame.function == function && frame.file.ends_with(file))
    };
    let gone = |words: &[&str]| words.iter().any(|word| text.starts_with(word));
    // The feeder thread of a queue, a pool worker that returns its result, a worker that requests shared memory from
    // its parent, the thread that writes log records of other processes, and the thread that receives batches from
    // workers and pins them.
    within("multiprocessing/queues.py", "_feed")
        && gone(&[
            "BrokenPipeError",
            "OSError: [Errno 9]",
            "OSError: handle is closed",
            "ValueError: semaphore",
        ])
        || within("multiprocessing/pool.py", "worker")
            && within("multiprocessing/queues.py", "put")
            && (text.is_empty() || gone(&["BrokenPipeError"]))
        || within("multiprocessing/process.py", "_bootstrap")
            && within("multiprocessing/resource_sharer.py", "get_connection")
            && (text.is_empty() || gone(&["Connection", "EOFError", "FileNotFoundError"]))
        || within("logging/handlers.py", "_monitor")
            && within("multiprocessing/queues.py", "get")
            && (text.is_empty() || gone(&["Connection", "EOFError", "OSError: handle is closed"]))
        || within("torch/utils/data/_utils/pin_memory.py", "_pin_memory_loop")
            && within("multiprocessing/queues.py", "get")
            && (text.is_empty() || gone(&["Connection", "EOFError", "FileNotFoundError"]))
        || within("threading.py", "_bootstrap_inner") && segment.frames.last().is_some_and(is_trackers)
}

/// Returns true if the frame is in an experiment tracking package.
fn is_trackers(frame: &TracebackFrame) -> bool {
    let trackers = ["wandb", "comet_ml", "neptune", "mlflow", "clearml", "swanlab"];
    trackers
        .iter()
        .any(|name| frame.file.contains(&format!("-packages/{name}/")))
}

#[cfg(test)]
mod tests {
    use super::raised_by;

    #[test]
    fn code_that_raises_tells_what_was_raised() {
        let told = [
            ("raise ValueError(\"no such file\")", Some("ValueError: no such file")),
            ("raise errors.TimeoutError(", Some("errors.TimeoutError")),
            ("assert len(indices) == self.total_size", Some("AssertionError")),
            ("raise", None),
            ("raise exception", None),
            ("raised = KeyError", None),
        ];
        for (code, wanted) in told {
            assert_eq!(raised_by(code).as_deref(), wanted, "{code}");
        }
    }
}
