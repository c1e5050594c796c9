//! Process of a supervisor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, waitpid};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use serde::de::DeserializeOwned;

use super::messages::{RankStart, StartStage, SupervisorReport, SupervisorRequest};
use super::rank_user::RankUser;
use super::standby::{StandbyNews, StandbyProcess, StartedAs};
use super::start::{StartFailure, StartedRank, find_user, start_rank};
use crate::boot_clock::boot_now;
use crate::clock;
use crate::packets::{PacketChannel, wait_ready};
use crate::processes::{ProcessCgroup, ProcessTable, end_processes, enter_own_cgroup, first_ended_child};

/// Longest wait for space in the socket to the agent.
const SEND_LIMIT: Duration = Duration::from_millis(100);

/// Maximum queued reports for an agent that does not read; the oldest are dropped. The end of the socket compensates a
/// lost exit.
const REPORTS_MAX: usize = 4_096;

/// Longest wait for the end of a rank's leftover processes before its exit is reported.
const LEFTOVER_LIMIT: Duration = Duration::from_secs(2);

/// Longest wait for the end of the children of a rank that has left its generation.
const CHILDREN_LIMIT: Duration = Duration::from_secs(1);

/// Longest wait for the end of a standby process that was killed.
const KILL_LIMIT: Duration = Duration::from_secs(1);

/// Longest single attempt to end all processes; it is repeated while a process is left.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Pause between two such attempts.
const END_PAUSE: Duration = Duration::from_millis(200);

/// Supervises ranks for the agent at the socket on standard input, until the agent is gone, its lease has expired or
/// it requests the end. Then ends every process below this one, and returns when none is left.
pub fn supervise_ranks() -> io::Result<()> {
    // Signals to the agent's session or group must not reach this process. The call fails for a session leader, which
    // is separate already.
    let _ = rustix::process::setsid();
    // A sandbox may refuse it. Processes that fork twice are then reparented to the system, and only control group and
    // mark identify them.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let mut supervisor = RankSupervisor {
        channel: socket.into(),
        ranks: BTreeMap::new(),
        cgroups: BTreeSet::new(),
        lease: None,
        timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?,
        reports: VecDeque::new(),
        standbys: Vec::new(),
    };
    let served = supervisor.serve();
    supervisor.end_all();
    served
}

struct RankSupervisor {
    channel: PacketChannel,
    /// Ranks by process id.
    ranks: BTreeMap<u32, SupervisedRank>,
    /// Control groups of all ranks that were started.
    cgroups: BTreeSet<std::path::PathBuf>,
    lease: Option<Duration>,
    timer: OwnedFd,
    /// Unsent reports, oldest first.
    reports: VecDeque<SupervisorReport>,
    /// Standby processes, oldest first.
    standbys: Vec<StandbyProcess>,
}

struct SupervisedRank {
    rank: u32,
    handle: OwnedFd,
    cgroup: Option<ProcessCgroup>,
    started: StartedAs,
}

/// Decision of the poll loop.
#[derive(Debug, PartialEq, Eq)]
enum LoopDecision {
    Serve,
    End,
}

impl RankSupervisor {
    fn serve(&mut self) -> io::Result<()> {
        loop {
            self.flush();
            let readable = self.wait()?;
            if self.is_lease_over() {
                return Ok(());
            }
            self.collect_exits();
            self.receive_standby_news();
            if readable && self.take_request()? == LoopDecision::End {
                return Ok(());
            }
        }
    }

