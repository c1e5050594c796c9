//! A controller and agents of one slot on nodes of their own, with a job over them, in a folder of their own.

#![allow(
    clippy::print_stderr,
    reason = "what the processes said belongs beside the test that failed"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::{Daemon, logs, rankguard, until};

/// Longest wait for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Settings of the controller and of agents, and where they lie.
const CONFIG: &str = "test.toml";
/// An agent that is killed stands for a node that is lost, and its memory with it.
pub(crate) const SETTINGS: &str = "\
[controller]
silence_limit_ms = 4_000
[controller.policy]
gather_ms = 20_000
settle_ms = 300
[agent.intervals]
arenas_kept_ms = 0
";

/// Returns the settings with short waits for a store: a rank tries a restore for a second, its job for `store_wait_ms`.
#[allow(dead_code, reason = "not every test program loses a store")]
pub(crate) fn impatient(store_wait_ms: u32) -> String {
    let settings = SETTINGS.replace(
        "settle_ms = 300",
        &format!("settle_ms = 300\nstore_wait_ms = {store_wait_ms}"),
    );
    format!("{settings}restore_retry_ms = 1_000\n")
}

/// A controller and an agent of one slot on each of some nodes, each a failure domain of its own.
pub(crate) struct Cluster {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) address: String,
    pub(crate) agents: Vec<Daemon>,
    pub(crate) controller: Daemon,
    /// Whether evidence is forged: else no node may be accused of it, and a test that sees it fails.
    pub(crate) is_forged: bool,
}

impl Cluster {
    pub(crate) fn start(nodes: usize) -> Self {
        Self::start_with(nodes, "")
    }

    /// The same with more settings.
    pub(crate) fn start_with(nodes: usize, settings: &str) -> Self {
        Self::start_of(nodes, 1, settings)
    }

    /// Starts agents with this many slots each.
    pub(crate) fn start_of(nodes: usize, slots: u32, settings: &str) -> Self {
        Self::start_configured(nodes, slots, &format!("{SETTINGS}{settings}"))
    }

    /// The same with this file of settings.
    pub(crate) fn start_configured(nodes: usize, slots: u32, text: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let config = dir.path().join(CONFIG);
        fs::write(&config, text).expect("written");
        let controller = Self::controller(dir.path(), "127.0.0.1:0");
        let address = until("the controller to listen", LIMIT, || {
            let text = fs::read_to_string(dir.path().join("controller").join("controller.addr")).ok()?;
            Some(text.trim().to_owned())
        });
        let agents = (1..=nodes).map(|node| Self::agent_of(slots, CONFIG, dir.path(), &address, &format!("n{node}")));
        let agents = agents.collect();
        let cluster = Self {
            dir,
            address,
            agents,
            controller,
            is_forged: false,
        };
        cluster.joined(nodes);
        cluster
    }

    /// One node of one slot whose agent reads a file as its kernel log.
    #[allow(dead_code, reason = "not every test program has a kernel log")]
    pub(crate) fn start_kernel_log(text: &str, kernel_log: &Path) -> Self {
        let mut cluster = Self::start_configured(0, 1, text);
        let agent = Self::agent_reading(path(kernel_log), 1, CONFIG, cluster.dir.path(), &cluster.address, "n1");
        cluster.agents.push(agent);
        cluster.joined(1);
        cluster
    }

    /// Starts the controller, in the state that it may have had.
    pub(crate) fn controller(dir: &Path, address: &str) -> Daemon {
        let config = dir.join(CONFIG);
        let state = dir.join("controller");
        let words = ["controller", "--listen", address, "--state-dir", path(&state)];
        Daemon::start(
            &[&["--config", path(&config)], &words[..]].concat(),
            &dir.join("controller.log"),
        )
    }

    pub(crate) fn joined(&self, nodes: usize) {
        until("the agents to join", LIMIT, || {
            let known = self.ask(&["status", "nodes", "--format", "json"]);
            (known.as_array()?.len() == nodes).then_some(())
        });
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Value {
        let ran = rankguard(&[&words[..1], &["--controller", &self.address], &words[1..]].concat()).expect(0);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|problem| panic!("{problem}: {}", ran.stdout))
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.dir.path().join(name);
        fs::create_dir_all(&folder).expect("made");
        folder
    }

