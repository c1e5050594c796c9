//! Conversion of moves to events.

use std::collections::BTreeMap;

use rankguard_core::{Event, TimerKey};
use rankguard_model::{
    CheckpointPolicy, ClassId, Classification, ClockOffset, Device, DeviceKind, Entity, EvidenceBody, EvidenceSource,
    FieldValues, Generation, JobFence, JobSpec, NodeHistory, NodeInfo, NodeRange, ProcessExit, Rank, RankRef, Role,
    RunningRank, ShardSeal, Step, Timestamp,
};

use crate::moves::Move;
use crate::walk::{CLASSES, Walk, difference, job, node};

fn reported_fence((number, generation, life): (u8, u8, u8)) -> JobFence {
    JobFence {
        job: job(number),
        generation: Generation(generation.into()),
        life: life.into(),
    }
}

impl Walk {
    pub(super) fn make(&mut self, one: &Move) {
        match *one {
            Move::Join {
                node: number,
                incarnation,
                fence,
            } => {
                let name = node(number);
                let incarnation = incarnation.to_string();
                // The ranks of a restarted agent ended with it; an agent that was only cut off reports them.
                let known = self.state.fleet().get(&name).map(|entry| &entry.info.incarnation);
                if known != Some(&incarnation) {
                    self.processes.remove(&name);
                }
                let info = NodeInfo {
                    node: name,
                    incarnation,
                    boot_id: String::new(),
                    host: "h".to_owned(),
                    peer_address: "h:1".to_owned(),
                    image_address: "h:1".to_owned(),
                    slots: 2,
                    failure_domain: String::new(),
                    running: self.running_on(number),
                    clock: ClockOffset::default(),
                    lease_ms: 0,
                    is_kernel_log_first: false,
                    history: NodeHistory {
                        fences: fence.into_iter().map(reported_fence).collect(),
                        ..NodeHistory::default()
                    },
                };
                self.tell(Event::NodeJoined { info });
            }
            Move::Begin { life } => self.tell(Event::LifeBegan {
                life: life.into(),
                position: 0,
                newest_at: None,
            }),
            Move::Silence { node: number } => {
                let last_heard = self.now;
                self.tell(Event::NodeFellSilent {
                    node: node(number),
                    last_heard,
                });
            }
            Move::SessionEnd { node: number } => self.tell(Event::SessionEnded {
                node: node(number),
                last_heard: None,
            }),
            Move::Activity {
                job: number,
                rank,
                state,
            } => {
                let state = ["idle", "busy", "output"][usize::from(state)];
                let says = Classification {
                    class: ClassId::from("none"),
                    role: Role::Noise,
                    confidence: 0.9,
                    signature: "ranks.activity".into(),
                    fields: [("state", state.to_owned())].into(),
                };
                let body = EvidenceBody::Line {
                    text: state.to_owned(),
                    context: Vec::new(),
                    repeats: 1,
                };
                self.rank_report_marked(&job(number), rank, false, body, vec![says]);
            }
            Move::Submit { job: number, min, max } => {
                let spec = JobSpec {
                    id: job(number),
                    command: vec!["train".to_owned()],
                    env: BTreeMap::new(),
                    workdir: None,
                    nodes: NodeRange {
                        min: u32::from(min),
                        max: u32::from(max),
                    },
                    ranks_per_node: 2,
                    checkpoint: Some(CheckpointPolicy {
                        every_steps: 1,
                        store: "/c".to_owned(),
                        keep: 2,
                        retention: rankguard_model::RetentionPolicy::default(),
                        tiers: rankguard_model::CheckpointTiers::default(),
                    }),
                    max_restarts: 2,
                    user: None,
                    resume_from: None,
                    standby: (number % 2 == 0).then(|| rankguard_model::StandbyPolicy {
                        count: 1,
                        imports: Vec::new(),
                    }),
                };
                self.tell(Event::JobSubmitted { spec, claim: None });
            }
            Move::Cancel { job: number } => self.tell(Event::JobCancelled {
                job: job(number),
                by: None,
            }),
            Move::Fence {
                job: number,
                node: at,
                port,
                old,
            } => {
                let Some(entry) = self.state.jobs().get(&job(number)) else {
                    return;
                };
                let generation = Generation(entry.generation().0.saturating_sub(u64::from(old)));
                let ended = self.end_below(&node(at), &job(number), generation);
                let body = EvidenceBody::Fenced {
                    job: job(number),
                    generation,
                    master_port: port.then_some(1),
                    ended,
                    left: Vec::new(),
                };
                self.report(
                    node(at),
                    EvidenceSource::Agent,
                    Entity::Node { node: node(at) },
                    body,
                    Vec::new(),
                );
            }
            Move::Start { job: number, rank } => {
                self.rank_report(
                    &job(number),
                    rank,
                    false,
                    EvidenceBody::RankStarted {
                        pid: 1,
                        from_standby: false,
                    },
                );
            }
            Move::Exit {
                job: number,
                rank,
                code,
                old,
            } => {
                let exit = if code == 3 {
                    ProcessExit::Signal(9)
                } else {
                    ProcessExit::Code(i32::from(code))
                };
                self.rank_report(
                    &job(number),
                    rank,
                    old,
                    EvidenceBody::RankExited {
                        pid: 1,
                        exit,
                        ended_by_agent: false,
                    },
                );
            }
            Move::Progress {
                job: number,
                rank,
                step,
            } => {
                let body = EvidenceBody::Progress {
                    step: Step(u64::from(step)),
                    loss: None,
                    step_ms: 1.0,
                    own_ms: None,
                };
                self.rank_report(&job(number), rank, false, body);
            }
            Move::SaveFails {
                job: number,
                rank,
                step,
            } => {
                let mark = Classification {
                    class: ClassId::from("disk-full"),
                    role: Role::Root,
                    confidence: 0.95,
                    signature: "checkpoint-store".into(),
                    fields: rankguard_model::FieldValues::new(),
                };
                let body = EvidenceBody::ShardFailed {
                    step: Step(u64::from(step)),
                    reason: "no space left on device".to_owned(),
                };
                self.rank_report_marked(&job(number), rank, false, body, vec![mark]);
            }
            Move::Silent {
                job: number,
                rank,
                step,
            } => {
                let fields = [("step", u64::from(step)), ("silent_ms", 31_000)];
                let mark = Classification {
                    class: ClassId::from("hang-no-error"),
                    role: Role::Confirmation,
                    confidence: 0.6,
                    signature: "ranks.stalled".into(),
                    fields: fields.map(|(name, value)| (name, value.to_string())).into(),
                };
                let body = EvidenceBody::Line {
                    text: "no step".to_owned(),
                    context: vec![format!("place {}", step % 3)],
                    repeats: 1,
                };
                self.rank_report_marked(&job(number), rank, false, body, vec![mark]);
            }
            Move::Durable {
                job: number,
                rank,
                step,
                world,
            } => {
                let Some(plan) = self.state.jobs().get(&job(number)).and_then(|job| job.plan().cloned()) else {
                    return;
                };
                let seal = ShardSeal {
                    rank: Rank(u32::from(rank) % plan.world_size()),
                    step: Step(u64::from(step)),
                    // At times the reported world size is false.
                    world_size: if world == 6 { 1 } else { plan.world_size() },
                    index: "0".repeat(64),
                    bytes: 1,
                    ledger: None,
                    schema: String::new(),
                };
                self.seal(&job(number), seal);
            }
            Move::Checkpoint { job: number, ahead } => {
                let Some(entry) = self.state.jobs().get(&job(number)) else {
                    return;
                };
                let Some(plan) = entry.plan().cloned() else { return };
                let newest = entry.checkpoints.newest().map_or(0, |newest| newest.step.0);
                for rank in 0..plan.world_size() {
                    let seal = ShardSeal {
                        rank: Rank(rank),
                        step: Step(newest + u64::from(ahead)),
                        world_size: plan.world_size(),
                        index: "0".repeat(64),
                        bytes: 1,
                        ledger: None,
                        schema: String::new(),
                    };
                    self.seal(&job(number), seal);
                }
            }
            Move::Commit { refuse } => {
                let Some(manifest) = self.manifests.pop() else { return };
                let job = manifest.job;
                let step = manifest.step;
                let generation = manifest.generation;
                self.tell(if refuse {
                    Event::ManifestRefused {
                        job,
                        step,
                        generation,
                        reason: "disk full".to_owned(),
                        differing: if step.0.is_multiple_of(2) {
                            vec![difference()]
                        } else {
                            Vec::new()
                        },
                    }
                } else {
                    Event::ManifestCommitted {
                        job,
                        step,
                        generation,
                        differing: if step.0.is_multiple_of(3) {
                            vec![difference()]
                        } else {
                            Vec::new()
                        },
                        per_rank: Vec::new(),
                        same_size: Vec::new(),
                    }
                });
            }
            Move::Hardware {
                node: number,
                class,
                drill,
            } => {
                let device = Device {
                    kind: DeviceKind::Gpu,
                    address: "0000:9b:00".to_owned(),
                };
                let mark = Classification {
                    class: ClassId::from(CLASSES[usize::from(class)]),
                    role: Role::Root,
                    confidence: 0.9,
                    signature: "walk".into(),
                    fields: FieldValues::new(),
                };
                let body = EvidenceBody::Line {
                    text: "it broke".to_owned(),
                    context: Vec::new(),
                    repeats: 1,
                };
                let entity = Entity::Device {
                    node: node(number),
                    device,
                };
                self.is_drill = drill;
                self.report(node(number), EvidenceSource::KernelLog, entity, body, vec![mark]);
                self.is_drill = false;
            }
            Move::Timer { pick } => {
                let timers: Vec<(TimerKey, Timestamp)> = self
                    .state
                    .timers()
                    .iter()
                    .map(|(timer, at)| (timer.clone(), *at))
                    .collect();
                if !timers.is_empty() {
                    let (timer, at) = timers[usize::from(pick) % timers.len()].clone();
                    self.now = self.now.max(at);
                    self.tell(Event::TimerFired { timer });
                }
            }
            Move::NextTimer => {
                let timers = self.state.timers().iter();
                let next = timers
                    .min_by_key(|(_, at)| **at)
                    .map(|(timer, at)| (timer.clone(), *at));
                if let Some((timer, at)) = next {
                    self.now = self.now.max(at);
                    self.tell(Event::TimerFired { timer });
                }
            }
            Move::Wait { millis } => self.now = self.now.after(std::time::Duration::from_millis(millis.into())),
            Move::Cordon { node: number } if number % 2 == 1 => self.tell(Event::NodeDrained {
                node: node(number),
                reason: "walk".to_owned(),
            }),
            Move::Cordon { node: number } => {
                self.tell(Event::NodeCordoned {
                    node: node(number),
                    reason: "walk".to_owned(),
                });
            }
            Move::Uncordon { node: number } => self.tell(Event::NodeUncordoned { node: node(number) }),
            Move::Restart => self.tell(Event::ControllerStarted),
            Move::Obey => self.obey(),
        }
    }

    /// Returns the ranks that an agent reports.
    fn running_on(&self, number: u8) -> Vec<RunningRank> {
        let running = self.processes.get(&node(number)).into_iter().flatten();
        let report = |rank: &RankRef| RunningRank {
            rank: rank.clone(),
            pid: 7,
            step: None,
        };
        running.map(report).collect()
    }
}
