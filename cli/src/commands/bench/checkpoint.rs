//! `rankguard bench checkpoint`.

use rankguard_bench::checkpoint::{BenchOptions, CheckpointFigures, RankSetup, measure, run_rank};

use super::{BenchCheckpointArgs, BenchRankArgs};
use crate::args::OutputFormat;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

/// A figure, its value and its goal.
struct FigureGoal {
    figure: &'static str,
    value: f64,
    aim: &'static str,
}

const COLUMNS: &[TableColumn<FigureLine>] = &[
    ("figure", |it| it.figure.clone()),
    ("value", |it| format!("{:.3}", it.value)),
    ("aim", |it| it.aim.clone()),
];

/// Printed line of the table.
#[derive(Debug, serde::Serialize)]
struct FigureLine {
    figure: String,
    value: f64,
    aim: String,
}

pub(super) fn run(args: &BenchCheckpointArgs) -> Result<CommandExit, CliError> {
    let failed = |problem: std::io::Error| {
        CliError::failure(
            "could not be measured",
            "is there memory for five times the state, and room in --dir for three times it?",
        )
        .because(problem)
    };
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&dir).map_err(failed)?;
    let options = BenchOptions {
        gib: args.gib,
        ranks: args.ranks,
        rounds: args.rounds,
        saves: args.saves,
        window: args.window << 20,
        dir,
    };
    let figures = measure(&options).map_err(failed)?;
    match args.format.format {
        OutputFormat::Json => out::json(&figures),
        OutputFormat::Jsonl => out::json_line(&figures),
        format => {
            listing::print(format, &lines(&figures), COLUMNS);
            let machine = &figures.machine;
            out::note(&format!(
                "{} ranks, each a process, on {} cores; {} saves; {}; load average {:.1} before and {:.1} after",
                machine.ranks,
                machine.cores,
                figures.memory.saves,
                machine.filesystem,
                machine.load_average_before,
                machine.load_average_after
            ));
        }
    }
    Ok(CommandExit::Fine)
}

fn lines(figures: &CheckpointFigures) -> Vec<FigureLine> {
    let row = |figure, value, aim| FigureGoal { figure, value, aim };
    let memory = |bytes: u64| bytes as f64 / figures.raw.state_bytes as f64;
    let rows = [
        row("stall / memcpy", figures.stall_over_memcpy, "1.10 at most"),
        row("first stall / memcpy", figures.first_stall_over_memcpy, "1.10 at most"),
        row(
            "durable / O_DIRECT write",
            figures.durable_over_odirect_write,
            "1.2 at most",
        ),
        row(
            "cold load / O_DIRECT read",
            figures.load_over_odirect_read,
            "1.18 at most",
        ),
        row(
            "the same, both into fresh memory",
            figures.fresh_load_over_odirect_read,
            "",
        ),
        row("warm load, GB/s", figures.warm_load_gb_per_s, "6 at least"),
        row("bytes read / needed", figures.bytes_read_over_needed, "1.02 at most"),
        row("CPU seconds a GiB saved", figures.cpu_s_per_gib, "0.35 at most"),
        row("extra memory / state", figures.memory_over_state, "1.0 at most"),
        row(
            "the same after the first save",
            memory(figures.memory.first_save_bytes),
            "",
        ),
        row(
            "the same after the last save",
            memory(figures.memory.last_save_bytes),
            "",
        ),
        row(
            "at most, with loads between saves",
            memory(figures.memory.peak_with_loads_bytes),
            "",
        ),
        row("left at the end / state", memory(figures.memory.left_bytes), "0"),
        row(
            "training seconds lost a save",
            figures.lost_s_per_save,
            "0.5 at most at 2 GiB",
        ),
        row(
            "streaming: extra memory / state",
            figures.streaming.memory_over_state,
            "below 1",
        ),
        row(
            "streaming: durable / O_DIRECT write",
            figures.streaming.durable_over_odirect_write,
            "",
        ),
        row(
            "streaming: stall / O_DIRECT write",
            figures.streaming.stall_over_odirect_write,
            "",
        ),
        row(
            "streaming: CPU seconds a GiB saved",
            figures.streaming.cpu_s_per_gib,
            "",
        ),
        row(
            "plan 10,000 tensors 512 to 768, s",
            figures.plan_10000_tensors_512_to_768_s,
            "1 at most",
        ),
        row("memcpy, s", figures.raw.memcpy_s, ""),
        row("stall, s", figures.raw.stall_s, ""),
        row("O_DIRECT write, s", figures.raw.odirect_write_s, ""),
        row("durable, s", figures.raw.durable_s, ""),
        row("streaming: stall, s", figures.streaming.stall_s, ""),
        row("streaming: durable, s", figures.streaming.durable_s, ""),
        row("O_DIRECT read, s", figures.raw.odirect_read_s, ""),
        row("cold load, s", figures.raw.cold_load_s, ""),
        row("O_DIRECT read into fresh memory, s", figures.raw.fresh_read_s, ""),
        row("cold load into fresh memory, s", figures.raw.fresh_load_s, ""),
        row("warm load, s", figures.raw.warm_load_s, ""),
    ];
    let line = |figure: String, value, aim: &str| FigureLine {
        figure,
        value,
        aim: aim.to_owned(),
    };
    let mut lines: Vec<FigureLine> = rows
        .into_iter()
        .map(|row| line(row.figure.to_owned(), row.value, row.aim))
        .collect();
    for reshard in &figures.reshard {
        let name = |what: &str| format!("{} to {} ranks, {what}", reshard.from, reshard.to);
        lines.push(line(
            name("cold / O_DIRECT read"),
            reshard.load_over_odirect_read,
            "1.18 at most",
        ));
        lines.push(line(name("warm GB/s"), reshard.warm_gb_per_s, "6 at least"));
        lines.push(line(
            name("read / needed"),
            reshard.bytes_read_over_needed,
            "1.02 at most",
        ));
    }
    lines
}

/// Runs `bench checkpoint-rank`: one rank of the bench.
pub(super) fn run_one_rank(args: &BenchRankArgs) -> Result<CommandExit, CliError> {
    let place = RankSetup {
        rank: args.rank,
        world: args.world,
        gib: args.gib,
        threads: args.threads,
        arenas: args.arenas.clone(),
    };
    run_rank(place).map_err(|problem| {
        CliError::failure("a rank of the bench failed", "run `rankguard bench checkpoint`").because(problem)
    })?;
    Ok(CommandExit::Fine)
}
