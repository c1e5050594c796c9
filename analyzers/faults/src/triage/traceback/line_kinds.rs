//! Recognition of the lines of a traceback.

use std::sync::LazyLock;

use regex::Regex;

pub(super) static FRAME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$"#)
        .expect("a constant pattern")
});
pub(super) static EXCEPTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(?:\w+: )?(?P<type>(?:[A-Za-z_]\w*\.)*(?:[A-Z_]\w*|timeout|error|gaierror|herror)(?:\([\w.]+\))?)(?::(?:\s(?P<message>.*))?)?$")
        .expect("a constant pattern")
});

pub(super) fn is_header(text: &str) -> bool {
    // Data loaders quote the traceback of their worker on one line: there it is a message.
    text.contains("Traceback (most recent call last)") && !text.contains("Traceback (most recent call last):\\n")
}

pub(super) fn is_chain(text: &str) -> bool {
    text.contains("During handling of the above exception") || text.contains("The above exception was the direct cause")
}

/// Parses `ValueError: Traceback (most recent call last):`: an exception with the traceback of another process as its
/// message, as data loaders before 2019 raise it. The cause is at the end of the inner traceback.
pub(super) fn nested(text: &str) -> Option<&str> {
    let (kind, _) = text.trim_start().split_once(": Traceback (most recent call last)")?;
    (!kind.is_empty() && !kind.contains(char::is_whitespace)).then_some(kind)
}

/// Parses the header of notebooks: `ZeroDivisionError                 Traceback (most recent call last)`.
pub(super) fn announced(text: &str) -> Option<&str> {
    let (kind, _) = text.split_once("Traceback (most recent call last)")?;
    let word = kind.trim();
    let spaced = kind.ends_with("  ") && !word.is_empty();
    (spaced
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte)))
    .then_some(word)
}

/// Returns the indentation of a header, shared by its traceback; the tree of an exception group has its own margin.
pub(super) fn indent(header: &str) -> usize {
    let trimmed = header.trim_start();
    if trimmed.starts_with("Traceback") {
        header.len() - trimmed.len()
    } else {
        0
    }
}

/// Removes the indentation of the whole traceback from a line.
pub(super) fn dedent(text: &str, indent: usize) -> &str {
    let own = text.len() - text.trim_start_matches([' ', '\t']).len();
    &text[own.min(indent)..]
}

/// Margin of a line in the tree of an exception group.
pub(super) enum TreeMargin<'a> {
    None,
    /// `  | text`: a line of the group or of one of its exceptions.
    Bar(&'a str),
    /// Rule line: `  +-+---------------- 1 ----------------`
    Rule,
}

pub(super) fn margin(text: &str) -> TreeMargin<'_> {
    let drawn = text.trim_start_matches(' ');
    if drawn.starts_with("+-") && drawn.contains("------") {
        return TreeMargin::Rule;
    }
    match drawn.strip_prefix('|') {
        Some(inner) if drawn.len() < text.len() => TreeMargin::Bar(inner.strip_prefix(' ').unwrap_or(inner)),
        _ => TreeMargin::None,
    }
}

/// Returns true if a line begins a traceback, or announces that the next one is ignored.
pub(in crate::triage) fn opens(text: &str) -> bool {
    begins(text) || is_farewell(text)
}

pub(super) fn begins(text: &str) -> bool {
    is_header(text) || headless(text)
}

/// Returns true for the text before an exception of a destructor or exit handler: the program continues, or is over.
pub(super) fn is_farewell(text: &str) -> bool {
    [
        "Exception ignored in",
        "Exception ignored on",
        "Error in atexit._run_exitfuncs",
        "--- Logging error ---",
    ]
    .iter()
    .any(|words| text.contains(words))
}

/// Matches `  File "train.py", line 3`: the location of a syntax error, or a frame of a traceback without its header.
pub(super) fn headless(text: &str) -> bool {
    let is_name = |name: &str| !name.contains(char::is_whitespace);
    text.trim_start().starts_with("File \"")
        && FRAME
            .captures(text)
            .is_some_and(|frame| frame.name("function").is_none_or(|name| is_name(name.as_str())))
}
