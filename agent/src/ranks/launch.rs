//! Start of one rank.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rankguard_model::{CheckpointTiers, LaunchOrder, NodeId, PrepareOrder, Rank, RankRef, RankSlot, StandbyCommand};

use super::environment::{RankFiles, flight_dump, flight_pipe, rank_files, variables};
use super::rank_users::RankUserRules;
use super::reports::RankReports;
use crate::allowed_environment::allowed_variables;
use crate::preflight::interpreter;
use crate::processes::{FENCE_VARIABLE, FenceMark};
use crate::roster::RankRoster;
use crate::supervisor::{RankStart, RankSupervisors, StartError, StartStage, rank_umask};

/// Failure to start a rank.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("the job has no command")]
    NoCommand,
    #[error("the command `{program}` was not found on node {node}{}", searched(program, path))]
    NotFound {
        program: String,
        node: NodeId,
        path: String,
    },
    #[error(
        "cannot execute `{program}` on node {node}: its interpreter {interpreter} does not exist; install it, or correct \
         the first line of {file}",
        interpreter = interpreter.display(),
        file = file.display()
    )]
    NoInterpreter {
        program: String,
        node: NodeId,
        file: PathBuf,
        interpreter: PathBuf,
    },
    #[error(
        "cannot execute `{program}` on node {node}: the dynamic loader that {} names does not exist; it was built for \
         another system",
        file.display()
    )]
    NoLoader {
        program: String,
        node: NodeId,
        file: PathBuf,
    },
    #[error("cannot execute `{program}` on node {node}: {problem}{}", searched(program, path))]
    NotExecutable {
        program: String,
        node: NodeId,
        path: String,
        problem: String,
    },
    #[error("the working directory {path} does not exist on node {node}")]
    NoWorkdir { path: String, node: NodeId },
    #[error("cannot start `{program}` on node {node}: {source}")]
    Start {
        program: String,
        node: NodeId,
        source: StartError,
    },
    #[error("cannot run ranks as user {user} on node {node}: {problem}")]
    User {
        user: String,
        node: NodeId,
        problem: String,
    },
    #[error("cannot enter the working directory {path} on node {node}: {problem}")]
    Workdir {
        path: String,
        node: NodeId,
        problem: String,
    },
    #[error("cannot write the output of rank {rank} to {path}: {source}")]
    Output {
        rank: u32,
        path: PathBuf,
        source: io::Error,
    },
}

/// Parts of the agent that a start needs.
#[derive(Debug)]
pub(crate) struct LaunchContext<'a> {
    pub(crate) state_dir: &'a Path,
    pub(crate) socket: &'a Path,
    pub(crate) node: &'a NodeId,
    pub(crate) roster: &'a RankRoster,
    pub(crate) supervisors: &'a RankSupervisors,
    pub(crate) reports: &'a RankReports,
    pub(crate) mark: &'a FenceMark,
    pub(crate) users: &'a RankUserRules,
    /// Names of the agent's variables that ranks receive.
    pub(crate) environment: &'a [String],
    /// True if ranks get a flight-recorder pipe by default.
    pub(crate) flight_pipe: bool,
}

/// Starts a rank and waits until its program runs; returns the parameters of the start.
pub(crate) fn spawn(
    around: &LaunchContext<'_>,
    launch: &Arc<LaunchOrder>,
    slot: RankSlot,
) -> Result<RankStart, LaunchError> {
    if launch.command.is_empty() {
        return Err(LaunchError::NoCommand);
    }
    let user = choose_user(around, launch)?;
    let rank = RankRef {
        job: launch.job.clone(),
        generation: launch.generation,
        rank: slot.rank,
    };
    let output = RankOutput::create(around, launch, slot, user.is_some())?;
    let (start, dump, pipe) = rank_start(around, launch, slot, &rank, &output.files, user);
    around.roster.expect(rank.clone(), slot.local_rank, launch.clone());
    around.reports.expect(&rank, output.files);
    around.reports.flight.follow(rank.clone(), dump, pipe);
    let started = around
        .supervisors
        .start_rank(&rank, slot.local_rank, start.clone(), &output.stdout, &output.stderr);
    match started {
        Ok(()) => Ok(start),
        Err(source) => {
            around.reports.forget(&rank);
            let user = named_user(launch.user.as_deref(), start.user.as_deref());
            Err(start_error(source, start, user, around.node.clone()))
        }
    }
}

