//! Mentioned matches: wordings of a failure that a line quotes as a value and does not report.
//!
//! `{"on_error": "CUDA out of memory"}` is a setting, `raise RuntimeError("CUDA out of memory")` a line of source, and
//! `tests/test_retry.py::test_text[CUDA out of memory]` the name of a test. A match is mentioned if it is
//!
//! - in quotes, as the value of a setting or as an element of one, in a dump of arguments, a configuration or a sample of data;
//! - in quotes, as an argument of a command, of a call in source code, or as an example in a help text;
//! - the value of an environment variable, or a part of the name of a test.
//!
//! The value of a member that holds messages (`msg`, `error`, `reason`) is a report, also in a structured record.

mod key;
mod quotation;

use std::sync::LazyLock;

use regex::Regex;

use self::key::{KeyKind, governing_key, key_kind, words_of};
use self::quotation::Quotation;

/// Maximum part of a text that is examined, bytes.
const REACH: usize = 8_192;

/// Label of a dump: `args: {`, `Namespace(`, `command = [`.
static DUMP: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"(?i)\b(?:(?:\w*[_ ])?(?:args?|arguments|argv|namespace|conf|config|configs|configuration|cfg|hparams|hyper-?parameters|settings|options|env|environ|environment|cmd|cmdline|command|kwargs|params|parameters)|\w*(?:Arguments|Config|Params|Options))['\x22]?\s*(?:[:=]\s*)?[\[({]|^\s*(?:args|config|environment|cmd|command(?: line)?)\s*[:=]",
    )
});

/// Source code before a quoted argument: a raised exception, a call of a method or of a function that prints or compares.
static CALL: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"(?:\b(?:raise|throw)\s+(?:new\s+)?[\w.:]+\s*\(|(?:^|[^\w.])(?:print|fputs|printf|fprintf|echo|re\.\w+|(?:\w+\.)*(?:debug|info|warning|warn|error|exception|critical|log|match|search|compile|startswith|endswith|find|count|append|add)|TORCH_CHECK|pytest\.\w+)\s*\(|(?:==|!=)|\b(?:e\.g\.,?|for example,?|such as|default:?|defaults to))\s*[rbfuR]?$",
    )
});

/// Condition of source code before a quoted text.
static CONDITION: LazyLock<Regex> =
    LazyLock::new(|| compile(r"(?:^|[\s(])(?:if|elif|while|and|or|not|any|assert|return)\b[^'\x22]*$"));

/// Comparison of source code behind a quoted text.
static COMPARED: LazyLock<Regex> = LazyLock::new(|| compile(r"^\s*(?:(?:not )?in\s+['\x22\w.]|==|!=)"));

/// Option of a command before its value, on a command line or in a list of arguments.
static OPTION: LazyLock<Regex> = LazyLock::new(|| compile(r"(?:^|[\s'\x22\[])--?[A-Za-z][\w.-]*(?:[= ]|['\x22],\s*)$"));

/// Search for a text on a command line.
static SEARCH: LazyLock<Regex> =
    LazyLock::new(|| compile(r"(?:^\+{1,3} .*|\b(?:[ef]?grep|zgrep|rg|sed|awk)(?: -[\w-]+)*) ?$"));

/// Name of a test before a match in its parameters.
static TEST: LazyLock<Regex> = LazyLock::new(|| compile(r"\.py::\w[^\s\[]*(?:\[[^\]]*)?$"));

/// Environment variable at the start of a line.
static VARIABLE: LazyLock<Regex> =
    LazyLock::new(|| compile(r"^\s*(?:export |declare -x )?(?P<name>[A-Z][A-Z0-9]*_[A-Z0-9_]*)=[^=]*$"));

/// Setting without quotes at the start of a line.
static SETTING: LazyLock<Regex> = LazyLock::new(|| compile(r"^\s*(?:- )?(?P<name>[A-Za-z]\w*[_.-][\w.-]*)\s*[:=]\s*$"));

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// Returns false only if no match in the text can be mentioned, also not for other digits.
pub(super) fn may_mention(text: &str) -> bool {
    text.contains(['"', '\'', '`']) || text.contains(".py::") || has_assignment(text)
}

/// Returns true if the text begins with the name of a variable or a setting.
fn has_assignment(text: &str) -> bool {
    let name = text.trim_start().trim_start_matches("export ").trim_start_matches("- ");
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !"_.-".contains(c));
    end.is_some_and(|end| name[..end].contains(['_', '-', '.']) && name[end..].trim_start().starts_with([':', '=']))
}

/// Returns true if the match that begins at `from` is mentioned.
pub(super) fn is_mentioned(text: &str, from: usize) -> bool {
    if from > REACH {
        return false;
    }
    let text = &text[..text.floor_char_boundary(REACH * 2)];
    let before = &text[..from];
    if TEST.is_match(before) || is_plain_value(before) {
        return true;
    }
    let Some(quotation) = Quotation::around(text, from) else {
        return false;
    };
    is_mention(text, &quotation)
        || quotation
            .unescaped(text, from)
            .is_some_and(|(inner, at)| is_mentioned(&inner, at))
}

/// Returns true for the value of an environment variable, and of a setting that names what a program is to do about errors.
fn is_plain_value(before: &str) -> bool {
    let variable = VARIABLE.captures(before);
    let variable = variable.as_ref().and_then(|found| found.name("name"));
    if variable.is_some_and(|name| key_kind(&words_of(name.as_str())) != KeyKind::Message) {
        return true;
    }
    let setting = SETTING.captures(before);
    let setting = setting.as_ref().and_then(|found| found.name("name"));
    setting.is_some_and(|name| {
        let words = words_of(name.as_str());
        key_kind(&words) == KeyKind::Setting && words.first().is_none_or(|word| word != "on")
    })
}

