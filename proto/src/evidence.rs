//! Conversion of evidence, its body and its classifications between wire and model. A conversion from the wire returns
//! a [`WireError`] that names the first invalid field.

use rankguard_model::{
    ClassId, Classification, CopyTier, Evidence, EvidenceBody, EvidenceId, EvidenceSource, FailedCheck, Generation,
    JobId, NodeId, OrderId, Rank, RestoreBytes, Role, SampleRange, Sequence, ShardSeal, Step, Timestamp,
};

use crate::WireError;
use crate::error::{finite, known, name, port, repeated, required};
use crate::v1;
use crate::v1::body::{self, Kind};

impl From<&EvidenceId> for v1::EvidenceId {
    fn from(id: &EvidenceId) -> Self {
        Self {
            node: id.node.to_string(),
            seq: id.seq.0,
        }
    }
}

impl TryFrom<v1::EvidenceId> for EvidenceId {
    type Error = WireError;

    fn try_from(id: v1::EvidenceId) -> Result<Self, WireError> {
        if id.seq == 0 {
            return Err(WireError::new("seq", "0, but sequences count from 1"));
        }
        Ok(Self {
            node: NodeId::from(name("node", id.node)?),
            seq: Sequence(id.seq),
        })
    }
}

impl From<EvidenceSource> for v1::Source {
    fn from(source: EvidenceSource) -> Self {
        match source {
            EvidenceSource::KernelLog => Self::KernelLog,
            EvidenceSource::JobLog => Self::JobLog,
            EvidenceSource::Launcher => Self::Launcher,
            EvidenceSource::Scheduler => Self::Scheduler,
            EvidenceSource::Ranks => Self::Ranks,
            EvidenceSource::Host => Self::Host,
            EvidenceSource::Gpu => Self::Gpu,
            EvidenceSource::Nic => Self::Nic,
            EvidenceSource::Checkpoint => Self::Checkpoint,
            EvidenceSource::FlightRecorder => Self::FlightRecorder,
            EvidenceSource::Agent => Self::Agent,
        }
    }
}

impl TryFrom<v1::Source> for EvidenceSource {
    type Error = WireError;

    fn try_from(source: v1::Source) -> Result<Self, WireError> {
        Ok(match source {
            v1::Source::Unspecified => return Err(WireError::absent("source")),
            v1::Source::KernelLog => Self::KernelLog,
            v1::Source::JobLog => Self::JobLog,
            v1::Source::Launcher => Self::Launcher,
            v1::Source::Scheduler => Self::Scheduler,
            v1::Source::Ranks => Self::Ranks,
            v1::Source::Host => Self::Host,
            v1::Source::Gpu => Self::Gpu,
            v1::Source::Nic => Self::Nic,
            v1::Source::Checkpoint => Self::Checkpoint,
            v1::Source::FlightRecorder => Self::FlightRecorder,
            v1::Source::Agent => Self::Agent,
        })
    }
}

impl From<Role> for v1::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Root => Self::Root,
            Role::Cascade => Self::Cascade,
            Role::Confirmation => Self::Confirmation,
            Role::Noise => Self::Noise,
        }
    }
}

impl TryFrom<v1::Role> for Role {
    type Error = WireError;

    fn try_from(role: v1::Role) -> Result<Self, WireError> {
        Ok(match role {
            v1::Role::Unspecified => return Err(WireError::absent("role")),
            v1::Role::Root => Self::Root,
            v1::Role::Cascade => Self::Cascade,
            v1::Role::Confirmation => Self::Confirmation,
            v1::Role::Noise => Self::Noise,
        })
    }
}

impl From<&Classification> for v1::Mark {
    fn from(mark: &Classification) -> Self {
        Self {
            class: mark.class.to_string(),
            role: v1::Role::from(mark.role).into(),
            confidence: mark.confidence,
            signature: mark.signature.to_string(),
            fields: mark
                .fields
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        }
    }
}

impl TryFrom<v1::Mark> for Classification {
    type Error = WireError;

    fn try_from(mark: v1::Mark) -> Result<Self, WireError> {
        Ok(Self {
            class: ClassId::from(name("class", mark.class)?),
            role: Role::try_from(known::<v1::Role>("role", mark.role)?)?,
            confidence: finite("confidence", mark.confidence)?,
            signature: mark.signature.into(),
            fields: mark.fields.into_iter().collect(),
        })
    }
}