    /// Starts an agent of one slot, in the state that it may have had.
    pub(crate) fn agent(dir: &Path, address: &str, node: &str) -> Daemon {
        Self::agent_with(CONFIG, dir, address, node)
    }

    pub(crate) fn agent_with(config: &str, dir: &Path, address: &str, node: &str) -> Daemon {
        Self::agent_of(1, config, dir, address, node)
    }

    /// Starts an agent with this many slots.
    pub(crate) fn agent_of(slots: u32, config: &str, dir: &Path, address: &str, node: &str) -> Daemon {
        Self::agent_reading("off", slots, config, dir, address, node)
    }

    fn agent_reading(kernel_log: &str, slots: u32, config: &str, dir: &Path, address: &str, node: &str) -> Daemon {
        let slots = slots.to_string();
        let config = dir.join(config);
        let state = dir.join(node);
        let domain = format!("rack-of-{node}");
        let words = [
            "--config",
            path(&config),
            "agent",
            "--node",
            node,
            "--failure-domain",
            &domain,
        ];
        let more = ["--slots", &slots, "--kernel-log", kernel_log, "--controller", address];
        let words = [&words[..], &more, &["--state-dir", path(&state)]].concat();
        Daemon::start(&words, &dir.join(format!("{node}.log")))
    }

    /// Starts the demo's trainer on all nodes, with a checkpoint every so many steps.
    pub(crate) fn train(&self, nodes: &str, every: &str, copies: &[&str]) -> PathBuf {
        self.train_network("256,128", nodes, every, copies)
    }

    /// The same with hidden layers of these widths.
    pub(crate) fn train_network(&self, hidden: &str, nodes: &str, every: &str, copies: &[&str]) -> PathBuf {
        let store = self.folder("store");
        let out = self.folder("out");
        let out = format!("--out={}", out.display());
        let words = [
            "run",
            "--detach",
            "--name",
            "train",
            "--nodes",
            nodes,
            "--controller",
            &self.address,
        ];
        let kept = ["--checkpoint-dir", path(&store), "--checkpoint-every", every];
        let program = [
            "--",
            env!("CARGO_BIN_EXE_rankguard"),
            "demo-rank",
            "--epochs=1000",
            "--step-ms-min=40",
            "--hidden",
            hidden,
            &out,
        ];
        rankguard(&[&words[..], &kept, copies, &program].concat()).expect(0);
        store
    }

    pub(crate) fn job(&self) -> Value {
        self.ask(&["status", "jobs", "--format", "json"])[0].clone()
    }

    pub(crate) fn cancel(&self) {
        let ran = rankguard(&["cancel", "train", "--controller", &self.address]);
        // A node that a test has lost is named until its lease is over.
        assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.stderr);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return eprintln!("{}", logs(self.dir.path()));
        }
        let log = fs::read_to_string(self.dir.path().join("controller.log")).unwrap_or_default();
        let accused = log.lines().find(|line| line.contains("was refused, rule"));
        assert!(
            self.is_forged || accused.is_none(),
            "an honest node is accused: {accused:?}"
        );
    }
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

/// The newest checkpoint of which this can be said.
pub(crate) fn newest(job: &Value, wanted: impl Fn(&Value) -> bool) -> Option<&Value> {
    job["checkpoints"].as_array()?.iter().rev().find(|view| wanted(view))
}

pub(crate) fn folder_of(store: &Path, view: &Value) -> PathBuf {
    let step = view["step"].as_u64();
    let generation = view["generation"].as_u64();
    store.join("train").join(format!(
        "{:012}-g{}",
        step.expect("a step"),
        generation.expect("a generation")
    ))
}

/// Loses what the disk has of every checkpoint, also of one that was committed since anybody looked.
pub(crate) fn lose_shards(store: &Path) {
    let folders = fs::read_dir(store.join("train")).expect("the job's folder").flatten();
    let files = folders.filter_map(|folder| fs::read_dir(folder.path()).ok()).flatten();
    let paths = files.flatten().map(|file| file.path());
    for shard in paths.filter(|path| path.extension().is_some_and(|it| it == "shard")) {
        // One that is no longer wanted may go by itself meanwhile.
        let _ = fs::remove_file(shard);
    }
}
