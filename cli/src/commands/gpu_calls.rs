//! `rankguard gpu-calls`: the process of an agent that calls the GPU management library, and where agents find it, the
//! library's stand-in and the reader of stacks.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::args::GpuCallsArgs;
use crate::error::CliError;
use crate::exit::Exit;

/// File name of the stand-in, beside this program.
const STAND_IN: &str = "librankguard_fake_nvml.so";

pub(super) fn run(args: &GpuCallsArgs) -> Result<Exit, CliError> {
    let deadline = Duration::from_millis(args.deadline_ms);
    rankguard_agent::serve_gpu_calls(args.library.as_deref(), deadline).map_err(|problem| {
        CliError::failure(
            "cannot serve calls into the GPU library",
            "`rankguard agent` starts this; there is no use for it by hand",
        )
        .because(problem)
    })?;
    Ok(Exit::Fine)
}

/// Completes the settings of an agent: who calls the library, for a scenario which library, and who reads stacks.
pub(crate) fn prepare(settings: &mut rankguard_agent::Settings, scenario: Option<&Path>) -> Result<(), CliError> {
    let program = own_file()?;
    if let Some(scenario) = scenario {
        if !scenario.is_file() {
            return Err(CliError::failure(
                format!("{} is not there", scenario.display()),
                "--simulate names the file of a scenario",
            ));
        }
        // It is read again and again, from a process that may stand elsewhere.
        settings.simulate = Some(std::path::absolute(scenario).unwrap_or_else(|_| scenario.to_owned()));
        settings.nvml_library = Some(match settings.nvml_library.take() {
            Some(library) => checked(library)?,
            None => stand_in()?,
        });
    }
    settings.stack_process = vec![program.clone().into(), "stack-calls".into()];
    let mut words: Vec<OsString> = vec![program.into(), "gpu-calls".into(), "--deadline-ms".into()];
    words.push(settings.intervals.gpu_deadline.as_millis().to_string().into());
    if let Some(library) = &settings.nvml_library {
        words.push("--library".into());
        words.push(library.clone().into());
    }
    settings.gpu_process = words;
    Ok(())
}

/// The stand-in for the GPU library that was built with this program.
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
