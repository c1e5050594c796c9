//! Intake of one sign: into the open draft, into a concluded failure, into a new draft, or into the memory.

use std::time::Duration;

use rankguard_faults::{Catalogue, classes};
use rankguard_model::{Classification, EvidenceId, EvidenceSource, JobId, NodeId, Role, SharedValue, Timestamp};

use super::Diagnosis;
use super::late::LateFinding;
use crate::attribution::{STAMP_RESOLUTION, concerns, joins_concluded, lasts, machine_of};
use crate::conclude::conclude;
use crate::draft::Draft;
use crate::drafts::ScopeDrafts;
use crate::links::{LINK_UP_SIGNATURE, ends_link_fault, is_link_up, is_unused};
use crate::memory::RememberedSignal;
use crate::scope::ScopeRef;
use crate::scopes::{each_scope, opens};
use crate::signal_ref::{MeaningRef, SignalRef};
use crate::storage::{ended_before, is_answer, is_over, reports_store_recovery};
use crate::{DraftChange, DraftId, DraftScope, JobContext, PlacementIndex, Signal, SignalMeaning};

/// Result of the intake of a sign into the failures of one scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScopeIntake {
    /// A failure took the sign in, or it was dropped.
    Taken,
    /// No failure takes the sign in; it may open one.
    Free,
    /// The job of the scope has ended, and no failure of it takes the sign in: it concerns the machine.
    Ended,
}

impl Diagnosis {
    /// Handles a new flight-recorder dump: an open draft waits for the others; a draft concluded without them is
    /// weighed again once all dumps are present.
    pub(super) fn dumped(
        &mut self,
        now: Timestamp,
        scope: &DraftScope,
        catalogue: &Catalogue,
        changes: &mut Vec<DraftChange>,
    ) {
        let of = self.drafts.of_scope(scope.lend());
        let (open, done) = of.map_or((None, None), |of| (of.open, of.newest_done()));
        if let Some(id) = open {
            self.drafts.change(id, &self.policy, |draft| draft.newest_at = now);
            return DraftChange::Joined { draft: id }.join(changes);
        }
        let Some(id) = done else { return };
        let whole = self
            .drafts
            .get(id)
            .filter(|draft| self.flight.complete(scope, &draft.placements));
        let Some(signs) = whole.map(|draft| self.flight.signs(scope, &draft.placements)) else {
            return;
        };
        let differs = self.drafts.change(id, &self.policy, |draft| {
            for sign in &signs {
                draft.add(&SignalRef::of(sign), &self.policy);
            }
            let again = draft.opinion(now, catalogue).0.verdict;
            let before = draft.concluded.as_ref();
            before.is_some_and(|before| again.class != before.class || again.blamed != before.blamed)
        });
        if differs == Some(true) {
            let revised = self
                .drafts
                .conclude(id, &self.policy, |draft| conclude(draft, now, catalogue));
            changes.extend(revised.map(|revised| DraftChange::Revised(Box::new(revised))));
        }
    }

    /// Takes in one sign for every scope to which it may belong.
    pub(super) fn take(
        &mut self,
        now: Timestamp,
        glimpse: &SignalRef<'_>,
        context: &PlacementIndex,
        catalogue: &Catalogue,
        changes: &mut Vec<DraftChange>,
    ) {
        let opens = opens(glimpse, catalogue);
        // What ends a fault ends it for later failures too, whichever failure took it in.
        let mut remember = opens || self.has_fault_ends && ends_fault(glimpse);
        let policy = self.policy.clone();
        let has_cause_limits = self.has_cause_limits;
        let has_fault_ends = self.has_fault_ends;
        let overcame = self.jobs_that_worked_after(glimpse, context, catalogue);
        let is_concerned = |name: &JobId, job: &JobContext| {
            !has_cause_limits
                || concerns(job, glimpse, lasts(glimpse, has_fault_ends, catalogue)) && !overcame.contains(name)
        };
        each_scope(glimpse, context, &policy, is_concerned, |scope| {
            if self.is_cleared(glimpse, scope) {
                remember = false;
                DraftChange::Dropped {
                    evidence: glimpse.evidence.clone(),
                    why: "it happened before its node was cleared".to_owned(),
                }
                .join(changes);
                return true;
            }
            let intake = self.intake(now, glimpse, scope, context, catalogue, changes);
            let found_none = intake == ScopeIntake::Free;
            if found_none && opens && self.drafts.len() < self.policy.drafts {
                self.open_draft(now, glimpse, scope, context, catalogue).join(changes);
            }
            remember |= found_none;
            intake != ScopeIntake::Ended
        });
        if remember {
            self.memory.insert_signal(glimpse, &self.policy);
        }
    }

