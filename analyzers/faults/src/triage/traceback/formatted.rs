//! Tracebacks formatted for people: notebooks name a frame by file and call, rich draws each into a box.
//!
//! ```text
//! KeyError                        Traceback (most recent call last)
//! /opt/x/hub.py in load(name)     File /opt/x/hub.py:8, in load(name)
//!       7     state = read(name)
//! ----> 8     return state["model"]
//! ```
//!
//! Messages that rich wraps over several lines are not joined; the part that signatures match is usually in the
//! first.

use std::sync::LazyLock;

use regex::Regex;

static FRAME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"^(?:File |Input |Cell )?(?P<file>[/~.<]\S*?|[A-Z]:\\\S*?|In ?\[\d+\])(?::(?P<line>\d+))?,? in (?P<function><cell line: \d+>|[\w.<>]+)(?: ?\(.*\))?$",
    )
    .expect("a constant pattern")
});
static MARKED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(?:-+>|❱) *(?P<line>\d+) (?P<code>.*)$").expect("a constant pattern"));

/// Kind of a line in a formatted traceback.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FormattedLine<'a> {
    /// Location of a frame.
    Place {
        file: &'a str,
        line: &'a str,
        function: &'a str,
    },
    /// Source line that was executing.
    Running { line: &'a str, code: &'a str },
    /// Other source lines, and the box.
    Ornament,
}

/// Returns true for the upper edge of a box.
pub(super) fn opens_box(header: &str) -> bool {
    header.trim_start().starts_with('╭')
}

/// Parses a line of a formatted traceback; none if it is not part of it.
pub(super) fn read(text: &str) -> Option<FormattedLine<'_>> {
    let trimmed = text.trim();
    let inside = trimmed.strip_prefix('│').map(|rest| rest.trim_end_matches('│').trim());
    let text = inside.unwrap_or(trimmed);
    if let Some(frame) = FRAME.captures(text) {
        let group = |name: &str| frame.name(name).map_or("", |found| found.as_str());
        // Methods are printed with their class.
        let function = group("function").rsplit('.').next().unwrap_or_default();
        return Some(FormattedLine::Place {
            file: group("file"),
            line: group("line"),
            function,
        });
    }
    if let Some(running) = MARKED.captures(text) {
        let group = |name: &str| running.name(name).map_or("", |found| found.as_str());
        return Some(FormattedLine::Running {
            line: group("line"),
            code: group("code").trim_start_matches(['│', ' ']),
        });
    }
    let edge = trimmed.starts_with(['╭', '╰']);
    let counted = text
        .split(' ')
        .next()
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    let skipped = text.ends_with(" frames") || text.ends_with(" frames hidden ...");
    (inside.is_some() || edge || counted || skipped).then_some(FormattedLine::Ornament)
}

#[cfg(test)]
mod tests {
    use super::{FormattedLine, read};

    #[test]
    fn frames_of_notebooks_and_boxes_are_read() {
        let places = [
            (
                "<ipython-input-13-782ea15f> in <module>()",
                ("<ipython-input-13-782ea15f>", "", "<module>"),
            ),
            ("/opt/x/hub.py in load(name, strict)", ("/opt/x/hub.py", "", "load")),
            ("File ~/x/hub.py:722, in Hub.load(self)", ("~/x/hub.py", "722", "load")),
            ("Input In [3], in <cell line: 1>()", ("In [3]", "", "<cell line: 1>")),
            (
                "│ /opt/x/hub.py:891 in load          │",
                ("/opt/x/hub.py", "891", "load"),
            ),
        ];
        for (text, (file, line, function)) in places {
            assert_eq!(
                read(text),
                Some(FormattedLine::Place { file, line, function }),
                "{text}"
            );
        }
        let running = |line, code| Some(FormattedLine::Running { line, code });
        assert_eq!(
            read("---> 300     return state[\"model\"]"),
            running("300", "return state[\"model\"]")
        );
        assert_eq!(
            read("│ ❱ 891 │   │   assert ok, why │"),
            running("891", "assert ok, why")
        );
    }

    #[test]
    fn what_is_not_drawn_is_left_alone() {
        for text in [
            "KeyError: 'model'",
            "Training starts in earnest",
            "File not found in /opt/x",
            "",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read("    298     if x not in state:"), Some(FormattedLine::Ornament));
        assert_eq!(read("╰───────────╯"), Some(FormattedLine::Ornament));
    }
}
