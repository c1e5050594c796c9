//! Partitions: agents that are frozen or cut off, and a controller that is away. Processes are counted by their numbers: at
//! most one generation of a job acts (RG-3), and a controller that is away for all ends no job (RG-5).

use crate::support;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::nodes::path;
use crate::support::proxy::Proxy;
use crate::support::{Daemon, Ran, logs, rankguard, until};

/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(60);
/// A lease that is over soon.
const LEASE: Duration = Duration::from_secs(3);

/// A controller and agents that reach it through proxies, one each.
struct Cluster {
    dir: tempfile::TempDir,
    controller: Option<Daemon>,
    address: String,
    proxies: Vec<Proxy>,
    agents: Vec<Daemon>,
}

/// A rank that is a shell with a child and a process in a session of its own, and leaves all three numbers where the test finds
/// them.
const RANK: &str = "sleep 1000 & child=$!; setsid sleep 1000 & \
                    echo $$ $child $! > $OUT/$RANKGUARD_GENERATION.part; \
                    mv $OUT/$RANKGUARD_GENERATION.part $OUT/$RANKGUARD_GENERATION; wait";

impl Cluster {
    fn start(nodes: usize, lease: Duration) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (lease, heartbeat) = (lease.as_millis(), (lease.as_millis() / 20).clamp(20, 200));
        let settings = format!(
            "[controller]\nsilence_limit_ms = 3_000\n[controller.policy]\ngather_ms = 200\nsettle_ms = 300\n\
             [agent]\nlease_ms = {lease}\n[agent.intervals]\nheartbeat_ms = {heartbeat}\n\
             controller_silence_ms = 1_500\nreconnect_max_ms = 300\narenas_kept_ms = 0\n"
        );
        fs::write(dir.path().join("test.toml"), settings).expect("written");
        fs::create_dir(dir.path().join("out")).expect("made");
        let mut cluster = Self {
            dir,
            controller: None,
            address: "127.0.0.1:0".to_owned(),
            proxies: Vec::new(),
            agents: Vec::new(),
        };
        cluster.start_controller();
        for node in 1..=nodes {
            cluster.start_agent(node);
        }
        until("the agents to join and know each other", LIMIT, || {
            let known = cluster.ask(&["status", "nodes", "--format", "json"]);
            let all = known.as_array()?.len() == nodes;
            let informed = all
                && (1..=nodes).all(|node| cluster.lease(node)["witnesses"].as_array().map(Vec::len) == Some(nodes - 1));
            informed.then_some(())
        });
        cluster
    }

    /// Starts the controller, again where it was and on the state it had.
    fn start_controller(&mut self) {
        let state = self.dir.path().join("controller");
        let told = state.join("controller.addr");
        let _ = fs::remove_file(&told);
        let config = self.dir.path().join("test.toml");
        let words = ["--config", path(&config), "controller", "--listen", &self.address];
        let words = [&words[..], &["--state-dir", path(&state)]].concat();
        self.controller = Some(Daemon::start(&words, &self.dir.path().join("controller.log")));
        self.address = until("the controller to listen", LIMIT, || {
            let address = fs::read_to_string(&told).ok()?;
            Some(address.trim().to_owned())
        });
    }

    fn start_agent(&mut self, node: usize) {
        let proxy = Proxy::start(self.address.parse().expect("an address"));
        let config = self.dir.path().join("test.toml");
        let state = self.state(node);
        let name = format!("n{node}");
        let controller = proxy.address.to_string();
        let words = ["--config", path(&config), "agent", "--node", &name, "--slots", "1"];
        let more = [
            "--kernel-log",
            "off",
            "--controller",
            &controller,
            "--state-dir",
            path(&state),
        ];
        let log = self.dir.path().join(format!("{name}.log"));
        self.agents.push(Daemon::start(&[&words[..], &more].concat(), &log));
        self.proxies.push(proxy);
    }

    fn state(&self, node: usize) -> PathBuf {
        self.dir.path().join(format!("n{node}"))
    }

    fn lease(&self, node: usize) -> Value {
        let state = self.state(node);
        let ran = rankguard(&["agent", "status", "--state-dir", path(&state), "--format", "json"]);
        let view: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        view["lease"].clone()
    }

    fn ask(&self, words: &[&str]) -> Value {
        let ran = rankguard(&[&words[..1], &["--controller", &self.address], &words[1..]].concat()).expect(0);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|problem| panic!("{problem}: {}", ran.stdout))
    }

    fn node_state(&self, node: usize) -> String {
        let nodes = self.ask(&["status", "nodes", "--format", "json"]);
        nodes[node - 1]["state"].as_str().expect("a state").to_owned()
    }

    fn job(&self) -> Value {
        self.ask(&["status", "jobs", "--format", "json"])[0].clone()
    }

    /// Starts a job of one rank.
    fn run_job(&self) {
        let out = format!("OUT={}", self.dir.path().join("out").display());
        let words = ["run", "--detach", "--name", "train", "--nodes", "1", "--env", &out];
        let words = [&words[..], &["--controller", &self.address, "--", "sh", "-c", RANK]].concat();
        rankguard(&words).expect(0);
    }

    /// The processes of a generation and the number of its node.
    fn rank_of(&self, generation: u64) -> (RankProcesses, usize) {
        let file = self.dir.path().join("out").join(generation.to_string());
        let processes = until("the rank to run", LIMIT, || {
            let text = fs::read_to_string(&file).ok()?;
            let pids: Vec<u32> = text.split_whitespace().flat_map(str::parse).collect();
            (pids.len() == 3).then_some(RankProcesses(pids))
        });
        let node = until("the controller to know where", LIMIT, || {
            let job = self.job();
            let place = job["placements"][0]["node"].as_str()?.to_owned();
            (job["generation"].as_u64()? == generation && job["state"] != "pending").then_some(place)
        });
        (processes, node.trim_start_matches('n').parse().expect("a number"))
    }

    fn cancel(&self) -> Ran {
        rankguard(&["cancel", "train", "--controller", &self.address])
    }
}