impl From<&ShardSeal> for v1::ShardSeal {
    fn from(seal: &ShardSeal) -> Self {
        Self {
            rank: seal.rank.0,
            step: seal.step.0,
            world_size: seal.world_size,
            index: seal.index.clone(),
            bytes: seal.bytes,
            ledger: seal.ledger.map(|SampleRange { first, end }| v1::Ledger { first, end }),
            schema: seal.schema.clone(),
        }
    }
}

impl TryFrom<v1::ShardSeal> for ShardSeal {
    type Error = WireError;

    fn try_from(seal: v1::ShardSeal) -> Result<Self, WireError> {
        if seal.index.len() != 64 || !seal.index.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(WireError::new("index", "not a digest of 64 lowercase hex digits"));
        }
        if seal.rank >= seal.world_size {
            let problem = format!("{} is outside the world of {} ranks", seal.rank, seal.world_size);
            return Err(WireError::new("rank", problem));
        }
        Ok(Self {
            rank: Rank(seal.rank),
            step: Step(seal.step),
            world_size: seal.world_size,
            index: seal.index,
            bytes: seal.bytes,
            ledger: seal.ledger.map(|v1::Ledger { first, end }| SampleRange { first, end }),
            schema: seal.schema,
        })
    }
}

impl From<&RestoreBytes> for v1::RestoreBytes {
    fn from(bytes: &RestoreBytes) -> Self {
        Self {
            arena: bytes.arena,
            peer: bytes.peer,
            disk: bytes.disk,
        }
    }
}

impl TryFrom<v1::RestoreBytes> for RestoreBytes {
    type Error = WireError;

    fn try_from(bytes: v1::RestoreBytes) -> Result<Self, WireError> {
        Ok(Self {
            arena: bytes.arena,
            peer: bytes.peer,
            disk: bytes.disk,
        })
    }
}