/// Returns the parameters of a rank's start, and the dump and pipe of its flight recorder.
fn rank_start(
    around: &LaunchContext<'_>,
    launch: &LaunchOrder,
    slot: RankSlot,
    rank: &RankRef,
    files: &RankFiles,
    user: Option<String>,
) -> (RankStart, PathBuf, Option<PathBuf>) {
    let (program, arguments) = launch.command.split_first().unzip();
    let mut ours = variables(launch, slot, around.node, around.socket);
    let from_workdir = |path: PathBuf| match &launch.workdir {
        Some(workdir) => Path::new(workdir).join(path),
        None => path,
    };
    let dump = from_workdir(flight_dump(&mut ours, files, slot));
    let pipe = flight_pipe(&mut ours, files, slot, around.flight_pipe).map(from_workdir);
    ours.insert(FENCE_VARIABLE.to_owned(), around.mark.of_rank(rank));
    let start = RankStart {
        rank: slot.rank.0,
        program: program.cloned().unwrap_or_default(),
        arguments: arguments.unwrap_or_default().to_vec(),
        environment: rank_environment(around.environment, ours, user.is_some()),
        workdir: launch.workdir.clone(),
        user,
        refused_users: around.users.refused_numbers(),
        folder: files.dumps.clone(),
        tracer: std::process::id(),
        umask: rank_umask(),
        cgroup: None,
        standby: launch
            .standby
            .as_ref()
            .and_then(|_| StandbyCommand::parse(&launch.command).ok()),
    };
    (start, dump, pipe)
}

/// Returns the parameters with which the first rank of a node would start, for standby processes ahead of a launch.
pub(crate) fn prepared_start(around: &LaunchContext<'_>, wanted: &PrepareOrder) -> Result<RankStart, LaunchError> {
    let slot = RankSlot {
        rank: Rank(0),
        local_rank: 0,
    };
    // What differs between ranks and generations is no part of a standby process.
    let launch = LaunchOrder {
        job: wanted.job.clone(),
        generation: wanted.generation,
        command: wanted.command.clone(),
        env: wanted.env.clone(),
        workdir: wanted.workdir.clone(),
        world_size: 1,
        group_rank: 0,
        ranks: vec![slot],
        master_addr: String::new(),
        master_port: 0,
        restart_count: 0,
        max_restarts: 0,
        checkpoint_every: 0,
        checkpoint_store: String::new(),
        restore: None,
        peers: Vec::new(),
        nodes: Vec::new(),
        tiers: CheckpointTiers::default(),
        user: wanted.user.clone(),
        standby: wanted.standby.clone(),
    };
    let user = choose_user(around, &launch)?;
    let rank = RankRef {
        job: launch.job.clone(),
        generation: launch.generation,
        rank: slot.rank,
    };
    let files = rank_files(around.state_dir, &launch, slot, user.is_some());
    Ok(rank_start(around, &launch, slot, &rank, &files, user).0)
}

/// Returns the user of a rank, with the setting that names it unless the job does.
fn named_user(of_job: Option<&str>, of_agent: Option<&str>) -> String {
    match (of_job, of_agent) {
        (Some(user), _) => user.to_owned(),
        (None, Some(user)) => format!("{user} (agent.rank_user)"),
        (None, None) => "(none)".to_owned(),
    }
}

/// Returns the user of a rank; `None` for the agent's own. Checks that its working directory exists, as far as the
/// agent can read it.
fn choose_user(around: &LaunchContext<'_>, launch: &LaunchOrder) -> Result<Option<String>, LaunchError> {
    let node = around.node.clone();
    let user = around.users.choose(launch.user.as_deref());
    let user = user.map_err(|problem| LaunchError::User {
        user: named_user(launch.user.as_deref(), around.users.usual()),
        node: node.clone(),
        problem,
    })?;
    match &launch.workdir {
        // Another user's directory may be unreadable for the agent; the supervisor enters it as that user.
        Some(path) if user.is_none() && !Path::new(path).is_dir() => {
            let path = path.clone();
            Err(LaunchError::NoWorkdir { path, node })
        }
        _ => Ok(user),
    }
}

/// Returns the environment of a rank: the allowed variables of the agent, overridden by those of job and agent.
fn rank_environment(
    allowed: &[String],
    ours: BTreeMap<String, String>,
    is_other_user: bool,
) -> BTreeMap<String, String> {
    let mut environment = allowed_variables(allowed, std::env::vars_os());
    if is_other_user {
        // These are the agent's; the supervisor sets those of the rank's user.
        for name in ["HOME", "LOGNAME", "SHELL", "USER", "XDG_RUNTIME_DIR"] {
            environment.remove(name);
        }
    }
    environment.extend(ours);
    environment
}

