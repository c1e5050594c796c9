//! `rankguard demo-rank`: one rank of the demo's job. Its lines and exit codes are those of a training program.

use rankguard_trainer::Settings;

use crate::args::DemoRankArgs;
use crate::exit::Exit;
use crate::out;

pub(super) fn run(args: DemoRankArgs) -> Exit {
    let defaults = Settings::default();
    let settings = Settings {
        epochs: args.epochs.unwrap_or(defaults.epochs),
        batch: args.batch.unwrap_or(defaults.batch),
        seed: args.seed.unwrap_or(defaults.seed),
        step_ms_min: args.step_ms_min.unwrap_or(defaults.step_ms_min),
        out: args.out.unwrap_or(defaults.out.clone()),
        bug_at_step: args.bug_at_step,
        bug_rank: args.bug_rank.unwrap_or(defaults.bug_rank),
        ..defaults
    };
    match rankguard_trainer::run(settings) {
        Ok(_) => Exit::Fine,
        Err(error) => {
            // What agents and people read of a failed training program; 1 is what Python exits with.
            out::note(error.report().trim_end());
            Exit::Finding
        }
    }
}
