//! Stragglers found by step marks: announced, displayed and reported as a case; nothing is restarted.

use std::fmt::Write as _;

use rankguard_diagnosis::USUAL_RANK_FIELD;
use rankguard_faults::classes;
use rankguard_model::{
    ClassId, Classification, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, JobId, Rank, Role, Sequence,
};

use super::{DecisionContext, node_of};
use crate::step_times::{SlowRank, SpeedChange};

impl DecisionContext<'_> {
    /// Compares the step times of a job after a step report.
    pub(super) fn watch_tempo(&mut self, name: &JobId) {
        let at = self.at;
        let with_pace = self.state.compares_own_pace();
        let Some(job) = self.state.jobs.get_mut(name).filter(|job| job.tempo.is_due(at)) else {
            return;
        };
        let places = job.places();
        for (rank, change) in job.tempo.look(at, &places, with_pace) {
            match change {
                SpeedChange::Slow(slow) => self.rank_slow(name, rank, slow),
                SpeedChange::Usual { is_of_pace } => {
                    let kept = if is_of_pace { "before" } else { "the others" };
                    let text = format!("rank {rank} is as fast as {kept} again");
                    self.announce(format!("job {name}: {text}"));
                    self.close_past_faults(name, &text);
                }
            }
        }
    }

    fn rank_slow(&mut self, name: &JobId, rank: Rank, slow: SlowRank) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let Some(node) = node_of(job, rank) else { return };
        let generation = job.generation();
        let examines = self.state.examines_slow_ranks();
        let mut places = job.places().into_iter().filter(|(_, place)| examines && *place == node);
        let usual = places.find(|(other, _)| *other != rank && job.tempo.is_usual(*other));
        let is_drill = examines && job.tempo.is_drill(rank);
        let more = |reference: f64| (slow.step_ms / reference - 1.0) * 100.0;
        let mut text = match slow.pace_ms {
            None => format!(
                "rank {rank} on {node} takes {:.1} ms a step and the others {:.1} ms: {:.0} % more",
                slow.step_ms,
                slow.usual_ms,
                more(slow.usual_ms)
            ),
            Some(pace) => format!(
                "rank {rank} on {node} takes {:.1} ms a step and took {pace:.1} ms before: {:.0} % more; the others take {:.1} ms",
                slow.step_ms,
                more(pace),
                slow.usual_ms
            ),
        };
        if let Some((other, _)) = &usual {
            let kept = if slow.pace_ms.is_some() { "before" } else { "the others" };
            let _ = write!(text, "; rank {other} on the same node is as fast as {kept}");
        }
        if examines {
            text = format!("as of {}, {text}", self.at);
        }
        self.announce(format!("job {name}: {text}"));
        let beside = usual.map(|(other, _)| (USUAL_RANK_FIELD, other.to_string()));
        let fields = [
            ("rank", rank.to_string()),
            ("step_ms", format!("{:.3}", slow.step_ms)),
            ("usual_ms", format!("{:.3}", slow.usual_ms)),
        ];
        let evidence = Evidence {
            // Sequence 0: the controller compared the ranks itself, and no spool holds this evidence.
            id: EvidenceId {
                node: node.clone(),
                seq: Sequence(0),
            },
            at: if examines { slow.since } else { self.at },
            source: EvidenceSource::Ranks,
            entity: Entity::Rank {
                job: name.clone(),
                generation,
                rank,
                node,
            },
            body: EvidenceBody::Line {
                text,
                context: Vec::new(),
                repeats: 1,
            },
            marks: vec![Classification {
                class: ClassId::from(classes::STRAGGLER),
                role: Role::Root,
                confidence: 0.7,
                signature: "step-times".into(),
                fields: fields.into_iter().chain(beside).collect(),
            }],
            synthetic: is_drill,
        };
        self.pass_to_diagnosis(&evidence);
    }
}
