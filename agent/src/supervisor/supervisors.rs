//! Agent side of supervision: one supervisor per generation of a job, and their common lease.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use rankguard_model::{Generation, JobId, ProcessExit, RankRef};
use rustix::process::Signal;

use super::generation::{SupervisedGeneration, exit_of};
use super::group::SupervisedGroup;
use super::handle::SupervisorHandle;
use super::messages::{RankStart, StandbyStart, SupervisorReport};
use super::orphans::{end_orphans, reap_orphans};
use super::report::{RankEnd, RankEvents, RankProcess, StartError, SupervisorLoss};
use super::standby_status::StandbyStatus;
use crate::lease::RankLease;
use crate::processes::{CgroupBase, EndedProcesses, FenceMark, ProcessTable, signal_process};

/// Longest wait for the result of a start; looking up a user may take long.
const START_LIMIT: Duration = Duration::from_secs(15);

/// Longest wait for a supervisor without processes to exit.
const EXIT_LIMIT: Duration = Duration::from_secs(2);

/// Pause between two checks for the end of a supervisor.
const END_PAUSE: Duration = Duration::from_millis(5);

/// Receive timeout of a thread that waits indefinitely for reports.
const RECEIVE_LIMIT: Duration = Duration::from_secs(3_600);

/// Number of renewals within the length of the lease.
const RENEWALS: u32 = 10;

/// What becomes of processes that have left a generation which ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptProcesses {
    Wait,
    End,
}

/// Supervisors of a node. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RankSupervisors(Arc<SupervisorsShared>);

#[derive(Debug)]
struct SupervisorsShared {
    program: Vec<OsString>,
    mark: FenceMark,
    cgroups: Option<CgroupBase>,
    lease: RankLease,
    kill_limit: Duration,
    events: Arc<dyn RankEvents>,
    table: Mutex<SupervisorTable>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SupervisorTable {
    /// Supervisors of generations and of standby processes.
    groups: Vec<Arc<SupervisedGroup>>,
    /// Supervisor started in advance for the next generation.
    idle: Option<SupervisorHandle>,
}

impl SupervisorTable {
    /// Returns the parts of a generation.
    fn parts(&self, job: &JobId, generation: Generation) -> Vec<Arc<SupervisedGeneration>> {
        let all = self.groups.iter().filter_map(|group| group.generation());
        all.filter(|it| it.job == *job && it.generation == generation).collect()
    }

    /// Removes the matching groups, so that no rank uses their processes, and returns them.
    fn remove(&mut self, which: impl Fn(&SupervisedGroup) -> bool) -> Vec<Arc<SupervisedGroup>> {
        let (removed, left) = std::mem::take(&mut self.groups)
            .into_iter()
            .partition(|group| which(group));
        self.groups = left;
        removed
    }
}

impl RankSupervisors {
    pub(crate) fn start(
        program: Vec<OsString>,
        mark: FenceMark,
        cgroups: Option<CgroupBase>,
        lease: RankLease,
        kill_limit: Duration,
        events: Arc<dyn RankEvents>,
    ) -> io::Result<Self> {
        let pause = lease.length() / RENEWALS;
        let shared = Arc::new(SupervisorsShared {
            program,
            mark,
            cgroups,
            lease,
            kill_limit,
            events,
            table: Mutex::default(),
            changed: Condvar::new(),
        });
        let weak = Arc::downgrade(&shared);
        let thread = std::thread::Builder::new().name("rank-lease".to_owned());
        thread.spawn(move || renew_leases(&weak, pause))?;
        Ok(Self(shared))
    }

    /// Starts a supervisor in advance, so that a launch does not wait for one.
    pub(crate) fn prepare(&self) {
        if self.0.program.is_empty() {
            return;
        }
        let mut table = self.0.lock();
        table.idle = table.idle.take().filter(|idle| !idle.has_ended());
        if table.idle.is_none() {
            table.idle = self
                .0
                .spawn()
                .inspect_err(|problem| tracing::debug!(%problem, "no supervisor in advance"))
                .ok();
        }
    }

