//! Failed generations with real processes: ranks end before the verdict, and a node that is gone beside a failed rank is
//! not waited for (RG-14).

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::cluster::{LIMIT, text_of};
use crate::support::{nodes, rankguard, until};

/// The silence limit and the settle time are far apart from what the tests wait for.
const SETTINGS: &str = "\
[controller]
silence_limit_ms = 600_000
[controller.policy]
gather_ms = 500
settle_ms = 1_500
[agent.intervals]
arenas_kept_ms = 0
";

fn run(cluster: &nodes::Cluster, name: &str, nodes: &str, script: &str) {
    let words = ["--detach", "--name", name, "--nodes", nodes, "--", "sh", "-c", script];
    rankguard(&[&["run", "--controller", &cluster.address], &words[..]].concat()).expect(0);
}

fn cases(cluster: &nodes::Cluster) -> Vec<Value> {
    let all = cluster.ask(&["cases", "--format", "json"]);
    all.as_array().cloned().unwrap_or_default()
}

fn running_in(cluster: &nodes::Cluster, generation: u64) -> Value {
    until("the generation to run", LIMIT, || {
        let job = cluster.job();
        (job["state"] == "running" && job["generation"] == generation).then_some(job)
    })
}

/// Returns the time of the only entry of a list that fits. Times are UTC with nanoseconds: their texts sort by time.
fn time_of(entries: &Value, fits: impl Fn(&Value) -> bool) -> String {
    let fitting: Vec<&Value> = entries
        .as_array()
        .into_iter()
        .flatten()
        .filter(|entry| fits(entry))
        .collect();
    let [entry] = fitting[..] else {
        panic!("not one of the entries: {entries:#}")
    };
    entry["at"].as_str().expect("a time").to_owned()
}

#[test]
fn ranks_beside_a_killed_one_end_before_the_verdict() {
    let cluster = nodes::Cluster::start_configured(2, 1, SETTINGS);
    let pids = cluster.folder("pids");
    // A process that ignores what its peers do.
    let script = format!(
        "echo $$ > {}/$RANKGUARD_GENERATION-$RANK; while :; do echo tick; sleep 0.2; done",
        text_of(&pids)
    );
    run(&cluster, "pair", "2", &script);
    running_in(&cluster, 1);
    let pid = until("the first rank", LIMIT, || {
        let text = fs::read_to_string(pids.join("1-0")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    });
    kill_process(pid, Signal::KILL).expect("it runs");
    running_in(&cluster, 2);
    let all = cases(&cluster);
    assert_eq!(all.len(), 1, "{all:#?}");
    let case = &all[0];
    assert_eq!(case["verdict"]["class"], "killed-by-signal", "{case:#}");
    assert_eq!(case["verdict"]["root_rank"], 0, "{case:#}");
    // The exit of the rank counts: on a busy machine, the node's answer to the order can arrive after the verdict.
    let exit = time_of(&case["findings"], |link| {
        link["entity"]["rank"] == 1
            && link["text"]
                .as_str()
                .is_some_and(|text| text.contains(" ended with signal "))
    });
    let plan = time_of(&case["actions"], |action| {
        action["text"].as_str().is_some_and(|text| text.starts_with("plan 2: "))
    });
    assert!(exit < plan, "{case:#}");
    rankguard(&["cancel", "pair", "--controller", &cluster.address]);
}

/// The connection of a killed agent is closed at once; without the failed rank the node is awaited.
#[test]
fn a_node_that_is_gone_beside_a_failed_rank_is_not_waited_for() {
    let mut cluster = nodes::Cluster::start_configured(2, 1, SETTINGS);
    let peer = cluster.folder("peer");
    // The rank of the node that stays fails as soon as its peer is gone, as a collective operation does.
    let script = format!(
        "touch {0}/$RANKGUARD_NODE; while [ $RANKGUARD_NODE-$RANKGUARD_GENERATION != n1-1 ] || [ ! -e {0}/gone ]; do \
         echo tick; sleep 0.2; done; exit 1",
        text_of(&peer)
    );
    run(&cluster, "pair", "1:2", &script);
    running_in(&cluster, 1);
    until("both ranks", LIMIT, || {
        (peer.join("n1").exists() && peer.join("n2").exists()).then_some(())
    });
    cluster.agents[1].kill();
    fs::write(peer.join("gone"), "").expect("written");
    let job = until("the job to go on without the node", LIMIT, || {
        let job = cluster.job();
        (job["generation"].as_u64()? > 1).then_some(job)
    });
    let nodes: Vec<&str> = job["placements"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|place| place["node"].as_str())
        .collect();
    assert_eq!(nodes, ["n1"], "{job:#}");
    let all = cases(&cluster);
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!(all[0]["verdict"]["blamed"]["node"], "n2", "{all:#?}");
    // The options that were compared are in the case, with what is assumed.
    let id = all[0]["id"].to_string();
    let shown = rankguard(&["cases", "show", &id, "--controller", &cluster.address]).expect(0);
    for part in [
        "Recovery options\n",
        "  restart in place  -      -",
        "not available: 1 of its 2 nodes cannot be used\n",
        "chosen: the only option that suffices\n",
        "not available: 0 returns of nodes have been measured, and a wait needs 3\n",
        "  return of the lost nodes: 1800.0 s (assumed; ",
    ] {
        assert!(shown.stdout.contains(part), "{part:?} is not in:\n{}", shown.stdout);
    }
    rankguard(&["cancel", "pair", "--controller", &cluster.address]);
}
