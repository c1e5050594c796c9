//! The diagnosis of a running cluster: signs become drafts, drafts become conclusions.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_faults::Catalogue;
use rankguard_model::{
    Body, Entity, Evidence, Finding, Generation, JobId, NodeId, Rank, Reason, Role, Source, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::belongs::{opens, scopes};
use crate::change::{Change, Concluded};
use crate::draft::{Conclusion, Draft};
use crate::drafts::Drafts;
use crate::flight::Dumps;
use crate::memory::Memory;
use crate::{Context, DraftId, Fact, Policy, Scope, Sign, What};

/// A step that a rank completed this long after a complaint shows that the complaint was harmless. Progress is reported
/// with a delay, so a shorter time proves nothing.
const RECOVERED_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Progress {
    generation: Generation,
    at: Timestamp,
}

/// Everything that diagnosis remembers. Plain data: it can be written down and taken up again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Diagnosis {
    policy: Policy,
    opened: u64,
    drafts: Drafts,
    /// Signs that may belong to a failure which shows later.
    memory: Memory,
    progress: BTreeMap<JobId, BTreeMap<Rank, Progress>>,
    flight: Dumps,
    /// Generations of jobs with whose ranks something was made up: when one of them does nothing, that is made up as well.
    made_up: BTreeMap<JobId, Generation>,
}

/// A diagnosis as it is written down: without what can be made again from the rest.
#[derive(Serialize, Deserialize)]
struct Written {
    policy: Policy,
    opened: u64,
    /// Oldest first.
    drafts: Vec<Draft>,
    /// Oldest arrival first.
    memory: Vec<Sign>,
    progress: BTreeMap<JobId, BTreeMap<Rank, Progress>>,
    #[serde(default)]
    flight: Dumps,
    #[serde(default)]
    made_up: BTreeMap<JobId, Generation>,
}

impl From<Diagnosis> for Written {
    fn from(diagnosis: Diagnosis) -> Self {
        Self {
            policy: diagnosis.policy,
            opened: diagnosis.opened,
            drafts: diagnosis.drafts.into_all(),
            memory: diagnosis.memory.into_signs(),
            progress: diagnosis.progress,
            flight: diagnosis.flight,
            made_up: diagnosis.made_up,
        }
    }
}

impl From<Written> for Diagnosis {
    fn from(written: Written) -> Self {
        let mut memory = Memory::default();
        for sign in written.memory {
            memory.hold(sign, &written.policy);
        }
        Self {
            drafts: Drafts::of(written.drafts, &written.policy),
            policy: written.policy,
            opened: written.opened,
            memory,
            progress: written.progress,
            flight: written.flight,
            made_up: written.made_up,
        }
    }
}

