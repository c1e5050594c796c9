//! Conversion of jobs, nodes and ranks between wire and model.

use std::num::NonZero;

use rankguard_model::{
    CheckpointParity, CheckpointPolicy, CheckpointTiers, ClockOffset, CommitLevel, Generation, ImageLocation, JobId,
    JobSpec, MetricGoal, MetricRule, NodeHistory, NodeId, NodeInfo, NodeRange, ProcessExit, Rank, RankRef, ResumePlace,
    ResumeSource, RetentionPolicy, RunningRank, StandbyPolicy, Step,
};

use crate::WireError;
use crate::error::{name, optional, repeated, required};
use crate::history::at_most;
use crate::v1;

impl From<&NodeRange> for v1::NodeRange {
    fn from(range: &NodeRange) -> Self {
        Self {
            min: range.min,
            max: range.max,
        }
    }
}

impl TryFrom<v1::NodeRange> for NodeRange {
    type Error = WireError;

    fn try_from(range: v1::NodeRange) -> Result<Self, WireError> {
        Ok(Self {
            min: range.min,
            max: range.max,
        })
    }
}

impl From<&CheckpointPolicy> for v1::CheckpointPolicy {
    fn from(policy: &CheckpointPolicy) -> Self {
        Self {
            every_steps: policy.every_steps,
            store: policy.store.clone(),
            keep: policy.keep,
            retention: Some((&policy.retention).into()),
            tiers: Some((&policy.tiers).into()),
        }
    }
}

impl TryFrom<v1::CheckpointPolicy> for CheckpointPolicy {
    type Error = WireError;

    fn try_from(policy: v1::CheckpointPolicy) -> Result<Self, WireError> {
        Ok(Self {
            every_steps: policy.every_steps,
            store: policy.store,
            keep: policy.keep,
            // Clients of earlier versions send no retention rules.
            retention: policy.retention.map(Into::into).unwrap_or_default(),
            tiers: policy.tiers.map(Into::into).unwrap_or_default(),
        })
    }
}

impl From<&CheckpointTiers> for v1::CheckpointTiers {
    fn from(tiers: &CheckpointTiers) -> Self {
        Self {
            nodes: tiers.nodes,
            mirror: tiers.mirror.clone(),
            parity: tiers.parity.map(|parity| v1::CheckpointParity {
                nodes: parity.nodes,
                parities: parity.parities,
            }),
            commit_replicated: tiers.commit == CommitLevel::Replicated,
            window_bytes: tiers.window.map(NonZero::get),
        }
    }
}

impl From<v1::CheckpointTiers> for CheckpointTiers {
    fn from(tiers: v1::CheckpointTiers) -> Self {
        Self {
            nodes: tiers.nodes,
            mirror: tiers.mirror,
            // A group without nodes or without parities means no parity.
            parity: tiers
                .parity
                .map(|parity| CheckpointParity {
                    nodes: parity.nodes,
                    parities: parity.parities,
                })
                .filter(|parity| parity.nodes > 0 && parity.parities > 0),
            commit: if tiers.commit_replicated {
                CommitLevel::Replicated
            } else {
                CommitLevel::Durable
            },
            // A window of 0 bytes means no window.
            window: tiers.window_bytes.and_then(NonZero::new),
        }
    }
}

impl From<ImageLocation> for v1::HeldIn {
    fn from(held: ImageLocation) -> Self {
        match held {
            ImageLocation::Arenas => Self::Arenas,
            ImageLocation::Copies => Self::Copies,
            ImageLocation::Parity => Self::Parity,
        }
    }
}

impl TryFrom<v1::HeldIn> for ImageLocation {
    type Error = WireError;

    fn try_from(held: v1::HeldIn) -> Result<Self, WireError> {
        Ok(match held {
            v1::HeldIn::Unspecified => return Err(WireError::absent("from")),
            v1::HeldIn::Arenas => Self::Arenas,
            v1::HeldIn::Copies => Self::Copies,
            v1::HeldIn::Parity => Self::Parity,
        })
    }
}

