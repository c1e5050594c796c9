//! The peer: the same studies with pandas, in a process of its own.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::spent::Spent;

const SCRIPT: &str = include_str!("../../bench/studies.py");

/// What pandas answered.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) study: String,
    #[serde(flatten)]
    pub(super) spent: Spent,
    pub(super) values: Vec<f64>,
}

/// How pandas holds names: as it reads them by itself, or each once, which is what tables do here.
#[derive(Debug, Clone, Copy)]
pub(super) enum Names {
    Texts,
    Categories,
}

/// Asks every study of a table so many times; why not, where no Python with pandas is there.
pub(super) fn ask(
    python: &Path,
    names: Names,
    table: &str,
    file: &Path,
    population: u64,
    times: usize,
) -> Result<Vec<Answer>, String> {
    let names = match names {
        Names::Texts => "str",
        Names::Categories => "category",
    };
    let ran = Command::new(python)
        .args(["-W", "ignore", "-c", SCRIPT, table])
        .arg(file)
        .args([&population.to_string(), names, &times.to_string()])
        .stdin(Stdio::null())
        .output();
    let ran = ran.map_err(|problem| format!("{}: {problem}", python.display()))?;
    let said = String::from_utf8_lossy(&ran.stdout);
    if !ran.status.success() {
        let problem = String::from_utf8_lossy(&ran.stderr);
        return Err(problem.lines().last().unwrap_or("python failed").to_owned());
    }
    // It writes NaN, which is no JSON, where a number is not defined.
    let answers = said
        .lines()
        .map(|line| serde_json::from_str(&line.replace("NaN", "0.0")));
    answers
        .collect::<Result<_, _>>()
        .map_err(|problem| format!("it answered what cannot be read: {problem}"))
}
