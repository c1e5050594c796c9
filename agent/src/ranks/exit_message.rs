//! Last line on standard error of a rank that ended itself.
//!
//! `sys.exit("config wrong")` ends a program with code 1, this line and no traceback. No signature matches such a
//! message, so without it the failure would have no cause.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rankguard_faults::classes;
use rankguard_model::{Classification, EXIT_MESSAGE, EvidenceBody, PrintableText, ProcessExit, Role};

use crate::pending_evidence::mark;

/// Maximum bytes that are read from the end of the output.
const TAIL_BYTES: u64 = 16 * 1024;
/// Maximum characters of a line.
const LINE_MAX: usize = 500;
/// Lines before the last one that the evidence includes as context.
const CONTEXT_LINES: usize = 8;
/// Exit codes with which programs end themselves: those that shells do not use for commands and signals, and 255, which
/// `exit(-1)` gives.
const OWN_CODES: [std::ops::RangeInclusive<i32>; 2] = [1..=125, 255..=255];
/// Exit codes with which shells report a command that cannot be run or found.
const SHELL_CODES: std::ops::RangeInclusive<i32> = 126..=127;
/// First words of reports that triage classifies itself.
const REPORTS: [&str; 3] = ["Traceback (most recent call last)", "panicked at", "terminate called"];

/// Returns the message of a rank that ended itself, as evidence; `None` if it ended otherwise or wrote none.
pub(super) fn exit_message(stderr: &Path, exit: ProcessExit) -> Option<(EvidenceBody, Classification)> {
    let ProcessExit::Code(code) = exit else { return None };
    let class = if SHELL_CODES.contains(&code) {
        classes::ENVIRONMENT_SETUP_ERROR
    } else if OWN_CODES.iter().any(|codes| codes.contains(&code)) {
        classes::UNCAUGHT_EXCEPTION
    } else {
        return None;
    };
    let tail = read_tail(stderr).ok()?;
    let (text, context) = last_line(&tail)?;
    let mut found = mark(class, Role::Root, 0.6, EXIT_MESSAGE);
    found.fields = [("exit", code.to_string()), ("message", text.clone())].into();
    let body = EvidenceBody::Line {
        text,
        context,
        repeats: 1,
    };
    Some((body, found))
}

fn read_tail(path: &Path) -> io::Result<String> {
    // A rank may have replaced the file by a link or a pipe.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let length = metadata.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the last non-empty line and those before it; `None` if the tail contains a report.
fn last_line(tail: &str) -> Option<(String, Vec<String>)> {
    if REPORTS.iter().any(|report| tail.contains(report)) {
        return None;
    }
    let lines = tail.lines().filter(|line| !line.trim().is_empty());
    let mut lines: Vec<String> = lines
        .map(|line| PrintableText::first(line.trim_end(), LINE_MAX).to_string())
        .collect();
    let text = lines.pop()?;
    let context = lines.split_off(lines.len().saturating_sub(CONTEXT_LINES));
    Some((text, context))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stderr: &str, exit: ProcessExit, expect: Option<(&str, &str)>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rank-0.err");
        std::fs::write(&path, stderr).expect("written");
        let found = exit_message(&path, exit);
        let found = found.map(|(body, mark)| (body, mark.class));
        match (found, expect) {
            (None, None) => {}
            (Some((EvidenceBody::Line { text, .. }, class)), Some(expect)) => {
                assert_eq!((text.as_str(), class.as_str()), expect)
            }
            (found, expect) => panic!("{found:?} is not {expect:?}"),
        }
    }

    #[test]
    fn a_program_that_ends_itself_leaves_its_last_line() {
        let own = "uncaught-exception";
        check(
            "loading\nconfig wrong\n\n",
            ProcessExit::Code(1),
            Some(("config wrong", own)),
        );
        check(
            "usage: x [-h]\nx: error: no",
            ProcessExit::Code(2),
            Some(("x: error: no", own)),
        );
        let shell = Some(("sh: 1: nosuch: not found", "environment-setup-error"));
        check("sh: 1: nosuch: not found\n", ProcessExit::Code(127), shell);
        check("", ProcessExit::Code(1), None);
        check("no data", ProcessExit::Code(3), Some(("no data", own)));
        check("no data", ProcessExit::Code(255), Some(("no data", own)));
        check("words", ProcessExit::Code(137), None);
        check("words", ProcessExit::Signal(9), None);
        let traceback = "Traceback (most recent call last):\n  File \"x.py\", line 1\nValueError: x\n";
        check(traceback, ProcessExit::Code(1), None);
        let long = "x".repeat(40_000) + "\nthe end";
        check(&long, ProcessExit::Code(1), Some(("the end", own)));
    }
}
