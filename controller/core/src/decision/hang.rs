//! Hang handling: decides from silent ranks that a job hangs, which rank it waits for, and when it is restarted.
//!
//! Agents report ranks that are silent by their own baseline. In a synchronous job one stopped rank stops all, so a job
//! hangs when no rank makes steps any more. A case is then opened at once, with the stacks of all ranks merged into one
//! tree. The restart waits, because an evaluation may take long: it follows after `hang_ms` of silence, or when a rank
//! exits. A step clears the case. A rank that stands for `hang_ms` while others make steps gets a case without a restart,
//! which is open until that rank makes a step. Ranks that NCCL RAS names take precedence over those found by stacks.

mod silent_ranks;

use std::time::Duration;

use rankguard_diagnosis::CallerFact;
use rankguard_model::{
    CaseId, CaseState, Entity, Evidence, EvidenceBody, Generation, JobId, Rank, ReasoningEntry, Step, Timestamp,
};

use super::DecisionContext;
use crate::{Job, TimerKey};
use silent_ranks::SilentRank;
pub use silent_ranks::SilentRanks;

/// Signature of the agents' reports about silent ranks.
const SIGNATURE: &str = "ranks.stalled";
/// Signature of the agents' reports of NCCL RAS output; each field `rank N` holds the text for that rank.
const RAS: &str = "nccl.ras";
/// State of a process that a signal has stopped, as agents report it.
const STOPPED: &str = "T";
/// Prefix of stack lines that are no frames of the main thread.
const ASIDE: &str = "-- ";
/// Delay from the first silent rank to the check of all: agents poll once a second and take stacks meanwhile.
const GATHER: Duration = Duration::from_secs(5);
/// Time since the last step of any rank after which the job counts as hung although some rank was not reported silent.
const QUIET: Duration = Duration::from_secs(15);
/// Limit of named suspects.
const NAMED: usize = 8;

