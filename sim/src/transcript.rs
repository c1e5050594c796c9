//! Transcript of a simulation, as text for review.

use std::fmt::Write as _;
use std::time::Duration;

use rankguard_core::{Action, Event};
use rankguard_model::{AgentOrder, Case, CheckpointCall, EvidenceBody};

/// Text with a line for each fault, event and action, which begins with the virtual time in seconds since the start,
/// and with all cases at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorldTranscript {
    text: String,
}

impl WorldTranscript {
    /// Returns the whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Appends a line with its time.
    pub(crate) fn note(&mut self, at: Duration, text: &str) {
        let _ = writeln!(self.text, "{:9.3}  {text}", at.as_secs_f64());
    }

    /// Appends an event. Timers, steps, seals and other routine events are left out.
    pub(crate) fn event(&mut self, at: Duration, event: &Event) {
        let line = match event {
            Event::ControllerStarted => "event   controller started".to_owned(),
            Event::LifeBegan { .. } => return,
            Event::ControllerPaused { since } => format!("event   the controller had not run since {since}"),
            Event::JournalDiffers { node, .. } => format!("event   {node} knows another journal"),
            Event::CatalogueGiven { files } => format!("event   {} catalogue files given", files.len()),
            Event::NodeJoined { info } => format!("event   {} joined as {}", info.node, info.incarnation),
            Event::NodeFellSilent { node, .. } => format!("event   {node} fell silent"),
            Event::JobSubmitted { spec, .. } => format!("event   job {} submitted", spec.id),
            Event::JobCancelled { job, .. } => format!("event   job {job} cancelled"),
            Event::ManifestCommitted { step, generation, .. } => {
                format!("event   checkpoint of step {step} committed (generation {generation})")
            }
            Event::ManifestRefused { step, reason, .. } => {
                format!("event   checkpoint of step {step} refused: {reason}")
            }
            Event::ShardsFound { seals, .. } => format!("event   {} shards stand in the store", seals.len()),
            Event::CheckpointChecked { step, finding, .. } => {
                format!("event   the controller read the checkpoint of step {step}: {finding:?}")
            }
            Event::NodeCordoned { node, .. } => format!("event   {node} cordoned by an operator"),
            Event::NodeDrained { node, .. } => format!("event   {node} drained by an operator"),
            Event::NodeForgotten { node } => format!("event   {node} forgotten by an operator"),
            Event::CaseNoted { case, note } => format!("event   {} noted something about case {case}", note.by),
            Event::NodeUncordoned { node } => format!("event   {node} uncordoned by an operator"),
            Event::SessionEnded { node, .. } => format!("event   the session of {node} ended"),
            Event::RulesAdopted { rules } => format!("event   decision rules {rules} adopted"),
            Event::PolicyAdopted { .. } => "event   other settings adopted".to_owned(),
            // Timers are internal to the decision core, and the lines of steps would be too many to read.
            Event::TimerFired { .. } => return,
            Event::EvidenceArrived { evidence } => match &evidence.body {
                EvidenceBody::Progress { .. }
                | EvidenceBody::ShardSealed { .. }
                | EvidenceBody::ShardDurable { .. } => return,
                EvidenceBody::Line { text, repeats, .. } => {
                    let times = if *repeats > 1 {
                        format!(" ({repeats} times)")
                    } else {
                        String::new()
                    };
                    format!("seen    {}: {text}{times}", evidence.id.node)
                }
                EvidenceBody::RankExited { pid, exit, .. } => {
                    format!("seen    {}: process {pid} ended, {exit}", evidence.entity)
                }
                EvidenceBody::Fenced { generation, .. } => {
                    format!("seen    {}: fenced below generation {generation}", evidence.id.node)
                }
                EvidenceBody::Stopped { ended, .. } => {
                    format!("seen    {}: stopped, {ended} processes ended", evidence.id.node)
                }
                EvidenceBody::RankStarted { .. } | EvidenceBody::Restored { .. } | EvidenceBody::RankFinished => return,
                other => format!("seen    {}: {other:?}", evidence.id.node),
            },
        };
        self.note(at, &line);
    }

    /// Appends an action. Timers, commits and `Keep` orders are left out.
    pub(crate) fn action(&mut self, at: Duration, action: &Action) {
        let line = match action {
            Action::Announce { text } => format!("brain   {text}"),
            Action::SendOrder { node, order, .. } => match order {
                AgentOrder::Keep { .. } => return,
                AgentOrder::Prepare(_) => format!("order   {node}: prepare standby processes"),
                AgentOrder::Fence { generation, .. } => format!("order   {node}: fence, generation {generation}"),
                AgentOrder::Preflight(wanted) => {
                    format!("order   {node}: preflight of generation {}", wanted.generation)
                }
                AgentOrder::Checkpoint { call, number, .. } => {
                    let called = match call {
                        CheckpointCall::At { step } => format!("checkpoint step {step}"),
                        CheckpointCall::Every { from, every } => format!("checkpoint every {every} from step {from}"),
                    };
                    format!("order   {node}: {called} (call {number})")
                }
                AgentOrder::Finish(wanted) => format!(
                    "order   {node}: finish what generation {} sealed, out of {:?}",
                    wanted.of, wanted.from
                ),
                AgentOrder::Stop { generation, .. } => format!("order   {node}: stop generation {generation}"),
                AgentOrder::Launch(launch) => {
                    let ranks: Vec<String> = launch.ranks.iter().map(|slot| slot.rank.to_string()).collect();
                    let from = launch
                        .restore
                        .as_ref()
                        .map_or("the beginning".to_owned(), |restore| format!("step {}", restore.step));
                    format!(
                        "order   {node}: launch ranks {} of {} from {from}",
                        ranks.join(", "),
                        launch.world_size
                    )
                }
            },
            Action::FindShards { of, .. } => format!("brain   looks for shards of generation {of} in the store"),
            Action::CheckCheckpoint { id, .. } => {
                format!("brain   reads checkpoint {id}, which a node reported damaged")
            }
            Action::CommitManifest { .. } | Action::SetTimer { .. } => return,
        };
        self.note(at, &line);
    }

    /// Appends a case: verdict, reasoning, actions and outcome.
    pub(crate) fn case(&mut self, case: &Case) {
        let verdict = &case.verdict;
        let mut line = |text: String| {
            let _ = writeln!(self.text, "{text}");
        };
        line(String::new());
        line(format!(
            "case {}: {} ({}), {:?}",
            case.id, verdict.class, verdict.layer, case.state
        ));
        line(format!("  blamed      {}", verdict.blamed));
        line(format!("  confidence  {:.2}", verdict.confidence));
        for (taxonomy, categories) in verdict.taxonomies.iter() {
            line(format!("  {taxonomy}: {}", categories.join(", ")));
        }
        line(format!("  advice      {}", verdict.mitigation.advice));
        line(format!("  clears      {}", case.clears));
        for reason in &case.reasoning {
            line(format!("  because     {}", reason.text));
        }
        for action in &case.actions {
            line(format!("  done        {}", action.text));
        }
        if let Some(outcome) = &case.outcome {
            line(format!("  outcome     {outcome}"));
        }
        if let Some(steps) = case.steps_lost {
            line(format!("  repeated    {steps} steps"));
        }
    }
}
