//! `rankguard bench match`.

use rankguard_bench::ThroughputFigure;

use super::BenchMatchArgs;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

const COLUMNS: &[TableColumn<ThroughputFigure>] = &[
    ("subject", |it| it.subject.clone()),
    ("MB", |it| format!("{:.1}", it.bytes as f64 / 1e6)),
    ("seconds", |it| format!("{:.4}", it.seconds)),
    ("GB/s", |it| format!("{:.4}", it.gb_per_s)),
    ("lines/s", |it| format!("{:.0}", it.lines_per_s)),
    ("times triage", |it| format!("{:.3}", it.times_triage)),
    ("note", |it| it.note.clone()),
];

pub(super) fn run(args: &BenchMatchArgs) -> Result<CommandExit, CliError> {
    let mut log = Vec::new();
    for file in &args.files {
        let bytes = std::fs::read(file).map_err(|problem| {
            CliError::failure(format!("cannot read {}", file.display()), "name plain files of logs").because(problem)
        })?;
        log.extend(bytes);
        if log.last().is_some_and(|byte| *byte != b'\n') {
            log.push(b'\n');
        }
    }
    if args.files.is_empty() {
        log = rankguard_bench::healthy_log(args.mib as usize * (1 << 20));
    }
    let found = rankguard_bench::matching(&log).map_err(|problem| {
        CliError::failure(
            "could not be measured",
            "is there room in the folder for temporary files?",
        )
        .because(problem)
    })?;
    for absent in found.absent {
        out::note(&format!("{absent}: not found on PATH, and so not measured"));
    }
    listing::print(args.format.format, &found.figures, COLUMNS);
    Ok(CommandExit::Fine)
}
