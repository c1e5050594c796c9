//! RG-3: when a generation ends, every process of it ends, however the processes tried to escape and whatever happened
//! to the agent. Processes are found by a number in their command line that no other process of this machine has.

#![allow(clippy::unwrap_used)]
#![allow(
    clippy::print_stderr,
    reason = "measured figures stand beside the test that measured them"
)]

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rankguard_agent::run;
use rankguard_model::{AgentOrder, EvidenceBody, Generation, JobId, LaunchOrder};
use rustix::process::{Pid, Signal, kill_process};
use support::agent::settings;
use support::{FakeController, LIMIT, launch};

const STATE: &str = "RANKGUARD_TEST_FENCING_STATE";
const CONTROLLER: &str = "RANKGUARD_TEST_FENCING_CONTROLLER";
const GROUPS: &str = "RANKGUARD_TEST_FENCING_GROUPS";
/// Part of the heavy test that runs, in percent of 20 rounds per row. Default: 10.
const HEAVY: &str = "RANKGUARD_TEST_HEAVY";

const LEASE: Duration = Duration::from_secs(2);
/// Longest time until a generation has ended, beyond the lease: 5 s are promised, and this machine may be busy.
const ENDED: Duration = Duration::from_secs(30);

/// Not a test of its own: the agent process of the tests below.
#[tokio::test(flavor = "multi_thread")]
async fn agent_process() {
    let (Ok(state), Ok(controller)) = (std::env::var(STATE), std::env::var(CONTROLLER)) else {
        return;
    };
    let mut settings = settings(Path::new(&state), &controller);
    settings.lease = LEASE;
    settings.rank_cgroups = std::env::var_os(GROUPS).is_some();
    let _ = run(settings, std::future::pending()).await;
}

/// Killed when dropped, so that a failing test leaves nothing.
struct AgentProcess(Child);

impl AgentProcess {
    fn start(state: &Path, controller: &FakeController, with_groups: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["agent_process", "--exact", "--nocapture"]);
        command
            .env(STATE, state)
            .env(CONTROLLER, controller.address.to_string());
        if with_groups {
            command.env(GROUPS, "1");
        }
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Stops a process; returns once all its threads have stopped. A thread may still run for a moment after the signal was sent.
fn freeze(pid: u32) {
    signal(pid, Signal::STOP);
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
    };
    while !std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(is_stopped) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns a sleep in seconds that no other process of this machine uses.
fn unique_sleep() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("300.{}0{count}1", std::process::id())
}

/// Returns the ids of the live processes with this word in their command line.
fn processes_with(word: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_word = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        *pid != std::process::id() && line.contains(word)
    };
    numbers.filter(has_word).filter(|pid| support::lives(*pid)).collect()
}

async fn until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < limit, "waited {limit:?} for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    started.elapsed()
}

/// Process tree of a rank's script, with the minimum number of processes with the word.
#[derive(Debug, Clone, Copy)]
enum Tree {
    /// Children in the rank's own group.
    Wrapper,
    /// A child in a session of its own.
    Session,
    /// A daemon, forked twice, in a session of its own and without an environment.
    Daemon,
    /// Loops that start processes, each in a session of its own, faster than they end.
    Bomb,
}

impl Tree {
    fn script(self, word: &str) -> (String, usize) {
        match self {
            Self::Wrapper => (format!("sleep {word} & sh -c 'sleep {word}; true' & sleep {word}"), 5),
            Self::Session => (format!("setsid sleep {word} & sleep {word}"), 3),
            Self::Daemon => (
                format!("(env -i setsid sh -c 'sleep {word} & sleep {word}' &); sleep {word}"),
                5,
            ),
            Self::Bomb => {
                // Bounded: a loop ends after 4,000 processes.
                let bomb =
                    format!("i=0; while [ $i -lt 4000 ]; do setsid sleep {word} & i=$((i+1)); done; sleep {word}");
                (
                    format!("setsid sh -c '{bomb}' & setsid sh -c '{bomb}' & sleep {word}"),
                    60,
                )
            }
        }
    }
}

fn job_launch(job: &str, generation: u64, script: &str) -> LaunchOrder {
    let mut order = launch(generation, &["sh", "-c", script]);
    order.job = JobId::from(job);
    order
}

/// Starts a tree and waits until all of it runs; returns the id of the rank's process.
async fn start_tree(controller: &FakeController, job: &str, generation: u64, tree: Tree, word: &str) -> u32 {
    let (script, count) = tree.script(word);
    let before = controller.all().len();
    controller
        .order(&AgentOrder::Launch(job_launch(job, generation, &script)))
        .await;
    let started = |journal: &support::Journal| {
        let mut new = journal.evidence.iter().skip(before);
        new.find_map(|evidence| match evidence.body {
            EvidenceBody::RankStarted { pid, .. } => Some(pid),
            _ => None,
        })
    };
    let pid = controller.wait("start", started).await;
    // A subshell that is about to exec or to end is listed, too: the tree is complete when it is listed twice.
    let mut listed = Vec::new();
    until("the whole tree", LIMIT, || {
        let now = processes_with(word);
        // A bomb grows without end.
        let is_whole = now.len() >= count && (now == listed || matches!(tree, Tree::Bomb));
        listed = now;
        is_whole
    })
    .await;
    pid
}

fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn fence(job: &str, generation: u64) -> AgentOrder {
    AgentOrder::Fence {
        job: JobId::from(job),
        generation: Generation(generation),
        reserve_port: false,
        nodes: Vec::new(),
    }
}

fn stop(job: &str, generation: u64, grace_ms: u64) -> AgentOrder {
    AgentOrder::Stop {
        job: JobId::from(job),
        generation: Generation(generation),
        grace_ms,
        keeps_images: false,
    }
}

/// Returns count and names from the answer to a fence.
fn fenced(body: &EvidenceBody) -> Option<(u32, Vec<String>)> {
    match body {
        EvidenceBody::Fenced { ended, left, .. } => Some((*ended, left.clone())),
        _ => None,
    }
}

fn stopped(body: &EvidenceBody) -> Option<(u32, Vec<String>)> {
    match body {
        EvidenceBody::Stopped { ended, left, .. } => Some((*ended, left.clone())),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    KillAgent,
    StopAgent,
    KillSupervisor,
}

/// Runs one round: a tree runs, the fault occurs, and no process is left in time. Returns the duration.
async fn strike(tree: Tree, fault: Fault, with_groups: bool) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(true).await;
    let agent = AgentProcess::start(dir.path(), &controller, with_groups);
    controller.joined(1).await;
    let word = unique_sleep();
    let rank = start_tree(&controller, "train", 1, tree, &word).await;
    let supervisor = parent_of(rank);
    assert_ne!(supervisor, agent.pid());
    let limit = match fault {
        Fault::StopAgent => LEASE + ENDED,
        _ => ENDED,
    };
    match fault {
        Fault::KillAgent => signal(agent.pid(), Signal::KILL),
        Fault::StopAgent => signal(agent.pid(), Signal::STOP),
        Fault::KillSupervisor => signal(supervisor, Signal::KILL),
    }
    let what = format!("the end of {tree:?} after {fault:?}, groups {with_groups}");
    let took = until(&what, limit, || processes_with(&word).is_empty()).await;
    if matches!(fault, Fault::KillSupervisor) {
        // The agent continues: the rank's end is reported, and another generation runs.
        let exited = |body: &EvidenceBody| matches!(body, EvidenceBody::RankExited { .. }).then_some(());
        controller.wait_body("exit", exited).await;
        let again = unique_sleep();
        start_tree(&controller, "train", 2, Tree::Wrapper, &again).await;
        drop(agent);
        until("the end of the next generation", ENDED, || {
            processes_with(&again).is_empty()
        })
        .await;
    }
    took
}

