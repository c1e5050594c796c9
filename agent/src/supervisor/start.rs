//! Start of one rank's process.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PTracer, Pid, Signal};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::messages::{RankStart, StartStage};
use super::rank_user::RankUser;
use super::rights::{drop_bounding_set, drop_privileges};

/// Failure to start a rank.
#[derive(Debug)]
pub(super) struct StartFailure {
    pub(super) stage: StartStage,
    pub(super) problem: io::Error,
}

impl StartFailure {
    pub(super) fn at(stage: StartStage, problem: io::Error) -> Self {
        Self { stage, problem }
    }
}

/// Process of a started rank.
#[derive(Debug)]
pub(super) struct StartedRank {
    pub(super) pid: u32,
    pub(super) uid: u32,
}

/// Starts a rank with these files as its standard output and standard error.
pub(super) fn start_rank(start: &RankStart, stdout: OwnedFd, stderr: OwnedFd) -> Result<StartedRank, StartFailure> {
    let user = find_user(start, rustix::process::geteuid())?;
    if let Some(user) = &user {
        give_files(start, user, [&stdout, &stderr]).map_err(|it| StartFailure::at(StartStage::User, it))?;
    }
    spawn_process(start, user.as_ref(), Stdio::null(), stdout, stderr)
}

/// Starts the program of a rank as its user, without privileges.
pub(super) fn spawn_process(
    start: &RankStart,
    user: Option<&RankUser>,
    stdin: Stdio,
    stdout: OwnedFd,
    stderr: OwnedFd,
) -> Result<StartedRank, StartFailure> {
    let mut command = Command::new(&start.program);
    command.args(&start.arguments).env_clear().envs(&start.environment);
    if let Some(user) = user {
        command.envs(account_variables(start, user));
    }
    command
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        // Its own process group, so that signals to the rank reach its children.
        .process_group(0);
    let (stage_reader, stage_writer) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|it| StartFailure::at(StartStage::Request, it.into()))?;
    let entry = RankEntry::prepare(start, user).map_err(|it| StartFailure::at(StartStage::Request, it))?;
    let enter = move || {
        entry.enter().map_err(|(stage, problem)| {
            let _ = rustix::io::write(&stage_writer, &[stage as u8]);
            problem
        })
    };
    // SAFETY: the closure makes system calls on values that were made before the fork. It allocates nothing and takes
    // no lock, also where it fails: the stage is one byte on the stack, and an error made of a number has no heap
    // part.
    unsafe {
        command.pre_exec(enter);
    }
    let spawned = command.spawn();
    // The closure holds the other end of the pipe.
    drop(command);
    match spawned {
        Ok(child) => Ok(StartedRank {
            pid: child.id(),
            uid: user.map_or(rustix::process::geteuid().as_raw(), |user| user.uid),
        }),
        Err(problem) => Err(StartFailure::at(failed_stage(stage_reader), problem)),
    }
}

/// Returns the user to change to; `None` if the rank runs as the supervisor's own.
pub(super) fn find_user(start: &RankStart, own: Uid) -> Result<Option<RankUser>, StartFailure> {
    let Some(name) = &start.user else { return Ok(None) };
    let failed = |problem| StartFailure::at(StartStage::User, problem);
    let user = RankUser::find(name).map_err(failed)?;
    if start.refused_users.contains(&user.uid) {
        let text = format!("user {name} (number {}) may not run ranks", user.uid);
        return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, text)));
    }
    Ok((user.uid != own.as_raw()).then_some(user))
}

/// Gives the output and the folder for dumps to the rank's user. The agent's group retains its access.
pub(super) fn give_files(start: &RankStart, user: &RankUser, outputs: [&OwnedFd; 2]) -> io::Result<()> {
    let uid = Uid::from_raw(user.uid);
    for output in outputs {
        // The mode comes first, because only the owner may change it.
        rustix::fs::fchmod(output, Mode::from_raw_mode(0o640))?;
        rustix::fs::fchown(output, Some(uid), None)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(&start.folder, flags, Mode::empty())?;
    // Another rank of the generation may have given it already.
    if rustix::fs::fstat(&folder)?.st_uid != user.uid {
        // The set-group-id bit gives new files the agent's group.
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(0o2770))?;
        rustix::fs::fchown(&folder, Some(uid), None)?;
    }
    Ok(())
}