impl From<&EvidenceBody> for v1::Body {
    fn from(body: &EvidenceBody) -> Self {
        let kind = match body {
            EvidenceBody::Line { text, context, repeats } => Kind::Line(body::Line {
                text: text.clone(),
                context: context.clone(),
                repeats: *repeats,
            }),
            EvidenceBody::Sample { metric, value, unit } => Kind::Sample(body::Sample {
                metric: metric.clone(),
                value: *value,
                unit: unit.clone(),
            }),
            EvidenceBody::Gap { what, lost } => Kind::Gap(body::Gap {
                what: what.clone(),
                lost: *lost,
            }),
            EvidenceBody::RankStarted { pid, from_standby } => Kind::RankStarted(body::RankStarted {
                pid: *pid,
                from_standby: *from_standby,
            }),
            EvidenceBody::RankExited {
                pid,
                exit,
                ended_by_agent,
            } => Kind::RankExited(body::RankExited {
                pid: *pid,
                exit: Some(exit.into()),
                ended_by_agent: *ended_by_agent,
            }),
            EvidenceBody::Progress {
                step,
                loss,
                step_ms,
                own_ms,
            } => Kind::Progress(body::Progress {
                step: step.0,
                loss: *loss,
                step_ms: *step_ms,
                own_ms: *own_ms,
            }),
            EvidenceBody::Fenced {
                job,
                generation,
                master_port,
                ended,
                left,
            } => Kind::Fenced(body::Fenced {
                job: job.to_string(),
                generation: generation.0,
                master_port: master_port.map(u32::from),
                ended: *ended,
                left: left.clone(),
            }),
            EvidenceBody::Stopped {
                job,
                generation,
                ended,
                left,
            } => Kind::Stopped(body::Stopped {
                job: job.to_string(),
                generation: generation.0,
                ended: *ended,
                left: left.clone(),
            }),
            EvidenceBody::ShardSealed { step, stall_ms, bytes } => Kind::ShardSealed(body::ShardSealed {
                step: step.0,
                stall_ms: *stall_ms,
                bytes: *bytes,
            }),
            EvidenceBody::ShardDurable { seal } => Kind::ShardDurable(body::ShardDurable {
                seal: Some(seal.into()),
            }),
            EvidenceBody::ShardFailed { step, reason } => Kind::ShardFailed(body::ShardFailed {
                step: step.0,
                reason: reason.clone(),
            }),
            EvidenceBody::Restored { step, from, took_ms } => Kind::Restored(body::Restored {
                step: step.0,
                from: Some(from.into()),
                took_ms: *took_ms,
            }),
            EvidenceBody::Copied {
                generation,
                step,
                tier,
                to,
                bytes,
                took_ms,
                failed,
            } => Kind::Copied(body::Copied {
                generation: generation.0,
                step: step.0,
                tier: body::CopyTier::from(*tier).into(),
                to: to.clone(),
                bytes: *bytes,
                took_ms: *took_ms,
                failed: failed.clone(),
            }),
            EvidenceBody::ShardsFinished {
                job,
                generation,
                from,
                shards,
                failed,
            } => Kind::ShardsFinished(body::ShardsFinished {
                job: job.to_string(),
                generation: generation.0,
                from: v1::HeldIn::from(*from).into(),
                shards: *shards,
                failed: failed.clone(),
            }),
            EvidenceBody::FlightDump { dump, left_out } => Kind::FlightDump(body::FlightDump {
                dump: dump.clone(),
                left_out: *left_out,
            }),
            EvidenceBody::RankFinished => Kind::RankFinished(body::RankFinished {}),
            EvidenceBody::Preflighted {
                job,
                generation,
                failed,
                environment,
            } => Kind::Preflighted(body::Preflighted {
                job: job.to_string(),
                generation: generation.0,
                failed: failed.iter().map(Into::into).collect(),
                environment: environment.clone(),
            }),
            EvidenceBody::Prepared {
                job,
                generation,
                waiting,
                problem,
            } => Kind::Prepared(body::Prepared {
                job: job.to_string(),
                generation: generation.0,
                waiting: *waiting,
                problem: problem.clone(),
            }),
            EvidenceBody::OrderFailed {
                order,
                job,
                generation,
                reason,
                newest,
            } => Kind::OrderFailed(body::OrderFailed {
                order: order.0,
                job: job.to_string(),
                generation: generation.0,
                reason: reason.clone(),
                newest: newest.map(|generation| generation.0),
            }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Body> for EvidenceBody {
    type Error = WireError;

    fn try_from(body: v1::Body) -> Result<Self, WireError> {
        Ok(match body.kind.ok_or_else(|| WireError::absent("kind"))? {
            Kind::Line(line) => Self::Line {
                text: line.text,
                context: line.context,
                repeats: line.repeats,
            },
            Kind::Sample(sample) => Self::Sample {
                metric: name("sample.metric", sample.metric)?,
                value: finite("sample.value", sample.value)?,
                unit: sample.unit,
            },
            Kind::Gap(gap) => Self::Gap {
                what: gap.what,
                lost: gap.lost,
            },
            Kind::RankStarted(started) => Self::RankStarted {
                pid: started.pid,
                from_standby: started.from_standby,
            },
            Kind::RankExited(exited) => Self::RankExited {
                pid: exited.pid,
                exit: required("rank_exited.exit", exited.exit)?,
                ended_by_agent: exited.ended_by_agent,
            },
            // A loss may be NaN or infinite: diagnosis needs the value, so it is not refused.
            Kind::Progress(progress) => Self::Progress {
                step: Step(progress.step),
                loss: progress.loss,
                step_ms: finite("progress.step_ms", progress.step_ms)?,
                own_ms: progress.own_ms.map(|own| finite("progress.own_ms", own)).transpose()?,
            },
            Kind::Fenced(fenced) => Self::Fenced {
                job: JobId::from(name("fenced.job", fenced.job)?),
                generation: Generation(fenced.generation),
                master_port: fenced
                    .master_port
                    .map(|value| port("fenced.master_port", value))
                    .transpose()?,
                ended: fenced.ended,
                left: fenced.left,
            },
            Kind::Stopped(stopped) => Self::Stopped {
                job: JobId::from(name("stopped.job", stopped.job)?),
                generation: Generation(stopped.generation),
                ended: stopped.ended,
                left: stopped.left,
            },
            Kind::ShardSealed(sealed) => Self::ShardSealed {
                step: Step(sealed.step),
                stall_ms: finite("shard_sealed.stall_ms", sealed.stall_ms)?,
                bytes: sealed.bytes,
            },
            Kind::ShardDurable(durable) => Self::ShardDurable {
                seal: required("shard_durable.seal", durable.seal)?,
            },
            Kind::ShardFailed(failed) => Self::ShardFailed {
                step: Step(failed.step),
                reason: failed.reason,
            },
            Kind::Restored(restored) => Self::Restored {
                step: Step(restored.step),
                from: required("restored.from", restored.from)?,
                took_ms: finite("restored.took_ms", restored.took_ms)?,
            },
            Kind::Copied(copied) => Self::Copied {
                generation: Generation(copied.generation),
                step: Step(copied.step),
                tier: CopyTier::try_from(known::<body::CopyTier>("copied.tier", copied.tier)?)?,
                to: copied.to,
                bytes: copied.bytes,
                took_ms: finite("copied.took_ms", copied.took_ms)?,
                failed: copied.failed,
            },
            Kind::ShardsFinished(report) => Self::ShardsFinished {
                job: JobId::from(name("shards_finished.job", report.job)?),
                generation: Generation(report.generation),
                from: known::<v1::HeldIn>("shards_finished.from", report.from)?.try_into()?,
                shards: report.shards,
                failed: report.failed,
            },
            Kind::FlightDump(flight) => Self::FlightDump {
                dump: flight.dump,
                left_out: flight.left_out,
            },
            Kind::RankFinished(body::RankFinished {}) => Self::RankFinished,
            Kind::Preflighted(report) => Self::Preflighted {
                job: JobId::from(name("preflighted.job", report.job)?),
                generation: Generation(report.generation),
                failed: repeated("preflighted.failed", report.failed)?,
                environment: report.environment,
            },
            Kind::Prepared(report) => Self::Prepared {
                job: JobId::from(name("prepared.job", report.job)?),
                generation: Generation(report.generation),
                waiting: report.waiting,
                problem: report.problem,
            },
            Kind::OrderFailed(failed) => Self::OrderFailed {
                order: OrderId(failed.order),
                job: JobId::from(name("order_failed.job", failed.job)?),
                generation: Generation(failed.generation),
                reason: failed.reason,
                newest: failed.newest.map(Generation),
            },
        })
    }
}

impl From<CopyTier> for body::CopyTier {
    fn from(tier: CopyTier) -> Self {
        match tier {
            CopyTier::Peer => Self::Peer,
            CopyTier::Mirror => Self::Mirror,
            CopyTier::Parity => Self::Parity,
        }
    }
}

impl TryFrom<body::CopyTier> for CopyTier {
    type Error = WireError;

    fn try_from(tier: body::CopyTier) -> Result<Self, WireError> {
        Ok(match tier {
            body::CopyTier::Unspecified => return Err(WireError::absent("tier")),
            body::CopyTier::Peer => Self::Peer,
            body::CopyTier::Mirror => Self::Mirror,
            body::CopyTier::Parity => Self::Parity,
        })
    }
}

impl From<&FailedCheck> for body::FailedCheck {
    fn from(check: &FailedCheck) -> Self {
        Self {
            check: check.check.clone(),
            subject: check.subject.clone(),
            class: check.class.to_string(),
            found: check.found.clone(),
            advice: check.advice.clone(),
        }
    }
}

impl TryFrom<body::FailedCheck> for FailedCheck {
    type Error = WireError;

    fn try_from(check: body::FailedCheck) -> Result<Self, WireError> {
        Ok(Self {
            check: name("check", check.check)?,
            subject: check.subject,
            class: ClassId::from(name("class", check.class)?),
            found: check.found,
            advice: check.advice,
        })
    }
}

impl From<&Evidence> for v1::Evidence {
    fn from(evidence: &Evidence) -> Self {
        Self {
            id: Some((&evidence.id).into()),
            at_ns: evidence.at.0,
            source: v1::Source::from(evidence.source).into(),
            entity: Some((&evidence.entity).into()),
            body: Some((&evidence.body).into()),
            marks: evidence.marks.iter().map(Into::into).collect(),
            synthetic: evidence.synthetic,
        }
    }
}

impl TryFrom<v1::Evidence> for Evidence {
    type Error = WireError;

    fn try_from(evidence: v1::Evidence) -> Result<Self, WireError> {
        Ok(Self {
            id: required("id", evidence.id)?,
            at: Timestamp(evidence.at_ns),
            source: EvidenceSource::try_from(known::<v1::Source>("source", evidence.source)?)?,
            entity: required("entity", evidence.entity)?,
            body: required("body", evidence.body)?,
            marks: repeated("marks", evidence.marks)?,
            synthetic: evidence.synthetic,
        })
    }
}
