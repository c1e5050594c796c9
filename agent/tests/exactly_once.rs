//! Agents that are killed again and again, or have no controller: every record is found once.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rankguard_agent::{AgentSettings, KernelLogSource, run};
use rankguard_model::{Entity, Evidence, EvidenceBody, EvidenceSource, NodeId};
use support::guard::guarded;
use support::{FakeController, NOBODY};

/// Set for the process that this binary starts to be killed.
const STATE: &str = "RANKGUARD_TEST_ONCE_STATE";
const CONTROLLER: &str = "RANKGUARD_TEST_ONCE_CONTROLLER";
const SMALL_DISK: &str = "RANKGUARD_TEST_ONCE_SMALL_DISK";
/// Part of the heavy tests that runs, in percent: of a hundred kills, of ten minutes. Default: 100.
const HEAVY: &str = "RANKGUARD_TEST_HEAVY";
/// Longest wait for all records.
const LIMIT: Duration = Duration::from_secs(120);

/// Not a test of its own: the agent process of the tests below.
#[tokio::test(flavor = "multi_thread")]
async fn agent_process() {
    let (Ok(state), Ok(controller)) = (std::env::var(STATE), std::env::var(CONTROLLER)) else {
        return;
    };
    let state = PathBuf::from(state);
    let mut settings = AgentSettings::new(NodeId::from("n1"), controller, state.join("agent"));
    settings.kernel_log = KernelLogSource::File(state.join("kern.log"));
    settings.job_logs = vec![state.join("job.log")];
    settings.sysfs_root = state.join("no-sysfs");
    if std::env::var_os(SMALL_DISK).is_some() {
        std::thread::spawn(move || small_disk(&state));
    }
    let _ = run(settings, std::future::pending()).await;
}

/// Limits files of this process to the spool's size at the agent's start, until there is a file `room`.
fn small_disk(state: &Path) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let wait = |path: PathBuf| {
        while !path.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait(state.join("agent/agent.sock"));
    // SAFETY: no other code sets the action of this signal, and ignoring it is always allowed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let spool = std::fs::metadata(state.join("agent/spool.redb")).unwrap().len();
    let mut limit = getrlimit(Resource::Fsize);
    let before = limit.current.replace(spool);
    setrlimit(Resource::Fsize, limit).unwrap();
    File::create(state.join("limited")).unwrap();
    wait(state.join("room"));
    limit.current = before;
    setrlimit(Resource::Fsize, limit).unwrap();
}

/// Returns the configured part of a heavy test's size.
fn heavy(all: u32) -> u32 {
    let share = std::env::var(HEAVY).map_or(100, |share| share.parse().unwrap());
    (all * share / 100).max(1)
}

/// Text of the gap that an agent reports for a job log that existed before it.
const FIRST_START: &str = "before the agent's first start";

/// Killed when dropped.
struct Process(Child);

impl Process {
    fn start(state: &Path, controller: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["agent_process", "--exact", "--nocapture"]);
        command.env(STATE, state).env(CONTROLLER, controller);
        guarded(&mut command).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The two logs of the node.
struct Logs {
    kernel: File,
    job: File,
    kernel_lines: u32,
    job_lines: u32,
}

impl Logs {
    fn new(state: &Path) -> Self {
        let open = |name: &str| {
            File::options()
                .append(true)
                .create(true)
                .open(state.join(name))
                .unwrap()
        };
        let mut logs = Self {
            kernel: open("kern.log"),
            job: open("job.log"),
            kernel_lines: 0,
            job_lines: 0,
        };
        // The lines that the first agent finds in a job log are of unknown age: it skips them and reports a gap.
        logs.job.write_all(b"step 0 loss 3.0\n").unwrap();
        logs
    }

    /// Waits until the first agent has polled the job log and recorded that on disk: later lines are new.
    async fn followed(controller: &FakeController) {
        let left_out = |body: &EvidenceBody| {
            matches!(body, EvidenceBody::Gap { what, .. } if what.contains(FIRST_START)).then_some(())
        };
        controller.wait_body("word of what was left out", left_out).await;
    }

