//! Checkpoints beyond the store: in the memory of other nodes and in an object store, with real agents and a real job.

use std::fs;

use serde_json::Value;

use crate::support::nodes::{Cluster, LIMIT, SETTINGS, folder_of, impatient, lose_shards, newest, path};
use crate::support::{logs, rankguard, until};

/// The state is eight times what a rank has for it. Its rank is killed again and again, in the midst of saves as often as not,
/// then its agent, then the controller: each time the job goes on from what the disk has, and every committed byte is right.
#[test]
fn a_rank_that_saves_through_a_window_goes_on_from_the_disk_whoever_is_killed() {
    let mut cluster = Cluster::start(1);
    let store = cluster.train_network("512,256", "1", "2", &["--checkpoint-window", "0.25"]);
    for round in 1..=4 {
        let before = until("a commit of this generation", LIMIT, || {
            newest(&cluster.job(), |view| view["generation"].as_u64() == Some(round))?["step"].as_u64()
        });
        match round {
            4 => {
                cluster.agents.clear();
                let again = Cluster::agent(cluster.dir.path(), &cluster.address, "n1");
                cluster.agents.push(again);
            }
            _ => kill_rank(&cluster),
        }
        until("steps of the next generation", LIMIT, || {
            let job = cluster.job();
            let moved = job["generation"].as_u64() > Some(round) && job["step"].as_u64() > Some(before);
            (moved && job["state"] == "running").then_some(())
        });
    }
    let cases = cluster.ask(&["cases", "--format", "json"]).to_string();
    assert!(
        cases.contains("from disk") && !cases.contains(" 0 from disk"),
        "{cases}"
    );
    let before = until("a commit", LIMIT, || newest(&cluster.job(), |_| true)?["step"].as_u64());
    cluster.controller.kill();
    cluster.controller = Cluster::controller(cluster.dir.path(), &cluster.address);
    until("commits of the controller that is back", LIMIT, || {
        let words = ["status", "--controller", &cluster.address, "jobs", "--format", "json"];
        let jobs: Value = serde_json::from_str(&rankguard(&words).stdout).ok()?;
        let step = newest(&jobs[0], |_| true)?["step"].as_u64();
        (step > Some(before)).then_some(())
    });
    cluster.cancel();
    rankguard(&["checkpoint", "verify", "--dir", path(&store)]).expect(0);
}

/// Kills the trainer of this cluster's job, which nothing else on this machine is started like.
fn kill_rank(cluster: &Cluster) {
    let out = format!("--out={}", cluster.dir.path().join("out").display());
    let of_it = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.nth(1) == Some(b"demo-rank") && words.any(|word| word == out.as_bytes())
    };
    let all = fs::read_dir("/proc").expect("processes").flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let pid = pids.find(of_it).expect("a rank runs");
    let pid = rustix::process::Pid::from_raw(pid).expect("no process has number 0");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
}

