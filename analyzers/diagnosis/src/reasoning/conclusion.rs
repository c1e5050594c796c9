//! Last sentence of the reasoning log: the blame, and why its cause was selected.

use rankguard_faults::{Catalogue, classes};
use rankguard_model::{EXIT_MESSAGE, Entity, NodeId, Verdict};

use super::times::hundredths;
use super::words::{ROOM, beside, subject};
use crate::first_rank::labelled_node;
use crate::knowledge::ClassEntry;
use crate::missing_programs::{node_that_lacks, reports_missing_program};
use crate::scene::RunBeside;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Signature of a daemon that ends processes before memory is exhausted.
const OOM_DAEMON: &str = "oom-earlyoom";
/// Signature of a scheduler that ends a job for the memory that its own daemon measures.
const MEMORY_LIMIT: &str = "slurm-memory-limit";

/// Selected cause of a scene.
struct SelectedCause<'a, 's> {
    scene: &'a FailureScene<'s>,
    winner: &'a CauseCandidate,
    verdict: &'a Verdict,
    first: &'a Signal,
}

impl SelectedCause<'_, '_> {
    fn is_of_class(&self, class: &str) -> bool {
        self.verdict.class.as_str() == class
    }

    /// Returns true if agents report the ends of all ranks and none had ended.
    fn is_alive(&self) -> bool {
        self.scene.lists_all_ends() && self.has_no_end()
    }

    fn has_no_end(&self) -> bool {
        self.scene.exits().next().is_none() && self.scene.silent().next().is_none()
    }
}

/// Reason for a selection.
struct ConclusionRule {
    strength: CandidateStrength,
    applies: fn(&SelectedCause<'_, '_>) -> bool,
    reason: &'static str,
}

/// Reasons; the first one that applies is given.
const RULES: [ConclusionRule; 20] = [
    ConclusionRule {
        strength: CandidateStrength::Overriding,
        applies: |cause| cause.scene.beside_run == Some(RunBeside::EndedWell),
        reason: "it is a fault of a machine, and the run ended well beside it",
    },
    ConclusionRule {
        strength: CandidateStrength::Overriding,
        applies: |cause| cause.scene.beside_run == Some(RunBeside::WorkedOn),
        reason: "it is a fault of a machine, and the run worked on beside it",
    },
    ConclusionRule {
        strength: CandidateStrength::Overriding,
        applies: |cause| cause.scene.lists_ends() && cause.is_of_class(classes::NODE_AGENT_SILENT),
        reason: "no program silences the agent of its node, and the ranks there may run on",
    },
    ConclusionRule {
        strength: CandidateStrength::Overriding,
        applies: |cause| cause.scene.has_fault_ends && cause.first.is_signed(OOM_DAEMON),
        reason: "a daemon of the machine ended a process for it, whatever the program does",
    },
    ConclusionRule {
        strength: CandidateStrength::Overriding,
        applies: |cause| cause.scene.has_fault_ends && cause.first.is_signed(MEMORY_LIMIT),
        reason: "the scheduler ended the job for it, whatever the program does",
    },
    ConclusionRule {
        strength: CandidateStrength::Overriding,
        applies: |cause| cause.verdict.class.as_str().ends_with("oom-kill"),
        reason: "the kernel ended a process for it, whatever the program does",
    },
    ConclusionRule {
        strength: CandidateStrength::Overriding,
        applies: |cause| cause.first.synthetic && cause.scene.distinguishes_ends() && !cause.is_alive(),
        reason: "it would end ranks if it were no drill",
    },
    ConclusionRule {
        strength: CandidateStrength::Overriding,
        applies: |cause| cause.scene.lists_all_ends() && cause.has_no_end(),
        reason: "it is no failure of the program, and no rank had failed when the case was concluded",
    },
    ConclusionRule {
        strength: CandidateStrength::Overriding,
        applies: |_| true,
        reason: "it would end ranks whatever the program does",
    },
    ConclusionRule {
        strength: CandidateStrength::Cause,
        applies: |cause| cause.scene.has_fault_ends && cause.is_of_class(classes::UNKNOWN),
        reason: "it was reported, and no class is known for it",
    },
    ConclusionRule {
        strength: CandidateStrength::Cause,
        applies: |cause| cause.scene.has_fault_ends && is_wait(cause.verdict),
        reason: "it waited in vain, and the cause itself was not seen",
    },
    ConclusionRule {
        strength: CandidateStrength::Cause,
        applies: |cause| cause.scene.has_fault_ends && states_no_cause(cause.first),
        reason: "it reports an error without its cause, and this is the usual one",
    },
    ConclusionRule {
        strength: CandidateStrength::Cause,
        applies: |cause| cause.scene.has_fault_ends && cause.is_of_class(classes::STRAGGLER) && !is_explained(cause),
        reason: "it shows what is slow, not the reason",
    },
    ConclusionRule {
        strength: CandidateStrength::Cause,
        applies: |cause| {
            cause.scene.has_fault_ends && cause.is_of_class(classes::HANG_STALLED_RANKS) && !is_explained(cause)
        },
        reason: "it shows which rank does not go on, not the reason",
    },
    ConclusionRule {
        strength: CandidateStrength::Cause,
        applies: |cause| node_that_lacks(cause.scene, cause.winner).is_some() && !is_missing_program(cause),
        reason: "all ranks of the node report it, and no rank of another node does",
    },
    ConclusionRule {
        strength: CandidateStrength::Cause,
        applies: |_| true,
        reason: "it names its cause itself",
    },
    ConclusionRule {
        strength: CandidateStrength::Symptom,
        applies: |cause| cause.is_of_class(classes::JOB_CANCELLED),
        reason: "it was cancelled from outside",
    },
    ConclusionRule {
        strength: CandidateStrength::Symptom,
        applies: |cause| cause.scene.distinguishes_ends() && cause.first.is_signed(EXIT_MESSAGE),
        reason: "the program ended itself and gave this reason",
    },
    ConclusionRule {
        strength: CandidateStrength::Symptom,
        applies: |_| true,
        reason: "it is a symptom and the cause itself was not seen",
    },
    ConclusionRule {
        strength: CandidateStrength::Outcome,
        applies: |cause| cause.scene.has_local_causes() && cause.first.synthetic && cause.first.exit().is_some(),
        reason: "a drill ended it",
    },
];