impl DecisionContext<'_> {
    /// Handles a report of a silent rank.
    pub(super) fn rank_silent(&mut self, evidence: &Evidence) {
        let Some(mark) = evidence.marks.iter().find(|mark| mark.signature == SIGNATURE) else {
            return;
        };
        let (
            Entity::Rank {
                job: name,
                generation,
                rank,
                node,
            },
            EvidenceBody::Line { context, .. },
        ) = (&evidence.entity, &evidence.body)
        else {
            return;
        };
        let number = |field: &str| mark.fields.get(field)?.parse::<u64>().ok();
        let (Some(step), Some(silent_ms)) = (number("step"), number("silent_ms")) else {
            return;
        };
        let at = self.at;
        let names_stopped = self.state.names_stopped_ranks();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let acts = job.generation() == *generation && job.has_started();
        if !acts || self.state.policy.hang_ms == 0 {
            return;
        }
        let silent = SilentRank {
            node: node.clone(),
            step: Step(step),
            since: evidence.at.before(Duration::from_millis(silent_ms)),
            frames: context
                .iter()
                .take_while(|line| !line.starts_with(ASIDE))
                .cloned()
                .collect(),
            is_reported: false,
            is_stopped: names_stopped && mark.fields.get("state") == Some(STOPPED),
        };
        job.hang.insert(*rank, silent);
        if job.hang.told {
            return;
        }
        if job.is_all_silent() {
            return self.report_hang(name);
        }
        let timer = TimerKey::Hang {
            job: name.clone(),
            generation: *generation,
        };
        // A later check of a single standing rank does not delay the check of all.
        let due = at.after(GATHER);
        let known = self.state.timers.get(&timer);
        let is_watched = known.is_some_and(|known| *known <= due || !self.state.watches_standing_ranks());
        if !is_watched {
            self.state.set_timer(timer, due, &mut self.actions);
        }
    }

    /// Handles the NCCL RAS report about a job with silent ranks.
    pub(super) fn ras_answered(&mut self, evidence: &Evidence) {
        let Some(mark) = evidence.marks.iter().find(|mark| mark.signature == RAS) else {
            return;
        };
        let Entity::Job { job: name } = &evidence.entity else {
            return;
        };
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if mark.fields.get("generation") != Some(job.generation().to_string().as_str()) {
            return;
        }
        let named = mark.fields.iter().filter_map(|(field, words)| {
            let rank = field.strip_prefix("rank ")?.parse().ok()?;
            Some((Rank(rank), words.to_owned()))
        });
        job.hang.named = named.collect();
        // Adds the report to a case that was concluded before it arrived.
        let late = job.hang.case.and_then(|id| self.state.cases.get_mut(id));
        if let (Some(case), EvidenceBody::Line { text, .. }) = (late, &evidence.body) {
            let text = format!("{text}.");
            case.reasoning.push(ReasoningEntry { at, text });
        }
    }

    /// Ends the silence of a rank that made a step, and closes the hang case of its job.
    pub(super) fn rank_moved(&mut self, name: &JobId, rank: Rank, step: Step) {
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if !job.hang.moved(rank, step, at) {
            return;
        }
        job.hang.told = false;
        let generation = job.generation();
        let case = job.hang.case.take();
        self.state.diagnosis.rank_moves(at, name, generation, rank);
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if let Some(case) = case {
            job.end_recovery_from(case);
            self.close(case, format!("rank {rank} made step {step}; nothing was restarted"));
        }
        self.ask_growth_after_case(name);
        self.close_past_faults(name, &format!("rank {rank} made step {step}"));
    }

    /// Restarts a hung job when one of its ranks exits, because an ended rank does not resume.
    pub(super) fn rank_gave_up(&mut self, name: &JobId, rank: Rank) {
        if self.state.jobs.get(name).is_some_and(|job| job.hang.case.is_some()) {
            self.restart_hung(name, format!("rank {rank} has ended while the job hung"));
        }
    }

    pub(super) fn hang_due(&mut self, name: &JobId, generation: Generation) {
        let Some(job) = self.state.jobs.get(name) else { return };
        if job.generation() != generation || !job.has_started() {
            return;
        }
        let counts_completed = self.state.counts_completed_ranks();
        let Some(since) = job.silent_since(counts_completed) else {
            return;
        };
        if !job.hang.told {
            // The other ranks may have completed since the report.
            let is_last = counts_completed && job.is_all_silent();
            // A rank that makes steps shows that the job does; agents report again when more ranks fall silent.
            if is_last || job.hang.has_no_steps_for(self.at, QUIET) {
                self.report_hang(name);
            } else {
                self.report_standing(name);
            }
            return;
        }
        let limit = Duration::from_millis(self.state.policy.hang_ms);
        let due = since.after(limit);
        if due <= self.at {
            let save = save_text(job, self.at)
                .map(|save| format!("; {save}"))
                .unwrap_or_default();
            self.restart_hung(name, format!("no rank has made a step since {since}{save}"));
        } else {
            let job = name.clone();
            self.state
                .set_timer(TimerKey::Hang { job, generation }, due, &mut self.actions);
        }
    }

    /// Reports to diagnosis the ranks that have stood for `hang_ms` while others made steps. Nothing is restarted for
    /// them, because the job makes progress.
    fn report_standing(&mut self, name: &JobId) {
        if !self.state.watches_standing_ranks() {
            return;
        }
        let at = self.at;
        let limit = Duration::from_millis(self.state.policy.hang_ms);
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let generation = job.generation();
        let standing = job.hang.take_standing(at, limit);
        let next = job.hang.next_standing(limit);
        if let Some(due) = next {
            let timer = TimerKey::Hang {
                job: name.clone(),
                generation,
            };
            let due = due.max(at.after(GATHER));
            self.state.set_timer(timer, due, &mut self.actions);
        }
        for (rank, silent) in standing {
            let text = format!(
                "job {name}: rank {rank} on {} has made no step since {}, and other ranks make steps",
                silent.node, silent.since
            );
            self.announce(text);
            self.witness_fact(&CallerFact::RankStands {
                job: name.clone(),
                generation,
                rank,
                node: silent.node,
                step: silent.step,
                since: silent.since,
                is_stopped: silent.is_stopped,
            });
        }
    }

    /// Reports to diagnosis that all ranks stand, with the most likely suspect.
    fn report_hang(&mut self, name: &JobId) {
        let counts_completed = self.state.counts_completed_ranks();
        let is_exact = self.state.has_exact_cases();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let Some(since) = job.silent_since(counts_completed) else {
            return;
        };
        job.hang.told = true;
        let generation = job.generation();
        let stood_at = job.hang.since().filter(|_| is_exact);
        let merged = job.hang.stacks();
        let suspects = job.hang_suspects(&merged.odd, is_exact);
        // Diagnosis concludes before the restart, however long the silence has lasted.
        let due = since
            .after(Duration::from_millis(self.state.policy.hang_ms))
            .max(self.at.after(GATHER));
        let words: Vec<String> = suspects
            .iter()
            .take(NAMED)
            .map(|suspect| format!("rank {} on {} {}", suspect.rank, suspect.node, suspect.why))
            .collect();
        let (suspect, equal_suspects) = job.equal_suspects(suspects, is_exact);
        self.announce(format!(
            "job {name}: no rank has made a step since {since}{}{}",
            if words.is_empty() { "" } else { "; " },
            words.join("; ")
        ));
        self.state.set_timer(
            TimerKey::Hang {
                job: name.clone(),
                generation,
            },
            due,
            &mut self.actions,
        );
        self.witness_fact(&CallerFact::JobStalled {
            job: name.clone(),
            generation,
            since,
            suspect,
            equal_suspects,
            stood_at,
        });
    }

    /// Decides whether a concluded hang with live ranks waits. Returns true if its case waits for a step instead of an
    /// immediate restart.
    pub(crate) fn watch_hang(&mut self, id: CaseId, name: &JobId) -> bool {
        let at = self.at;
        let hang_ms = self.state.policy.hang_ms;
        let counts_completed = self.state.counts_completed_ranks();
        let is_exact = self.state.has_exact_cases();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return false;
        };
        let since = job.silent_since(counts_completed);
        let Some(since) = since.filter(|_| job.hang.told) else {
            return false;
        };
        let due = since.after(Duration::from_millis(hang_ms));
        let merged = job.hang.stacks();
        let suspects = job.hang_suspects(&merged.odd, is_exact);
        // A job with an ended rank cannot make the step that would clear the case, so it is restarted now.
        let waits = due > at && job.is_whole();
        if waits {
            job.hang.case = Some(id);
            job.recover_from(id);
        }
        let why = job.hang.restart_wait_reason(Some(since), hang_ms);
        let save = save_text(job, at);
        let why = why.map(|why| save.iter().fold(why, |why, save| format!("{why}; {save}")));
        if let Some(case) = self.state.cases.get_mut(id) {
            for suspect in suspects.iter().take(NAMED) {
                let text = format!("Rank {} on {} {}.", suspect.rank, suspect.node, suspect.why);
                case.reasoning.push(ReasoningEntry { at, text });
            }
            if let Some(save) = &save {
                let text = format!("As of {at}, {save}; the ranks may wait for it.");
                case.reasoning.push(ReasoningEntry { at, text });
            }
            if !merged.tree.is_empty() {
                let text = format!("Where the ranks stand:\n{}", merged.tree.join("\n"));
                case.reasoning.push(ReasoningEntry { at, text });
            }
            if waits {
                case.state = CaseState::Recovering;
            }
        }
        if let Some(why) = why.filter(|_| waits) {
            self.note(Some(id), why);
        }
        waits
    }

    /// Restarts a hung job.
    pub(super) fn restart_hung(&mut self, name: &JobId, why: String) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        // An earlier silence of the same generation may have been concluded already; it is the same failure.
        let known = job.hang.case.take().or(job.case());
        let generation = job.generation();
        let same = |case: &&rankguard_model::Case| {
            case.job.as_ref() == Some(name) && case.generation == Some(generation) && case.state != CaseState::Open
        };
        let case = known.or_else(|| self.state.cases.all().values().rev().find(same).map(|case| case.id));
        self.note(case, why.clone());
        self.place(name, case, vec![why]);
    }
}

/// Describes a save that has been under way for long while the ranks make no step. Its times are recorded since rules 9.
fn save_text(job: &Job, at: Timestamp) -> Option<String> {
    let save = job.checkpoints.save_under_way(at)?;
    Some(save.describe(job.store()?))
}