impl From<&RetentionPolicy> for v1::Retention {
    fn from(rules: &RetentionPolicy) -> Self {
        Self {
            last: rules.last,
            every_steps: rules.every_steps,
            every_ms: rules.every_ms,
            best: rules.best.as_ref().map(|best| v1::BestKept {
                metric: best.metric.clone(),
                high: best.good == MetricGoal::High,
                count: best.count,
            }),
        }
    }
}

impl From<v1::Retention> for RetentionPolicy {
    fn from(rules: v1::Retention) -> Self {
        Self {
            last: rules.last,
            every_steps: rules.every_steps,
            every_ms: rules.every_ms,
            best: rules.best.map(|best| MetricRule {
                metric: best.metric,
                good: if best.high { MetricGoal::High } else { MetricGoal::Low },
                count: best.count,
            }),
        }
    }
}

impl From<&JobSpec> for v1::JobSpec {
    fn from(spec: &JobSpec) -> Self {
        Self {
            id: spec.id.to_string(),
            command: spec.command.clone(),
            env: spec.env.clone(),
            workdir: spec.workdir.clone(),
            nodes: Some((&spec.nodes).into()),
            ranks_per_node: spec.ranks_per_node,
            checkpoint: spec.checkpoint.as_ref().map(Into::into),
            max_restarts: spec.max_restarts,
            user: spec.user.clone(),
            resume_from: spec.resume_from.as_ref().map(Into::into),
            standby: spec.standby.as_ref().map(Into::into),
        }
    }
}

impl From<&StandbyPolicy> for v1::Standby {
    fn from(policy: &StandbyPolicy) -> Self {
        Self {
            count: policy.count,
            imports: policy.imports.clone(),
        }
    }
}

impl From<v1::Standby> for StandbyPolicy {
    fn from(policy: v1::Standby) -> Self {
        Self {
            count: policy.count,
            imports: policy.imports,
        }
    }
}

impl TryFrom<v1::JobSpec> for JobSpec {
    type Error = WireError;

    /// Converts the fields only; the controller validates their combination.
    fn try_from(spec: v1::JobSpec) -> Result<Self, WireError> {
        Ok(Self {
            id: JobId::from(name("id", spec.id)?),
            command: spec.command,
            env: spec.env,
            workdir: spec.workdir,
            nodes: required("nodes", spec.nodes)?,
            ranks_per_node: spec.ranks_per_node,
            checkpoint: optional("checkpoint", spec.checkpoint)?,
            max_restarts: spec.max_restarts,
            user: spec.user,
            resume_from: optional("resume_from", spec.resume_from)?,
            standby: spec.standby.map(Into::into),
        })
    }
}

impl From<&ResumeSource> for v1::ResumeSource {
    fn from(source: &ResumeSource) -> Self {
        let place = match &source.place {
            ResumePlace::Job(job) => v1::resume_source::Place::Job(job.to_string()),
            ResumePlace::Path(path) => v1::resume_source::Place::Path(path.clone()),
        };
        Self {
            place: Some(place),
            step: source.step.map(|step| step.0),
        }
    }
}

impl TryFrom<v1::ResumeSource> for ResumeSource {
    type Error = WireError;

    fn try_from(source: v1::ResumeSource) -> Result<Self, WireError> {
        let place = match source.place.ok_or_else(|| WireError::absent("place"))? {
            v1::resume_source::Place::Job(job) => ResumePlace::Job(JobId::from(name("job", job)?)),
            v1::resume_source::Place::Path(path) => ResumePlace::Path(name("path", path)?),
        };
        Ok(Self {
            place,
            step: source.step.map(Step),
        })
    }
}

impl From<&RankRef> for v1::RankRef {
    fn from(rank: &RankRef) -> Self {
        Self {
            job: rank.job.to_string(),
            generation: rank.generation.0,
            rank: rank.rank.0,
        }
    }
}