    /// Starts the rank of this number on the node and waits until its program runs.
    pub(crate) fn start_rank(
        &self,
        rank: &RankRef,
        local_rank: u32,
        mut start: RankStart,
        stdout: &File,
        stderr: &File,
    ) -> Result<(), StartError> {
        let generation = self.0.generation(rank, local_rank)?;
        let group = generation
            .cgroup
            .as_ref()
            .map(|group| group.below(&format!("rank-{}", rank.rank)));
        // A rank without a control group is still below its supervisor.
        start.cgroup = group
            .filter(|group| group.create().is_ok())
            .map(|group| group.path().to_owned());
        let (reply, answer) = sync_channel(1);
        generation.lock().starting.insert(rank.rank.0, reply);
        if generation.handle.start(&start, stdout, stderr).is_err() {
            generation.lock().starting.remove(&rank.rank.0);
            return Err(StartError::Ended);
        }
        let answered = answer.recv_timeout(START_LIMIT);
        answered.unwrap_or_else(|problem| match problem {
            RecvTimeoutError::Disconnected => Err(StartError::Ended),
            RecvTimeoutError::Timeout => {
                // It is unknown whether the rank runs, so the whole generation is ended.
                generation.handle.kill();
                Err(StartError::Silent(START_LIMIT))
            }
        })
    }

    /// Marks a generation as fully launched: its supervisors end once no rank runs, and so do processes of the job that
    /// were ranks and are not used.
    pub(crate) fn finish_launch(&self, job: &JobId, generation: Generation) {
        let parts = self.0.lock().parts(job, generation);
        for part in parts {
            let mut state = part.lock();
            state.is_launching = false;
            state.waiting.clear();
            // Those that no rank used.
            part.handle.end_standbys();
            if state.running.is_empty() {
                part.handle.ask_to_end();
            }
        }
        self.end_kept(|known, _| known == job);
    }

    /// Lets the process of a rank that has left its generation wait at this socket for another rank.
    pub(crate) fn keep(&self, rank: &RankRef, local_rank: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let parts = self.0.lock().parts(&rank.job, rank.generation);
        let part = parts.into_iter().find(|part| {
            let mut state = part.lock();
            let is_here = state.running.contains_key(&rank.rank.0);
            is_here && state.leaving.insert(rank.rank.0, local_rank).is_none()
        });
        let part = part.ok_or(io::ErrorKind::NotFound)?;
        part.handle.keep(rank.rank.0, socket)
    }

    /// Ends the processes that were ranks of the matching jobs and wait for a rank, by job and time of the wait, and waits
    /// for their end.
    pub(crate) fn end_kept(&self, which: impl Fn(&JobId, Duration) -> bool) {
        let mut table = self.0.lock();
        let is_over = |group: &SupervisedGroup| group.kept_for().is_some_and(|time| which(&group.job, time));
        let parts: Vec<_> = table
            .groups
            .iter()
            .filter(|group| is_over(group))
            .filter_map(|group| group.generation())
            .collect();
        let waiting = table.remove(|group| group.is_waiting() && is_over(group));
        drop(table);
        for part in parts {
            part.end_kept(EXIT_LIMIT);
        }
        end_groups(waiting);
    }

    /// Sends a signal to all processes of the matching generations and returns them. Some may have ended before their
    /// turn, because a supervisor ends a rank's leftovers.
    pub(crate) fn signal(&self, signal: Signal, which: impl Fn(&JobId, Generation) -> bool) -> EndedProcesses {
        let mut signalled = EndedProcesses::default();
        let generations = self.0.matching(which);
        if generations.is_empty() {
            return signalled;
        }
        let table = ProcessTable::read().unwrap_or_default();
        for generation in generations {
            for process in generation.members(&table).iter().filter(|it| it.is_alive()) {
                signal_process(process, signal);
                signalled.pids.insert(process.pid);
            }
        }
        signalled
    }

    /// Ends all processes of the matching generations, and waits until their exits were reported. Processes that have left
    /// their generation may wait for the next launch of the job.
    pub(crate) fn end(&self, kept: KeptProcesses, which: impl Fn(&JobId, Generation) -> bool) -> EndedProcesses {
        let mut all = EndedProcesses::default();
        for generation in self.0.matching(which) {
            if kept == KeptProcesses::End {
                generation.lock().kept.clear();
            }
            let ended = generation.end_processes(self.0.kill_limit);
            let is_clear = ended.is_complete();
            all.merge(ended);
            // A supervisor with a process that hangs in the kernel continues to wait, because it is the process's
            // parent.
            if is_clear && !self.0.release(&generation) {
                generation.handle.ask_to_end();
                if !self.0.wait_removed(&generation, EXIT_LIMIT) {
                    generation.handle.kill();
                    self.0.wait_removed(&generation, self.0.kill_limit);
                }
            }
        }
        all
    }