/// Returns the account's variables that the job does not set itself.
pub(super) fn account_variables(start: &RankStart, user: &RankUser) -> Vec<(&'static str, String)> {
    let Some(account) = &user.account else {
        return Vec::new();
    };
    let all = [
        ("USER", &account.name),
        ("LOGNAME", &account.name),
        ("HOME", &account.home),
        ("SHELL", &account.shell),
    ];
    let unset = all
        .into_iter()
        .filter(|(name, _)| !start.environment.contains_key(*name));
    unset.map(|(name, value)| (name, value.clone())).collect()
}

/// Returns the stage that the child wrote before it failed; without one, the program could not be executed.
fn failed_stage(reader: OwnedFd) -> StartStage {
    let stages = [
        StartStage::User,
        StartStage::Rights,
        StartStage::Workdir,
        StartStage::Parent,
    ];
    let mut byte = [u8::MAX];
    // The child is gone and the parent's copy is closed, so this read does not block.
    match File::from(reader).read(&mut byte) {
        Ok(1) => stages
            .into_iter()
            .find(|stage| *stage as u8 == byte[0])
            .unwrap_or(StartStage::Program),
        _ => StartStage::Program,
    }
}

/// Actions between fork and exec, prepared before the fork.
struct RankEntry {
    cgroup: Option<File>,
    umask: Mode,
    user: Option<(Uid, Gid, Vec<Gid>)>,
    workdir: Option<CString>,
    tracer: Option<Pid>,
    supervisor: Pid,
}

impl RankEntry {
    fn prepare(start: &RankStart, user: Option<&RankUser>) -> io::Result<Self> {
        let open_group = |path: &Path| File::options().write(true).open(path.join("cgroup.procs")).ok();
        let ids = |user: &RankUser| {
            let groups = user.groups.iter().copied().map(Gid::from_raw).collect();
            (Uid::from_raw(user.uid), Gid::from_raw(user.gid), groups)
        };
        Ok(Self {
            cgroup: start.cgroup.as_deref().and_then(open_group),
            umask: Mode::from_raw_mode(start.umask),
            user: user.map(ids),
            workdir: start
                .workdir
                .clone()
                .map(CString::new)
                .transpose()
                .map_err(io::Error::other)?,
            tracer: i32::try_from(start.tracer).ok().and_then(Pid::from_raw),
            supervisor: rustix::process::getpid(),
        })
    }

    /// Turns the forked process into a rank without privileges.
    fn enter(&self) -> Result<(), (StartStage, io::Error)> {
        let at = |stage: StartStage| move |problem: rustix::io::Errno| (stage, io::Error::from(problem));
        if let Some(group) = &self.cgroup {
            // Without the group the process is still below its supervisor.
            let _ = rustix::io::write(group.as_fd(), b"0");
        }
        rustix::process::umask(self.umask);
        drop_bounding_set();
        if let Some((uid, gid, groups)) = &self.user {
            set_thread_groups(groups).map_err(at(StartStage::User))?;
            set_thread_res_gid(*gid, *gid, *gid).map_err(at(StartStage::User))?;
            set_thread_res_uid(*uid, *uid, *uid).map_err(at(StartStage::User))?;
        }
        drop_privileges().map_err(|problem| (StartStage::Rights, problem))?;
        if let Some(workdir) = &self.workdir {
            // After the change of user: the directory may be inaccessible to the agent, and must be accessible to the
            // user.
            rustix::process::chdir(workdir).map_err(at(StartStage::Workdir))?;
        }
        self.bind_to_supervisor()
    }

    /// Binds the rank to its supervisor by the parent-death signal; called after the change of user, which resets that
    /// signal.
    fn bind_to_supervisor(&self) -> Result<(), (StartStage, io::Error)> {
        let failed = |problem: rustix::io::Errno| (StartStage::Parent, io::Error::from(problem));
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
        if let Some(tracer) = self.tracer {
            // Required where only parents may trace a process (Yama); other kernels refuse it.
            let _ = rustix::process::set_ptracer(PTracer::ProcessID(tracer));
        }
        // The supervisor may have ended between the fork and the call that sets the death signal.
        if rustix::process::getppid() == Some(self.supervisor) {
            Ok(())
        } else {
            Err(failed(rustix::io::Errno::CHILD))
        }
    }
}
