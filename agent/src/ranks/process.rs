//! One rank's process: found, started in a group of its own, tied to the agent's life.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rankguard_model::Exit;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::environment::RankFiles;

/// Everything a process needs.
pub(super) struct Spec<'a> {
    pub(super) command: &'a [String],
    pub(super) workdir: Option<&'a str>,
    pub(super) vars: &'a BTreeMap<String, String>,
    pub(super) files: &'a RankFiles,
}

/// Starts a process. Must be called on a thread that lives as long as the agent: the kernel sends the parent's death
/// signal when the *thread* that forked ends. The error is a sentence for the one who submitted the job.
pub(super) fn spawn(spec: &Spec<'_>) -> Result<Child, String> {
    let workdir = workdir(spec.workdir)?;
    let Some((program, arguments)) = spec.command.split_first() else {
        return Err("the job's command is empty".to_owned());
    };
    let found = find_program(program, &workdir, spec.vars)?;
    let (stdout, stderr) = open_files(spec.files)?;
    let mut command = Command::new(&found);
    command
        .arg0(program)
        .args(arguments)
        .envs(spec.vars)
        .current_dir(&workdir)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    let agent = getpid();
    let tie_to_agent = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The agent may have died between the fork and the line above; then nobody would ever send the signal.
        if getppid() == Some(agent) { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    };
    // SAFETY: the closure makes two system calls and touches no memory, lock or allocation of the parent, which is what
    // is allowed between fork and exec in a process that had other threads.
    unsafe { command.pre_exec(tie_to_agent) };
    command
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", found.display()))
}

fn workdir(asked: Option<&str>) -> Result<PathBuf, String> {
    let Some(asked) = asked else {
        return std::env::current_dir().map_err(|error| format!("the agent has no working directory: {error}"));
    };
    match std::fs::metadata(asked) {
        Ok(metadata) if metadata.is_dir() => Ok(PathBuf::from(asked)),
        Ok(_) => Err(format!("the working directory {asked} is not a directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("the working directory {asked} does not exist on this node"))
        }
        Err(error) => Err(format!("the working directory {asked} cannot be used: {error}")),
    }
}

/// The file that a shell would run, or why there is none.
fn find_program(program: &str, workdir: &Path, vars: &BTreeMap<String, String>) -> Result<PathBuf, String> {
    if program.contains('/') {
        let path = workdir.join(program);
        return match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => Err(format!("the command {program} is a directory")),
            Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
                Err(format!("the command {program} is not executable (chmod +x, or name its interpreter)"))
            }
            Ok(_) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(format!("the command {program} does not exist on this node"))
            }
            Err(error) => Err(format!("the command {program} cannot be used: {error}")),
        };
    }
    let own = std::env::var("PATH").unwrap_or_default();
    let search = vars.get("PATH").unwrap_or(&own);
    let runnable = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(search)
        .map(|folder| workdir.join(folder).join(program))
        .find(runnable)
        .ok_or_else(|| format!("the command {program} does not exist on this node (PATH is {search})"))
}

fn open_files(files: &RankFiles) -> Result<(File, File), String> {
    let open = |path: &Path| -> io::Result<File> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        File::options().create(true).append(true).open(path)
    };
    let told = |path: &Path, error: io::Error| format!("cannot write the rank's output to {}: {error}", path.display());
    let stdout = open(&files.stdout).map_err(|error| told(&files.stdout, error))?;
    let stderr = open(&files.stderr).map_err(|error| told(&files.stderr, error))?;
    Ok((stdout, stderr))
}

/// How it ended.
pub(super) fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(-1),
    }
}
