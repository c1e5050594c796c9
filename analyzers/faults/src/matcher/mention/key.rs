//! Key of a quoted value, and its kind by the words of its name.

/// Key before a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ValueKey<'a> {
    /// Name without quotes.
    pub(super) name: &'a str,
    /// Index of its first character.
    pub(super) start: usize,
}

/// Kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// Setting about errors, or a field of a data sample: its value describes no event.
    Setting,
    /// Member with a message.
    Message,
    Other,
}

/// Words for a message.
const MESSAGES: [&str; 45] = [
    "body",
    "cause",
    "causes",
    "comment",
    "condition",
    "desc",
    "description",
    "detail",
    "details",
    "dmesg",
    "err",
    "error",
    "errors",
    "event",
    "exc",
    "exception",
    "exceptions",
    "failure",
    "failures",
    "fault",
    "faults",
    "info",
    "issue",
    "kernel",
    "line",
    "lines",
    "log",
    "logs",
    "message",
    "messages",
    "msg",
    "note",
    "output",
    "payload",
    "problem",
    "reason",
    "reasons",
    "result",
    "state",
    "status",
    "stderr",
    "stdout",
    "text",
    "traceback",
    "what",
];

/// Words for what a program is to do about errors, and for the fields of a sample of data.
const SETTINGS: [&str; 44] = [
    "allow",
    "allowed",
    "allowlist",
    "answer",
    "blacklist",
    "caption",
    "catch",
    "completion",
    "default",
    "denylist",
    "except",
    "exclude",
    "excluded",
    "excludes",
    "expect",
    "expected",
    "filter",
    "filters",
    "handle",
    "handler",
    "handlers",
    "help",
    "ignore",
    "ignored",
    "instruction",
    "keyword",
    "keywords",
    "known",
    "match",
    "matcher",
    "matches",
    "pattern",
    "patterns",
    "prompt",
    "query",
    "question",
    "regex",
    "regexes",
    "regexp",
    "retriable",
    "retry",
    "retryable",
    "skip",
    "suppress",
];

/// Last words of names that hold the reason of an event, also beside a word for a setting.
const REASONS: [&str; 5] = ["cause", "message", "msg", "reason", "traceback"];

/// Returns the kind of a key by the words of its name.
pub(super) fn key_kind(words: &[String]) -> KeyKind {
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    if words.last().is_some_and(|word| REASONS.contains(&word.as_str())) {
        return KeyKind::Message;
    }
    // `on_error`, `restart_on`.
    let is_handler = words.len() > 1 && has(&["on"]);
    if is_handler || has(&SETTINGS) {
        return KeyKind::Setting;
    }
    if has(&MESSAGES) {
        return KeyKind::Message;
    }
    KeyKind::Other
}

/// Returns the words of a name in lower case: `excludeErrors`, `exclude_errors`, `log.level`.
pub(super) fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_new = true;
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() {
            is_new = true;
            continue;
        }
        if is_new || was_lower && c.is_ascii_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
        is_new = false;
        was_lower = c.is_ascii_lowercase();
    }
    words
}

/// Returns the key of a value at the end of a text, or that of the list around the value.
pub(super) fn governing_key(before: &str) -> Option<ValueKey<'_>> {
    let before = without_prefix(before.trim_end());
    if before.ends_with([':', '=']) {
        return key_at_end(before);
    }
    if !before.ends_with(['[', '(', '{', ',']) {
        return None;
    }
    let mut open = open_brackets(before);
    loop {
        let list = before[..open.pop()?].trim_end();
        if list.ends_with([':', '=']) {
            return key_at_end(list);
        }
        // A list in a list.
        if !list.ends_with(['[', '(', ',']) {
            return None;
        }
    }
}

/// Returns a text without the prefix of a string of Python at its end: `= r` before `"..."`.
fn without_prefix(text: &str) -> &str {
    let shorter = text.trim_end_matches(['r', 'b', 'f', 'u']);
    let is_prefix = text.len() - shorter.len() == 1 && shorter.ends_with(['=', ':', ',', '[', '(', ' ']);
    if is_prefix { shorter.trim_end() } else { text }
}

/// Returns the name before a colon or an equals sign at the end of a text.
fn key_at_end(text: &str) -> Option<ValueKey<'_>> {
    let text = text.trim_end_matches([':', '=']).trim_end();
    let text = text.strip_suffix(['"', '\'']).unwrap_or(text);
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let start = text.len() - text.chars().rev().take_while(|c| is_name(*c)).count();
    let name = &text[start..];
    (!name.is_empty()).then_some(ValueKey { name, start })
}

/// Returns the positions of brackets that are open at the end of a text, outer ones first. Brackets in quotes do not count.
fn open_brackets(text: &str) -> Vec<usize> {
    let mut open = Vec::new();
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match quote {
            Some(mark) if c == mark && before != '\\' => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' && !before.is_alphanumeric() => quote = Some(c),
            None if "[({".contains(c) => open.push(at),
            None if "])}".contains(c) => drop(open.pop()),
            None => {}
        }
        before = c;
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_value_or_of_its_list_is_found() {
        for (before, name) in [
            (r#"{"a": 1, "on_error": "#, Some("on_error")),
            ("x = {'a': [1, ('b', ", Some("a")),
            ("patterns=[r\"x\", r", Some("patterns")),
            ("RuntimeError(", None),
            ("it said ", None),
        ] {
            assert_eq!(governing_key(before).map(|key| key.name), name, "{before}");
        }
    }

    #[test]
    fn names_have_words() {
        assert_eq!(words_of("excludeErrors"), ["exclude", "errors"]);
        assert_eq!(words_of("RETRY_ON"), ["retry", "on"]);
        assert_eq!(words_of("log.level"), ["log", "level"]);
    }
}