/// Returns true if a quotation is a value or an argument.
fn is_mention(text: &str, quotation: &Quotation) -> bool {
    let before = &text[..quotation.start];
    let after = text.get(quotation.end + 1..).unwrap_or_default();
    if CALL.is_match(before) || CONDITION.is_match(before) && COMPARED.is_match(after) {
        return true;
    }
    if OPTION.is_match(before) || SEARCH.is_match(before) || is_element_line(before, after) {
        return true;
    }
    let Some(key) = governing_key(before) else {
        return false;
    };
    match key_kind(&words_of(key.name)) {
        KeyKind::Setting => true,
        KeyKind::Message => false,
        KeyKind::Other => is_setting_line(&before[..key.start], after) || DUMP.is_match(before),
    }
}

/// Returns true if a line is only the quotation: an element of a list, one a line.
fn is_element_line(before: &str, after: &str) -> bool {
    let before = before.trim();
    let is_start = before.is_empty() || ["-", "r", "- r", "b", "["].contains(&before);
    is_start && after.trim().trim_end_matches([',', ']', ')']).is_empty()
}

/// Returns true if a line is only a key and a quotation: `fallback: "CUDA out of memory"`, `"fallback": "...",`.
fn is_setting_line(before_key: &str, after: &str) -> bool {
    let before = before_key.trim().trim_end_matches(['"', '\'']).trim();
    (before.is_empty() || before == "-") && after.trim().trim_end_matches([',', ']', '}', ')', ';']).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "CUDA out of memory";

    fn mentions(line: &str) -> bool {
        let from = line.find(TEXT).expect("the text");
        let is_mention = is_mentioned(line, from);
        assert!(!is_mention || may_mention(line), "{line}");
        is_mention
    }

    #[test]
    fn values_of_settings_are_mentions() {
        for line in [
            r#"args: {"model": "gpt", "on_error": "CUDA out of memory", "lr": 0.0003}"#,
            r#"{"ts":"2026-11-30T10:00:00Z","msg":"config","exclude_errors":["disk", "CUDA out of memory"],"lr":0.1}"#,
            "Namespace(model='gpt', fallback='CUDA out of memory', lr=0.1)",
            "TrainingArguments(text='x', fallback='CUDA out of memory')",
            "config = {'retry': {'texts': ['NCCL', 'CUDA out of memory']}}",
            r#"retry_on: ["CUDA out of memory", "NCCL error"]"#,
            r#"  - "CUDA out of memory""#,
            r#"    "CUDA out of memory","#,
            r#"exclude_errors = ["CUDA out of memory"]"#,
            r#"  "fallback": "CUDA out of memory","#,
            r#"patterns=[r"NCCL", r"CUDA out of memory"]"#,
            "RETRY_ON=CUDA out of memory",
            "export TRAIN_RETRY_TEXTS='CUDA out of memory'",
            r#"declare -x RETRY_ON="CUDA out of memory""#,
            "ignore_errors: CUDA out of memory",
            r#"{"msg":"config {\"on_error\": \"CUDA out of memory\"}"}"#,
            r#"{"prompt": "how do I mend CUDA out of memory?", "id": 3}"#,
        ] {
            assert!(mentions(line), "{line}");
        }
    }

    #[test]
    fn arguments_and_source_code_are_mentions() {
        for line in [
            r#"+ python train.py --retry-on "CUDA out of memory" --lr 0.1"#,
            r#"torchrun train.py --retry-on="CUDA out of memory""#,
            "cmd: ['python', 'train.py', '--retry-on', 'CUDA out of memory']",
            r#"+ grep -q "CUDA out of memory" train.log"#,
            r#"    raise RuntimeError("CUDA out of memory")"#,
            r#"train.py:88:    raise torch.OutOfMemoryError(f"CUDA out of memory: {size}")"#,
            r#"    if "CUDA out of memory" in str(error):"#,
            r#"    assert str(error) == "CUDA out of memory""#,
            "E       AssertionError: assert 'CUDA out of memory' not in 'step 3'",
            r#"    logger.error("CUDA out of memory, batch %d", batch)"#,
            r#"  throw std::runtime_error("CUDA out of memory");"#,
            "tests/test_retry.py::test_text[CUDA out of memory] PASSED  [ 12%]",
            "      texts that cause a retry, for example 'CUDA out of memory'",
        ] {
            assert!(mentions(line), "{line}");
        }
    }

    #[test]
    fn messages_are_reports() {
        for line in [
            "CUDA out of memory. Tried to allocate 2.00 GiB",
            r#"{"level":"ERROR","msg":"CUDA out of memory. Tried to allocate 2 GiB"}"#,
            r#"{"rank":3,"error":"torch.OutOfMemoryError: CUDA out of memory"}"#,
            r#"{"errors":["CUDA out of memory"]}"#,
            r#"level=error msg="CUDA out of memory" rank=3"#,
            r#"reason: "CUDA out of memory""#,
            r#"retry_reason="CUDA out of memory""#,
            "caught RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')",
            "worker failed with 'CUDA out of memory'",
            "NCCL WARN Cuda failure 'CUDA out of memory'",
            "FAILED tests/test_step.py::test_step - RuntimeError: CUDA out of memory",
            "can't go on: CUDA out of memory",
            "rank0: RuntimeError: CUDA out of memory",
            "LAST_ERROR=CUDA out of memory",
            "args: lr=0.1; RuntimeError: CUDA out of memory",
            r#"step failed with args {"lr": 1}: CUDA out of memory"#,
            r#"{"worker": "w1", "seen": "CUDA out of memory"}"#,
        ] {
            assert!(!mentions(line), "{line}");
        }
    }
}
