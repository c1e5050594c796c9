//! Ranks that an agent ended because its lease expired; they are added to the record of the failure.

use rankguard_diagnosis::CallerFact;
use rankguard_model::{Evidence, EvidenceBody, Generation, JobId, LEASE_SIGNATURE};

use super::DecisionContext;

impl DecisionContext<'_> {
    /// Handles the report that an agent ended ranks by lease. If the plan still places them there, it is a failure of
    /// its own; if the job has moved on, the report is noted in the case of that failure.
    pub(super) fn lease_ended(&mut self, evidence: &Evidence) {
        let Some(mark) = evidence.marks.iter().find(|mark| mark.signature == LEASE_SIGNATURE) else {
            return;
        };
        let node = &evidence.id.node;
        let name = mark.fields.get("job").map(JobId::from);
        let generation = mark.fields.get("generation").and_then(|text| text.parse().ok());
        let (Some(name), Some(generation)) = (name, generation.map(Generation)) else {
            return;
        };
        if let EvidenceBody::Line { text, .. } = &evidence.body {
            let text = format!("node {node}: {text}");
            self.announce(text.clone());
            self.note(self.case_of_node(&name, node), text);
        }
        let placed = self.state.jobs.get(&name).is_some_and(|job| {
            // A job that waits for nodes does not count on ranks that have ended.
            let waits = job.is_pending() && self.state.follows_ended_ranks();
            let acts = !job.is_over() && job.generation() == generation && !waits;
            acts && job.nodes().contains(node)
        });
        if placed {
            self.witness_fact(&CallerFact::NodeSilent {
                node: node.clone(),
                since: evidence.at,
            });
        }
    }
}
