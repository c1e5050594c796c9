//! RG-9: memory and disk stay within their limits, the controller survives a full disk, and a start does not replay the
//! whole past.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::process::{ControllerProcess, http_get, run_child};
use crate::common::{Agent, DEADLINE, Running, job, settings};
use crate::grpc_services::HealthWatch;
use rankguard_controller::{JournalRetention, METRICS_ADDRESS_FILE};
use rankguard_model::{Entity, Evidence, EvidenceBody, JobState, NodeState};
use rankguard_proto::v1;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

/// Not a test of its own: the controller that other tests start as a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controller_child() {
    run_child().await;
}

fn line(text: String) -> EvidenceBody {
    EvidenceBody::Line {
        text,
        context: Vec::new(),
        repeats: 1,
    }
}

/// Prints a figure for readers.
fn say(text: &str) {
    #[allow(clippy::print_stderr, reason = "the figure is for people")]
    {
        eprintln!("{text}");
    }
}

/// Megabytes that the flood sends: 1 GiB if `RANKGUARD_TEST_HEAVY` is set.
fn flood_megabytes() -> u64 {
    if std::env::var_os("RANKGUARD_TEST_HEAVY").is_some() {
        1_024
    } else {
        24
    }
}

/// Sends large batches as fast as they are accepted, until `bytes` are sent; returns the newest sequence number.
async fn flood(mut agent: Agent, bytes: u64) -> u64 {
    const PIECES: u64 = 64;
    const PIECE: usize = 8 << 10;
    let mut sequence = agent.acknowledged;
    let first = sequence;
    while (sequence - first) * (PIECE as u64) < bytes {
        let batch: Vec<Evidence> = (1..=PIECES)
            .map(|more| {
                let node = agent.node.clone();
                let text = format!("{:08x} {}", sequence + more, "x".repeat(PIECE - 64));
                agent.evidence(sequence + more, Entity::Node { node }, line(text))
            })
            .collect();
        sequence += PIECES;
        timeout(DEADLINE, agent.bring(&batch))
            .await
            .expect("it is taken in time");
    }
    timeout(10 * DEADLINE, agent.acknowledged_up_to(sequence))
        .await
        .expect("all of it");
    (sequence - first) * PIECE as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rg_9_a_flood_from_one_agent_costs_bounded_memory_and_disk_and_delays_nobody_for_long() {
    let dir = tempfile::tempdir().expect("a directory");
    let retain = 16 << 20;
    let controller = ControllerProcess::start(&[], dir.path(), dir.path(), Some(retain)).await;
    let mut other = Agent::join(controller.address(), "quiet").await;
    let flooder = Agent::join(controller.address(), "flood").await;
    let bytes = flood_megabytes() << 20;
    let flooding = tokio::spawn(flood(flooder, bytes));
    let mut delays = Vec::new();
    let mut most = 0;
    let begin = Instant::now();
    while !flooding.is_finished() {
        let sent = Instant::now();
        let sequence = other.report(Entity::Unknown, line("short".to_owned())).await;
        other.acknowledged(sequence).await;
        delays.push(sent.elapsed());
        most = most.max(fs::metadata(dir.path().join("journal.redb")).map_or(0, |file| file.len()));
        sleep(Duration::from_millis(20)).await;
    }
    let sent = flooding.await.expect("no panic");
    assert!(sent >= bytes);
    delays.sort();
    let slowest = *delays.last().expect("some were sent");
    say(&format!(
        "flood of {} MiB in {:.1} s: RSS {} MiB, peak {} MiB, journal at most {} MiB; {} other pieces, median {:?}, slowest {:?}",
        sent >> 20,
        begin.elapsed().as_secs_f64(),
        controller.memory("VmRSS") >> 20,
        controller.memory("VmHWM") >> 20,
        most >> 20,
        delays.len(),
        delays[delays.len() / 2],
        slowest
    ));
    assert!(controller.memory("VmHWM") < 400 << 20, "{}", controller.memory("VmHWM"));
    assert!(most < 6 * retain, "the journal has {most} bytes");
    assert!(slowest < DEADLINE, "{slowest:?}");
    let (code, page) = controller.get("/metrics").await;
    assert_eq!(code, 200);
    assert!(page.contains("\nrankguard_controller_inbound_bytes 0\n"), "{page}");
}

/// Kills occur during commits, slices of snapshots and removals: acknowledged evidence is present, and none counts
/// twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rg_4_a_controller_killed_while_it_compacts_loses_nothing_that_it_acknowledged() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut acknowledged = 0;
    for round in 1..=6 {
        let controller = ControllerProcess::start(&[], dir.path(), dir.path(), Some(512 << 10)).await;
        let mut agent = Agent::join(controller.address(), "n1").await;
        assert!(
            agent.acknowledged >= acknowledged,
            "round {round}: {} of {acknowledged}",
            agent.acknowledged
        );
        let until = Instant::now() + Duration::from_millis(300 + 170 * round);
        let mut sequence = agent.acknowledged;
        while Instant::now() < until {
            let batch: Vec<Evidence> = (1..=32)
                .map(|more| agent.evidence(sequence + more, Entity::Unknown, line("z".repeat(1_000))))
                .collect();
            agent.bring(&batch).await;
            sequence += 32;
            agent.acknowledged_up_to(sequence).await;
            acknowledged = sequence;
        }
        // One more batch is in flight when the controller is killed.
        let batch: Vec<Evidence> = (1..=32)
            .map(|more| agent.evidence(sequence + more, Entity::Unknown, line("z".repeat(1_000))))
            .collect();
        agent.bring(&batch).await;
        controller.kill();
    }
    let mut removed = 0;
    let mut numbers = Vec::new();
    rankguard_controller::journal::scan_from(
        dir.path(),
        |beginning| removed = beginning.removed,
        |entry| {
            if let rankguard_core::Event::EvidenceArrived { evidence } = entry?.event {
                numbers.push(evidence.id.seq.0);
            }
            Ok(())
        },
    )
    .expect("a journal that can be repaired");
    assert!(removed > 0, "nothing was removed in {acknowledged} pieces");
    let first = *numbers.first().expect("evidence");
    let expected: Vec<u64> = (first..first + numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "each number once");
    assert!(numbers.last() >= Some(&acknowledged));
}

