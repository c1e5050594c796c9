//! Failures of a job that return: an earlier case of the same class with the same blame.
//!
//! A rank has a number, and nodes change under it: two failures that blame nodes, devices or the job are the same only if
//! they blame the same one, whichever rank was there. Two failures that blame a rank are the same if its number is.

use rankguard_diagnosis::ConcludedDraft;
use rankguard_model::{Case, CaseFinding, CaseId, CaseState, Entity, JobId, Role, Verdict};

use crate::decision::DecisionContext;

/// Returns the signal or exit code of the process that ended as first cause.
fn first_exit(findings: &[CaseFinding]) -> Option<&str> {
    let root = findings.iter().find(|finding| finding.role == Role::Root)?;
    let process = root.text.strip_prefix("process ")?;
    process.split_once(" ended with ").map(|(_, exit)| exit)
}

/// Returns true if two verdicts blame the same rank, node, device or job.
fn has_same_blame(one: &Verdict, other: &Verdict) -> bool {
    match (&one.blamed, &other.blamed) {
        (Entity::Rank { rank: one, .. }, Entity::Rank { rank: other, .. }) => one == other,
        (Entity::Job { .. } | Entity::Unknown, _) => one.blamed == other.blamed && one.root_rank == other.root_rank,
        _ => one.blamed == other.blamed,
    }
}

/// Returns what a verdict shares with an earlier one of the same blame, in words.
fn shared_blame(verdict: &Verdict) -> &'static str {
    match &verdict.blamed {
        Entity::Node { .. } => "class and node",
        Entity::Device { .. } => "class and device",
        Entity::Rank { .. } => "class and rank",
        Entity::Job { .. } | Entity::Unknown if verdict.root_rank.is_some() => "class and rank",
        Entity::Job { .. } | Entity::Unknown => "class",
    }
}

impl DecisionContext<'_> {
    /// Notes in a case that an earlier one of the job, which counts as recovered, was of the same class and blame.
    pub(crate) fn note_return_of_failure(&mut self, id: CaseId, name: &JobId, concluded: &ConcludedDraft) {
        let compares_blame = self.state.compares_blame();
        let verdict = &concluded.verdict;
        let is_same = |earlier: &Verdict| {
            if compares_blame {
                has_same_blame(earlier, verdict)
            } else {
                earlier.root_rank == verdict.root_rank
            }
        };
        let is_earlier = |case: &&Case| {
            case.id < id
                && case.job.as_ref() == Some(name)
                && case.state == CaseState::Recovered
                && case.verdict.class == verdict.class
                && is_same(&case.verdict)
        };
        let cases = self.state.cases.all().values();
        let Some(earlier) = cases.rev().find(is_earlier).map(|case| case.id) else {
            return;
        };
        let same = if compares_blame {
            shared_blame(verdict)
        } else {
            "class and rank"
        };
        self.note(
            Some(id),
            format!("case {earlier} was of the same {same}, and the job had worked again after it"),
        );
    }

    /// Returns true if the newest earlier failure of this class had the same rank or part, and the same exit of a process.
    pub(crate) fn is_same_as_before(&self, id: CaseId, name: &JobId, concluded: &ConcludedDraft) -> bool {
        let verdict = &concluded.verdict;
        let is_earlier =
            |case: &&Case| case.id < id && case.job.as_ref() == Some(name) && case.verdict.class == verdict.class;
        let Some(before) = self.state.cases.all().values().rev().find(is_earlier) else {
            return true;
        };
        has_same_blame(&before.verdict, verdict) && first_exit(&before.findings) == first_exit(&concluded.findings)
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Generation, NodeId, Rank, Severity};

    use super::*;

    fn verdict(blamed: Entity, root_rank: Option<u32>) -> Verdict {
        Verdict {
            class: "node-agent-silent".into(),
            layer: "platform".to_owned(),
            severity: Severity::Failure,
            blamed,
            blamed_part: None,
            root_rank: root_rank.map(Rank),
            first_cause: None,
            confidence: 0.8,
            taxonomies: rankguard_model::SharedValue::default(),
            mitigation: rankguard_model::SharedValue::default(),
            alternatives: Vec::new(),
        }
    }

    fn on_node(name: &str) -> Entity {
        Entity::Node {
            node: NodeId::from(name),
        }
    }

    fn rank(number: u32, node: &str) -> Entity {
        Entity::Rank {
            job: JobId::from("llm"),
            generation: Generation(1),
            rank: Rank(number),
            node: NodeId::from(node),
        }
    }

    #[test]
    fn two_nodes_are_two_failures_whichever_rank_was_there() {
        let before = verdict(on_node("m-C"), Some(2));
        assert!(!has_same_blame(&before, &verdict(on_node("m-A"), Some(2))));
        assert!(has_same_blame(&before, &verdict(on_node("m-C"), Some(0))));
        assert_eq!(shared_blame(&before), "class and node");
    }

    #[test]
    fn a_rank_is_the_same_on_another_node() {
        let before = verdict(rank(2, "m-C"), Some(2));
        assert!(has_same_blame(&before, &verdict(rank(2, "m-A"), Some(2))));
        assert!(!has_same_blame(&before, &verdict(rank(1, "m-C"), Some(1))));
        let of_job = |root| {
            verdict(
                Entity::Job {
                    job: JobId::from("llm"),
                },
                root,
            )
        };
        assert!(!has_same_blame(&of_job(Some(1)), &of_job(Some(2))));
        assert!(has_same_blame(&of_job(None), &of_job(None)));
        assert_eq!(shared_blame(&of_job(None)), "class");
    }
}
