//! Conversion of orders to agents between wire and model. A conversion from the wire returns a [`WireError`] that names
//! the first invalid field.

use rankguard_model::{
    AgentOrder, CheckpointCall, FinishOrder, Generation, JobId, LaunchOrder, NodeId, PeerAgent, PreflightOrder,
    PrepareOrder, Rank, RankSlot, RestorePoint, RetainedSet, Step,
};

use crate::WireError;
use crate::error::{known, name, optional, port, repeated};
use crate::v1;
use crate::v1::checkpoint_called::Call;
use crate::v1::order::{Checkpoint, Fence, Keep, Kind, Named, Stop};

impl From<&AgentOrder> for v1::Order {
    fn from(order: &AgentOrder) -> Self {
        let kind = match order {
            AgentOrder::Fence {
                job,
                generation,
                reserve_port,
                nodes,
            } => Kind::Fence(Fence {
                job: job.to_string(),
                generation: generation.0,
                reserve_port: *reserve_port,
                nodes: nodes.iter().map(ToString::to_string).collect(),
            }),
            AgentOrder::Preflight(wanted) => Kind::Preflight(wanted.into()),
            AgentOrder::Finish(wanted) => Kind::Finish(wanted.into()),
            AgentOrder::Launch(launch) => Kind::Launch(launch.into()),
            AgentOrder::Prepare(wanted) => Kind::Prepare(wanted.into()),
            AgentOrder::Keep {
                job,
                generation,
                step,
                stays,
            } => Kind::Keep(Keep {
                job: job.to_string(),
                generation: generation.0,
                step: step.0,
                stays: stays.as_ref().map(Into::into),
            }),
            AgentOrder::Stop {
                job,
                generation,
                grace_ms,
                keeps_images,
            } => Kind::Stop(Stop {
                job: job.to_string(),
                generation: generation.0,
                grace_ms: *grace_ms,
                keeps_images: *keeps_images,
            }),
            AgentOrder::Checkpoint {
                job,
                generation,
                number,
                call,
            } => Kind::Checkpoint(Checkpoint {
                job: job.to_string(),
                generation: generation.0,
                called: Some(v1::CheckpointCalled::from((*number, *call))),
            }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Order> for AgentOrder {
    type Error = WireError;

    fn try_from(order: v1::Order) -> Result<Self, WireError> {
        Ok(match order.kind.ok_or_else(|| WireError::absent("kind"))? {
            Kind::Fence(fence) => Self::Fence {
                job: JobId::from(name("fence.job", fence.job)?),
                generation: Generation(fence.generation),
                reserve_port: fence.reserve_port,
                nodes: fence.nodes.into_iter().map(NodeId::from).collect(),
            },
            Kind::Preflight(wanted) => {
                Self::Preflight(PreflightOrder::try_from(wanted).map_err(|e| e.within("preflight"))?)
            }
            Kind::Finish(wanted) => Self::Finish(FinishOrder::try_from(wanted).map_err(|e| e.within("finish"))?),
            Kind::Launch(launch) => Self::Launch(LaunchOrder::try_from(launch).map_err(|e| e.within("launch"))?),
            Kind::Prepare(wanted) => Self::Prepare(PrepareOrder::try_from(wanted).map_err(|e| e.within("prepare"))?),
            Kind::Keep(keep) => Self::Keep {
                job: JobId::from(name("keep.job", keep.job)?),
                generation: Generation(keep.generation),
                step: Step(keep.step),
                stays: keep.stays.map(Into::into),
            },
            Kind::Stop(stop) => Self::Stop {
                job: JobId::from(name("stop.job", stop.job)?),
                generation: Generation(stop.generation),
                grace_ms: stop.grace_ms,
                keeps_images: stop.keeps_images,
            },
            Kind::Checkpoint(checkpoint) => {
                let called = checkpoint
                    .called
                    .ok_or_else(|| WireError::absent("checkpoint.called"))?;
                let (number, call) = called
                    .try_into()
                    .map_err(|e: WireError| e.within("checkpoint.called"))?;
                Self::Checkpoint {
                    job: JobId::from(name("checkpoint.job", checkpoint.job)?),
                    generation: Generation(checkpoint.generation),
                    number,
                    call,
                }
            }
        })
    }
}

impl From<&RetainedSet> for v1::order::Stays {
    fn from(stays: &RetainedSet) -> Self {
        let named = |&(generation, step): &(Generation, Step)| Named {
            generation: generation.0,
            step: step.0,
        };
        Self {
            newest: stays.newest,
            named: stays.named.iter().map(named).collect(),
        }
    }
}

impl From<v1::order::Stays> for RetainedSet {
    fn from(stays: v1::order::Stays) -> Self {
        let named = |named: Named| (Generation(named.generation), Step(named.step));
        Self {
            newest: stays.newest,
            named: stays.named.into_iter().map(named).collect(),
        }
    }
}

/// Converts a checkpoint call and its number, which are one message on the wire.
impl From<(u64, CheckpointCall)> for v1::CheckpointCalled {
    fn from((number, call): (u64, CheckpointCall)) -> Self {
        let call = match call {
            CheckpointCall::At { step } => Call::At(step.0),
            CheckpointCall::Every { from, every } => Call::Every(v1::CheckpointRule { from: from.0, every }),
        };
        Self {
            number,
            call: Some(call),
        }
    }
}

impl TryFrom<v1::CheckpointCalled> for (u64, CheckpointCall) {
    type Error = WireError;

    fn try_from(called: v1::CheckpointCalled) -> Result<Self, WireError> {
        let call = match called.call.ok_or_else(|| WireError::absent("call"))? {
            Call::At(step) => CheckpointCall::At { step: Step(step) },
            Call::Every(rule) => CheckpointCall::Every {
                from: Step(rule.from),
                every: rule.every,
            },
        };
        Ok((called.number, call))
    }
}

impl From<&PreflightOrder> for v1::Preflight {
    fn from(wanted: &PreflightOrder) -> Self {
        Self {
            job: wanted.job.to_string(),
            generation: wanted.generation.0,
            command: wanted.command.clone(),
            env: wanted.env.clone(),
            workdir: wanted.workdir.clone(),
            write_paths: wanted.write_paths.clone(),
            deadline_ms: wanted.deadline_ms,
            between: wanted.between.iter().map(Into::into).collect(),
            links: wanted.links.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::Preflight> for PreflightOrder {
    type Error = WireError;

    fn try_from(wanted: v1::Preflight) -> Result<Self, WireError> {
        Ok(Self {
            job: JobId::from(name("job", wanted.job)?),
            generation: Generation(wanted.generation),
            command: wanted.command,
            env: wanted.env,
            workdir: wanted.workdir,
            write_paths: wanted.write_paths,
            deadline_ms: wanted.deadline_ms,
            between: repeated("between", wanted.between)?,
            links: repeated("links", wanted.links)?,
        })
    }
}

impl From<&PrepareOrder> for v1::Prepare {
    fn from(wanted: &PrepareOrder) -> Self {
        Self {
            job: wanted.job.to_string(),
            generation: wanted.generation.0,
            command: wanted.command.clone(),
            env: wanted.env.clone(),
            workdir: wanted.workdir.clone(),
            user: wanted.user.clone(),
            standby: wanted.standby.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::Prepare> for PrepareOrder {
    type Error = WireError;

    fn try_from(wanted: v1::Prepare) -> Result<Self, WireError> {
        Ok(Self {
            job: JobId::from(name("job", wanted.job)?),
            generation: Generation(wanted.generation),
            command: wanted.command,
            env: wanted.env,
            workdir: wanted.workdir,
            user: wanted.user,
            standby: wanted.standby.map(Into::into),
        })
    }
}

impl From<&FinishOrder> for v1::Finish {
    fn from(wanted: &FinishOrder) -> Self {
        Self {
            job: wanted.job.to_string(),
            generation: wanted.generation.0,
            of: wanted.of.0,
            after: wanted.after.map(|step| step.0),
            store: wanted.store.clone(),
            from: v1::HeldIn::from(wanted.from).into(),
            peers: wanted.peers.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::Finish> for FinishOrder {
    type Error = WireError;

    fn try_from(wanted: v1::Finish) -> Result<Self, WireError> {
        Ok(Self {
            job: JobId::from(name("job", wanted.job)?),
            generation: Generation(wanted.generation),
            of: Generation(wanted.of),
            after: wanted.after.map(Step),
            store: wanted.store,
            from: known::<v1::HeldIn>("from", wanted.from)?.try_into()?,
            peers: repeated("peers", wanted.peers)?,
        })
    }
}

impl From<&LaunchOrder> for v1::Launch {
    fn from(launch: &LaunchOrder) -> Self {
        Self {
            job: launch.job.to_string(),
            generation: launch.generation.0,
            command: launch.command.clone(),
            env: launch.env.clone(),
            workdir: launch.workdir.clone(),
            world_size: launch.world_size,
            group_rank: launch.group_rank,
            ranks: launch.ranks.iter().map(Into::into).collect(),
            master_addr: launch.master_addr.clone(),
            master_port: launch.master_port.into(),
            restart_count: launch.restart_count,
            max_restarts: launch.max_restarts,
            checkpoint_every: launch.checkpoint_every,
            checkpoint_store: launch.checkpoint_store.clone(),
            restore: launch.restore.as_ref().map(Into::into),
            peers: launch.peers.iter().map(Into::into).collect(),
            nodes: launch.nodes.iter().map(|node| node.to_string()).collect(),
            tiers: Some((&launch.tiers).into()),
            user: launch.user.clone(),
            standby: launch.standby.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::Launch> for LaunchOrder {
    type Error = WireError;

    fn try_from(launch: v1::Launch) -> Result<Self, WireError> {
        Ok(Self {
            job: JobId::from(name("job", launch.job)?),
            generation: Generation(launch.generation),
            command: launch.command,
            env: launch.env,
            workdir: launch.workdir,
            world_size: launch.world_size,
            group_rank: launch.group_rank,
            ranks: repeated("ranks", launch.ranks)?,
            master_addr: launch.master_addr,
            master_port: port("master_port", launch.master_port)?,
            restart_count: launch.restart_count,
            max_restarts: launch.max_restarts,
            checkpoint_every: launch.checkpoint_every,
            checkpoint_store: launch.checkpoint_store,
            restore: optional("restore", launch.restore)?,
            peers: repeated("peers", launch.peers)?,
            nodes: launch
                .nodes
                .into_iter()
                .map(|node| name("nodes", node).map(NodeId::from))
                .collect::<Result<_, _>>()?,
            tiers: launch.tiers.map(Into::into).unwrap_or_default(),
            user: launch.user,
            standby: launch.standby.map(Into::into),
        })
    }
}

impl From<&RankSlot> for v1::RankSlot {
    fn from(slot: &RankSlot) -> Self {
        Self {
            rank: slot.rank.0,
            local_rank: slot.local_rank,
        }
    }
}

impl TryFrom<v1::RankSlot> for RankSlot {
    type Error = WireError;

    fn try_from(slot: v1::RankSlot) -> Result<Self, WireError> {
        Ok(Self {
            rank: Rank(slot.rank),
            local_rank: slot.local_rank,
        })
    }
}

impl From<&RestorePoint> for v1::RestorePoint {
    fn from(point: &RestorePoint) -> Self {
        Self {
            step: point.step.0,
            generation: point.generation.0,
        }
    }
}

impl TryFrom<v1::RestorePoint> for RestorePoint {
    type Error = WireError;

    fn try_from(point: v1::RestorePoint) -> Result<Self, WireError> {
        Ok(Self {
            step: Step(point.step),
            generation: Generation(point.generation),
        })
    }
}

impl From<&PeerAgent> for v1::Peer {
    fn from(peer: &PeerAgent) -> Self {
        Self {
            node: peer.node.to_string(),
            address: peer.address.clone(),
            failure_domain: peer.failure_domain.clone(),
        }
    }
}

impl TryFrom<v1::Peer> for PeerAgent {
    type Error = WireError;

    fn try_from(peer: v1::Peer) -> Result<Self, WireError> {
        Ok(Self {
            node: NodeId::from(name("node", peer.node)?),
            address: peer.address,
            failure_domain: peer.failure_domain,
        })
    }
}