    /// Returns the jobs that no lasting fault of this sign concerns any more.
    fn jobs_that_worked_after(
        &self,
        glimpse: &SignalRef<'_>,
        context: &PlacementIndex,
        catalogue: &Catalogue,
    ) -> Vec<JobId> {
        let machine =
            machine_of(glimpse.entity, glimpse.evidence).filter(|_| lasts(glimpse, self.has_fault_ends, catalogue));
        let users = machine.into_iter().flat_map(|node| context.jobs_on(node));
        let overcame = users.filter(|(name, job)| self.worked_after(name, job, glimpse));
        overcame.map(|(name, _)| name.clone()).collect()
    }

    /// Returns true if a sign is older than the current generation of a job, and the ranks of the job have worked on
    /// its machine afterwards.
    fn worked_after(&self, name: &JobId, job: &JobContext, glimpse: &SignalRef<'_>) -> bool {
        let is_older = job.since.is_some_and(|since| glimpse.at < since);
        let machine = machine_of(glimpse.entity, glimpse.evidence).filter(|_| self.has_fault_limits && is_older);
        machine.is_some_and(|node| self.steps.worked_after(name, &job.placements, node, glimpse.at))
    }

    /// Returns true if a sign is older than the clearing of its node, unless a draft that was open then may rest on
    /// it.
    fn is_cleared(&self, glimpse: &SignalRef<'_>, scope: ScopeRef<'_>) -> bool {
        let resolution = if self.has_fault_ends {
            STAMP_RESOLUTION
        } else {
            Duration::ZERO
        };
        if !self.clearings.has_cleared(glimpse, resolution) {
            return false;
        }
        let open = self.drafts.of_scope(scope).and_then(|of| of.open);
        let opened_at = open.and_then(|id| self.drafts.get(id)).map(|draft| draft.opened_at);
        let cleared = machine_of(glimpse.entity, glimpse.evidence).and_then(|node| self.clearings.of(node));
        opened_at.is_none_or(|opened_at| Some(opened_at) > cleared)
    }

    /// Returns true if a concluded failure takes in a sign.
    fn takes_in(&self, glimpse: &SignalRef<'_>, draft: &Draft) -> bool {
        !self.has_case_ends || joins_concluded(glimpse, draft, &self.policy, &self.clearings)
    }

    /// Adds a sign to the open draft or a concluded failure of its scope, or drops it if its generation may no longer
    /// act.
    fn intake(
        &mut self,
        now: Timestamp,
        glimpse: &SignalRef<'_>,
        scope: ScopeRef<'_>,
        context: &PlacementIndex,
        catalogue: &Catalogue,
        changes: &mut Vec<DraftChange>,
    ) -> ScopeIntake {
        let of = self.drafts.of_scope(scope);
        let (open, done) = of.map_or((None, None), |of| (of.open, of.newest_done()));
        if let Some(id) = open {
            self.drafts.change(id, &self.policy, |draft| {
                draft.add(glimpse, &self.policy);
                if glimpse.decides() {
                    draft.newest_at = now;
                    draft.update_explained(catalogue);
                }
            });
            DraftChange::Joined { draft: id }.join(changes);
            return ScopeIntake::Taken;
        }
        let (stale, stopping) = match scope {
            ScopeRef::Node(_) => (false, false),
            ScopeRef::Job(job, generation) => context
                .job(job)
                .map_or((false, false), |known| (known.generation > generation, known.stopping)),
        };
        if self.join(now, glimpse, (scope, done), stale, catalogue, changes) {
            return ScopeIntake::Taken;
        }
        // The end of a job does not end a fault of its machines.
        let is_of_machine = machine_of(glimpse.entity, glimpse.evidence).is_some();
        let is_report = glimpse.mark().is_some() && glimpse.evidence.seq.0 > 0;
        if stopping && !stale && is_of_machine && is_report && self.has_fault_limits {
            return ScopeIntake::Ended;
        }
        if stale || stopping {
            let why = if stale {
                "its generation may no longer act"
            } else {
                "its job is being ended on purpose"
            };
            let dropped = DraftChange::Dropped {
                evidence: glimpse.evidence.clone(),
                why: why.to_owned(),
            };
            dropped.join(changes);
            return ScopeIntake::Taken;
        }
        ScopeIntake::Free
    }

