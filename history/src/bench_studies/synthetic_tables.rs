//! Generated CSV tables of failures and log events for the benchmark of studies; the same in every run.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Result, Write};
use std::path::Path;

use rankguard_datasets::TableKind;

/// Number of nodes in the table of failures.
pub(super) const NODES: u64 = 20_000;
/// Failure classes, most frequent first.
const CLASSES: [&str; 12] = [
    "gpu-memory",
    "gpu-lost",
    "nic-link",
    "host-memory",
    "disk",
    "power",
    "fan",
    "kernel",
    "filesystem",
    "software",
    "network",
    "unknown",
];

/// SplitMix64 random number generator (Steele and others, 2014); holds its state.
struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns a uniform random number in [0, 1).
    fn throw(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a uniform random integer from 0 to `bound - 1`.
    fn below(&mut self, bound: f64) -> u64 {
        (self.throw() * bound) as u64
    }
}

/// Writes a CSV table in order of time: half of `failures` log events for [`TableKind::Events`], otherwise `failures`
/// failures. Times are Unix seconds.
pub(super) fn write(path: &Path, table: TableKind, failures: u64) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut dice = SplitMix64(7);
    let mut at = 1_600_000_000.0;
    if table == TableKind::Events {
        writeln!(file, "time,node,message")?;
        for _ in 0..failures / 2 {
            at += dice.below(20.0) as f64;
            let rack = dice.below(64.0);
            let node = dice.below(32.0);
            let text = dice.below(40.0);
            writeln!(file, "{at},R{rack:02}:N{node:02},message number {text} of the machine")?;
        }
        return file.flush();
    }
    writeln!(file, "time,node,class,repair_s")?;
    for _ in 0..failures {
        // Most failures follow the previous one within minutes; 2 % have the same time, and few follow after hours.
        let gap = dice.throw();
        at += if gap < 0.02 {
            0.0
        } else {
            (600.0 * -(1.0 - gap).ln()).powf(1.2).round() / 8.0
        };
        // Low numbers are frequent: the first quarter of the nodes and of the classes has half of the failures.
        let node = (dice.throw().powi(2) * NODES as f64) as u64;
        let class = CLASSES[(dice.throw().powi(2) * CLASSES.len() as f64) as usize];
        let repair = (60.0 * (3.0 * dice.throw() + dice.throw() * dice.throw()).exp()).round();
        if dice.throw() < 0.02 {
            writeln!(file, "{at},node-{node:05},{class},")?;
        } else {
            writeln!(file, "{at},node-{node:05},{class},{repair}")?;
        }
    }
    file.flush()
}

/// Returns the first line of a file, without trailing white space.
pub(super) fn header(path: &Path) -> Result<String> {
    let mut line = String::new();
    BufReader::new(File::open(path)?).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// Returns a mapping file (TOML) for a CSV file with this header: each column with a name that the table knows is
/// mapped to it, and times are Unix seconds.
pub(super) fn mapping(table: TableKind, header: &str, population: u64) -> String {
    let known: Vec<&str> = table.columns().iter().map(|(name, _)| *name).collect();
    let columns: String = header
        .split(',')
        .map(|name| name.trim_matches('"'))
        .filter(|name| known.contains(name))
        .map(|name| format!("{name} = \"{name}\"\n"))
        .collect();
    format!(
        "table = \"{}\"\ntime = \"unix\"\npopulation = {population}\n[columns]\n{columns}",
        table.name()
    )
}
