//! Fault injection, and the log lines that each fault produces.

use std::time::Duration;

use rankguard_core::Event;
use rankguard_model::{Entity, EvidenceSource, NodeId, ProcessExit, Rank};

use super::{GPU, SILENCE, SimulatedWorld, WorldEvent};
use crate::ScriptedFault;
use crate::agent::SimulatedProcess;

impl SimulatedWorld {
    /// Carries out a fault of the script at the present time.
    pub(super) fn strike(&mut self, fault: &ScriptedFault) {
        self.transcript.note(self.now, &format!("FAULT   {fault:?}"));
        match fault {
            ScriptedFault::GpuLost { node } => self.gpu_lost(&NodeId::from(node.as_str())),
            ScriptedFault::NodeLost { node } => self.node_lost(&NodeId::from(node.as_str())),
            ScriptedFault::NodeLostUntold { node, step, left } => {
                self.untold = Some((NodeId::from(node.as_str()), *step, *left));
            }
            ScriptedFault::NodeBack { node } => {
                let node = NodeId::from(node.as_str());
                if self.agents.get(&node).is_some_and(|agent| !agent.alive) {
                    self.join(&node);
                }
            }
            ScriptedFault::HostOom { rank } => self.host_oom(Rank(*rank)),
            ScriptedFault::RankKilled { rank } => self.rank_killed(Rank(*rank)),
            ScriptedFault::UserBug { rank, step } => self.bugs.push((Rank(*rank), *step)),
            ScriptedFault::EccGrows { node } => {
                let node = NodeId::from(node.as_str());
                let entity = Entity::Node { node: node.clone() };
                let line = format!(
                    "NVRM: Xid (PCI:{GPU}): 92, pid='<unknown>', name=<unknown>, High single-bit ECC error rate"
                );
                self.lines(&node, EvidenceSource::KernelLog, &entity, &[line]);
            }
            ScriptedFault::NodeCorrupt { node, step } => self.corrupt = Some((NodeId::from(node.as_str()), *step)),
            ScriptedFault::OrdersSlow { node, delay_ms } => {
                let delay = Duration::from_millis(*delay_ms);
                self.slow.insert(NodeId::from(node.as_str()), delay);
            }
            ScriptedFault::Cordoned { node } => {
                let node = NodeId::from(node.as_str());
                let reason = "drained".to_owned();
                self.later(Duration::ZERO, WorldEvent::Told(Event::NodeCordoned { node, reason }));
            }
            ScriptedFault::ControllerRestart => self.restart_controller(),
        }
    }

    /// Stops a node with its ranks. The controller learns of its silence after [`SILENCE`].
    pub(super) fn node_lost(&mut self, node: &NodeId) {
        if let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive) {
            agent.vanish();
            let now = self.now;
            self.later(SILENCE, WorldEvent::Silence(node.clone(), now));
            self.notify_peer_loss();
        }
    }

    /// Lets the ranks of the present generation notice that a peer is gone.
    pub(super) fn notify_peer_loss(&mut self) {
        if let Some(generation) = self.training.as_ref().map(|training| training.generation) {
            self.peer_lost(generation);
        }
    }

    /// Writes XID 79, and XID 45 for each rank of the node, to the kernel log; then the node's ranks abort.
    pub(super) fn gpu_lost(&mut self, node: &NodeId) {
        let Some(ranks) = self
            .agents
            .get(node)
            .filter(|agent| agent.alive)
            .map(|agent| agent.ranks.clone())
        else {
            return;
        };
        let mut lines = vec![format!(
            "NVRM: Xid (PCI:{GPU}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
        )];
        for process in ranks.values() {
            lines.extend((0..8).map(|channel| {
                format!(
                    "NVRM: Xid (PCI:{GPU}): 45, pid={}, name=python3, Ch {channel:08x}",
                    process.pid
                )
            }));
        }
        self.lines(
            node,
            EvidenceSource::KernelLog,
            &Entity::Node { node: node.clone() },
            &lines,
        );
        for (rank, process) in ranks {
            self.exit(node, rank, &process, ProcessExit::Signal(6));
        }
        self.notify_peer_loss();
    }

    /// Kills a rank without a log line.
    pub(super) fn rank_killed(&mut self, rank: Rank) {
        let Some((node, process)) = self.home_of(rank) else {
            return;
        };
        self.exit(&node, rank, &process, ProcessExit::Signal(9));
        self.notify_peer_loss();
    }

    /// Kills a rank, with the lines of the kernel's OOM killer.
    pub(super) fn host_oom(&mut self, rank: Rank) {
        let Some((node, process)) = self.home_of(rank) else {
            return;
        };
        let pid = process.pid;
        let lines = [
            "python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0"
                .to_owned(),
            format!(
                "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,\
                 task_memcg=/user.slice,task=python3,pid={pid},uid=0"
            ),
            format!(
                "Out of memory: Killed process {pid} (python3) total-vm:68432100kB, anon-rss:62914560kB, \
                 file-rss:4096kB, shmem-rss:0kB, UID:0 pgtables:124000kB oom_score_adj:0"
            ),
        ];
        if let Some(entity) = self.entity(&node, rank) {
            self.lines(&node, EvidenceSource::KernelLog, &entity, &lines);
        }
        self.exit(&node, rank, &process, ProcessExit::Signal(9));
        self.notify_peer_loss();
    }

    /// Returns the node on which a rank runs, and its process there; `None` if no live node runs it.
    fn home_of(&self, rank: Rank) -> Option<(NodeId, SimulatedProcess)> {
        let living = self.agents.values().filter(|agent| agent.alive);
        let mut homes = living.filter_map(|agent| Some((agent.node.clone(), agent.ranks.get(&rank)?.clone())));
        homes.next()
    }
}
