//! Checkpoints beyond the store: in the memory of other nodes and in an object store, with real agents and a real job.

#![allow(
    clippy::print_stderr,
    reason = "what the processes said belongs beside the test that failed"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use support::{Daemon, rankguard, until};

const LIMIT: Duration = Duration::from_secs(120);

/// Settings of the controller and of agents, and where they lie.
const CONFIG: &str = "test.toml";
/// An agent that is killed stands for a node that is lost, and its memory with it.
const SETTINGS: &str = "\
[controller]
silence_limit_ms = 4_000
[controller.policy]
gather_ms = 20_000
settle_ms = 300
[agent.intervals]
arenas_kept_ms = 0
";

/// A controller and an agent of one slot on each of some nodes, each a failure domain of its own.
struct Cluster {
    dir: tempfile::TempDir,
    address: String,
    agents: Vec<Daemon>,
    controller: Daemon,
}

impl Cluster {
    fn start(nodes: usize) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let config = dir.path().join(CONFIG);
        fs::write(&config, SETTINGS).expect("written");
        let controller = Self::controller(dir.path(), "127.0.0.1:0");
        let address = until("the controller to listen", LIMIT, || {
            let text = fs::read_to_string(dir.path().join("controller").join("controller.addr")).ok()?;
            Some(text.trim().to_owned())
        });
        let agents = (1..=nodes).map(|node| Self::agent(dir.path(), &address, &format!("n{node}")));
        let agents = agents.collect();
        let cluster = Self {
            dir,
            address,
            agents,
            controller,
        };
        cluster.joined(nodes);
        cluster
    }

    /// Starts the controller, in the state that it may have had.
    fn controller(dir: &Path, address: &str) -> Daemon {
        let (config, state) = (dir.join(CONFIG), dir.join("controller"));
        let words = ["controller", "--listen", address, "--state-dir", path(&state)];
        Daemon::start(
            &[&["--config", path(&config)], &words[..]].concat(),
            &dir.join("controller.log"),
        )
    }

    fn joined(&self, nodes: usize) {
        until("the agents to join", LIMIT, || {
            let known = self.ask(&["status", "nodes", "--format", "json"]);
            (known.as_array()?.len() == nodes).then_some(())
        });
    }

    fn ask(&self, words: &[&str]) -> Value {
        let ran = rankguard(&[&words[..1], &["--controller", &self.address], &words[1..]].concat()).expect(0);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|problem| panic!("{problem}: {}", ran.stdout))
    }

    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.dir.path().join(name);
        fs::create_dir_all(&folder).expect("made");
        folder
    }

    /// Starts an agent of one slot, in the state that it may have had.
    fn agent(dir: &Path, address: &str, node: &str) -> Daemon {
        Self::agent_with(CONFIG, dir, address, node)
    }

    fn agent_with(config: &str, dir: &Path, address: &str, node: &str) -> Daemon {
        let (config, state) = (dir.join(config), dir.join(node));
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
        let more = ["--slots", "1", "--kernel-log", "off", "--controller", address];
        let words = [&words[..], &more, &["--state-dir", path(&state)]].concat();
        Daemon::start(&words, &dir.join(format!("{node}.log")))
    }

    /// Starts the demo's trainer on all nodes, with a checkpoint every so many steps.
    fn train(&self, nodes: &str, every: &str, copies: &[&str]) -> PathBuf {
        let (store, out) = (self.folder("store"), self.folder("out"));
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
            &out,
        ];
        rankguard(&[&words[..], &kept, copies, &program].concat()).expect(0);
        store
    }

    fn job(&self) -> Value {
        self.ask(&["status", "jobs", "--format", "json"])[0].clone()
    }

    fn cancel(&self) {
        rankguard(&["cancel", "train", "--controller", &self.address]).expect(0);
    }

    fn logs(&self) -> String {
        let files = fs::read_dir(self.dir.path()).expect("the folder").flatten();
        let logs = files.filter(|file| file.path().extension().is_some_and(|it| it == "log"));
        logs.map(|file| fs::read_to_string(file.path()).unwrap_or_default())
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

/// The newest checkpoint of which this can be said.
fn newest(job: &Value, wanted: impl Fn(&Value) -> bool) -> Option<&Value> {
    job["checkpoints"].as_array()?.iter().rev().find(|view| wanted(view))
}

fn folder_of(store: &Path, view: &Value) -> PathBuf {
    let (step, generation) = (view["step"].as_u64(), view["generation"].as_u64());
    store.join("train").join(format!(
        "{:012}-g{}",
        step.expect("a step"),
        generation.expect("a generation")
    ))
}

fn shards(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("the checkpoint's folder").flatten();
    let paths = files.map(|file| file.path());
    paths
        .filter(|path| path.extension().is_some_and(|it| it == "shard"))
        .collect()
}

/// The disk has lost every shard and the node that wrote one of them is gone: its image comes out of another node's
/// memory, where it was brought before anything failed.
#[test]
fn the_image_of_a_lost_node_comes_back_from_the_memory_of_another() {
    let mut cluster = Cluster::start(3);
    let store = cluster.train("2:3", "40", &["--checkpoint-copies", "1"]);
    let copied = |job: &Value| newest(job, |view| view["copied"] == 3).cloned();
    let view = until("a checkpoint that other nodes hold", LIMIT, || copied(&cluster.job()));
    for shard in shards(&folder_of(&store, &view)) {
        fs::remove_file(shard).expect("removed");
    }
    drop(cluster.agents.pop());
    let told = until("a restore of the three images by two ranks", LIMIT, || {
        let cases = cluster.ask(&["cases", "--format", "json"]);
        let mut cases = cases.as_array()?.iter().map(Value::to_string);
        cases.find(|case| case.contains("from peers"))
    });
    assert!(!told.contains(", 0 from peers"), "{told}");
    assert!(told.contains(" 0 from disk"), "{told}");
    until("steps of two nodes", LIMIT, || {
        let job = cluster.job();
        (job["state"] == "running" && job["placements"].as_array()?.len() == 2).then_some(())
    });
    cluster.cancel();
}

/// No node has a copy of another's image and the disk has lost every shard: the image of the lost node is the sum of what its
/// group has left and the parity that a node outside of it kept.
#[test]
fn the_image_of_a_lost_node_is_rebuilt_out_of_the_others_and_their_parity() {
    for (nodes, parity, lost) in [(4, "2+1", 1), (4, "2+2", 2)] {
        let mut cluster = Cluster::start(nodes);
        let store = cluster.train("2:4", "100", &["--checkpoint-parity", parity]);
        let whole = (nodes * lost) as u64;
        let kept = |job: &Value| newest(job, |view| view["in_parity"] == whole).cloned();
        let view = until("a checkpoint under parity", LIMIT, || kept(&cluster.job()));
        assert_eq!(view["copied"], 0, "{view:#}");
        for shard in shards(&folder_of(&store, &view)) {
            fs::remove_file(shard).expect("removed");
        }
        cluster.agents.truncate(nodes - lost);
        let told = until("a restore of the four images by those that are left", LIMIT, || {
            let cases = cluster.ask(&["cases", "--format", "json"]);
            let mut cases = cases.as_array()?.iter().map(Value::to_string);
            cases.find(|case| case.contains("from peers"))
        });
        assert!(!told.contains(", 0 from peers"), "{told}");
        assert!(told.contains(" 0 from disk"), "{told}");
        let step = view["step"].as_u64();
        until("steps of the nodes that are left", LIMIT, || {
            let job = cluster.job();
            let moved = job["state"] == "running" && job["step"].as_u64() > step;
            (moved && job["placements"].as_array()?.len() == nodes - lost).then_some(())
        });
        cluster.cancel();
    }
}

/// Nobody commits while the controller is away, and every attempt is overtaken by the next. When it is back it commits the
/// newest, and of the others those that the rules of the job name.
#[test]
fn steps_that_the_rules_name_are_committed_although_the_controller_was_away() {
    let mut cluster = Cluster::start(2);
    let store = cluster.train("2", "20", &["--keep", "1", "--keep-every", "40"]);
    let before = until("a commit", LIMIT, || newest(&cluster.job(), |_| true)?["step"].as_u64());
    cluster.controller.kill();
    // The last multiple that is certainly overtaken.
    let last = (before / 40 + 4) * 40;
    let whole = |step: u64| {
        let folder = store.join("train").join(format!("{step:012}-g1"));
        (0..2).all(|rank| folder.join(format!("rank-{rank:05}.index")).exists())
    };
    until("attempts that nobody commits", LIMIT, || whole(last + 20).then_some(()));
    cluster.controller = Cluster::controller(cluster.dir.path(), &cluster.address);
    let named: Vec<u64> = (before / 40 + 1..=last / 40).map(|nth| nth * 40).collect();
    until("commits of what the rules name", LIMIT, || {
        let words = ["status", "--controller", &cluster.address, "jobs", "--format", "json"];
        let jobs: Value = serde_json::from_str(&rankguard(&words).stdout).ok()?;
        let views = jobs[0]["checkpoints"].as_array()?;
        let steps: Vec<u64> = views.iter().filter_map(|view| view["step"].as_u64()).collect();
        assert!(steps.is_sorted(), "{steps:?}");
        named.iter().all(|step| steps.contains(step)).then_some(())
    });
    assert_eq!(cluster.job()["generation"], 1, "nothing has failed");
    cluster.cancel();
    rankguard(&["checkpoint", "verify", "--dir", path(&store)]).expect(0);
}

/// A store that has lost a checkpoint altogether gets it back from the object store before the job starts anew.
#[test]
fn a_checkpoint_that_the_disk_has_lost_comes_back_from_the_object_store() {
    let mut cluster = Cluster::start(2);
    let mirror = cluster.folder("mirror");
    let url = format!("file://{}", mirror.display());
    let store = cluster.train("1:2", "40", &["--checkpoint-mirror", &url]);
    let mirrored = |job: &Value| newest(job, |view| !view["mirrored_at"].is_null()).cloned();
    let view = until("a mirrored checkpoint", LIMIT, || mirrored(&cluster.job()));
    let there = folder_of(&mirror, &view);
    assert!(there.join("MANIFEST").exists(), "{}", there.display());
    rankguard(&["checkpoint", "verify", "--dir", path(&mirror)]).expect(0);
    // Everything on disk goes, and with the agents every image in memory.
    let agents = std::mem::take(&mut cluster.agents);
    drop(agents);
    let step = until("the newest mirrored step", LIMIT, || {
        mirrored(&cluster.job())?["step"].as_u64()
    });
    fs::remove_dir_all(store.join("train")).expect("removed");
    let again = Cluster::agent(cluster.dir.path(), &cluster.address, "n1");
    cluster.agents.push(again);
    let job = until("steps after the mirrored one", LIMIT, || {
        let job = cluster.job();
        let moved = job["state"] == "running" && job["generation"].as_u64()? > 1;
        (moved && job["step"].as_u64()? > step).then_some(job)
    });
    assert_ne!(job["state"], "stopped", "{job:#}");
    cluster.cancel();
}

/// Two nodes bring a checkpoint to the object store together. One of them is so slow that it never comes to its end, and is
/// killed: the other brings its share, too.
#[test]
fn a_node_that_dies_over_its_share_of_a_mirror_costs_no_checkpoint() {
    let mut cluster = Cluster::start(1);
    let slow = format!("{SETTINGS}[agent]\ncopy_bytes_per_s = 1\n");
    fs::write(cluster.dir.path().join("slow.toml"), slow).expect("written");
    let second = Cluster::agent_with("slow.toml", cluster.dir.path(), &cluster.address, "n2");
    cluster.agents.push(second);
    cluster.joined(2);
    let mirror = cluster.folder("mirror");
    let url = format!("file://{}", mirror.display());
    cluster.train("2", "40", &["--checkpoint-mirror", &url]);
    let there = until("the share of the first node", LIMIT, || {
        let folders = fs::read_dir(mirror.join("train")).ok()?.flatten();
        let mut folders = folders.map(|folder| folder.path());
        folders.find(|folder| folder.join("rank-00000.index").exists())
    });
    assert_eq!(cluster.job()["placements"][0]["node"], "n1");
    drop(cluster.agents.pop());
    until("the whole checkpoint", LIMIT, || {
        there.join("MANIFEST").exists().then_some(())
    });
    assert!(there.join("rank-00001.index").exists());
    rankguard(&["checkpoint", "verify", "--dir", path(&mirror)]).expect(0);
    let told = "the shares of other nodes did not come";
    until("word of who did the work", LIMIT, || {
        cluster.logs().contains(told).then_some(())
    });
    cluster.cancel();
}

#[test]
fn an_object_store_that_cannot_be_is_refused_before_anything_is_sent() {
    let words = [
        "run",
        "--checkpoint-dir",
        "/x",
        "--checkpoint-every",
        "5",
        "--controller",
        "127.0.0.1:1",
    ];
    rankguard(&[&words[..], &["--checkpoint-mirror", "http://somewhere", "--", "true"]].concat())
        .expect(64)
        .says(&["--checkpoint-mirror"]);
    rankguard(
        &[
            &words[..],
            &["--checkpoint-mirror", "s3://key:secret@bucket", "--", "true"],
        ]
        .concat(),
    )
    .expect(64)
    .says(&["environment"]);
    for words in [["--checkpoint-copies", "1"], ["--checkpoint-parity", "4+1"]] {
        rankguard(&[&["run"][..], &words, &["--", "true"]].concat())
            .expect(64)
            .says(&["--checkpoint-dir"]);
    }
    rankguard(&[&words[..], &["--checkpoint-parity", "4", "--", "true"]].concat())
        .expect(64)
        .says(&["K+M"]);
}