/// Reason for an end without a cause, if no rule applies.
const ONLY_THE_END: &str = "only the ending was seen, not why";

/// Returns true for a wait in vain that blames no rank.
fn is_wait(verdict: &Verdict) -> bool {
    let waits = [
        classes::HANG_NO_ERROR,
        classes::HANG_STALLED_RANKS,
        classes::HCCL_TIMEOUT,
        classes::NCCL_TIMEOUT,
    ];
    verdict.root_rank.is_none() && waits.contains(&verdict.class.as_str())
}

/// Returns true if the late rank itself reports why it was late.
fn is_explained(cause: &SelectedCause<'_, '_>) -> bool {
    cause.verdict.layer.as_str() == "user-code"
}

fn is_missing_program(cause: &SelectedCause<'_, '_>) -> bool {
    reports_missing_program(&cause.first.text)
}

/// Signatures of messages that report an error and not its cause: a failed call of NVLink SHARP, a status of the library of an
/// accelerator.
const WITHOUT_CAUSE: [&str; 2] = ["gaudi-graph-failed", "nvlink-sharp-memory"];

fn states_no_cause(first: &Signal) -> bool {
    WITHOUT_CAUSE.iter().any(|signature| first.is_signed(signature))
}

/// Returns the reason why the cause was selected.
fn reason(scene: &FailureScene<'_>, winner: &CauseCandidate, verdict: &Verdict, first: &Signal) -> &'static str {
    let cause = SelectedCause {
        scene,
        winner,
        verdict,
        first,
    };
    let mut rules = RULES.iter();
    let rule = rules.find(|rule| rule.strength == winner.strength && (rule.applies)(&cause));
    rule.map_or(ONLY_THE_END, |rule| rule.reason)
}

/// Returns the sentence about the blame.
pub(super) fn conclusion(
    scene: &FailureScene<'_>,
    winner: &CauseCandidate,
    verdict: &Verdict,
    first: &Signal,
) -> String {
    let why = reason(scene, winner, verdict, first);
    let mut text = String::with_capacity(ROOM);
    match (&verdict.blamed_part, &verdict.blamed) {
        (Some(part), _) => {
            text.push_str("The blame is on ");
            text.push_str(part);
        }
        (None, Entity::Unknown) if is_about_machine(verdict, scene.catalogue) => {
            unplaced(&mut text, scene, first, &verdict.layer);
        }
        (None, Entity::Unknown) => text.push_str("The logs name no job or rank to blame"),
        (None, entity) => {
            text.push_str("The blame is on ");
            subject(&mut text, entity);
        }
    }
    for part in [" for ", verdict.class.as_str(), " with confidence "] {
        text.push_str(part);
    }
    hundredths(&mut text, verdict.confidence);
    for part in [": ", why, "."] {
        text.push_str(part);
    }
    text
}

/// Writes where a fault of a machine lies if no entity of the cluster is to blame.
fn unplaced(text: &mut String, scene: &FailureScene<'_>, first: &Signal, layer: &str) {
    if let Some(node) = labelled_node(first, layer) {
        return beside(text, "The blame is on ", "node ", Some(&node));
    }
    let nodes: Vec<&str> = scene.named_nodes.iter().map(NodeId::as_str).collect();
    if nodes.is_empty() {
        return text.push_str("The logs name no machine to blame");
    }
    text.push_str("The logs do not show which machine to blame (they name ");
    text.push_str(&nodes.join(", "));
    text.push(')');
}

/// Returns true if a verdict is about a machine, its platform or its network adapter.
pub fn is_about_machine(verdict: &Verdict, catalogue: &Catalogue) -> bool {
    let is_layer = matches!(verdict.layer.as_str(), "hardware" | "platform");
    is_layer || ClassEntry::of(catalogue, &verdict.class).is_machine()
}
