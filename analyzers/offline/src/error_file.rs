//! Error files of torchrun: `@record` of `torch.distributed.elastic.multiprocessing.errors` writes them beside the
//! logs of a failed worker, `{"message": {"message": ..., "extraInfo": {"py_callstack": ..., "timestamp": ...}}}`.

use rankguard_model::Timestamp;
use serde_json::Value;

/// Content of an error file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorFile {
    /// Lines of the traceback, or of the message if there is none.
    pub lines: Vec<String>,
    /// Time of the failure, by the worker's clock.
    pub at: Option<Timestamp>,
}

/// Parses an error file; none for other text.
pub fn error_file(text: &str) -> Option<ErrorFile> {
    let value: Value = serde_json::from_str(text).ok()?;
    let message = value.as_object()?.get("message")?;
    let (text, extra) = match message {
        // The launcher's own form for workers that left no traceback.
        Value::String(text) => (text.as_str(), None),
        Value::Object(inner) => (inner.get("message")?.as_str()?, inner.get("extraInfo")),
        _ => return None,
    };
    let stack = extra.and_then(|extra| extra.get("py_callstack")?.as_str());
    let seconds = extra.and_then(|extra| match extra.get("timestamp")? {
        Value::String(text) => text.parse::<i64>().ok(),
        other => other.as_i64(),
    });
    let words = stack.filter(|stack| !stack.trim().is_empty()).unwrap_or(text);
    Some(ErrorFile {
        lines: words.lines().map(str::to_owned).collect(),
        at: seconds.map(|seconds| Timestamp(seconds.saturating_mul(1_000_000_000))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_traceback_and_its_moment_are_read() {
        let text = r#"{"message": {"message": "RuntimeError: boom", "extraInfo": {"py_callstack":
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nRuntimeError: boom\n", "timestamp": "1667262183"}}}"#
            .replace("\n            ", " ");
        let read = error_file(&text);
        let read = read.as_ref();
        assert_eq!(read.map(|file| file.lines.len()), Some(3));
        assert_eq!(
            read.and_then(|file| file.at),
            Some(Timestamp(1_667_262_183_000_000_000))
        );
    }

    #[test]
    fn a_plain_message_is_read_and_other_documents_are_not() {
        let plain = error_file(r#"{"message": "ChildFailedError: train.py FAILED"}"#);
        assert_eq!(
            plain.map(|file| file.lines),
            Some(vec!["ChildFailedError: train.py FAILED".to_owned()])
        );
        for other in [
            "",
            "[]",
            "{}",
            r#"{"message": 3}"#,
            r#"{"message": {"extraInfo": 1}}"#,
            "{",
        ] {
            assert_eq!(error_file(other), None, "{other}");
        }
    }
}
