//! Peer of the studies: the same studies in pandas, in a separate process.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::cost::TimeSpent;

const SCRIPT: &str = include_str!("../../bench/studies.py");

/// Answer of pandas.
#[derive(Debug, Deserialize)]
pub(super) struct PandasAnswer {
    pub(super) study: String,
    #[serde(flatten)]
    pub(super) spent: TimeSpent,
    pub(super) values: Vec<f64>,
}

/// Representation of names in pandas: its default, or each stored once like the tables here.
#[derive(Debug, Clone, Copy)]
pub(super) enum NameEncoding {
    Texts,
    Categories,
}

/// Runs every study of a table `times` times; the error gives the reason if no Python with pandas
/// is available.
pub(super) fn ask(
    python: &Path,
    names: NameEncoding,
    table: &str,
    file: &Path,
    population: u64,
    times: usize,
) -> Result<Vec<PandasAnswer>, String> {
    let names = match names {
        NameEncoding::Texts => "str",
        NameEncoding::Categories => "category",
    };
    let ran = Command::new(python)
        .args(["-W", "ignore", "-c", SCRIPT, table])
        .arg(file)
        .args([&population.to_string(), names, &times.to_string()])
        .stdin(Stdio::null())
        .output();
    let ran = ran.map_err(|problem| format!("{}: {problem}", python.display()))?;
    let stdout = String::from_utf8_lossy(&ran.stdout);
    if !ran.status.success() {
        let problem = String::from_utf8_lossy(&ran.stderr);
        return Err(problem.lines().last().unwrap_or("python failed").to_owned());
    }
    // The script writes NaN, which is not JSON, for an undefined number.
    let answers = stdout
        .lines()
        .map(|line| serde_json::from_str(&line.replace("NaN", "0.0")));
    answers
        .collect::<Result<_, _>>()
        .map_err(|problem| format!("it answered what cannot be read: {problem}"))
}
