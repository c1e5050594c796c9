//! `rankguard gpu-calls`: helper process of an agent that calls the GPU management library. Also locates the stand-in
//! library and the other helper processes of agents.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;

use super::supervise_ranks;
use crate::error::CliError;
use crate::exit::CommandExit;

/// Options of `gpu-calls`.
#[derive(Debug, Clone, Parser)]
#[command(name = "rankguard gpu-calls")]
pub(crate) struct GpuCallsArgs {
    /// GPU management library to load [default: the system's]
    #[arg(long)]
    pub(crate) library: Option<PathBuf>,
    /// Deadline of one call, in milliseconds
    #[arg(long)]
    pub(crate) deadline_ms: u64,
}

/// File name of the stand-in library, next to this program.
const STAND_IN: &str = "librankguard_fake_nvml.so";

/// The running executable itself, also after an upgrade has replaced its file: an agent and its helper processes have
/// the same version.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// Parses the options of this command if it is the one on the command line. A separate parser keeps the helper process
/// small: the parser of all commands would be most of its memory.
pub(crate) fn parse_args() -> Option<Result<GpuCallsArgs, clap::Error>> {
    let mut words = std::env::args_os().skip(1);
    let is_asked_for = words.next().is_some_and(|word| word == "gpu-calls");
    is_asked_for
        .then(|| GpuCallsArgs::try_parse_from(std::iter::once(OsString::from("rankguard gpu-calls")).chain(words)))
}

pub(crate) fn run(args: &GpuCallsArgs) -> Result<CommandExit, CliError> {
    rankguard_agent::share_heap();
    let deadline = Duration::from_millis(args.deadline_ms);
    rankguard_agent::serve_gpu_calls(args.library.as_deref(), deadline).map_err(|problem| {
        CliError::failure(
            "cannot serve calls into the GPU library",
            "this command is started by `rankguard agent` only",
        )
        .because(problem)
    })?;
    Ok(CommandExit::Fine)
}

/// Completes the settings of an agent: the library of a scenario, and the command lines of the helper processes that
/// call the library, read stacks, hold arenas and supervise ranks.
pub(crate) fn prepare(settings: &mut rankguard_agent::AgentSettings, scenario: Option<&Path>) -> Result<(), CliError> {
    if let Some(scenario) = scenario {
        if !scenario.is_file() {
            return Err(CliError::failure(
                format!("{} is not there", scenario.display()),
                "--simulate names the file of a scenario",
            ));
        }
        rankguard_agent::scenario::check(scenario)
            .map_err(|mistake| CliError::failure(mistake, "one fact a line, such as `temperature 0 95`"))?;
        // The file is read repeatedly, from a process that may have another working directory.
        settings.simulate = Some(std::path::absolute(scenario).unwrap_or_else(|_| scenario.to_owned()));
        settings.nvml_library = Some(match settings.nvml_library.take() {
            Some(library) => checked(library)?,
            None => stand_in()?,
        });
    }
    settings.gpu_process = helper_command(settings.nvml_library.as_deref(), settings.intervals.gpu_deadline);
    settings.stack_process = vec![OWN_EXECUTABLE.into(), "stack-calls".into()];
    settings.arena_process = vec![OWN_EXECUTABLE.into(), "keep-arenas".into()];
    settings.supervisor_process = vec![OWN_EXECUTABLE.into(), supervise_ranks::NAME.into()];
    Ok(())
}

/// Returns the command line of the helper process that calls a library, with a deadline per call.
pub(crate) fn helper_command(library: Option<&Path>, deadline: Duration) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![OWN_EXECUTABLE.into(), "gpu-calls".into(), "--deadline-ms".into()];
    words.push(deadline.as_millis().to_string().into());
    if let Some(library) = library {
        words.push("--library".into());
        words.push(library.into());
    }
    words
}

/// Returns the path of the stand-in GPU library that was built with this program.
pub(crate) fn stand_in() -> Result<PathBuf, CliError> {
    checked(own_file()?.with_file_name(STAND_IN))
}

fn checked(library: PathBuf) -> Result<PathBuf, CliError> {
    if library.is_file() {
        return Ok(library);
    }
    Err(CliError::failure(
        format!("the stand-in for the GPU library, {}, is not there", library.display()),
        "`cargo build -p rankguard-fake-nvml` makes it (with --release for a release build); \
         --nvml-library names another one",
    ))
}

fn own_file() -> Result<PathBuf, CliError> {
    std::env::current_exe().map_err(|problem| {
        CliError::failure("cannot find this program's own file", "is /proc mounted?").because(problem)
    })
}