    /// Requests the start of a standby process of a job, below a supervisor of its own.
    pub(crate) fn start_standby(&self, job: &JobId, status: &Arc<StandbyStatus>, number: u32, recipe: &StandbyStart) {
        let started = self.0.standby_group(job, status);
        if let Err(problem) = started.and_then(|group| group.handle.start_standby(number, recipe)) {
            status.ended(number, problem.to_string());
        }
    }

    /// Ends the standby processes of the matching jobs and waits for their end.
    pub(crate) fn end_standbys(&self, which: impl Fn(&JobId) -> bool) {
        let groups = self.0.lock().remove(|group| group.is_waiting() && which(&group.job));
        end_groups(groups);
    }

    /// Ends the supervisor that was started in advance, and removes the control group.
    pub(crate) fn close(&self) {
        let idle = self.0.lock().idle.take();
        drop(idle);
        if let Some(base) = &self.0.cgroups {
            base.remove();
        }
    }
}

impl SupervisorsShared {
    fn lock(&self) -> MutexGuard<'_, SupervisorTable> {
        self.table.lock().expect("no holder of the supervisors panics")
    }

    fn spawn(&self) -> io::Result<SupervisorHandle> {
        let handle = SupervisorHandle::spawn(&self.program, &self.mark.of_supervisor())?;
        if let Some(until) = self.lease.renewal() {
            handle.renew(until)?;
        }
        Ok(handle)
    }

    fn matching(&self, which: impl Fn(&JobId, Generation) -> bool) -> Vec<Arc<SupervisedGeneration>> {
        let table = self.lock();
        let all = table.groups.iter().filter_map(|group| group.generation());
        all.filter(|it| which(&it.job, it.generation)).collect()
    }

    /// Returns the part of a generation in which a rank starts, and marks it as launching; starts its supervisor if needed.
    ///
    /// A process that was the rank of this number on the node comes first, then a standby process.
    fn generation(self: &Arc<Self>, rank: &RankRef, local_rank: u32) -> Result<Arc<SupervisedGeneration>, StartError> {
        if self.program.is_empty() {
            return Err(StartError::NoProgram);
        }
        let mut table = self.lock();
        let parts = table.parts(&rank.job, rank.generation);
        let with_kept = parts.iter().find(|part| part.lock().waiting.contains(&local_rank));
        if let Some(part) = with_kept {
            return Ok(part.join_launch(local_rank));
        }
        let group = self.cgroups.as_ref();
        let group = group.map(|base| base.part(&rank.job, rank.generation, parts.len()));
        let waiting = || table.groups.iter().filter(|group| group.job == rank.job);
        let waiting = waiting()
            .find(|group| group.has_kept(local_rank))
            .or_else(|| waiting().find(|group| group.is_standby()));
        if let Some(waiting) = waiting {
            let part = Arc::new(SupervisedGeneration::new(rank, waiting.handle.clone(), group.clone()));
            if waiting.take_over(&part) {
                // The thread of the group follows the generation.
                return Ok(part.join_launch(local_rank));
            }
        }
        // The newest has the standby processes, if there are any.
        if let Some(part) = parts.last() {
            return Ok(part.join_launch(local_rank));
        }
        let handle = match table.idle.take().filter(|idle| !idle.has_ended()) {
            Some(idle) => Arc::new(idle),
            None => Arc::new(self.spawn().map_err(StartError::Spawn)?),
        };
        let part = Arc::new(SupervisedGeneration::new(rank, handle, group));
        let group = Arc::new(SupervisedGroup::taken(part.clone()));
        self.follow_group(&mut table, &group, "supervisor")
            .map_err(StartError::Spawn)?;
        Ok(part)
    }