/// The disk has lost every shard and the node that wrote one of them is gone: its image comes out of another node's
/// memory, where it was brought before anything failed.
#[test]
fn the_image_of_a_lost_node_comes_back_from_the_memory_of_another() {
    let mut cluster = Cluster::start(3);
    // Whatever was committed last when the node goes has its copies.
    let copies = ["--checkpoint-copies", "1", "--checkpoint-commit", "replicated"];
    let store = cluster.train("2:3", "150", &copies);
    let copied = |job: &Value| newest(job, |view| view["copied"] == 3).cloned();
    until("a checkpoint that other nodes hold", LIMIT, || copied(&cluster.job()));
    drop(cluster.agents.pop());
    lose_shards(&store);
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
        let sums = ["--checkpoint-parity", parity, "--checkpoint-commit", "replicated"];
        let store = cluster.train("2:4", "100", &sums);
        let whole = (nodes * lost) as u64;
        let kept = |job: &Value| newest(job, |view| view["in_parity"] == whole).cloned();
        let explained = until("word of who may be lost", LIMIT, || {
            let step = kept(&cluster.job())?["step"].to_string();
            let words = [
                "checkpoint",
                "explain",
                &step,
                "--dir",
                path(&store),
                "--controller",
                &cluster.address,
            ];
            let told = rankguard(&words).stdout;
            (!told.contains("no longer in memory")).then_some(told)
        });
        let any = if lost == 1 { "any one" } else { "any 2" };
        assert!(
            explained.contains(&format!("{any} of these nodes may be lost")),
            "{explained}"
        );
        let view = until("a checkpoint under parity", LIMIT, || kept(&cluster.job()));
        assert_eq!(view["copied"], 0, "{view:#}");
        cluster.agents.truncate(nodes - lost);
        lose_shards(&store);
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

/// Images go to their sums slowly, and a node that keeps sums and gives to others dies over it: the job goes on from the step that
/// is committed, on the nodes that are left, whose images stand under sums again.
#[test]
fn a_holder_that_dies_while_its_sums_are_made_costs_no_checkpoint() {
    let mut cluster = Cluster::start_with(4, "[agent]\ncopy_bytes_per_s = 25_000\n");
    let store = cluster.train("2:4", "100", &["--checkpoint-parity", "2+1"]);
    let step = until("a commit whose sums are being made", LIMIT, || {
        let job = cluster.job();
        let view = newest(&job, |_| true)?;
        (view["in_parity"].as_u64() < Some(4)).then(|| view["step"].as_u64())?
    });
    // Of two groups on four nodes the first node keeps the sums of the one that it is not in.
    drop(cluster.agents.remove(0));
    let again = until("sums of the nodes that are left", LIMIT, || {
        let job = cluster.job();
        let later = |view: &Value| view["generation"].as_u64() > Some(1) && view["in_parity"] == 3;
        newest(&job, later).cloned()
    });
    assert!(again["step"].as_u64() > Some(step), "{again:#}");
    let job = cluster.job();
    let kept = newest(&job, |view| view["generation"] == 1).and_then(|view| view["step"].as_u64());
    assert!(kept.is_none() || kept >= Some(step), "{job:#}");
    cluster.cancel();
    rankguard(&["checkpoint", "verify", "--dir", path(&store)]).expect(0);
}

/// Where the operator wants that, nothing is committed before its copies are made; without anybody to make them it is
/// committed all the same, and told.
#[test]
fn a_commit_waits_for_copies_where_that_is_asked_for() {
    for nodes in [2_u64, 1] {
        let cluster = Cluster::start(nodes as usize);
        let copies = ["--checkpoint-copies", "1", "--checkpoint-commit", "replicated"];
        cluster.train(&nodes.to_string(), "20", &copies);
        for step in [20, 40, 60] {
            let job = until("commits", LIMIT, || {
                let job = cluster.job();
                newest(&job, |view| view["step"].as_u64() >= Some(step))?;
                Some(job)
            });
            let views = job["checkpoints"].as_array().expect("checkpoints");
            match nodes {
                2 => assert!(views.iter().all(|view| view["copied"] == 2), "{views:#?}"),
                _ => assert!(job["copies_failed"].as_u64() >= Some(step / 20), "{job:#}"),
            }
        }
        cluster.cancel();
    }
}

/// Nobody commits while the controller is away, and every attempt is overtaken by the next. When it is back it commits the
/// newest, and of the others those that the rules of the job name.
#[test]
fn steps_that_the_rules_name_are_committed_although_the_controller_was_away() {
    let mut cluster = Cluster::start(2);
    let mirror = cluster.folder("mirror");
    let url = format!("file://{}", mirror.display());
    let rules = ["--keep", "1", "--keep-every", "40", "--checkpoint-mirror", &url];
    let store = cluster.train("2", "20", &rules);
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
    until("all of them in the object store", LIMIT, || {
        let there = |step: &u64| mirror.join(format!("train/{step:012}-g1/MANIFEST")).exists();
        named.iter().all(there).then_some(())
    });
    cluster.cancel();
    rankguard(&["checkpoint", "verify", "--dir", path(&store)]).expect(0);
    rankguard(&["checkpoint", "verify", "--dir", path(&mirror)]).expect(0);
}

/// A store that has lost a checkpoint altogether gets it back from the object store before the job starts anew. A commit
/// without a complete mirror is in neither of them, and is passed over after the wait for a store that may come back.
#[test]
fn a_checkpoint_that_the_disk_has_lost_comes_back_from_the_object_store() {
    let mut cluster = Cluster::start_configured(2, 1, &impatient(2_000));
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
        logs(cluster.dir.path()).contains(told).then_some(())
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
    for held in [["--checkpoint-copies", "1"], ["--checkpoint-parity", "4+1"]] {
        rankguard(&[&words[..], &["--checkpoint-window", "64"], &held, &["--", "true"]].concat())
            .expect(64)
            .says(&["--checkpoint-window", held[0]]);
    }
    rankguard(&[&words[..], &["--checkpoint-window", "0.1", "--", "true"]].concat())
        .expect(64)
        .says(&["expected MiB, 0.25 or more"]);
    rankguard(&[&words[..], &["--checkpoint-parity", "4", "--", "true"]].concat())
        .expect(64)
        .says(&["K+M"]);
}
