//! Agent side of supervision: one supervisor per generation of a job, and their common lease.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use rankguard_model::{Generation, JobId, ProcessExit, RankRef};
use rustix::process::Signal;

use super::generation::{SupervisedGeneration, exit_of};
use super::handle::SupervisorHandle;
use super::messages::{RankStart, StandbyStart, SupervisorReport};
use super::orphans::{end_orphans, reap_orphans};
use super::report::{RankEvents, RankProcess, StartError};
use super::standby_group::{StandbyGroup, StandbyStatus};
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
    generations: BTreeMap<(JobId, Generation), Arc<SupervisedGeneration>>,
    /// Supervisor started in advance for the next generation.
    idle: Option<SupervisorHandle>,
    /// Supervisors with standby processes.
    standbys: BTreeMap<JobId, Arc<StandbyGroup>>,
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

    /// Starts a rank and waits until its program runs.
    pub(crate) fn start_rank(
        &self,
        rank: &RankRef,
        mut start: RankStart,
        stdout: &File,
        stderr: &File,
    ) -> Result<(), StartError> {
        let generation = self.0.generation(rank)?;
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

    /// Marks a generation as fully launched: its supervisor ends once no rank runs.
    pub(crate) fn finish_launch(&self, job: &JobId, generation: Generation) {
        let found = self.0.lock().generations.get(&(job.clone(), generation)).cloned();
        if let Some(generation) = found {
            let mut state = generation.lock();
            state.is_launching = false;
            // Those that no rank used.
            generation.handle.end_standbys();
            if state.running.is_empty() {
                generation.handle.ask_to_end();
            }
        }
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

    /// Ends all processes of the matching generations, and waits until their exits were reported.
    pub(crate) fn end(&self, which: impl Fn(&JobId, Generation) -> bool) -> EndedProcesses {
        let mut all = EndedProcesses::default();
        for generation in self.0.matching(which) {
            let ended = generation.end_processes(self.0.kill_limit);
            let is_clear = ended.is_complete();
            all.merge(ended);
            // A supervisor with a process that hangs in the kernel continues to wait, because it is the process's
            // parent.
            if is_clear {
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
        let mut table = self.0.lock();
        let ended: Vec<JobId> = table.standbys.keys().filter(|job| which(job)).cloned().collect();
        let groups: Vec<_> = ended.iter().filter_map(|job| table.standbys.remove(job)).collect();
        drop(table);
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
        let all = table.generations.values().filter(|it| which(&it.job, it.generation));
        all.cloned().collect()
    }

    /// Returns the supervised generation of a rank and marks it as launching; starts its supervisor if needed.
    fn generation(self: &Arc<Self>, rank: &RankRef) -> Result<Arc<SupervisedGeneration>, StartError> {
        if self.program.is_empty() {
            return Err(StartError::NoProgram);
        }
        let key = (rank.job.clone(), rank.generation);
        let mut table = self.lock();
        if let Some(known) = table.generations.get(&key) {
            known.lock().is_launching = true;
            return Ok(known.clone());
        }
        let group = self
            .cgroups
            .as_ref()
            .map(|base| base.generation(&rank.job, rank.generation));
        if let Some(standbys) = table.standbys.remove(&rank.job) {
            let handle = standbys.handle.clone();
            let generation = Arc::new(SupervisedGeneration::new(rank, handle, group.clone()));
            if standbys.take_over(&generation) {
                // The thread of the standby processes follows the generation.
                table.generations.insert(key, generation.clone());
                return Ok(generation);
            }
        }
        let handle = match table.idle.take().filter(|idle| !idle.has_ended()) {
            Some(idle) => Arc::new(idle),
            None => Arc::new(self.spawn().map_err(StartError::Spawn)?),
        };
        let generation = Arc::new(SupervisedGeneration::new(rank, handle, group));
        let shared = self.clone();
        let supervised = generation.clone();
        let thread = std::thread::Builder::new().name("supervisor".to_owned());
        let started = thread.spawn(move || shared.follow(&supervised));
        started.map_err(StartError::Spawn)?;
        table.generations.insert(key, generation.clone());
        Ok(generation)
    }

    /// Returns the supervisor with the standby processes of a job; starts it if needed.
    fn standby_group(self: &Arc<Self>, job: &JobId, status: &Arc<StandbyStatus>) -> io::Result<Arc<StandbyGroup>> {
        let mut table = self.lock();
        if let Some(known) = table.standbys.get(job).filter(|known| !known.handle.has_ended()) {
            return Ok(known.clone());
        }
        let handle = Arc::new(self.spawn()?);
        let group = Arc::new(StandbyGroup::new(job.clone(), handle, status.clone()));
        let shared = self.clone();
        let followed = group.clone();
        let thread = std::thread::Builder::new().name("standbys".to_owned());
        thread.spawn(move || shared.follow_standbys(&followed))?;
        table.standbys.insert(job.clone(), group.clone());
        Ok(group)
    }

    /// Handles the reports of a supervisor with standby processes, also once it is that of a generation.
    fn follow_standbys(&self, group: &Arc<StandbyGroup>) {
        receive_reports(&group.handle, |report| match group.generation() {
            Some(generation) => self.take(&generation, report),
            None => group.note(report),
        });
        if let Some(generation) = group.end() {
            return self.clean_up(&generation);
        }
        group.handle.wait();
        end_orphans(self.kill_limit);
        let mut table = self.lock();
        let known = table.standbys.get(&group.job);
        if known.is_some_and(|known| Arc::ptr_eq(known, group)) {
            table.standbys.remove(&group.job);
            group.status.lost();
        }
    }

    /// Handles the reports of a supervisor until it has ended, and then ends its leftovers.
    fn follow(&self, generation: &Arc<SupervisedGeneration>) {
        receive_reports(&generation.handle, |report| self.take(generation, report));
        self.clean_up(generation);
    }

    /// Ends the leftovers of a generation after the end of its supervisor.
    fn clean_up(&self, generation: &Arc<SupervisedGeneration>) {
        generation.handle.wait();
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
        for (rank, pid) in state.running {
            self.events.exited(&generation.rank(rank), pid, ProcessExit::Signal(9));
        }
        let key = (generation.job.clone(), generation.generation);
        let mut table = self.lock();
        if table
            .generations
            .get(&key)
            .is_some_and(|known| Arc::ptr_eq(known, generation))
        {
            table.generations.remove(&key);
        }
        drop(table);
        self.changed.notify_all();
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
            SupervisorReport::Exited { rank, pid, status } => {
                {
                    let mut state = generation.lock();
                    state.running.remove(&rank);
                    if state.running.is_empty() && !state.is_launching {
                        generation.handle.ask_to_end();
                    }
                }
                self.events.exited(&generation.rank(rank), pid, exit_of(status));
            }
        }
    }

    /// Waits until a generation is removed from the table; returns true if it is.
    fn wait_removed(&self, generation: &Arc<SupervisedGeneration>, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut table = self.lock();
        loop {
            let is_known = table.generations.values().any(|known| Arc::ptr_eq(known, generation));
            let left = until.saturating_duration_since(Instant::now());
            if !is_known || left.is_zero() {
                return !is_known;
            }
            let waited = self.changed.wait_timeout(table, left);
            table = waited.expect("no holder of the supervisors panics").0;
        }
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
        let supervised = table.generations.values().map(|generation| &*generation.handle);
        let standbys = table.standbys.values().map(|group| &*group.handle);
        for handle in supervised.chain(standbys).chain(table.idle.as_ref()) {
            if let Err(problem) = handle.renew(until) {
                tracing::debug!(%problem, supervisor = handle.pid(), "cannot renew the lease of a supervisor");
            }
        }
    }
}