    /// Returns the supervisor with the standby processes of a job; starts it if needed.
    fn standby_group(self: &Arc<Self>, job: &JobId, status: &Arc<StandbyStatus>) -> io::Result<Arc<SupervisedGroup>> {
        let mut table = self.lock();
        let mut known = table.groups.iter();
        let is_theirs = |group: &&Arc<SupervisedGroup>| group.job == *job && group.is_standby();
        if let Some(known) = known.find(|group| is_theirs(group) && !group.handle.has_ended()) {
            return Ok(known.clone());
        }
        let handle = Arc::new(self.spawn()?);
        let group = Arc::new(SupervisedGroup::waiting(job.clone(), handle, status.clone()));
        self.follow_group(&mut table, &group, "standbys")?;
        Ok(group)
    }

    /// Adds a supervisor to the table, with a thread that handles its reports.
    fn follow_group(
        self: &Arc<Self>,
        table: &mut SupervisorTable,
        group: &Arc<SupervisedGroup>,
        name: &str,
    ) -> io::Result<()> {
        let shared = self.clone();
        let followed = group.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || shared.follow(&followed))?;
        table.groups.push(group.clone());
        Ok(())
    }

    /// Handles the reports of a supervisor until it has ended, and then ends its leftovers.
    fn follow(&self, group: &Arc<SupervisedGroup>) {
        receive_reports(&group.handle, |report| match group.generation() {
            Some(generation) => self.take(&generation, report),
            None => group.note(report),
        });
        let is_standby = group.is_standby();
        // A generation has its supervisor until all exits are reported.
        match group.generation().or_else(|| group.end()) {
            Some(generation) => self.clean_up(&generation),
            None => {
                group.handle.wait();
                end_orphans(self.kill_limit);
            }
        }
        let mut table = self.lock();
        let before = table.groups.len();
        table.groups.retain(|known| !Arc::ptr_eq(known, group));
        if is_standby && table.groups.len() < before {
            group.status.lost();
        }
        drop(table);
        self.changed.notify_all();
    }

    /// Ends the leftovers of a generation after the end of its supervisor.
    fn clean_up(&self, generation: &Arc<SupervisedGeneration>) {
        let signal = generation.handle.wait();
        if let Some(group) = &generation.cgroup {
            group.end(self.kill_limit);
        }
        let ended = end_orphans(self.kill_limit);
        if !ended.pids.is_empty() {
            let count = ended.count();
            let left = ended.left_names();
            tracing::warn!(job = %generation.job, generation = %generation.generation, count, ?left, "a supervisor was lost; ended what it left");
        }
        if let Some(group) = &generation.cgroup {
            group.remove_with_parents();
        }
        let state = std::mem::take(&mut *generation.lock());
        drop(state.starting);
        let lost = signal.map(|signal| SupervisorLoss {
            supervisor: generation.handle.pid(),
            signal,
        });
        for (rank, pid) in state.running {
            let end = RankEnd {
                pid,
                exit: ProcessExit::Signal(9),
                noticed_at: None,
                lost,
            };
            self.events.exited(&generation.rank(rank), end);
        }
    }

    /// Lets the supervisor of an ended generation wait, if processes have left that generation; returns true if so.
    fn release(&self, generation: &Arc<SupervisedGeneration>) -> bool {
        let until = Instant::now() + EXIT_LIMIT;
        let mut table = self.lock();
        // The exits of the other ranks are reported for the generation.
        while !generation.lock().running.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || generation.handle.has_ended() {
                return false;
            }
            let waited = self.changed.wait_timeout(table, left.min(END_PAUSE));
            table = waited.expect("no holder of the supervisors panics").0;
        }
        let of = |group: &&Arc<SupervisedGroup>| group.generation().is_some_and(|it| Arc::ptr_eq(&it, generation));
        let released = table.groups.iter().find(of).is_some_and(|group| group.release());
        drop(table);
        self.changed.notify_all();
        released
    }

    fn take(&self, generation: &SupervisedGeneration, report: SupervisorReport) {
        match report {
            SupervisorReport::Started {
                rank,
                pid,
                uid,
                from_standby,
                unused,
            } => {
                for reason in unused {
                    tracing::warn!(job = %generation.job, rank, reason, "a standby process could not become a rank");
                }
                let reply = {
                    let mut state = generation.lock();
                    state.running.insert(rank, pid);
                    state.starting.remove(&rank)
                };
                let supervisor = generation.handle.pid();
                let process = RankProcess {
                    pid,
                    uid,
                    supervisor,
                    from_standby,
                };
                self.events.started(&generation.rank(rank), process);
                if let Some(reply) = reply {
                    let _ = reply.send(Ok(()));
                }
            }
            SupervisorReport::Refused {
                rank,
                stage,
                problem,
                errno,
            } => {
                if let Some(reply) = generation.lock().starting.remove(&rank) {
                    let _ = reply.send(Err(StartError::Refused { stage, problem, errno }));
                }
            }
            // Of standby processes that no rank used.
            SupervisorReport::StandbyReady { .. } | SupervisorReport::StandbyEnded { .. } => {}
            SupervisorReport::Kept { rank, pid } => {
                {
                    let mut state = generation.lock();
                    state.running.remove(&rank);
                    let Some(local_rank) = state.leaving.remove(&rank) else {
                        return;
                    };
                    state.kept.insert(local_rank, pid);
                    state.kept_since = Some(Instant::now());
                }
                self.events
                    .exited(&generation.rank(rank), RankEnd::new(pid, ProcessExit::Left));
            }
            SupervisorReport::Exited {
                rank,
                pid,
                status,
                noticed_at,
            } => {
                {
                    let mut state = generation.lock();
                    state.running.remove(&rank);
                    state.leaving.remove(&rank);
                    if state.running.is_empty() && state.kept.is_empty() && !state.is_launching {
                        generation.handle.ask_to_end();
                    }
                }
                let end = RankEnd {
                    noticed_at,
                    ..RankEnd::new(pid, exit_of(status))
                };
                self.events.exited(&generation.rank(rank), end);
            }
        }
    }

    /// Waits until a generation is removed from the table; returns true if it is.
    fn wait_removed(&self, generation: &Arc<SupervisedGeneration>, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut table = self.lock();
        loop {
            let mut known = table.groups.iter().filter_map(|group| group.generation());
            let is_known = known.any(|known| Arc::ptr_eq(&known, generation));
            let left = until.saturating_duration_since(Instant::now());
            if !is_known || left.is_zero() {
                return !is_known;
            }
            let waited = self.changed.wait_timeout(table, left);
            table = waited.expect("no holder of the supervisors panics").0;
        }
    }
}