impl Drop for Cluster {
    #[allow(
        clippy::print_stderr,
        reason = "what the processes logged belongs beside the test that failed"
    )]
    fn drop(&mut self) {
        for agent in &self.agents {
            agent.signal(Signal::CONT);
        }
        if std::thread::panicking() {
            eprintln!("{}", logs(self.dir.path()));
        }
    }
}

/// Whether a process runs; one that has ended and was not waited for does not.
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| {
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    })
}

fn gone(pid: u32) {
    until("the old rank to end", LIMIT, || (!lives(pid)).then_some(()));
}

/// A rank with the processes that it started.
struct RankProcesses(Vec<u32>);

impl RankProcesses {
    /// How many of them run.
    fn count(&self) -> usize {
        self.0.iter().filter(|pid| lives(**pid)).count()
    }

    fn all_run(&self) -> bool {
        self.count() == self.0.len()
    }

    /// Waits until none runs.
    fn wait_gone(&self) {
        until("the old processes to end", LIMIT, || (self.count() == 0).then_some(()));
    }
}

/// What happens to a node in one round of the matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
enum NodeFault {
    /// The agent is stopped (SIGSTOP) and stays so.
    Frozen,
    /// The agent does not reach the controller any more.
    CutOff,
    /// The agent is killed (SIGKILL).
    Killed,
}

/// RG-3: whatever happens to an agent, the shell, its child and its child in another session end. `RANKGUARD_TEST_HEAVY` percent
/// of 20 rounds are run, and the longest time is printed.
#[test]
#[allow(clippy::print_stderr, reason = "the measured figure")]
fn no_process_is_left_of_a_node_that_is_frozen_cut_off_or_killed() {
    let heavy = std::env::var("RANKGUARD_TEST_HEAVY")
        .ok()
        .and_then(|percent| percent.parse().ok());
    let rounds = (heavy.unwrap_or(5_usize) * 20 / 100).max(1);
    for (nodes, fault) in [
        (1, NodeFault::Frozen),
        (1, NodeFault::Killed),
        (2, NodeFault::Frozen),
        (2, NodeFault::CutOff),
        (2, NodeFault::Killed),
    ] {
        let mut longest = Duration::ZERO;
        for _ in 0..rounds {
            let mut cluster = Cluster::start(nodes, LEASE);
            cluster.run_job();
            let (old, node) = cluster.rank_of(1);
            assert!(old.all_run());
            let began = Instant::now();
            match fault {
                NodeFault::Frozen => cluster.agents[node - 1].signal(Signal::STOP),
                NodeFault::CutOff => cluster.proxies[node - 1].cut(),
                NodeFault::Killed => cluster.agents[node - 1].kill(),
            }
            old.wait_gone();
            longest = longest.max(began.elapsed());
            if nodes > 1 {
                let (new, elsewhere) = cluster.rank_of(2);
                assert!(new.all_run() && elsewhere != node);
            }
        }
        eprintln!(
            "{nodes} nodes, {fault:?}: {rounds} rounds, 0 processes left, longest {longest:.2?} (lease {LEASE:?})"
        );
    }
}

