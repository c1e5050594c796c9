//! Ranks that have ended without an effect of their end: a job with such ranks does not run.
//!
//! The exit of a rank usually opens a case, whose verdict restarts or stops the job. Some exits open none: those that
//! arrive after the case of the same failure was concluded, those that the agent itself caused, and those that were
//! never reported because the agent was started again. After the settle time without an open case the job is restarted
//! for them, so that no job counts as running without its ranks (RG-9).

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{
    CaseFinding, CaseId, CaseState, ClassId, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, Generation,
    JobId, NodeId, NodeInfo, Rank, ReasoningEntry, Role, Sequence, Verdict,
};

use super::DecisionContext;
use crate::job::JobLookup;
use crate::{JobPhase, TimerKey};

/// Ranks that a text names.
const NAMED: usize = 8;

impl DecisionContext<'_> {
    /// Removes ranks that a joining agent no longer runs from the running ranks. A restarted agent reports no exits of
    /// earlier ranks; any other agent reports them next, unless it has a later generation of the job.
    pub(super) fn take_absent_ranks(&mut self, info: &NodeInfo, is_restarted: bool) {
        if !self.state.follows_ended_ranks() {
            return;
        }
        let names: Vec<JobId> = self.state.jobs.keys().cloned().collect();
        for name in names {
            self.take_absent_ranks_of(&name, info, is_restarted);
        }
    }

    fn take_absent_ranks_of(&mut self, name: &JobId, info: &NodeInfo, is_restarted: bool) {
        let at = self.at;
        let floor = self.state.floors.of(name);
        let drops_overtaken = self.state.drops_overtaken_exits();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        // A later generation was ordered, so the exits complete nothing; a lost part of the journal may have them.
        let is_overtaken = drops_overtaken && job.generation() <= floor;
        if !job.is_pending() && !job.has_started() {
            return;
        }
        let theirs = info.running.iter().map(|running| &running.rank);
        let alive: BTreeSet<Rank> = theirs
            .filter(|rank| rank.job == *name && rank.generation == job.generation())
            .map(|rank| rank.rank)
            .collect();
        let mut absent = job.ranks_on(&info.node);
        absent.retain(|rank| job.is_alive(*rank) && !alive.contains(rank));
        for rank in &absent {
            if is_restarted || is_overtaken {
                job.rank_ended(at, *rank);
            } else {
                job.rank_exit_due(at, *rank);
            }
        }
        let awaits_exits = job.awaits_exits();
        self.close_past_faults(name, &format!("ranks on node {} have ended", info.node));
        if awaits_exits {
            self.watch_ended_ranks(name, self.state.policy.fence_ms);
        } else if !absent.is_empty() {
            self.watch_ended_ranks(name, self.state.policy.settle_ms);
        }
    }

    /// Acts on the exit of a rank that opened no case.
    pub(super) fn follow_exit(&mut self, evidence: &Evidence) {
        let (Entity::Rank { job: name, .. }, EvidenceBody::RankExited { .. }) = (&evidence.entity, &evidence.body)
        else {
            return;
        };
        self.follow_ended_ranks(name);
    }

    /// Starts a waiting job again, or watches a running one, if some of its ranks have ended.
    pub(crate) fn follow_ended_ranks(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get(name).filter(|_| self.state.follows_ended_ranks()) else {
            return;
        };
        match job.phase() {
            JobPhase::Pending { .. } if job.plan().is_some() => {
                self.place(name, None, Vec::new());
                self.offer_freed_nodes(name);
            }
            JobPhase::Starting | JobPhase::Running
                if !job.ended_ranks().is_empty() && !self.state.cases.is_settling(name) =>
            {
                self.watch_ended_ranks(name, self.state.policy.settle_ms);
            }
            _ => {}
        }
    }

    fn watch_ended_ranks(&mut self, name: &JobId, millis: u64) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let timer = TimerKey::EndedRanks {
            job: name.clone(),
            generation: job.generation(),
        };
        let due = self.at.after(Duration::from_millis(millis));
        if self.state.timers.get(&timer).is_none_or(|known| *known > due) {
            self.state.set_timer(timer, due, &mut self.actions);
        }
    }

    /// Restarts a job of which ranks have ended and no verdict has followed.
    pub(super) fn ended_ranks_due(&mut self, name: &JobId, generation: Generation) {
        let Some(job) = self.state.jobs.in_generation(name, generation) else {
            return;
        };
        let had_exits_due = job.drop_exits_due();
        if job.is_pending() && had_exits_due {
            self.place(name, None, Vec::new());
            return self.offer_freed_nodes(name);
        }
        let ended = job.ended_ranks();
        if ended.is_empty() || self.state.cases.is_settling(name) {
            // The conclusion of the case looks at the ranks again.
            return;
        }
        let awaits_departures = self.state.awaits_departures();
        let is_away = |node: &NodeId| {
            let node = self.state.fleet.get(node).filter(|node| node.lost_since.is_none());
            node.is_some_and(|node| node.session_ended.is_some() || awaits_departures && node.farewell.is_some())
        };
        if ended.iter().any(|(_, node)| is_away(node)) {
            // The node joins again or counts as lost within the silence limit.
            return self.watch_ended_ranks(name, self.state.policy.fence_ms);
        }
        self.restart_ended(name, generation, &ended);
    }

    fn restart_ended(&mut self, name: &JobId, generation: Generation, ended: &[(Rank, NodeId)]) {
        let what = ended_text(ended);
        let is_theirs =
            |case: &&rankguard_model::Case| case.job.as_ref() == Some(name) && case.generation == Some(generation);
        let known = self
            .state
            .cases
            .all()
            .values()
            .rev()
            .find(is_theirs)
            .map(|case| case.id);
        let id = match known {
            Some(id) => {
                self.note(Some(id), format!("{what}; the job is restarted for it"));
                id
            }
            None => self.open_ended_case(name, generation, ended, &what),
        };
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.recover_from(id);
        }
        if let Some(case) = self.state.cases.get_mut(id) {
            case.state = CaseState::Recovering;
            case.outcome = None;
            case.closed_at = None;
        }
        self.announce(format!("job {name}: {what}; see case {id}"));
        self.place(name, Some(id), vec![format!("case {id}: {what}")]);
    }

    fn open_ended_case(
        &mut self,
        name: &JobId,
        generation: Generation,
        ended: &[(Rank, NodeId)],
        what: &str,
    ) -> CaseId {
        let first = ended.first().cloned();
        let (rank, node) = first.unwrap_or((Rank(0), NodeId::from("")));
        let entity = Entity::Rank {
            job: name.clone(),
            generation,
            rank,
            node: node.clone(),
        };
        // Sequence 0 is used by no spool: the controller itself established this.
        let id = EvidenceId { node, seq: Sequence(0) };
        let class = ClassId::from(classes::UNKNOWN);
        let catalogue = self.state.catalogue();
        let known = catalogue.class(&class);
        let verdict = Verdict {
            layer: known.map_or_else(|| "unknown".to_owned(), |class| class.layer.clone()),
            severity: known.map_or(rankguard_model::Severity::Failure, |class| class.severity),
            blamed: entity.clone(),
            blamed_part: None,
            root_rank: Some(rank),
            first_cause: Some(id.clone()),
            confidence: 0.1,
            taxonomies: catalogue.taxonomies_of(&class),
            mitigation: catalogue.mitigation(&class),
            alternatives: Vec::new(),
            class: class.clone(),
        };
        let clears = known.map(|class| class.clears.clone()).unwrap_or_default();
        let finding = CaseFinding {
            evidence: id,
            at: self.at,
            source: EvidenceSource::Agent,
            entity,
            class,
            role: Role::Root,
            confidence: 0.1,
            text: what.to_owned(),
            why: "the controller compared the reported ranks with its plan".to_owned(),
            synthetic: false,
        };
        let text = format!("{what}, and no evidence of a cause was reported.");
        let reason = ReasoningEntry { at: self.at, text };
        let cases = &mut self.state.cases;
        let id = cases.open_concluded(self.at, verdict, finding, reason, clears);
        if let Some(case) = cases.get_mut(id) {
            case.job = Some(name.clone());
            case.generation = Some(generation);
        }
        id
    }
}

/// Formats ended ranks for operators.
fn ended_text(ended: &[(Rank, NodeId)]) -> String {
    let names: Vec<String> = ended
        .iter()
        .take(NAMED)
        .map(|(rank, node)| format!("rank {rank} on node {node}"))
        .collect();
    let more = ended.len().saturating_sub(NAMED);
    let names = names.join(", ");
    match (ended.len(), more) {
        (1, _) => format!("{names} has ended without completion"),
        (_, 0) => format!("{names} have ended without completion"),
        (_, more) => format!("{names} and {more} more ranks have ended without completion"),
    }
}
