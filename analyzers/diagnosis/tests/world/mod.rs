//! Test cluster for the stories: it reports evidence and returns conclusions.
#![allow(clippy::unwrap_used, dead_code, reason = "each file of stories uses a part of it")]

use rankguard_diagnosis::{
    CallerFact, ConcludedDraft, Diagnosis, DraftChange, DraftPolicy, JobContext, PlacementIndex,
};
use rankguard_faults::Catalogue;
use rankguard_model::{
    CaseFinding, Classification, Device, DeviceKind, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource,
    FieldValues, Generation, JobId, NodeId, ProcessExit, Rank, Role, Sequence, Step, Timestamp,
};

/// Three nodes with two ranks each, generation 1, and everything that was reported so far.
pub(crate) struct World {
    pub(crate) diagnosis: Diagnosis,
    pub(crate) context: PlacementIndex,
    pub(crate) seq: u64,
    pub(crate) changes: Vec<DraftChange>,
    /// True while the evidence is of a drill.
    pub(crate) is_drill: bool,
    /// Duration of the steps that ranks report.
    pub(crate) step_ms: f64,
    /// Current generation of the job.
    pub(crate) generation: Generation,
}

impl World {
    pub(crate) fn new() -> Self {
        let placements = (0..6).map(|rank| (Rank(rank), node(rank / 2 + 1))).collect();
        let job = JobContext {
            generation: Generation(1),
            placements,
            ..JobContext::default()
        };
        Self {
            diagnosis: Diagnosis::new(DraftPolicy::default()),
            context: PlacementIndex::from_iter([(JobId::from("train"), job)]),
            seq: 0,
            changes: Vec::new(),
            is_drill: false,
            step_ms: 5.0,
            generation: Generation(1),
        }
    }

    /// Changes the context of the job.
    pub(crate) fn job(&mut self, change: impl FnOnce(&mut JobContext)) {
        let name = JobId::from("train");
        let mut job = self.context.job(&name).unwrap().clone();
        change(&mut job);
        self.context.set(name, job);
    }

    /// Adds evidence that happened and arrived at `ms`.
    pub(crate) fn at(
        &mut self,
        ms: i64,
        source: EvidenceSource,
        entity: Entity,
        body: EvidenceBody,
        marks: Vec<Classification>,
    ) -> &mut Self {
        self.late(ms, ms, source, entity, body, marks)
    }

    pub(crate) fn late(
        &mut self,
        ms: i64,
        arrived: i64,
        source: EvidenceSource,
        entity: Entity,
        body: EvidenceBody,
        marks: Vec<Classification>,
    ) -> &mut Self {
        self.seq += 1;
        let id = EvidenceId {
            node: entity.node().cloned().unwrap_or_else(|| node(1)),
            seq: Sequence(self.seq),
        };
        let evidence = Evidence {
            id,
            at: Timestamp::from_millis(ms),
            source,
            entity,
            body,
            marks,
            synthetic: self.is_drill,
        };
        let now = Timestamp::from_millis(arrived);
        let changes = self
            .diagnosis
            .observe(now, &evidence, &self.context, Catalogue::builtin());
        self.changes.extend(changes);
        self
    }

    /// Adds evidence that the agent of a node sends about another entity.
    pub(crate) fn of_node(&mut self, ms: i64, on: u32, source: EvidenceSource, entity: Entity, body: EvidenceBody) {
        self.seq += 1;
        let at = Timestamp::from_millis(ms);
        let evidence = Evidence {
            id: EvidenceId {
                node: node(on),
                seq: Sequence(self.seq),
            },
            at,
            source,
            entity,
            body,
            marks: Vec::new(),
            synthetic: false,
        };
        let changes = self
            .diagnosis
            .observe(at, &evidence, &self.context, Catalogue::builtin());
        self.changes.extend(changes);
    }

    pub(crate) fn exits(&mut self, ms: i64, rank: u32, exit: ProcessExit) -> &mut Self {
        let entity = self.rank(rank);
        self.at(
            ms,
            EvidenceSource::Ranks,
            entity,
            EvidenceBody::RankExited {
                pid: 1000 + rank,
                exit,
                ended_by_agent: false,
            },
            Vec::new(),
        )
    }

    pub(crate) fn says(&mut self, ms: i64, rank: u32, text: &str, mark: Classification) -> &mut Self {
        let entity = self.rank(rank);
        self.at(ms, EvidenceSource::JobLog, entity, line(text), vec![mark])
    }

    pub(crate) fn kernel(&mut self, ms: i64, entity: Entity, text: &str, mark: Classification) -> &mut Self {
        self.at(ms, EvidenceSource::KernelLog, entity, line(text), vec![mark])
    }

    pub(crate) fn silent(&mut self, ms: i64, on: u32) -> &mut Self {
        let fact = CallerFact::NodeSilent {
            node: node(on),
            since: Timestamp::from_millis(ms),
        };
        let now = Timestamp::from_millis(ms + 1_000);
        let changes = self
            .diagnosis
            .observe_fact(now, &fact, &self.context, Catalogue::builtin());
        self.changes.extend(changes);
        self
    }

    /// Reports that the agent of a node ended: its connection was closed.
    pub(crate) fn agent_ends(&mut self, ms: i64, on: u32) -> &mut Self {
        let fact = CallerFact::AgentEnded {
            node: node(on),
            since: Timestamp::from_millis(ms),
        };
        let now = Timestamp::from_millis(ms + 1_000);
        let changes = self
            .diagnosis
            .observe_fact(now, &fact, &self.context, Catalogue::builtin());
        self.changes.extend(changes);
        self
    }

