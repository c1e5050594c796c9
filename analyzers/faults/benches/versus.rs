//! The same patterns over the same log in the same run: triage, ripgrep, grep.
//!
//! `cargo bench -p rankguard-faults --bench versus`. Prints the median of several runs, in seconds of processor time of one
//! core and by the wall clock, and how many times as long the others take. ripgrep reads the patterns as they are. grep reads
//! them as far as its extended expressions go: groups without names, classes spelled out, letters of any case; what it refuses
//! is left out and counted, which is to its advantage.

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod healthy;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rankguard_faults::{Catalogue, Matcher, Stream, Triage};
use rankguard_model::{Source, Timestamp};

const RUNS: usize = 3;

fn main() {
    let folder = std::env::temp_dir().join(format!("rankguard-versus-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let log = healthy::log(64 << 20, 11);
    let file = folder.join("healthy.log");
    std::fs::write(&file, &log).unwrap();
    let short = folder.join("short.log");
    std::fs::write(&short, &log[..1 << 20]).unwrap();

    let patterns: Vec<&str> = Catalogue::builtin()
        .signatures()
        .iter()
        .map(|s| s.pattern.as_str())
        .collect();
    let rust = folder.join("rust.txt");
    // One group each, so that flags end with their pattern; without names, which must be unique in the whole.
    let grouped = patterns.iter().map(|pattern| format!("(?:{})\n", nameless(pattern)));
    std::fs::write(&rust, grouped.collect::<String>()).unwrap();
    let translated: Vec<String> = patterns.iter().map(|pattern| extended(pattern)).collect();
    let accepted: Vec<&str> = translated
        .iter()
        .map(String::as_str)
        .filter(|pattern| grep_accepts(pattern))
        .collect();
    let ere = folder.join("ere.txt");
    std::fs::write(&ere, accepted.join("\n") + "\n").unwrap();
    let literals: Vec<&str> = Catalogue::builtin()
        .signatures()
        .iter()
        .flat_map(|signature| signature.literals.iter().map(String::as_str))
        .collect();
    println!(
        "{} patterns, {} of them for grep; {} literals; {} bytes, {} for grep",
        patterns.len(),
        accepted.len(),
        literals.len(),
        log.len(),
        1 << 20
    );

    // The catalogue is compiled once in the life of a process, and so is not part of the time.
    triage(&log);
    let ours = measured("triage", 8 * log.len(), &mut || {
        for _ in 0..8 {
            triage(&log);
        }
    });
    let rg = measured("rg -f, one thread", log.len(), &mut || {
        run(Command::new("rg")
            .args(["--no-config", "-j1", "-c", "-f"])
            .arg(&rust)
            .arg(&file));
    });
    let grep = measured("LC_ALL=C grep -E -i -f", 1 << 20, &mut || {
        run(Command::new("grep")
            .env("LC_ALL", "C")
            .args(["-E", "-i", "-c", "-f"])
            .arg(&ere)
            .arg(&short));
    });
    println!(
        "ripgrep takes {:.1} times as long a byte, grep {:.1} times",
        ours / rg,
        ours / grep
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

fn triage(log: &[u8]) -> usize {
    let mut triage = Triage::new(Matcher::builtin(), Stream::new(Source::JobLog));
    let blocks = log
        .chunks(4 << 20)
        .map(|block| triage.push_block(block, Timestamp(0)).len())
        .sum::<usize>();
    blocks + triage.flush().len()
}

/// Bytes a second of processor time: the median.
fn measured(name: &str, bytes: usize, work: &mut dyn FnMut()) -> f64 {
    let mut runs: Vec<(f64, f64)> = (0..RUNS)
        .map(|_| {
            let (cpu, wall) = (cpu_seconds(), Instant::now());
            work();
            (cpu_seconds() - cpu, wall.elapsed().as_secs_f64())
        })
        .collect();
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (cpu, wall) = runs[RUNS / 2];
    println!(
        "{name}: {:.3} GB/s ({cpu:.3} s of processor time, {wall:.3} s by the clock)",
        bytes as f64 / cpu / 1e9
    );
    bytes as f64 / cpu
}

/// Processor time of this process and of the children that ended, in seconds; the kernel counts in hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string(Path::new("/proc/self/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    let ticks: u64 = fields.skip(11).take(4).map(|field| field.parse::<u64>().unwrap()).sum();
    ticks as f64 / 100.0
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).output().unwrap();
    // One: nothing matched.
    let problem = String::from_utf8_lossy(&output.stderr);
    let end = problem.len().saturating_sub(500);
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        problem.get(end..).unwrap_or_default()
    );
}

fn nameless(pattern: &str) -> String {
    let mut parts = pattern.split("(?P<");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out += "(?:";
        out += part.split_once('>').map_or(part, |(_, rest)| rest);
    }
    // Older releases of ripgrep refuse a backslash that is not needed.
    for needless in ["'", "\"", "/", ":", ",", "=", "!", "%", "@", "<", ">", "_"] {
        out = out.replace(&format!("\\{needless}"), needless);
    }
    out
}

fn grep_accepts(pattern: &str) -> bool {
    let mut grep = Command::new("grep")
        .env("LC_ALL", "C")
        .args(["-E", "-i", "-c", "-f", "-", "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    grep.stdin
        .take()
        .unwrap()
        .write_all(format!("{pattern}\n").as_bytes())
        .unwrap();
    grep.wait().unwrap().code() == Some(1)
}

/// A pattern as an extended regular expression.
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
                // To the end of the name or the flags.
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