    /// Adds late evidence to a concluded failure: the `newest` of its scope, or a newer one that concerns its node.
    /// Returns true if it did.
    fn join(
        &mut self,
        now: Timestamp,
        glimpse: &SignalRef<'_>,
        (scope, newest): (ScopeRef<'_>, Option<DraftId>),
        stale: bool,
        catalogue: &Catalogue,
        changes: &mut Vec<DraftChange>,
    ) -> bool {
        // Only marks are looked up by node, and only those of a generation that may act.
        let node = glimpse.node().filter(|_| !stale && glimpse.mark().is_some());
        let late = |draft: &Draft| late_of(glimpse, draft) && self.takes_in(glimpse, draft);
        let other = node.and_then(|node| self.drafts.newest_elsewhere(node, (scope, newest), late));
        let own = newest.filter(|id| self.drafts.get(*id).is_some_and(|draft| self.takes_in(glimpse, draft)));
        let own = own.filter(|id| !self.stands_after_recovery(glimpse, *id));
        let Some(id) = other.or(own) else { return false };
        let is_exit = glimpse.is_exit();
        let is_silence = glimpse.is_silence();
        let (has_fault_ends, settle) = (self.has_fault_ends, self.policy.settle);
        let joined = self.drafts.change(id, &self.policy, |draft| {
            let before = draft.concluded.as_ref()?;
            let own = draft.scope.lend() == scope;
            // A fault was reported earlier and the job continued; now it failed, which is a new draft.
            let is_again = glimpse.decides() && glimpse.class() == Some(&before.class);
            let stood = draft.holds(&SignalMeaning::Stalled);
            let is_own_failure = !is_again && fails_afterwards(glimpse, before.at.after(settle), stood);
            let is_new = is_exit || has_fault_ends && is_own_failure;
            if !stale && is_new && !before.failed && own {
                return None;
            }
            // The agent refused the start before it was lost.
            if has_fault_ends && is_silence && draft.is_refused_start() && own {
                return None;
            }
            let late = LateFinding::of(glimpse, before, draft.has_fault_limits, has_fault_ends, catalogue);
            if has_fault_ends && is_again && own {
                draft.renewed_at = Some(now);
            }
            draft.add(glimpse, &self.policy);
            let again = glimpse.decides() && !is_exit && draft.thinks_again(catalogue);
            let separate = late
                .is_separate()
                .then(|| draft.separate_failure(now, glimpse, catalogue));
            Some(if again { None } else { Some((late, separate)) })
        });
        match joined.flatten() {
            None => return false,
            Some(Some((late, separate))) => late.join(id, glimpse, separate, changes),
            Some(None) => {
                let revised = self
                    .drafts
                    .conclude(id, &self.policy, |draft| conclude(draft, now, catalogue));
                if let Some(revised) = revised {
                    DraftChange::Revised(Box::new(revised)).join(changes);
                }
            }
        }
        true
    }

    /// Returns true if a job stands after it had worked beyond all faults of a concluded failure in which no rank ended: it
    /// stands for another reason.
    fn stands_after_recovery(&self, glimpse: &SignalRef<'_>, id: DraftId) -> bool {
        let stands = matches!(glimpse.meaning, MeaningRef::Plain(SignalMeaning::Stalled));
        let Some(draft) = self.drafts.get(id).filter(|_| stands && self.has_fault_ends) else {
            return false;
        };
        let DraftScope::Job { job, generation } = &draft.scope else {
            return false;
        };
        let began = |node: &NodeId| self.steps.newest_began_on(job, *generation, &draft.placements, node);
        let is_overcome = |sign: &Signal| self.steps.overcame(sign) || is_unused(sign, || sign.node().and_then(began));
        let has_failed = draft.concluded.as_ref().is_none_or(|before| before.failed);
        let mut faults = draft.signs.iter().filter(|sign| sign.is_root_mark()).peekable();
        !has_failed && faults.peek().is_some() && faults.all(|sign| is_overcome(sign))
    }

    /// Returns the remembered signs that may explain a draft that a sign opens: recent ones that were not overcome.
    fn news(
        &self,
        opening: &SignalRef<'_>,
        draft: &Draft,
        context: &PlacementIndex,
        catalogue: &Catalogue,
    ) -> Vec<&RememberedSignal> {
        let at = opening.at;
        // A job that stands may still wait for what the file system's answer did not wake.
        let stands = matches!(opening.meaning, MeaningRef::Plain(SignalMeaning::Stalled));
        let mut all = self.memory.of_scope(&draft.scope, context);
        let signs = || all.iter().map(|held| &*held.sign);
        let answers: Vec<&Signal> = signs().filter(|sign| is_answer(sign)).collect();
        let links_up: Vec<SharedValue<Signal>> = all
            .iter()
            .filter(|held| self.has_fault_limits && is_link_up(&held.sign))
            .map(|held| held.sign.clone())
            .collect();
        let went_on = |node: &NodeId| match &draft.scope {
            DraftScope::Job { job, generation } => self.steps.newest_on(job, *generation, &draft.placements, node),
            DraftScope::Node { .. } => None,
        };
        let began = |node: &NodeId| match &draft.scope {
            DraftScope::Job { job, generation } => {
                self.steps.newest_began_on(job, *generation, &draft.placements, node)
            }
            DraftScope::Node { .. } => None,
        };
        all.retain(|held| {
            let sign = &held.sign;
            let recent = at.since(sign.at) <= self.policy.window;
            let is_link_back = links_up.iter().any(|up| ends_link_fault(up, sign, draft.since(), at));
            let is_unused = self.has_fault_ends && is_unused(sign, || sign.node().and_then(began));
            recent
                && !is_link_back
                && !is_unused
                && self.may_explain(held, opening, &draft.scope, context, catalogue)
                && !self.steps.overcame(sign)
                && !is_over(sign, &answers, || sign.node().and_then(went_on))
                && (stands || !self.has_fault_ends || !ended_before(sign, &answers, draft.since(), at))
        });
        all
    }

    /// Returns true if a remembered sign may explain a failure of a scope: it concerns the job, and no earlier failure
    /// of the same generation rests on it.
    fn may_explain(
        &self,
        held: &RememberedSignal,
        opening: &SignalRef<'_>,
        scope: &DraftScope,
        context: &PlacementIndex,
        catalogue: &Catalogue,
    ) -> bool {
        let glimpse = held.glimpse();
        let DraftScope::Job { job, .. } = scope else {
            return !self.has_fault_ends || self.may_explain_machine(&glimpse, opening, scope, catalogue);
        };
        let opens_machine = machine_of(opening.entity, opening.evidence).is_some() && opening.mark().is_some();
        let is_beside = opens_machine && glimpse.entity != opening.entity && is_lesser(&glimpse, catalogue);
        let is_reported = || opens_machine && self.has_own_failure(&glimpse, opening, catalogue);
        if self.has_fault_ends && (is_beside || is_reported()) {
            return false;
        }
        if !self.has_cause_limits {
            return true;
        }
        let is_of_machine = machine_of(glimpse.entity, glimpse.evidence).is_some();
        let lasts = lasts(&glimpse, self.has_fault_ends, catalogue);
        let is_foreign =
            |known: &JobContext| !concerns(known, &glimpse, lasts) || self.worked_after(job, known, &glimpse);
        if is_of_machine && context.job(job).is_some_and(is_foreign) {
            return false;
        }
        !self.is_in_failure(glimpse.evidence, scope) || lasts
    }

    /// Returns true if a remembered fault is a failure already, and a fault of another machine opens the next: neither
    /// follows from the other.
    fn has_own_failure(&self, remembered: &SignalRef<'_>, opening: &SignalRef<'_>, catalogue: &Catalogue) -> bool {
        let node = machine_of(remembered.entity, remembered.evidence);
        let is_other = node != machine_of(opening.entity, opening.evidence);
        let opens_fault = lasts(opening, self.has_fault_ends, catalogue);
        let mut known = node.into_iter().flat_map(|node| self.drafts.concluded_on(node));
        is_other && opens_fault && known.any(|draft| draft.holds_evidence(remembered.evidence))
    }

    /// Returns true if a remembered sign may explain a failure of an idle node: no earlier failure of the node contains
    /// it, and a fault of the machine follows from nothing that is no failure of an idle node by itself.
    fn may_explain_machine(
        &self,
        remembered: &SignalRef<'_>,
        opening: &SignalRef<'_>,
        scope: &DraftScope,
        catalogue: &Catalogue,
    ) -> bool {
        let of = self.drafts.of_scope(scope.lend());
        let concluded = of.into_iter().flat_map(ScopeDrafts::all_done);
        let mut failures = concluded.filter_map(|id| self.drafts.get(id));
        let is_known = failures.any(|draft| draft.holds_evidence(remembered.evidence));
        !(is_known || is_lesser(remembered, catalogue) && opening.mark().is_some())
    }

    /// Returns true if a concluded failure of a scope, in which ranks ended, contains the evidence.
    fn is_in_failure(&self, evidence: &EvidenceId, scope: &DraftScope) -> bool {
        let of = self.drafts.of_scope(scope.lend());
        let concluded = of.into_iter().flat_map(ScopeDrafts::all_done);
        let mut failures = concluded.filter_map(|id| self.drafts.get(id)).filter(|draft| {
            let before = draft.concluded.as_ref();
            before.is_some_and(|before| before.failed)
        });
        failures.any(|draft| draft.holds_evidence(evidence))
    }

    fn open_draft(
        &mut self,
        now: Timestamp,
        glimpse: &SignalRef<'_>,
        scope: ScopeRef<'_>,
        context: &PlacementIndex,
        catalogue: &Catalogue,
    ) -> DraftChange {
        self.opened += 1;
        let mut draft = Draft::open(DraftId(self.opened), scope.own(), now, context);
        draft.has_cause_limits = self.has_cause_limits;
        draft.has_fault_limits = self.has_fault_limits;
        draft.has_fault_ends = self.has_fault_ends;
        draft.has_local_causes = self.has_local_causes;
        let news = self.news(glimpse, &draft, context, catalogue);
        // Most drafts get no further sign, and they are created by the thousand.
        draft.signs.reserve_exact(news.len() + 1);
        for held in news {
            draft.add(&held.glimpse(), &self.policy);
        }
        draft.add(glimpse, &self.policy);
        draft.update_explained(catalogue);
        let first_at = if draft.has_cause_limits {
            draft.first_effect()
        } else {
            draft.signs.first().map(|first| first.at)
        };
        let change = DraftChange::Opened {
            draft: draft.id,
            job: draft.scope.job().cloned(),
            first_at: first_at.unwrap_or(glimpse.at),
        };
        self.drafts.insert(Box::new(draft), &self.policy);
        change
    }
}

/// Returns true if a sign happened before the conclusion, so it belongs to that failure and not to what runs there
/// now.
fn late_of(glimpse: &SignalRef<'_>, draft: &Draft) -> bool {
    draft
        .concluded
        .as_ref()
        .is_some_and(|conclusion| glimpse.at <= conclusion.at)
}

/// Returns true for a finding that is no failure of an idle machine by itself: no fault of a machine follows from it.
fn is_lesser(remembered: &SignalRef<'_>, catalogue: &Catalogue) -> bool {
    remembered.mark().is_some_and(|mark| mark.role == Role::Root) && !opens(remembered, catalogue)
}

/// Returns true for a link that came up and for a server that answers again.
fn ends_fault(glimpse: &SignalRef<'_>) -> bool {
    let mark = glimpse.mark();
    mark.is_some_and(|mark| mark.signature == LINK_UP_SIGNATURE || reports_store_recovery(mark))
}

/// Returns true if a rank reports a cause of its own after a time, or its agent that it stands, unless it `stood` before.
fn fails_afterwards(glimpse: &SignalRef<'_>, at: Timestamp, stood: bool) -> bool {
    let is_root = glimpse.mark().is_some_and(|mark| mark.role == Role::Root);
    let stands = !stood && glimpse.source == EvidenceSource::Ranks && glimpse.mark().is_some_and(is_hang);
    (is_root || stands) && glimpse.at > at && glimpse.entity.rank().is_some()
}

fn is_hang(mark: &Classification) -> bool {
    [classes::HANG_NO_ERROR, classes::HANG_STALLED_RANKS].contains(&mark.class.as_str())
}