/// RG-3: a frozen agent comes back to a job that has moved on. Its lease is long, so the controller's fence is what ends its
/// ranks.
#[test]
fn an_agent_that_was_frozen_is_fenced_before_its_node_takes_work() {
    let cluster = Cluster::start(3, Duration::from_secs(600));
    cluster.run_job();
    let (old, frozen) = cluster.rank_of(1);
    cluster.agents[frozen - 1].signal(Signal::STOP);
    let (new, elsewhere) = cluster.rank_of(2);
    assert_ne!(frozen, elsewhere);
    assert_eq!(cluster.node_state(frozen), "lost");
    cluster.agents[frozen - 1].signal(Signal::CONT);
    until("the node to be healthy", LIMIT, || {
        (cluster.node_state(frozen) == "healthy").then_some(())
    });
    assert_eq!(old.count(), 0, "the node is healthy and processes of generation 1 run");
    assert!(new.all_run(), "generation 2 is not disturbed");
    let cases = cluster.ask(&["cases", "--format", "json"]);
    assert!(
        cases
            .to_string()
            .contains("ended 3 processes of job train below generation 2"),
        "{cases:#}"
    );
}

/// RG-3: the node is cut off while others reach the controller; its agent ends its ranks by itself.
#[test]
fn ranks_of_a_node_that_is_cut_off_end_within_the_lease() {
    let cluster = Cluster::start(3, LEASE);
    cluster.run_job();
    let (old, cut) = cluster.rank_of(1);
    let began = Instant::now();
    cluster.proxies[cut - 1].cut();
    old.wait_gone();
    assert!(
        began.elapsed() < LEASE + Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    let verdict = cluster.lease(cut)["verdict"].to_string();
    assert!(verdict.contains("this node is cut off"), "{verdict}");
    let (new, elsewhere) = cluster.rank_of(2);
    assert_ne!(cut, elsewhere);
    cluster.proxies[cut - 1].heal();
    until("the node to be healthy", LIMIT, || {
        (cluster.node_state(cut) == "healthy").then_some(())
    });
    assert!(new.all_run() && cluster.lease(cut)["is_held"] == true);
    until("the case to name the lease", LIMIT, || {
        let cases = cluster.ask(&["cases", "--format", "json"]);
        cases.to_string().contains("the lease of 3 s is over").then_some(())
    });
}

/// RG-5: no agent reaches the controller; all of them reach each other.
#[test]
fn a_controller_that_is_cut_off_from_all_agents_ends_no_rank() {
    let cluster = Cluster::start(3, LEASE);
    cluster.run_job();
    let (rank, _) = cluster.rank_of(1);
    cluster.proxies.iter().for_each(Proxy::cut);
    let until = Instant::now() + LEASE * 4;
    while Instant::now() < until {
        assert!(
            rank.all_run(),
            "the rank ended {:?} before the end",
            until - Instant::now()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let node = (1..=3).find(|node| cluster.lease(*node)["verdict"].is_string());
    let verdict = cluster.lease(node.expect("one asked"))["verdict"].to_string();
    assert!(verdict.contains("it is away for all"), "{verdict}");
}

/// RG-5: the controller is killed and comes back; nothing was restarted.
#[test]
fn a_job_goes_on_for_many_leases_without_a_controller() {
    let lease = Duration::from_secs(1);
    let mut cluster = Cluster::start(3, lease);
    cluster.run_job();
    let (rank, _) = cluster.rank_of(1);
    cluster.controller = None;
    // As many leases as an hour has at the default of 30 s.
    let until = Instant::now() + lease * 120;
    while Instant::now() < until {
        assert!(
            rank.all_run(),
            "the rank ended {:?} before the end",
            until - Instant::now()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.start_controller();
    support::until("the agents to return", LIMIT, || {
        let held = (1..=3).all(|node| cluster.lease(node)["verdict"].is_null());
        held.then_some(())
    });
    let job = cluster.job();
    assert_eq!((&job["generation"], rank.all_run()), (&Value::from(1), true), "{job:#}");
}

/// RG-3: neither the controller nor another agent answers, so a job may run elsewhere.
#[test]
fn ranks_of_a_node_that_reaches_nobody_end_within_the_lease() {
    let mut cluster = Cluster::start(2, LEASE);
    cluster.run_job();
    let (rank, node) = cluster.rank_of(1);
    cluster.controller = None;
    cluster.agents[2 - node].kill();
    rank.wait_gone();
    let verdict = cluster.lease(node)["verdict"].to_string();
    assert!(verdict.contains("only 0 of 1 agents"), "{verdict}");
}

/// RG-5: a cluster of one node has no other agent to ask, and nothing can run elsewhere.
#[test]
fn a_job_on_the_only_node_goes_on_without_a_controller() {
    let mut cluster = Cluster::start(1, LEASE);
    cluster.run_job();
    let (rank, _) = cluster.rank_of(1);
    cluster.controller = None;
    std::thread::sleep(LEASE * 3);
    assert!(rank.all_run());
}

#[test]
fn cancel_returns_when_no_process_is_left_and_names_a_node_that_is_frozen() {
    let cluster = Cluster::start(2, Duration::from_secs(600));
    cluster.run_job();
    let (rank, node) = cluster.rank_of(1);
    cluster
        .cancel()
        .expect(0)
        .says(&["all processes of job train have ended"]);
    assert_eq!(rank.count(), 0);
    cluster.cancel().expect(0).says(&["job train was already stopped"]);

    let out = format!("OUT={}", cluster.dir.path().join("out").display());
    fs::remove_file(cluster.dir.path().join("out").join("1")).expect("of the first job");
    let words = ["run", "--detach", "--name", "second", "--nodes", "2", "--env", &out];
    let script = "echo $$ > $OUT/$RANK.part; mv $OUT/$RANK.part $OUT/rank-$RANK; exec sleep 1000";
    rankguard(
        &[
            &words[..],
            &["--controller", &cluster.address, "--", "sh", "-c", script],
        ]
        .concat(),
    )
    .expect(0);
    let pids: Vec<u32> = (0..2)
        .map(|rank| {
            let file = cluster.dir.path().join("out").join(format!("rank-{rank}"));
            until("the rank to run", LIMIT, || {
                fs::read_to_string(&file).ok()?.trim().parse().ok()
            })
        })
        .collect();
    cluster.agents[node - 1].signal(Signal::STOP);
    until("the node to be lost", LIMIT, || {
        (cluster.node_state(node) == "lost").then_some(())
    });
    let name = format!("on node n{node}");
    rankguard(&["cancel", "second", "--controller", &cluster.address])
        .expect(1)
        .says(&[&name, "its ranks end within its lease of 600 s"]);
    assert_eq!(
        pids.iter().filter(|pid| lives(**pid)).count(),
        1,
        "the other node's rank ended"
    );
    cluster.agents[node - 1].signal(Signal::CONT);
    pids.iter().copied().for_each(gone);
    until("the node to be healthy", LIMIT, || {
        (cluster.node_state(node) == "healthy").then_some(())
    });
    rankguard(&["cancel", "second", "--controller", &cluster.address]).expect(0);
}

#[test]
fn cancel_of_a_finished_job_says_so() {
    let cluster = Cluster::start(1, LEASE);
    let words = ["run", "--name", "train", "--controller", &cluster.address, "--", "true"];
    rankguard(&words).expect(0);
    cluster.cancel().expect(0).says(&["job train has already finished"]);
}