/// All combinations of tree and fault on one node. `RANKGUARD_TEST_HEAVY=100` runs 20 rounds of each.
#[tokio::test(flavor = "multi_thread")]
async fn no_process_is_left_after_any_fault() {
    let share = std::env::var(HEAVY).map_or(10, |share| share.parse().unwrap());
    let rounds = (20 * share / 100_u32).max(1);
    for with_groups in [true, false] {
        for fault in [Fault::KillAgent, Fault::StopAgent, Fault::KillSupervisor] {
            for tree in [Tree::Wrapper, Tree::Session, Tree::Daemon] {
                let mut longest = Duration::ZERO;
                for _ in 0..rounds {
                    longest = longest.max(strike(tree, fault, with_groups).await);
                }
                eprintln!("{tree:?} {fault:?} groups={with_groups}: {rounds} rounds, 0 left, longest {longest:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_ends_with_its_agent() {
    for with_groups in [true, false] {
        let took = strike(Tree::Bomb, Fault::KillAgent, with_groups).await;
        eprintln!("bomb, groups={with_groups}: {took:?}");
    }
}

/// A fence and a stop end daemons, count them, and do not affect another job.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_named_job_ends_and_what_ended_is_counted() {
    for with_groups in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let controller = FakeController::start(true).await;
        let _agent = AgentProcess::start(dir.path(), &controller, with_groups);
        controller.joined(1).await;
        let ours = unique_sleep();
        let theirs = unique_sleep();
        start_tree(&controller, "train", 1, Tree::Daemon, &ours).await;
        start_tree(&controller, "other", 1, Tree::Daemon, &theirs).await;
        let others = processes_with(&theirs);

        controller.order(&fence("train", 2)).await;
        let (ended, left) = controller.wait_body("fence", fenced).await;
        assert_eq!(
            processes_with(&ours),
            Vec::<u32>::new(),
            "when the answer is there, they are gone"
        );
        assert!(ended >= 5 && left.is_empty(), "{ended} ended, {left:?} left");
        assert_eq!(processes_with(&theirs), others, "the other job runs on");

        controller.order(&stop("other", 1, 50)).await;
        let (ended, left) = controller.wait_body("stop", stopped).await;
        assert_eq!(processes_with(&theirs), Vec::<u32>::new());
        assert!(ended >= 5 && left.is_empty(), "{ended} ended, {left:?} left");
    }
}

/// The exits of ranks that a fence ended are marked, and that of a rank that ended by itself is not.
#[tokio::test(flavor = "multi_thread")]
async fn ranks_that_a_fence_ends_are_reported_as_ended_by_the_agent() {
    let by_agent = |body: &EvidenceBody| match body {
        EvidenceBody::RankExited { ended_by_agent, .. } => Some(*ended_by_agent),
        _ => None,
    };
    for (script, is_marked) in [("sleep 300", true), ("exit 7", false)] {
        let dir = tempfile::tempdir().unwrap();
        let controller = FakeController::start(true).await;
        let _agent = AgentProcess::start(dir.path(), &controller, false);
        controller.joined(1).await;
        let launched = job_launch("train", 1, script);
        controller.order(&AgentOrder::Launch(launched)).await;
        let started = |body: &EvidenceBody| matches!(body, EvidenceBody::RankStarted { .. }).then_some(());
        controller.wait_body("start", started).await;
        if !is_marked {
            controller.wait_body("exit", by_agent).await;
        }
        controller.order(&fence("train", 2)).await;
        controller.wait_body("fence", fenced).await;
        assert_eq!(controller.wait_body("exit", by_agent).await, is_marked, "{script}");
    }
}

/// A stop of a job that does not run here is answered, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_nothing_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(true).await;
    let _agent = AgentProcess::start(dir.path(), &controller, false);
    controller.joined(1).await;
    controller.order(&stop("train", 3, 0)).await;
    let answer = controller.wait_body("stop", stopped).await;
    assert_eq!(answer, (0, Vec::new()));
}

/// Agent and supervisor are killed together: the leftovers end before the next agent joins.
#[tokio::test(flavor = "multi_thread")]
async fn leftovers_of_a_killed_agent_and_supervisor_end_before_the_next_agent_joins() {
    for (tree, with_groups) in [(Tree::Session, false), (Tree::Daemon, true)] {
        let dir = tempfile::tempdir().unwrap();
        let controller = FakeController::start(true).await;
        let agent = AgentProcess::start(dir.path(), &controller, with_groups);
        controller.joined(1).await;
        let word = unique_sleep();
        let rank = start_tree(&controller, "train", 1, tree, &word).await;
        let supervisor = parent_of(rank);
        if with_groups && !Path::new(&format!("/proc/{rank}/cgroup")).exists() {
            eprintln!("SKIPPED: no control groups here");
            continue;
        }
        freeze(agent.pid());
        signal(supervisor, Signal::KILL);
        drop(agent);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let left = processes_with(&word);
        assert!(!left.is_empty(), "nobody was there to end them: the test shows nothing");
        let group = std::fs::read_to_string(format!("/proc/{}/cgroup", left[0])).unwrap_or_default();
        if with_groups && !group.contains("rankguard-") {
            eprintln!("SKIPPED: this machine lets nobody create control groups: {group}");
            left.into_iter().for_each(|pid| signal(pid, Signal::KILL));
            continue;
        }
        let _again = AgentProcess::start(dir.path(), &controller, with_groups);
        controller.joined(2).await;
        assert_eq!(processes_with(&word), Vec::<u32>::new());
    }
}

/// The daemons of a rank end when it exits by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_ends_leaves_no_daemon() {
    for with_groups in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let controller = FakeController::start(true).await;
        let _agent = AgentProcess::start(dir.path(), &controller, with_groups);
        controller.joined(1).await;
        let word = unique_sleep();
        let script = format!("(env -i setsid sleep {word} &); sleep 0.3; exit 7");
        controller
            .order(&AgentOrder::Launch(job_launch("train", 1, &script)))
            .await;
        let exited = |body: &EvidenceBody| match body {
            EvidenceBody::RankExited { exit, .. } => Some(*exit),
            _ => None,
        };
        let exit = controller.wait_body("exit", exited).await;
        assert_eq!(exit, rankguard_model::ProcessExit::Code(7));
        assert_eq!(processes_with(&word), Vec::<u32>::new());
    }
}

/// A rank cannot keep its generation alive by stopping its supervisor.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_supervisor_does_not_stop_a_fence() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(true).await;
    let _agent = AgentProcess::start(dir.path(), &controller, false);
    controller.joined(1).await;
    let word = unique_sleep();
    let rank = start_tree(&controller, "train", 1, Tree::Session, &word).await;
    signal(parent_of(rank), Signal::STOP);
    controller.order(&fence("train", 2)).await;
    controller.wait_body("fence", fenced).await;
    assert_eq!(processes_with(&word), Vec::<u32>::new());
    let exited = |body: &EvidenceBody| matches!(body, EvidenceBody::RankExited { .. }).then_some(());
    controller.wait_body("exit", exited).await;
}