/// Small pieces of evidence need far more memory than their messages: as many as fit into one message are refused
/// before they are decoded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rg_9_messages_of_countless_pieces_and_huge_messages_end_the_session_and_cost_little() {
    let dir = tempfile::tempdir().expect("a directory");
    let controller = ControllerProcess::start(&[], dir.path(), dir.path(), None).await;
    for round in 0..12 {
        let mut agent = Agent::join(controller.address(), "liar").await;
        let batch = if round % 2 == 0 {
            v1::EvidenceBatch {
                evidence: vec![v1::Evidence::default(); 1 << 20],
            }
        } else {
            let one = agent.evidence(1, Entity::Unknown, line("x".repeat(32 << 20)));
            v1::EvidenceBatch {
                evidence: vec![v1::Evidence::from(&one)],
            }
        };
        agent.say(v1::from_agent::Kind::Evidence(batch)).await;
        let ended = loop {
            match agent.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ends with a reason"),
                Err(status) => break status,
            }
        };
        assert!(
            matches!(ended.code(), Code::ResourceExhausted | Code::OutOfRange),
            "{ended}"
        );
    }
    let peak = controller.memory("VmHWM");
    say(&format!("hostile messages: peak {} MiB", peak >> 20));
    assert!(peak < 500 << 20, "{peak}");
    assert_eq!(controller.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn health_says_what_the_controller_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut settings = settings(dir.path());
    settings.metrics_listen = Some("127.0.0.1:0".to_owned());
    let controller = Running::start(settings).await;
    let address = fs::read_to_string(dir.path().join(METRICS_ADDRESS_FILE)).expect("written");
    let address = address.trim().parse().expect("an address");
    assert_eq!(http_get(address, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(http_get(address, "/readyz").await, (200, "ok\n".to_owned()));
    let mut agent = Agent::join(controller.address, "n1").await;
    let sequence = agent.report(Entity::Unknown, line("seen".to_owned())).await;
    agent.acknowledged(sequence).await;
    let wanted = [
        "rankguard_controller_sessions 1",
        "rankguard_controller_ready 1",
        "rankguard_controller_nodes 1",
    ];
    let begin = Instant::now();
    loop {
        let (_, page) = http_get(address, "/metrics").await;
        if wanted.iter().all(|line| page.contains(line)) {
            break;
        }
        assert!(begin.elapsed() < DEADLINE, "{page}");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(http_get(address, "/other").await.0, 404);
    controller.stop().await;
}

#[tokio::test]
async fn rg_5_a_controller_that_starts_from_a_snapshot_has_the_same_status_and_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut settings = settings(dir.path());
    settings.journal = JournalRetention {
        max_bytes: 20_000,
        snapshot_entries: 20,
        ..JournalRetention::default()
    };
    let controller = Running::start(settings.clone()).await;
    controller.submit(&job("waits")).await.expect("a sound job");
    let mut agent = Agent::join(controller.address, "n1").await;
    for number in 0..300 {
        let sequence = agent.report(Entity::Unknown, line(format!("line {number}"))).await;
        agent.acknowledged(sequence).await;
    }
    let before = controller.status().await;
    drop(agent);
    let ended = controller.stop().await;
    let mut removed = 0;
    let mut held = 0;
    rankguard_controller::journal::scan_from(
        dir.path(),
        |beginning| removed = beginning.removed,
        |entry| {
            held += u64::from(entry.is_ok());
            Ok(())
        },
    )
    .expect("a closed journal");
    assert!(removed > 100, "{removed} entries were removed");
    assert_eq!(removed + held, ended.events);
    let controller = Running::start(settings).await;
    assert_eq!(controller.status().await.jobs, before.jobs);
    let agent = Agent::join(controller.address, "n1").await;
    assert_eq!(agent.acknowledged, 300);
    assert_eq!(controller.status().await.nodes, before.nodes);
    controller.stop().await;
}

/// Separate file system in a separate mount namespace, held by a sleeping process.
struct SmallDisk {
    holder: Child,
    /// Mount point in the namespace.
    inner: PathBuf,
    /// Mount point as this process sees it.
    outer: PathBuf,
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl SmallDisk {
    /// Mounts the file system; `None` if this process has no permission to mount.
    fn mount(dir: &Path, megabytes: u64) -> Option<Self> {
        let script = format!(
            "mount -t tmpfs -o size={megabytes}m,mode=700 none '{0}' && touch '{0}/mounted' && exec sleep 600",
            dir.display()
        );
        let holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut disk = Self {
            outer: PathBuf::from(format!("/proc/{}/root{}", holder.id(), dir.display())),
            inner: dir.to_owned(),
            holder,
        };
        let begin = std::time::Instant::now();
        while !disk.outer.join("mounted").exists() {
            if !matches!(disk.holder.try_wait(), Ok(None)) || begin.elapsed() > DEADLINE {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(disk)
    }

    /// Returns the command prefix that runs a program in the namespace.
    fn prefix(&self) -> Vec<String> {
        let target = self.holder.id().to_string();
        ["nsenter", "--target", &target, "--mount"].map(str::to_owned).to_vec()
    }

    /// Fills the remaining space.
    fn fill(&self) {
        use std::io::Write;

        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.outer.join("filler"))
            .expect("a file");
        for block in [1 << 20, 4_096, 1] {
            let bytes = vec![1; block];
            while file.write_all(&bytes).is_ok() {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.outer.join("filler")).expect("it is there");
    }
}

/// Reports evidence until the controller accepts no more; returns the newest acknowledged sequence number.
async fn report_until_it_is_full(agent: &mut Agent, controller: &ControllerProcess) -> u64 {
    let mut acknowledged = 0;
    let begin = Instant::now();
    loop {
        let sequence = agent.report(Entity::Unknown, line("x".repeat(4_000))).await;
        if timeout(Duration::from_millis(500), agent.acknowledged(sequence))
            .await
            .is_err()
            && controller.get("/readyz").await.0 == 503
        {
            return acknowledged;
        }
        acknowledged = sequence;
        assert!(begin.elapsed() < 5 * DEADLINE, "the disk never fills up");
    }
}

async fn wait_until_ready(controller: &ControllerProcess) {
    let begin = Instant::now();
    loop {
        let (code, body) = controller.get("/readyz").await;
        if code == 200 {
            return;
        }
        assert!(begin.elapsed() < DEADLINE, "{code}: {body}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// A start may free space as it repairs the journal: then the controller is ready until a write finds the disk full again.
async fn accepts_nothing_on_a_full_disk(controller: &ControllerProcess, disk: &SmallDisk) {
    let mut operator = v1::operator_client::OperatorClient::connect(format!("http://{}", controller.address()))
        .await
        .expect("it listens");
    for number in 0..100 {
        disk.fill();
        if controller.get("/readyz").await.0 == 503 {
            return;
        }
        let job = job(&format!("probe-{number}"));
        let _ = operator.submit_job(v1::JobSpec::from(&job)).await;
        sleep(Duration::from_millis(100)).await;
    }
    panic!("it accepts commands on a full disk");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rg_5_a_full_disk_stops_the_journal_and_nothing_else_and_recovery_needs_nobody() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(disk) = SmallDisk::mount(dir.path(), 96) else {
        return say("SKIPPED: mounting a tmpfs in a mount namespace takes root");
    };
    let prefix = disk.prefix();
    let start = || ControllerProcess::start(&prefix, &disk.inner, &disk.outer, None);
    let controller = start().await;
    let mut agent = Agent::join(controller.address(), "n1").await;
    let sequence = agent.report(Entity::Unknown, line("first".to_owned())).await;
    agent.acknowledged(sequence).await;
    disk.fill();
    let acknowledged = report_until_it_is_full(&mut agent, &controller).await;

    // Queries are answered, commands are refused with a remedy, the process lives.
    let mut operator = v1::operator_client::OperatorClient::connect(format!("http://{}", controller.address()))
        .await
        .expect("it listens");
    let status = operator
        .get_status(v1::Empty {})
        .await
        .expect("an answer")
        .into_inner()
        .json;
    assert!(status.contains("\"n1\""), "{status}");
    assert!(
        status.contains("\"degraded\":\"cannot write the journal in "),
        "{status}"
    );
    let refused = operator
        .submit_job(v1::JobSpec::from(&job("late")))
        .await
        .expect_err("refused");
    assert_eq!(refused.code(), Code::Unavailable);
    let text = refused.message();
    assert!(
        text.contains(&disk.inner.display().to_string()) && text.contains("free space there"),
        "{text}"
    );
    assert_eq!(controller.get("/healthz").await.0, 200);
    let mut health = HealthWatch::open(controller.address()).await;
    health.until(ServingStatus::NotServing).await;
    // The reserve is released at a moment that the load of the machine decides.
    accepts_nothing_on_a_full_disk(&controller, &disk).await;

    // A controller that is killed meanwhile starts on the full disk, with all acknowledged evidence.
    drop(agent);
    controller.kill();
    // Its end frees what it had removed and not closed.
    disk.fill();
    let controller = start().await;
    accepts_nothing_on_a_full_disk(&controller, &disk).await;
    assert_eq!(controller.get("/healthz").await.0, 200);

    // Once space is free the controller recovers by itself, and the agent resends what was not acknowledged.
    disk.empty();
    wait_until_ready(&controller).await;
    let mut agent = Agent::join(controller.address(), "n1").await;
    assert!(
        agent.acknowledged >= acknowledged,
        "{} of {acknowledged}",
        agent.acknowledged
    );
    let sequence = agent.report(Entity::Unknown, line("again".to_owned())).await;
    agent.acknowledged(sequence).await;
    let mut operator = v1::operator_client::OperatorClient::connect(format!("http://{}", controller.address()))
        .await
        .expect("it listens");
    operator
        .submit_job(v1::JobSpec::from(&job("late")))
        .await
        .expect("it is taken now");
    let json = operator
        .get_status(v1::Empty {})
        .await
        .expect("an answer")
        .into_inner()
        .json;
    let status: rankguard_model::StatusView = serde_json::from_str(&json).expect("a status");
    assert_eq!(status.nodes[0].state, NodeState::Healthy);
    assert_ne!(status.jobs[0].state, JobState::Stopped);
}

/// The sessions outlast the time without space, and their evidence of that time is resent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rg_4_evidence_that_came_while_the_disk_was_full_is_sent_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(disk) = SmallDisk::mount(dir.path(), 96) else {
        return say("SKIPPED: mounting a tmpfs in a mount namespace takes root");
    };
    let controller = ControllerProcess::start(&disk.prefix(), &disk.inner, &disk.outer, None).await;
    let mut agent = Agent::join(controller.address(), "n1").await;
    disk.fill();
    let acknowledged = report_until_it_is_full(&mut agent, &controller).await;
    disk.empty();
    wait_until_ready(&controller).await;
    let ended = loop {
        match agent.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ends with a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    let mut agent = Agent::join(controller.address(), "n1").await;
    assert_eq!(agent.acknowledged, acknowledged);
    let sequence = agent.report(Entity::Unknown, line("again".to_owned())).await;
    agent.acknowledged(sequence).await;
}
