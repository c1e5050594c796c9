//! Common search tools, given the same patterns.
//!
//! ripgrep reads the patterns unchanged. grep reads them as extended expressions: groups without names, classes spelled
//! out, case-insensitive; patterns that it rejects are left out and counted, which is to its advantage. Both read a
//! part of the log, because they are slow, and their time for an empty file (start and compilation of the patterns) is
//! subtracted.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes of the log that ripgrep reads.
const RG_BYTES: usize = 2 << 20;
const GREP_BYTES: usize = 128 << 10;

/// A search tool with its patterns and its part of the log in files.
pub(super) struct SearchTool {
    pub(super) name: &'static str,
    program: &'static str,
    flags: &'static [&'static str],
    patterns: PathBuf,
    log: PathBuf,
    empty: PathBuf,
    /// Processor time for an empty file, cached after the first run.
    idle: Option<f64>,
    /// Size of its part of the log, in bytes.
    pub(super) bytes: usize,
    /// Number of patterns that the tool accepts.
    pub(super) accepted: usize,
}

/// Returns the tools on PATH, and the names of missing ones. Their files are written to `folder`.
pub(super) fn found(folder: &Path, patterns: &[&str], log: &[u8]) -> io::Result<(Vec<SearchTool>, Vec<&'static str>)> {
    let empty = folder.join("empty.log");
    std::fs::write(&empty, b"")?;
    let mut peers = Vec::new();
    let mut absent = Vec::new();
    if is_there("rg") {
        // Each pattern is a group, so that flags end with it; groups have no names, which would have to be unique.
        let grouped: Vec<String> = patterns
            .iter()
            .map(|pattern| format!("(?:{})", nameless(pattern)))
            .collect();
        peers.push(SearchTool {
            name: "rg -f, one thread",
            program: "rg",
            flags: &["--no-config", "--text", "-j1", "-c", "-f"],
            patterns: written(folder, "rust.txt", grouped.join("\n").as_bytes())?,
            log: written(folder, "rg.log", start(log, RG_BYTES))?,
            empty: empty.clone(),
            idle: None,
            bytes: start(log, RG_BYTES).len(),
            accepted: grouped.len(),
        });
    } else {
        absent.push("rg");
    }
    if is_there("grep") {
        let mut accepted = Vec::new();
        for pattern in patterns.iter().map(|pattern| extended(pattern)) {
            if grep_accepts(&pattern)? {
                accepted.push(pattern);
            }
        }
        peers.push(SearchTool {
            name: "grep -E -i -f",
            program: "grep",
            flags: &["-a", "-E", "-i", "-c", "-f"],
            patterns: written(folder, "extended.txt", (accepted.join("\n") + "\n").as_bytes())?,
            log: written(folder, "grep.log", start(log, GREP_BYTES))?,
            empty,
            idle: None,
            bytes: start(log, GREP_BYTES).len(),
            accepted: accepted.len(),
        });
    } else {
        absent.push("grep");
    }
    Ok((peers, absent))
}

impl SearchTool {
    /// Returns the processor time of one search, in seconds.
    pub(super) fn seconds(&mut self) -> io::Result<f64> {
        let idle = match self.idle {
            Some(idle) => idle,
            None => *self.idle.insert(self.run(&self.empty)?),
        };
        Ok((self.run(&self.log)? - idle).max(0.0))
    }

    fn run(&self, log: &Path) -> io::Result<f64> {
        let before = children_seconds()?;
        let output = Command::new(self.program)
            .env("LC_ALL", "C")
            .args(
                self.flags
                    .iter()
                    .map(OsStr::new)
                    .chain([self.patterns.as_os_str(), log.as_os_str()]),
            )
            .stdin(Stdio::null())
            .output()?;
        // Exit code 1 means no match.
        if !matches!(output.status.code(), Some(0 | 1)) {
            let problem = String::from_utf8_lossy(&output.stderr);
            let end: String = problem.lines().last().unwrap_or_default().chars().take(300).collect();
            return Err(io::Error::other(format!("{} failed: {end}", self.program)));
        }
        Ok(children_seconds()? - before)
    }
}

/// Processor time of ended children, in seconds; the kernel counts in hundredths.
fn children_seconds() -> io::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Ok(ticks as f64 / 100.0)
}

fn is_there(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    version.is_ok_and(|output| output.status.success())
}

fn written(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, bytes)?;
    Ok(path)
}

fn start(log: &[u8], bytes: usize) -> &[u8] {
    &log[..log.len().min(bytes)]
}

fn nameless(pattern: &str) -> String {
    let mut parts = pattern.split("(?P<");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out += "(?:";
        out += part.split_once('>').map_or(part, |(_, rest)| rest);
    }
    // Older releases of ripgrep reject unnecessary backslashes.
    for needless in ["'", "\"", "/", ":", ",", "=", "!", "%", "@", "<", ">", "_"] {
        out = out.replace(&format!("\\{needless}"), needless);
    }
    out
}

fn grep_accepts(pattern: &str) -> io::Result<bool> {
    let mut grep = Command::new("grep")
        .env("LC_ALL", "C")
        .args(["-E", "-i", "-c", "-f", "-", "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut input) = grep.stdin.take() {
        input.write_all(format!("{pattern}\n").as_bytes())?;
    }
    Ok(grep.wait()?.code() == Some(1))
}

/// Converts a pattern to an extended regular expression.
fn extended(pattern: &str) -> String {
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    let mut class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let escaped = chars.next().unwrap_or('\\');
                out += &match (escaped, class) {
                    ('d', true) => "0-9".to_owned(),
                    ('d', false) => "[0-9]".to_owned(),
                    ('w', true) => "[:alnum:]_".to_owned(),
                    ('s', true) => "[:space:]".to_owned(),
                    (other, true) => other.to_string(),
                    (other @ ('-' | '/' | '\'' | '"' | '#' | ':' | '!' | '=' | '@' | '&' | ',' | '%'), false) => {
                        other.to_string()
                    }
                    (other, false) => format!("\\{other}"),
                };
            }
            '[' if !class => {
                class = true;
                out.push(c);
            }
            ']' if class => {
                class = false;
                out.push(c);
            }
            '(' if !class && chars.peek() == Some(&'?') => {
                // Skips to the end of the name or the flags.
                let mut group = String::new();
                for c in chars.by_ref() {
                    group.push(c);
                    if matches!(c, ':' | '>' | ')') {
                        break;
                    }
                }
                if !group.ends_with(')') {
                    out.push('(');
                }
            }
            '?' if !class && out.ends_with(['*', '+', '?', '}']) => {}
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_translated_for_grep() {
        assert_eq!(
            extended(r"(?i)\bXid (?P<xid>\d+?)[\s\w]"),
            r"\bXid ([0-9]+)[[:space:][:alnum:]_]"
        );
        assert_eq!(nameless(r"a(?P<x>\d)\:b"), r"a(?:\d):b");
    }
}