/// Open output files of a rank.
struct RankOutput {
    files: RankFiles,
    stdout: File,
    stderr: File,
}

impl RankOutput {
    fn create(
        around: &LaunchContext<'_>,
        launch: &LaunchOrder,
        slot: RankSlot,
        is_other_user: bool,
    ) -> Result<Self, LaunchError> {
        let files = rank_files(around.state_dir, launch, slot, is_other_user);
        let made = make_output_folders(around.state_dir, &files.dumps, is_other_user);
        made.map_err(|source| output_error(slot, &files.dumps, source))?;
        let create = |path: &Path| create_output(path).map_err(|source| output_error(slot, path, source));
        let stdout = create(&files.stdout)?;
        let stderr = create(&files.stderr)?;
        Ok(Self { files, stdout, stderr })
    }
}

fn output_error(slot: RankSlot, path: &Path, source: io::Error) -> LaunchError {
    LaunchError::Output {
        rank: slot.rank.0,
        path: path.to_owned(),
        source,
    }
}

fn start_error(source: StartError, start: RankStart, user: String, node: NodeId) -> LaunchError {
    let program = start.program;
    let StartError::Refused { stage, problem, errno } = &source else {
        return LaunchError::Start { program, node, source };
    };
    let problem = problem.clone();
    match (stage, errno) {
        (StartStage::Program, Some(libc::ENOENT)) => {
            let path = start.environment.get("PATH").cloned().unwrap_or_default();
            missing_file(program, node, path, start.workdir.as_deref())
        }
        // A retry fails the same way; a shortage of memory or processes does not.
        (StartStage::Program, Some(libc::EACCES | libc::ENOEXEC | libc::ENOTDIR | libc::ELOOP)) => {
            let path = start.environment.get("PATH").cloned().unwrap_or_default();
            LaunchError::NotExecutable {
                program,
                node,
                path,
                problem,
            }
        }
        (StartStage::Workdir, _) => {
            let path = start.workdir.unwrap_or_default();
            LaunchError::Workdir { path, node, problem }
        }
        (StartStage::User, _) => LaunchError::User { user, node, problem },
        _ => LaunchError::Start { program, node, source },
    }
}

/// Returns the error of a program that the kernel did not find. If its file exists, then the interpreter or the loader
/// that the file names is missing.
fn missing_file(program: String, node: NodeId, path: String, workdir: Option<&str>) -> LaunchError {
    let Some(file) = program_file(&program, &path, workdir) else {
        return LaunchError::NotFound { program, node, path };
    };
    match interpreter(&file) {
        Ok(Some(interpreter)) if !from_workdir(workdir, &interpreter).exists() => LaunchError::NoInterpreter {
            program,
            node,
            file,
            interpreter,
        },
        Ok(None) => LaunchError::NoLoader { program, node, file },
        _ => LaunchError::NotFound { program, node, path },
    }
}

/// Names the folders in which a program is searched; a program with a folder of its own is not.
fn searched(program: &str, path: &str) -> String {
    if program.contains('/') {
        String::new()
    } else {
        format!(" (PATH is {path})")
    }
}

/// Returns the executable file of a program, if there is one.
fn program_file(program: &str, path: &str, workdir: Option<&str>) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        let meta = fs::metadata(file);
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(from_workdir(workdir, Path::new(program))).filter(is_program);
    }
    let folders = path.split(':').map(|folder| from_workdir(workdir, Path::new(folder)));
    folders.map(|folder| folder.join(program)).find(is_program)
}

fn from_workdir(workdir: Option<&str>, path: &Path) -> PathBuf {
    workdir.map_or_else(|| path.to_owned(), |workdir| Path::new(workdir).join(path))
}

/// Creates the folders of a generation's output. If ranks run as another user, that user may pass through the folders
/// above the last one, which the supervisor gives to the user.
fn make_output_folders(state_dir: &Path, last: &Path, is_shared: bool) -> io::Result<()> {
    let mode = if is_shared { 0o711 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(last)?;
    if is_shared {
        // They may have been created for ranks of the agent's own user.
        for above in last.ancestors().skip(1).take_while(|path| *path != state_dir) {
            fs::set_permissions(above, Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

/// Creates an output file of a rank, empty and private to its owner. An earlier file of the name is removed: it may
/// belong to another user, or be a link.
fn create_output(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(problem) if problem.kind() != io::ErrorKind::NotFound => return Err(problem),
        _ => {}
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}