    /// Waits for an event; returns true if the agent has sent a message or is gone.
    fn wait(&self) -> io::Result<bool> {
        let wanted = if self.reports.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        };
        let mut waited = vec![
            PollFd::new(&self.channel, wanted),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        waited.extend(self.ranks.values().map(|rank| PollFd::new(&rank.handle, PollFlags::IN)));
        for standby in &self.standbys {
            waited.push(PollFd::new(&standby.handle, PollFlags::IN));
            if !standby.is_ready {
                waited.push(PollFd::new(&standby.channel, PollFlags::IN));
            }
        }
        match poll(&mut waited, None) {
            Ok(_) => Ok(waited[0]
                .revents()
                .intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)),
            Err(Errno::INTR) => Ok(false),
            Err(problem) => Err(problem.into()),
        }
    }

    fn is_lease_over(&self) -> bool {
        self.lease.is_some_and(|until| until <= boot_now())
    }

    fn take_request(&mut self) -> io::Result<LoopDecision> {
        let received = match self.channel.receive::<SupervisorRequest>(Duration::ZERO) {
            Ok(received) => received,
            Err(problem) if problem.kind() == io::ErrorKind::TimedOut => return Ok(LoopDecision::Serve),
            Err(problem) if problem.kind() == io::ErrorKind::ConnectionReset => None,
            Err(problem) => return Err(problem),
        };
        match received {
            None | Some((SupervisorRequest::End, _)) => return Ok(LoopDecision::End),
            Some((SupervisorRequest::Renew { until }, _)) => self.renew(until)?,
            Some((SupervisorRequest::StartStandby { number }, files)) => self.start_standby(number, files),
            Some((SupervisorRequest::EndStandbys, _)) => self.end_standbys(),
            Some((SupervisorRequest::Keep { rank }, files)) => self.keep(rank, files),
            Some((SupervisorRequest::Start { rank }, files)) => {
                if let Err(failure) = self.start(rank, files) {
                    self.report(SupervisorReport::Refused {
                        rank,
                        stage: failure.stage,
                        problem: failure.problem.to_string(),
                        errno: failure.problem.raw_os_error(),
                    });
                }
            }
        }
        Ok(LoopDecision::Serve)
    }

    fn renew(&mut self, until: Duration) -> io::Result<()> {
        let until = self.lease.map_or(until, |known| known.max(until));
        self.lease = Some(until);
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec::try_from(until).map_err(io::Error::other)?,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }

    fn start(&mut self, rank: u32, files: Vec<OwnedFd>) -> Result<(), StartFailure> {
        if self.lease.is_none() || self.is_lease_over() {
            let problem = io::Error::other("the agent does not hold its lease");
            return Err(StartFailure::at(StartStage::Lease, problem));
        }
        let invalid = || StartFailure::at(StartStage::Request, io::ErrorKind::InvalidData.into());
        let Ok([request, stdout, stderr]) = <[OwnedFd; 3]>::try_from(files) else {
            return Err(invalid());
        };
        let start: RankStart =
            read_request(request).map_err(|problem| StartFailure::at(StartStage::Request, problem))?;
        if start.rank != rank {
            return Err(invalid());
        }
        self.cgroups.extend(start.cgroup.clone());
        let cgroup = start.cgroup.clone().map(ProcessCgroup::at);
        let user = find_user(&start, rustix::process::geteuid())?;
        let (used, unused) = self.use_standby(&start, user.as_ref(), [&stdout, &stderr]);
        let from_standby = used.is_some();
        let (StartedRank { pid, uid }, handle) = match used {
            Some(used) => used,
            None => {
                let started = start_rank(&start, stdout, stderr)?;
                let number = i32::try_from(started.pid)
                    .ok()
                    .and_then(Pid::from_raw)
                    .ok_or_else(invalid)?;
                let opened = pidfd_open(number, PidfdFlags::empty());
                let handle = opened.map_err(|problem| StartFailure::at(StartStage::Request, problem.into()))?;
                (started, handle)
            }
        };
        let started = StartedAs { start, user, uid };
        let supervised = SupervisedRank {
            rank,
            handle,
            cgroup,
            started,
        };
        self.ranks.insert(pid, supervised);
        self.report(SupervisorReport::Started {
            rank,
            pid,
            uid,
            from_standby,
            unused,
        });
        Ok(())
    }

    /// Lets a standby process become a rank; returns it, and the reasons for which others did not.
    fn use_standby(
        &mut self,
        start: &RankStart,
        user: Option<&RankUser>,
        outputs: [&OwnedFd; 2],
    ) -> (Option<(StartedRank, OwnedFd)>, Vec<String>) {
        let mut reasons = Vec::new();
        let is_wanted = |standby: &StandbyProcess| standby.is_fresh() && standby.is_ready && start.standby.is_some();
        let next = |standbys: &[StandbyProcess]| {
            let kept = standbys.iter().position(|standby| standby.was_in_place_of(start));
            kept.or_else(|| standbys.iter().position(is_wanted))
        };
        while let Some(at) = next(&self.standbys) {
            let standby = self.standbys.remove(at);
            let values = standby.values_for(start, user);
            let used = values.and_then(|values| {
                let taken = standby.become_rank(start, values, outputs);
                taken.map_err(|problem| problem.to_string())
            });
            match used {
                Ok(uid) => {
                    let started = StartedRank { pid: standby.pid, uid };
                    return (Some((started, standby.handle)), reasons);
                }
                Err(reason) => {
                    reasons.push(format!("standby process {}: {reason}", standby.pid));
                    // It must not act beside the rank that is started in its place.
                    standby.kill();
                    standby.wait_ended(KILL_LIMIT);
                }
            }
        }
        (None, reasons)
    }

    fn start_standby(&mut self, number: u32, files: Vec<OwnedFd>) {
        let started = self.spawn_standby(number, files);
        match started {
            Ok(standby) => self.standbys.push(standby),
            Err(failure) => self.report(SupervisorReport::StandbyEnded {
                number,
                problem: failure.problem.to_string(),
            }),
        }
    }

    fn spawn_standby(&self, number: u32, files: Vec<OwnedFd>) -> Result<StandbyProcess, StartFailure> {
        if self.lease.is_none() || self.is_lease_over() {
            let problem = io::Error::other("the agent does not hold its lease");
            return Err(StartFailure::at(StartStage::Lease, problem));
        }
        let failed = |problem| StartFailure::at(StartStage::Request, problem);
        let [request] = <[OwnedFd; 1]>::try_from(files).map_err(|_| failed(io::ErrorKind::InvalidData.into()))?;
        StandbyProcess::spawn(number, read_request(request).map_err(failed)?)
    }

    /// Lets the process of a rank wait for another rank. A process that cannot wait is killed.
    fn keep(&mut self, rank: u32, files: Vec<OwnedFd>) {
        let known = self.ranks.iter().find(|(_, known)| known.rank == rank);
        let Some(pid) = known.map(|(pid, _)| *pid) else { return };
        let Ok([channel]) = <[OwnedFd; 1]>::try_from(files) else {
            return;
        };
        let own = BTreeSet::from([pid]);
        let ended = end_processes(CHILDREN_LIMIT, |table| table.descendants(&own));
        let is_alone = ended.is_complete();
        let has_group = self.ranks.get(&pid).is_some_and(|known| known.cgroup.is_some());
        if !is_alone || has_group && enter_own_cgroup(pid).is_err() {
            if let Some(leader) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            return;
        }
        let Some(known) = self.ranks.remove(&pid) else { return };
        if let Some(cgroup) = &known.cgroup {
            cgroup.end(LEFTOVER_LIMIT);
            cgroup.remove();
        }
        let kept = StandbyProcess::kept(pid, known.handle, channel.into(), known.started);
        self.standbys.push(kept);
        self.report(SupervisorReport::Kept { rank, pid });
    }

    /// Kills all standby processes; their ends are not reported.
    fn end_standbys(&mut self) {
        for standby in std::mem::take(&mut self.standbys) {
            standby.kill();
        }
    }

    /// Receives the reports of standby processes that import their modules.
    fn receive_standby_news(&mut self) {
        let mut reports = Vec::new();
        self.standbys.retain_mut(|standby| {
            let is_readable = wait_ready(standby.channel.as_fd(), PollFlags::IN, Duration::ZERO);
            if standby.is_ready || !matches!(is_readable, Ok(true)) {
                return true;
            }
            let (number, pid) = (standby.number, standby.pid);
            match standby.receive() {
                Some(StandbyNews::Ready { threads }) => {
                    reports.push(SupervisorReport::StandbyReady { number, pid, threads });
                    true
                }
                news => {
                    let problem = match news {
                        Some(StandbyNews::Failed { problem }) => problem,
                        _ => {
                            // Its last words are complete once it has ended.
                            standby.wait_ended(KILL_LIMIT);
                            let error = standby.last_error();
                            error.unwrap_or_else(|| "it ended before its imports were complete".to_owned())
                        }
                    };
                    standby.kill();
                    reports.push(SupervisorReport::StandbyEnded { number, problem });
                    false
                }
            }
        });
        reports.into_iter().for_each(|report| self.report(report));
    }

    /// Collects the exits of all children that have ended. Reparented orphans are only reaped.
    fn collect_exits(&mut self) {
        while let Some(pid) = first_ended_child() {
            let noticed_at = Some(clock::now());
            let number = u32::try_from(pid.as_raw_nonzero().get()).unwrap_or_default();
            let rank = self.ranks.remove(&number);
            let standby = self.standbys.iter().position(|standby| standby.pid == number);
            if let Some(mut standby) = standby.map(|at| self.standbys.remove(at)) {
                let error = standby.last_error().unwrap_or_else(|| "it ended".to_owned());
                // Its children.
                standby.kill();
                let number = standby.number;
                self.report(SupervisorReport::StandbyEnded { number, problem: error });
            }
            if let Some(rank) = &rank {
                // The process id cannot be reused before the rank is reaped.
                self.end_leftovers(rank, pid);
            }
            let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG) else {
                return;
            };
            if let Some(rank) = rank {
                self.report(SupervisorReport::Exited {
                    rank: rank.rank,
                    pid: number,
                    status: status.as_raw(),
                    noticed_at,
                });
            }
        }
    }

    /// Ends the leftovers of a rank: its process group and its control group, and all processes after the last rank.
    fn end_leftovers(&self, rank: &SupervisedRank, leader: Pid) {
        let _ = kill_process_group(leader, Signal::KILL);
        if let Some(cgroup) = &rank.cgroup {
            cgroup.end(LEFTOVER_LIMIT);
            cgroup.remove();
        }
        if self.ranks.is_empty() {
            end_below(LEFTOVER_LIMIT, |pid| {
                self.standbys.iter().any(|standby| standby.pid == pid)
            });
        }
    }

    /// Ends every process below this one. A process that hangs in the kernel delays the supervisor's end, so that an
    /// operator can find it.
    fn end_all(&mut self) {
        loop {
            for cgroup in &self.cgroups {
                ProcessCgroup::at(cgroup.clone()).end(END_LIMIT);
            }
            let is_clear = end_below(END_LIMIT, |_| false);
            self.collect_exits();
            self.flush();
            if is_clear {
                break;
            }
            std::thread::sleep(END_PAUSE);
        }
        for cgroup in &self.cgroups {
            // No agent may come to remove the parent groups. Groups in use remain.
            ProcessCgroup::at(cgroup.clone()).remove_with_parents();
        }
    }

    fn report(&mut self, report: SupervisorReport) {
        if self.reports.len() == REPORTS_MAX {
            self.reports.pop_front();
        }
        self.reports.push_back(report);
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(report) = self.reports.front() {
            match self.channel.send(report, &[], SEND_LIMIT) {
                Ok(()) => drop(self.reports.pop_front()),
                Err(problem) if problem.kind() == io::ErrorKind::TimedOut => return,
                // No agent reads reports any more.
                Err(_) => self.reports.clear(),
            }
        }
    }
}

/// Ends the processes below this one, except those that may stay; returns true if no other is left.
fn end_below(limit: Duration, may_stay: impl Fn(u32) -> bool) -> bool {
    let own = BTreeSet::from([std::process::id()]);
    let scope = |table: &ProcessTable| {
        let mut below = table.descendants(&own);
        below.retain(|process| !may_stay(process.pid));
        below
    };
    end_processes(limit, scope).is_complete()
}

fn read_request<T: DeserializeOwned>(file: OwnedFd) -> io::Result<T> {
    let mut file = File::from(file);
    file.rewind()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
