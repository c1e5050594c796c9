//! A machine that is about to be taken away: its job saves, leaves it, and takes it in again after a false alarm.

use std::fs;

use serde_json::Value;

use crate::support::cluster::text_of;
use crate::support::nodes::{Cluster, LIMIT, SETTINGS};
use crate::support::until;

#[test]
fn a_job_leaves_a_machine_at_its_removal_notice_and_uses_it_again_after_the_withdrawal() {
    let mut cluster = Cluster::start(2);
    let notice = cluster.dir.path().join("removal-notice");
    let removal = format!("removal_ms = 100\n[agent.removal]\nfile = '{}'\n", text_of(&notice));
    fs::write(cluster.dir.path().join("n3.toml"), format!("{SETTINGS}{removal}")).expect("written");
    let agent = Cluster::agent_with("n3.toml", cluster.dir.path(), &cluster.address, "n3");
    cluster.agents.push(agent);
    cluster.joined(3);
    cluster.train("2:3", "1000000", &[]);
    let steps = |job: &Value| job["step"].as_u64();
    let ranks = |job: &Value| Some(job["placements"].as_array()?.len());
    until("steps of three nodes", LIMIT, || {
        let job = cluster.job();
        (ranks(&job)? == 3 && steps(&job)? >= 5).then_some(())
    });
    fs::write(&notice, "Slurm preempts the job of this node\n").expect("written");
    until("the job to leave", LIMIT, || {
        let job = cluster.job();
        (ranks(&job)? == 2 && job["state"] == "running").then_some(())
    });
    let node = |name: &str| {
        let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
        let node = nodes.as_array()?.iter().find(|node| node["node"] == name).cloned();
        node.map(|node| (node["state"].clone(), node["reason"].as_str().map(str::to_owned)))
    };
    let (_, reason) = node("n3").expect("it is known");
    assert_eq!(
        reason.as_deref(),
        Some("drained: removal notice: Slurm preempts the job of this node")
    );
    fs::remove_file(&notice).expect("removed");
    until("the node in use", LIMIT, || {
        let (state, reason) = node("n3")?;
        (state == "healthy" && reason.is_none()).then_some(())
    });
    cluster.cancel();
}