    /// Waits for the same, by the agent's view, without a controller.
    async fn followed_by(agent: &Path) {
        let until = Instant::now() + LIMIT;
        loop {
            let view = tokio::task::block_in_place(|| rankguard_agent::ask_agent(agent, LIMIT));
            let gap = view
                .ok()
                .and_then(|view| view.gaps.get(&EvidenceSource::JobLog).cloned());
            if gap.is_some_and(|gap| gap.what.contains(FIRST_START)) {
                return;
            }
            assert!(Instant::now() < until, "the agent runs and looks at the job's log");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Writes a new line of each kind, and one without meaning.
    fn write(&mut self) {
        let number = self.kernel_lines;
        self.kernel_lines += 1;
        let text = format!(
            "eth0: link is up\nNVRM: Xid (PCI:{:04x}:{:02x}:00): 79, pid=1, name=python, GPU has fallen off the bus.\n",
            number >> 8,
            number & 0xff
        );
        self.kernel.write_all(text.as_bytes()).unwrap();
        let number = self.job_lines;
        self.job_lines += 1;
        // Distinct words, because lines that differ only in numbers are one event.
        let word: String = format!("{number:06}")
            .bytes()
            .map(|digit| char::from(digit - b'0' + b'a'))
            .collect();
        let text = format!("step 1 loss 2.0\nFileNotFoundError: [Errno 2] No such file or directory: '/data/{word}'\n");
        self.job.write_all(text.as_bytes()).unwrap();
    }
}

/// Counts how often each line was found, by its distinct part. The same sequence number is the same evidence, however
/// often it arrives.
fn found(evidence: &[Evidence]) -> (BTreeMap<String, u32>, BTreeMap<String, u32>) {
    let by_number: BTreeMap<u64, &Evidence> = evidence.iter().map(|one| (one.id.seq.0, one)).collect();
    let mut kernel = BTreeMap::new();
    let mut job = BTreeMap::new();
    for one in by_number.values() {
        let EvidenceBody::Line { text, repeats, .. } = &one.body else {
            continue;
        };
        if let Entity::Device { device, .. } = &one.entity {
            *kernel.entry(device.address.clone()).or_default() += repeats;
        } else if let Some((_, rest)) = text.split_once("directory: '/data/") {
            *job.entry(rest.trim_end_matches('\'').to_owned()).or_default() += repeats;
        }
    }
    (kernel, job)
}

/// Waits until every line was found, and then a while for duplicates; panics with the difference.
async fn all_once(controller: &FakeController, logs: &Logs) {
    let until = Instant::now() + LIMIT;
    let told = loop {
        let told = found(&controller.all());
        if (told.0.len(), told.1.len()) == (logs.kernel_lines as usize, logs.job_lines as usize) {
            break told;
        }
        let counts = (told.0.len(), told.1.len());
        assert!(
            Instant::now() < until,
            "{counts:?} of {} and {} lines were found; missing of the kernel: {:?}",
            logs.kernel_lines,
            logs.job_lines,
            (0..logs.kernel_lines)
                .map(|number| format!("{:04x}:{:02x}:00", number >> 8, number & 0xff))
                .filter(|address| !told.0.contains_key(address))
                .collect::<Vec<_>>()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let twice = told.0.iter().chain(&told.1).filter(|(_, count)| **count != 1);
    let twice: Vec<_> = twice.collect();
    assert!(twice.is_empty(), "found more than once: {twice:?}");
}

async fn rounds(rounds: u32) {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(true).await;
    let address = controller.address.to_string();
    let mut logs = Logs::new(dir.path());
    let mut agent = Process::start(dir.path(), &address);
    Logs::followed(&controller).await;
    for round in 0..rounds {
        // Kills at different moments: while lines are held, committed, sent, acknowledged.
        let lines = 3 + round % 7;
        for _ in 0..lines {
            logs.write();
            tokio::time::sleep(Duration::from_millis(u64::from(round * 13 % 70))).await;
        }
        drop(agent);
        logs.write();
        agent = Process::start(dir.path(), &address);
        if round % 3 == 0 {
            controller.joined(usize::try_from(round / 3).unwrap() + 1).await;
        }
    }
    all_once(&controller, &logs).await;
    drop(agent);
    // A follower receives no duplicates, either.
    let _last = Process::start(dir.path(), &address);
    logs.write();
    all_once(&controller, &logs).await;
    // Sequence numbers have no gaps, and one content each.
    let mut meanings: BTreeMap<u64, String> = BTreeMap::new();
    for one in controller.all() {
        let meaning = format!("{:?} {:?} {:?}", one.source, one.entity, one.body);
        assert_eq!(
            *meanings.entry(one.id.seq.0).or_insert_with(|| meaning.clone()),
            meaning
        );
    }
    let numbers: Vec<u64> = meanings.into_keys().collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

/// RG-4: an agent that starts late finds much at once, and is killed as soon as the first of it has arrived.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_found_at_once_is_told_once_by_whoever_dies_while_it_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(true).await;
    let address = controller.address.to_string();
    let mut logs = Logs::new(dir.path());
    let mut agent = Process::start(dir.path(), &address);
    Logs::followed(&controller).await;
    for _ in 0..4 {
        let before = controller.all().len();
        (0..800).for_each(|_| logs.write());
        let until = Instant::now() + LIMIT;
        while controller.all().len() <= before {
            assert!(Instant::now() < until, "nothing of it arrives");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(agent);
        agent = Process::start(dir.path(), &address);
    }
    all_once(&controller, &logs).await;
}

/// RG-4.
#[tokio::test(flavor = "multi_thread")]
async fn every_line_is_found_once_over_ten_deaths_of_the_agent() {
    rounds(10).await;
}

/// RG-4.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "heavy: `just test-all` runs it with the release profile"]
async fn every_line_is_found_once_over_a_hundred_deaths_of_the_agent() {
    rounds(heavy(100)).await;
}

/// RG-5: without a controller, and with kills meanwhile; then everything arrives in order, once.
async fn alone(time: Duration) {
    let dir = tempfile::tempdir().unwrap();
    let mut logs = Logs::new(dir.path());
    let mut agent = Process::start(dir.path(), NOBODY);
    Logs::followed_by(&dir.path().join("agent")).await;
    let begun = Instant::now();
    let mut turn = 0;
    while begun.elapsed() < time {
        logs.write();
        turn += 1;
        if turn % 40 == 0 {
            drop(agent);
            agent = Process::start(dir.path(), NOBODY);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(agent);
    let controller = FakeController::start(true).await;
    let _agent = Process::start(dir.path(), &controller.address.to_string());
    all_once(&controller, &logs).await;
    // In order and without a gap. A session that breaks, as on a busy machine, sends some of it again.
    let mut newest = 0;
    for one in controller.all() {
        let number = one.id.seq.0;
        assert!(number <= newest + 1, "{number} comes after {newest}");
        newest = newest.max(number);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spool_holds_what_was_seen_without_a_controller_and_delivers_it_in_order_once() {
    alone(Duration::from_secs(6)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "heavy, ten minutes: `just test-all` runs it with the release profile"]
async fn ten_minutes_without_a_controller_lose_nothing() {
    alone(Duration::from_secs(heavy(600).into())).await;
}

/// RG-4: evidence that cannot be written is retained until it can be.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing_and_is_written_again_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(false).await;
    let mut logs = Logs::new(dir.path());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["agent_process", "--exact", "--nocapture"]);
    command
        .env(STATE, dir.path())
        .env(CONTROLLER, controller.address.to_string());
    guarded(&mut command)
        .env(SMALL_DISK, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _agent = Process(command.spawn().unwrap());
    let until = Instant::now() + LIMIT;
    while !dir.path().join("limited").exists() {
        assert!(Instant::now() < until, "the agent runs");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The disk is full if new evidence is not on disk a while later.
    let state = dir.path().join("agent");
    Logs::followed_by(&state).await;
    let last = || rankguard_agent::ask_agent(&state, LIMIT).unwrap().spool.last;
    let mut before = u64::MAX;
    loop {
        let now = tokio::task::block_in_place(last);
        if now == before && logs.kernel_lines > 0 {
            break;
        }
        before = now;
        assert!(logs.kernel_lines < 7_000, "the disk is small");
        for _ in 0..500 {
            logs.write();
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert!(before < u64::from(logs.kernel_lines + logs.job_lines), "{before}");
    File::create(dir.path().join("room")).unwrap();
    controller.journal.lock().unwrap().acknowledge = true;
    all_once(&controller, &logs).await;
}
