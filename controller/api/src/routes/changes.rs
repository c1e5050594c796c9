//! Routes that change something: each parses its body.

use rankguard_core::CORDON_REASONS_MAX;
use rankguard_model::{CaseId, CaseNoteKind, JobId, NodeId};
use serde::de::DeserializeOwned;

use super::cases::CLASSES_HINT;
use super::number;
use crate::change::Change;
use crate::documents::{CancelBody, CordonBody, NoteBody, NoteKind, UncordonBody};
use crate::problem::Problem;

/// Longest reason of a cordon, and longest note, bytes.
const REASON_BYTES_MAX: usize = 1 << 10;
const NOTE_BYTES_MAX: usize = 4 << 10;

pub(super) fn note(id: &str, body: &[u8]) -> Result<Change, Problem> {
    let case = CaseId(number(id, "case", "/api/v1/cases")?);
    let NoteBody { kind, text, class } = parse(body)?;
    if text.len() > NOTE_BYTES_MAX {
        return Err(Problem::invalid(
            "text",
            format!("a note has at most {NOTE_BYTES_MAX} bytes"),
        ));
    }
    let kind = match (kind, class) {
        (NoteKind::Correct, Some(class)) => CaseNoteKind::Corrected { class: class.into() },
        (NoteKind::Correct, None) => {
            let problem = Problem::invalid("class", "a correction names the class");
            return Err(problem.hint(CLASSES_HINT));
        }
        (_, Some(_)) => return Err(Problem::invalid("class", "only a correction names a class")),
        (NoteKind::Acknowledge, None) => CaseNoteKind::Acknowledged,
        (NoteKind::Comment, None) => CaseNoteKind::Comment,
        (NoteKind::Close, None) => CaseNoteKind::Closed,
    };
    if kind == CaseNoteKind::Comment && text.trim().is_empty() {
        return Err(Problem::invalid("text", "a comment has a text"));
    }
    Ok(Change::NoteCase { case, kind, text })
}

pub(super) fn cordon(name: &str, body: &[u8]) -> Result<Change, Problem> {
    let reason = reason(body)?;
    let node = NodeId::from(name);
    Ok(Change::CordonNode { node, reason })
}

pub(super) fn drain(name: &str, body: &[u8]) -> Result<Change, Problem> {
    let reason = reason(body)?;
    let node = NodeId::from(name);
    Ok(Change::DrainNode { node, reason })
}

pub(super) fn uncordon(name: &str, body: &[u8]) -> Result<Change, Problem> {
    let UncordonBody { only_reasons } = parse(body)?;
    if only_reasons.len() > CORDON_REASONS_MAX {
        let detail = format!("a cordon has at most {CORDON_REASONS_MAX} reasons");
        return Err(Problem::invalid("only_reasons", detail));
    }
    let node = NodeId::from(name);
    Ok(Change::UncordonNode { node, only_reasons })
}

pub(super) fn cancel(name: &str, body: &[u8]) -> Result<Change, Problem> {
    let CancelBody {} = parse(body)?;
    let job = JobId::from(name);
    Ok(Change::CancelJob { job })
}

fn reason(body: &[u8]) -> Result<String, Problem> {
    let CordonBody { reason } = parse(body)?;
    if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX {
        let detail = format!("a reason has 1 to {REASON_BYTES_MAX} bytes");
        return Err(Problem::invalid("reason", detail));
    }
    Ok(reason)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|problem| {
        let problem = Problem::invalid("body", format!("the body cannot be used: {problem}"));
        problem.hint("GET /api/v1/openapi.json describes the body of each change")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_checked() {
        let class = "gpu-thermal".into();
        let good = note("7", br#"{"kind":"correct","text":"fan","class":"gpu-thermal"}"#).expect("sound");
        let Change::NoteCase { case, kind, .. } = good else {
            panic!("another change")
        };
        assert_eq!((case, kind), (CaseId(7), CaseNoteKind::Corrected { class }));
        for body in [
            r#"{"kind":"correct","text":"fan"}"#,
            r#"{"kind":"comment","text":" "}"#,
            r#"{"kind":"comment","text":"a","class":"b"}"#,
            r#"{"kind":"delete","text":"a"}"#,
            r#"{"kind":"comment","text":"a","by":"root"}"#,
            r#"{"text":"a"}"#,
            "[]",
            "",
        ] {
            assert!(note("7", body.as_bytes()).is_err(), "{body}");
        }
        assert!(note("x", br#"{"kind":"acknowledge"}"#).is_err());
        assert!(note("7", br#"{"kind":"acknowledge"}"#).is_ok());
        for body in [
            r#"{"reason":""}"#,
            r#"{"reason":null}"#,
            "{}",
            r#"{"reason":"a","force":true}"#,
        ] {
            assert!(cordon("n1", body.as_bytes()).is_err(), "{body}");
        }
        assert!(cordon("n1", format!("{{\"reason\":\"{}\"}}", "x".repeat(1_025)).as_bytes()).is_err());
        assert!(cancel("train", b"{}").is_ok() && cancel("train", b"").is_err());
    }
}
