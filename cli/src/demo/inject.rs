//! Faults of the demo: kernel-log lines as in real failures, and the matching signals.
//!
//! The lines follow the formats of the NVIDIA driver and of the kernel's OOM killer; process ids and addresses are
//! those of the ranks that really die.

use rankguard_model::{JobId, NodeId, Rank};
use rustix::process::Signal;

use super::DemoError;
use super::cluster::{DemoCluster, signal};

/// PCI address of the GPU that falls off the bus.
pub(super) const GPU: &str = "0000:9b:00";

/// Simulates a GPU that falls off the bus: the driver closes every channel on it, and its ranks abort.
pub(super) fn gpu_lost(cluster: &DemoCluster, node: &NodeId, job: &JobId) -> Result<(), DemoError> {
    let ranks = cluster.ranks(node, job);
    let mut lines = vec![
        format!("NVRM: GPU at PCI:{GPU}: GPU-00000000-0000-0000-0000-000000000001"),
        format!("NVRM: Xid (PCI:{GPU}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        format!("NVRM: GPU {GPU}.0: GPU has fallen off the bus."),
    ];
    for pid in ranks.values() {
        lines.extend(
            (0..8).map(|channel| format!("NVRM: Xid (PCI:{GPU}): 45, pid={pid}, name=rankguard, Ch {channel:08x}")),
        );
    }
    cluster.write_kernel_log(node, &lines)?;
    ranks.values().for_each(|pid| signal(*pid, Signal::ABORT));
    Ok(())
}

/// Simulates an OOM kill of one rank for lack of host memory. Returns its process id.
pub(super) fn host_oom(
    cluster: &DemoCluster,
    node: &NodeId,
    job: &JobId,
    rank: Rank,
) -> Result<Option<i32>, DemoError> {
    let Some(pid) = cluster.ranks(node, job).get(&rank).copied() else {
        return Ok(None);
    };
    let lines = [
        "rankguard invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0"
            .to_owned(),
        format!(
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user.slice,task=rankguard,pid={pid},uid=0"
        ),
        format!(
            "Out of memory: Killed process {pid} (rankguard) total-vm:68432100kB, anon-rss:62914560kB, file-rss:4096kB, shmem-rss:0kB, UID:0 pgtables:124000kB oom_score_adj:0"
        ),
    ];
    signal(pid, Signal::KILL);
    cluster.write_kernel_log(node, &lines)?;
    Ok(Some(pid))
}

/// Kills a rank without a kernel-log line.
pub(super) fn kill_rank(cluster: &DemoCluster, node: &NodeId, job: &JobId, pick: usize) -> Option<Rank> {
    let ranks = cluster.ranks(node, job);
    let (rank, pid) = ranks.iter().nth(pick % ranks.len().max(1))?;
    signal(*pid, Signal::KILL);
    Some(*rank)
}