/// Ends supervisors with all processes below them, and waits for their end.
fn end_groups(groups: Vec<Arc<SupervisedGroup>>) {
    for group in &groups {
        group.handle.ask_to_end();
    }
    for group in groups {
        let until = Instant::now() + EXIT_LIMIT;
        while !group.handle.has_ended() && Instant::now() < until {
            std::thread::sleep(END_PAUSE);
        }
        group.handle.kill();
    }
}

/// Passes on the reports of a supervisor until it has ended.
fn receive_reports(handle: &SupervisorHandle, mut take: impl FnMut(SupervisorReport)) {
    loop {
        match handle.receive(RECEIVE_LIMIT) {
            Ok(Some(report)) => take(report),
            Err(problem) if problem.kind() == io::ErrorKind::TimedOut => {}
            Ok(None) => return,
            Err(problem) => {
                tracing::debug!(%problem, supervisor = handle.pid(), "the socket to a supervisor is closed");
                // A process that a signal ends closes its socket before its parent receives the end.
                let until = Instant::now() + EXIT_LIMIT;
                while !handle.has_ended() && Instant::now() < until {
                    std::thread::sleep(END_PAUSE);
                }
                return handle.kill();
            }
        }
    }
}

/// Renews the lease of all supervisors while the agent holds its own lease.
fn renew_leases(shared: &Weak<SupervisorsShared>, pause: Duration) {
    loop {
        std::thread::sleep(pause);
        let Some(shared) = shared.upgrade() else { return };
        reap_orphans();
        let Some(until) = shared.lease.renewal() else { continue };
        let table = shared.lock();
        let groups = table.groups.iter().map(|group| &*group.handle);
        for handle in groups.chain(table.idle.as_ref()) {
            if let Err(problem) = handle.renew(until) {
                tracing::debug!(%problem, supervisor = handle.pid(), "cannot renew the lease of a supervisor");
            }
        }
    }
}