    /// Reports that the agent of a silent node joined again.
    pub(crate) fn agent_joins(&mut self, ms: i64, on: u32) -> &mut Self {
        let now = Timestamp::from_millis(ms);
        self.diagnosis.agent_returned(now, &node(on), Catalogue::builtin());
        self
    }

    /// Completes a step on a rank.
    pub(crate) fn steps(&mut self, ms: i64, rank: u32, step: u64) -> &mut Self {
        let body = EvidenceBody::Progress {
            step: Step(step),
            loss: None,
            step_ms: self.step_ms,
            own_ms: None,
        };
        let entity = self.rank(rank);
        self.at(ms, EvidenceSource::Ranks, entity, body, Vec::new())
    }

    /// Begins a later generation of the job at `ms`, on the same nodes.
    pub(crate) fn restarts(&mut self, ms: i64) -> &mut Self {
        self.job(|job| {
            job.generation = job.generation.next();
            job.since = Some(Timestamp::from_millis(ms));
        });
        self.generation = self.generation.next();
        self
    }

    /// Returns a rank of the current generation.
    pub(crate) fn rank(&self, rank: u32) -> Entity {
        Entity::Rank {
            job: JobId::from("train"),
            generation: self.generation,
            rank: Rank(rank),
            node: node(rank / 2 + 1),
        }
    }

    /// Reports that no rank has made a step since `ms`, detected by the controller at `found`.
    pub(crate) fn stalls(&mut self, ms: i64, found: i64) -> &mut Self {
        let fact = CallerFact::JobStalled {
            job: JobId::from("train"),
            generation: Generation(1),
            since: Timestamp::from_millis(ms),
            suspect: None,
            equal_suspects: Vec::new(),
            stood_at: None,
        };
        let now = Timestamp::from_millis(found);
        let changes = self
            .diagnosis
            .observe_fact(now, &fact, &self.context, Catalogue::builtin());
        self.changes.extend(changes);
        self
    }

    /// Waits until the next draft is due and returns its conclusion.
    pub(crate) fn settle(&mut self) -> ConcludedDraft {
        let due = self.diagnosis.due().expect("a draft is open");
        let mut all = self.diagnosis.conclude(due, Catalogue::builtin());
        assert_eq!(all.len(), 1, "one failure is one case");
        all.remove(0)
    }

    pub(crate) fn opened(&self) -> usize {
        self.changes
            .iter()
            .filter(|change| matches!(change, DraftChange::Opened { .. }))
            .count()
    }
}

pub(crate) fn node(number: u32) -> NodeId {
    NodeId::from(format!("n{number}"))
}

pub(crate) fn rank_of(rank: u32) -> Entity {
    Entity::Rank {
        job: JobId::from("train"),
        generation: Generation(1),
        rank: Rank(rank),
        node: node(rank / 2 + 1),
    }
}

pub(crate) fn gpu(on: u32) -> Entity {
    Entity::Device {
        node: node(on),
        device: Device {
            kind: DeviceKind::Gpu,
            address: "0000:9b:00".to_owned(),
        },
    }
}

pub(crate) fn on_node(number: u32) -> Entity {
    Entity::Node { node: node(number) }
}

pub(crate) fn line(text: &str) -> EvidenceBody {
    EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

pub(crate) fn mark(class: &str, role: Role, confidence: f64) -> Classification {
    let signature = class.into();
    Classification {
        class: class.into(),
        role,
        confidence,
        signature,
        fields: FieldValues::new(),
    }
}

pub(crate) fn with(mut mark: Classification, fields: &[(&str, &str)]) -> Classification {
    mark.fields.extend(fields.iter().copied());
    mark
}

pub(crate) fn class(case: &ConcludedDraft) -> &str {
    case.verdict.class.as_str()
}

pub(crate) fn reasons(case: &ConcludedDraft) -> String {
    let lines: Vec<&str> = case.reasoning.iter().map(|entry| entry.text.as_str()).collect();
    lines.join("\n")
}

/// Reports an out-of-memory kill of a rank, and its end.
pub(crate) fn oom_kills(world: &mut World, ms: i64, rank: u32) {
    let pid = (1_000 + rank).to_string();
    let kill = with(mark("host-oom-kill", Role::Root, 0.9), &[("pid", &pid)]);
    let text = format!("Out of memory: Killed process {pid} (python)");
    world.kernel(ms, on_node(rank / 2 + 1), &text, kill);
    world.exits(ms + 5, rank, ProcessExit::Signal(9));
}

/// Returns the finding of a case about an entity.
pub(crate) fn role_of<'c>(case: &'c ConcludedDraft, entity: &Entity) -> &'c CaseFinding {
    case.findings.iter().find(|finding| finding.entity == *entity).unwrap()
}

/// Returns the classification of a lost GPU.
pub(crate) fn off_the_bus() -> Classification {
    mark("gpu-fallen-off-bus", Role::Root, 0.97)
}

/// Returns another GPU of a node.
pub(crate) fn second_gpu(on: u32) -> Entity {
    Entity::Device {
        node: node(on),
        device: Device {
            kind: DeviceKind::Gpu,
            address: "0000:dd:00".to_owned(),
        },
    }
}

/// Returns the classification of a missing key.
pub(crate) fn key_error() -> Classification {
    mark("key-error", Role::Root, 0.9)
}