impl TryFrom<v1::RankRef> for RankRef {
    type Error = WireError;

    fn try_from(rank: v1::RankRef) -> Result<Self, WireError> {
        Ok(Self {
            job: JobId::from(name("job", rank.job)?),
            generation: Generation(rank.generation),
            rank: Rank(rank.rank),
        })
    }
}

impl From<&RunningRank> for v1::RunningRank {
    fn from(running: &RunningRank) -> Self {
        Self {
            rank: Some((&running.rank).into()),
            pid: running.pid,
            step: running.step.map(|step| step.0),
        }
    }
}

impl TryFrom<v1::RunningRank> for RunningRank {
    type Error = WireError;

    fn try_from(running: v1::RunningRank) -> Result<Self, WireError> {
        Ok(Self {
            rank: required("rank", running.rank)?,
            pid: running.pid,
            step: running.step.map(Step),
        })
    }
}

impl From<&NodeInfo> for v1::NodeInfo {
    fn from(info: &NodeInfo) -> Self {
        Self {
            node: info.node.to_string(),
            incarnation: info.incarnation.clone(),
            boot_id: info.boot_id.clone(),
            host: info.host.clone(),
            peer_address: info.peer_address.clone(),
            image_address: info.image_address.clone(),
            slots: info.slots,
            failure_domain: info.failure_domain.clone(),
            running: info.running.iter().map(Into::into).collect(),
            clock: Some((&info.clock).into()),
            lease_ms: info.lease_ms,
            is_kernel_log_first: info.is_kernel_log_first,
            spool_epochs: info.history.epochs.iter().map(Into::into).collect(),
            journal: info.history.journal.as_ref().map(Into::into),
            fences: info.history.fences.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::NodeInfo> for NodeInfo {
    type Error = WireError;

    fn try_from(info: v1::NodeInfo) -> Result<Self, WireError> {
        Ok(Self {
            node: NodeId::from(name("node", info.node)?),
            incarnation: name("incarnation", info.incarnation)?,
            boot_id: info.boot_id,
            host: info.host,
            peer_address: info.peer_address,
            image_address: info.image_address,
            slots: info.slots,
            failure_domain: info.failure_domain,
            running: repeated("running", info.running)?,
            clock: required("clock", info.clock)?,
            lease_ms: info.lease_ms,
            is_kernel_log_first: info.is_kernel_log_first,
            history: NodeHistory {
                epochs: repeated("spool_epochs", at_most("spool_epochs", info.spool_epochs)?)?,
                journal: optional("journal", info.journal)?,
                fences: repeated("fences", at_most("fences", info.fences)?)?,
            },
        })
    }
}

impl From<&ProcessExit> for v1::Exit {
    fn from(exit: &ProcessExit) -> Self {
        let kind = match *exit {
            ProcessExit::Code(code) => v1::exit::Kind::Code(code),
            ProcessExit::Signal(signal) => v1::exit::Kind::Signal(signal),
            ProcessExit::Left => v1::exit::Kind::Left(true),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Exit> for ProcessExit {
    type Error = WireError;

    fn try_from(exit: v1::Exit) -> Result<Self, WireError> {
        Ok(match exit.kind.ok_or_else(|| WireError::absent("kind"))? {
            v1::exit::Kind::Code(code) => Self::Code(code),
            v1::exit::Kind::Signal(signal) => Self::Signal(signal),
            v1::exit::Kind::Left(_) => Self::Left,
        })
    }
}

impl From<&ClockOffset> for v1::ClockOffset {
    fn from(clock: &ClockOffset) -> Self {
        Self {
            offset_ns: clock.offset_ns,
            error_ns: clock.error_ns,
        }
    }
}

impl TryFrom<v1::ClockOffset> for ClockOffset {
    type Error = WireError;

    fn try_from(clock: v1::ClockOffset) -> Result<Self, WireError> {
        Ok(Self {
            offset_ns: clock.offset_ns,
            error_ns: clock.error_ns,
        })
    }
}