impl Diagnosis {
    /// Remembers nothing yet.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            opened: 0,
            drafts: Drafts::default(),
            memory: Memory::default(),
            progress: BTreeMap::new(),
            flight: Dumps::default(),
            made_up: BTreeMap::new(),
        }
    }

    /// Takes evidence in. The same evidence must be given once only: the journal owns deduplication.
    pub fn observe(
        &mut self,
        now: Timestamp,
        evidence: &Evidence,
        context: &Context,
        catalogue: &Catalogue,
    ) -> Vec<Change> {
        self.forget(now);
        if let (
            Body::Progress { .. },
            Entity::Rank {
                job, generation, rank, ..
            },
        ) = (&evidence.body, &evidence.entity)
        {
            let newest = Progress {
                generation: *generation,
                at: evidence.at,
            };
            self.progress.entry(job.clone()).or_default().insert(*rank, newest);
        }
        if let (true, Entity::Rank { job, generation, .. }) = (evidence.synthetic, &evidence.entity) {
            self.made_up.insert(job.clone(), *generation);
        }
        let mut changes = Vec::new();
        if let Some(scope) = self.flight.take(evidence) {
            self.dumped(now, &scope, catalogue, &mut changes);
        }
        for sign in Sign::of(evidence) {
            self.take(now, sign, context, catalogue, &mut changes);
        }
        changes
    }

    /// A dump came in: an open draft waits for the others, and one that was concluded without them is looked at again once
    /// all are there.
    fn dumped(&mut self, now: Timestamp, scope: &Scope, catalogue: &Catalogue, changes: &mut Vec<Change>) {
        if let Some(id) = self.drafts.open_of(scope) {
            self.drafts.change(id, &self.policy, |draft| draft.newest_at = now);
            return note(changes, Change::Joined { draft: id });
        }
        let Some(id) = self.drafts.newest_done(scope, None, |_| false) else {
            return;
        };
        let whole = self
            .drafts
            .get(id)
            .filter(|draft| self.flight.complete(scope, &draft.placements));
        let Some(signs) = whole.map(|draft| self.flight.signs(scope, &draft.placements)) else {
            return;
        };
        let differs = self.drafts.change(id, &self.policy, |draft| {
            for sign in signs {
                draft.add(sign, &self.policy);
            }
            let again = draft.opinion(now, catalogue).verdict;
            let before = draft.concluded.as_ref();
            before.is_some_and(|before| again.class != before.class || again.blamed != before.blamed)
        });
        if differs == Some(true) {
            let revised = self
                .drafts
                .conclude(id, &self.policy, |draft| conclude(draft, now, catalogue));
            changes.extend(revised.map(|revised| Change::Revised(Box::new(revised))));
        }
    }

    /// Takes in what the caller knows and no node reports.
    pub fn observe_fact(
        &mut self,
        now: Timestamp,
        fact: &Fact,
        context: &Context,
        catalogue: &Catalogue,
    ) -> Vec<Change> {
        self.forget(now);
        let mut changes = Vec::new();
        let mut sign = Sign::of_fact(fact);
        if let Fact::JobStalled { job, generation, .. } = fact {
            sign.synthetic = self.made_up.get(job) == Some(generation);
        }
        self.take(now, sign, context, catalogue, &mut changes);
        changes
    }

    /// A node speaks again: its earlier silence explains nothing that fails from now on.
    pub fn node_returned(&mut self, node: &NodeId) {
        self.memory.forget_silence(node);
    }

    /// When [`conclude`](Self::conclude) has something to do next.
    pub fn due(&self) -> Option<Timestamp> {
        self.drafts.due()
    }

    /// Scopes of the drafts that are still being gathered.
    pub fn open_scopes(&self) -> impl Iterator<Item = (DraftId, &Scope)> {
        self.drafts.open().map(|draft| (draft.id, &draft.scope))
    }

    /// Concludes every draft whose time has come.
    pub fn conclude(&mut self, now: Timestamp, _context: &Context, catalogue: &Catalogue) -> Vec<Concluded> {
        let due = self.drafts.due_by(now).into_iter();
        let flight = &self.flight;
        let concluded = |id| {
            self.drafts.conclude(id, &self.policy, |draft| {
                for sign in flight.signs(&draft.scope, &draft.placements) {
                    draft.add(sign, &self.policy);
                }
                conclude(draft, now, catalogue)
            })
        };
        let all = due.filter_map(concluded).collect();
        self.forget(now);
        all
    }

    fn take(
        &mut self,
        now: Timestamp,
        sign: Sign,
        context: &Context,
        catalogue: &Catalogue,
        changes: &mut Vec<Change>,
    ) {
        let scopes = scopes(&sign, context);
        let opens = opens(&sign, catalogue);
        let mut remember = opens;
        for scope in scopes {
            if let Some(id) = self.drafts.open_of(&scope) {
                self.drafts.change(id, &self.policy, |draft| {
                    let decides = crate::draft::decides(&sign);
                    draft.add(sign.clone(), &self.policy);
                    if decides {
                        draft.newest_at = now;
                        draft.look(catalogue);
                    }
                });
                note(changes, Change::Joined { draft: id });
                continue;
            }
            if let Scope::Job { job, generation } = &scope {
                let known = context.jobs.get(job);
                let stale = known.is_some_and(|known| known.generation > *generation);
                let stopping = known.is_some_and(|known| known.stopping);
                if self.join(now, &sign, &scope, stale, catalogue, changes) {
                    continue;
                }
                if stale || stopping {
                    let why = if stale {
                        "its generation may no longer act"
                    } else {
                        "its job is being ended on purpose"
                    };
                    note(
                        changes,
                        Change::Dropped {
                            evidence: sign.evidence.clone(),
                            why: why.to_owned(),
                        },
                    );
                    continue;
                }
            } else if self.join(now, &sign, &scope, false, catalogue, changes) {
                continue;
            }
            if opens {
                let change = self.open_draft(now, &sign, scope, context, catalogue);
                note(changes, change);
            } else {
                remember = true;
            }
        }
        if remember {
            self.memory.hold(sign, &self.policy);
        }
    }

    /// Late evidence of a concluded failure joins it. Says whether it did.
    fn join(
        &mut self,
        now: Timestamp,
        sign: &Sign,
        scope: &Scope,
        stale: bool,
        catalogue: &Catalogue,
        changes: &mut Vec<Change>,
    ) -> bool {
        // Only marks are looked for by their node, and only those of a generation that may act.
        let node = sign.node().filter(|_| !stale && sign.mark().is_some());
        let late = |draft: &Draft| late_of(sign, draft);
        let known = self.drafts.newest_done(scope, node, late);
        let Some(id) = known else { return false };
        let Some((own, before)) = self
            .drafts
            .get(id)
            .and_then(|draft| Some((draft.scope == *scope, draft.concluded.clone()?)))
        else {
            return false;
        };
        let is_exit = sign.exit().is_some();
        if !stale && is_exit && !before.failed && own {
            // The device reported a fault earlier and the job went on; now it did fail, which is a new draft.
            return false;
        }
        let decides = crate::draft::decides(sign);
        let again = self.drafts.change(id, &self.policy, |draft| {
            draft.add(sign.clone(), &self.policy);
            decides && !is_exit && draft.thinks_again(catalogue)
        });
        if again == Some(true) {
            let revised = self
                .drafts
                .conclude(id, &self.policy, |draft| conclude(draft, now, catalogue));
            if let Some(revised) = revised {
                note(changes, Change::Revised(Box::new(revised)));
            }
            return true;
        }
        let finding = Finding {
            evidence: sign.evidence.clone(),
            at: sign.at,
            source: sign.source,
            entity: sign.entity.clone(),
            class: sign.class().cloned().unwrap_or_else(|| "killed-by-signal".into()),
            role: if sign.class() == Some(&before.class) {
                Role::Confirmation
            } else {
                Role::Cascade
            },
            confidence: 0.8,
            text: sign.text.clone(),
            why: "It arrived after the case was concluded and follows from it.".to_owned(),
            synthetic: sign.synthetic,
        };
        note(
            changes,
            Change::Late {
                draft: id,
                finding: Box::new(finding),
            },
        );
        true
    }

    fn open_draft(
        &mut self,
        now: Timestamp,
        sign: &Sign,
        scope: Scope,
        context: &Context,
        catalogue: &Catalogue,
    ) -> Change {
        self.opened += 1;
        let mut draft = Draft::open(DraftId(self.opened), scope, now, context);
        for held in self.memory.of_scope(&draft.scope, context) {
            if sign.at.since(held.at) <= self.policy.window && !self.recovered(held) {
                draft.add(held.clone(), &self.policy);
            }
        }
        draft.add(sign.clone(), &self.policy);
        draft.look(catalogue);
        let first_at = draft.signs.first().map_or(sign.at, |first| first.at);
        let change = Change::Opened {
            draft: draft.id,
            job: draft.scope.job().cloned(),
            first_at,
        };
        self.drafts.insert(draft, &self.policy);
        change
    }

    /// A complaint of a rank that completed steps afterwards was harmless, whatever its words.
    fn recovered(&self, sign: &Sign) -> bool {
        let Entity::Rank {
            job, generation, rank, ..
        } = &sign.entity
        else {
            return false;
        };
        if sign.source != Source::JobLog {
            return false;
        }
        let progress = self.progress.get(job).and_then(|ranks| ranks.get(rank));
        progress.is_some_and(|newest| newest.generation == *generation && newest.at.since(sign.at) >= RECOVERED_AFTER)
    }

    fn forget(&mut self, now: Timestamp) {
        self.memory.forget(now, &self.policy);
        self.flight.forget(now, self.policy.window);
        self.drafts.forget(now, &self.policy);
    }
}

fn conclude(draft: &mut Draft, now: Timestamp, catalogue: &Catalogue) -> Concluded {
    let opinion = draft.opinion(now, catalogue);
    let failed = draft.has_failed();
    draft.concluded = Some(Conclusion {
        at: now,
        class: opinion.verdict.class.clone(),
        blamed: opinion.verdict.blamed.clone(),
        failed,
    });
    let first = opinion.findings.first().map(|finding| finding.at);
    let mut reasoning = opinion.reasoning;
    if draft.dropped > 0 {
        let text = format!(
            "{} further signs found no room in the case and were only counted.",
            draft.dropped
        );
        reasoning.push(Reason { at: now, text });
    }
    if draft.repeats.counted > 0 {
        let text = format!(
            "{} further signs repeat what is in the case, the last of {}, and were only counted.",
            draft.repeats.counted, draft.repeats.last_at
        );
        reasoning.push(Reason { at: now, text });
    }
    if draft.nodes().len() > 1 {
        let text = format!("{} nodes speak in this case.", draft.nodes().len());
        reasoning.push(Reason { at: now, text });
    }
    Concluded {
        draft: draft.id,
        job: draft.scope.job().cloned(),
        generation: draft.scope.generation(),
        first_at: first.or_else(|| draft.signs.first().map(|sign| sign.at)).unwrap_or(now),
        failed,
        verdict: opinion.verdict,
        findings: opinion.findings,
        reasoning,
        clears: opinion.clears,
        signature: opinion.signature,
        headline: opinion.headline,
        node_silent: draft.holds(&What::Silent),
        stalled: draft.holds(&What::Stalled),
        order_failed: draft.holds(&What::OrderFailed),
    }
}

/// One change of a kind per call is enough: an exit with two marks extends its draft once.
fn note(changes: &mut Vec<Change>, change: Change) {
    let repeated = match &change {
        Change::Joined { draft } => changes.iter().any(|known| match known {
            Change::Opened { draft: other, .. } | Change::Joined { draft: other } => draft == other,
            _ => false,
        }),
        other => changes.contains(other),
    };
    if !repeated {
        changes.push(change);
    }
}

/// Whether a late sign about a node belongs to a concluded failure rather than to whatever runs there now: it happened
/// before the conclusion.
fn late_of(sign: &Sign, draft: &Draft) -> bool {
    draft
        .concluded
        .as_ref()
        .is_some_and(|conclusion| sign.at <= conclusion.at)
}
