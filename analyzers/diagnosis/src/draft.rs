//! Drafts: a failure that is still being gathered, or that was concluded a short while ago.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rankguard_faults::Catalogue;
use rankguard_model::{Generation, NodeId, Rank, Shared, Timestamp};
use serde::{Deserialize, Serialize};

use crate::conclusion::Conclusion;
use crate::glimpse::{Glimpse, decides};
use crate::repeats::{Kept, Repeats};
use crate::{Candidate, Context, Opinion, Policy, Scene, Scope, Sign, Strength, What, arbiter};

/// A draft's number, counted from 1; it stays the same when the draft is concluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DraftId(pub u64);

impl fmt::Display for DraftId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "draft {}", self.0)
    }
}

/// The signs of one failure and when to stop gathering.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Draft {
    pub(crate) id: DraftId,
    pub(crate) scope: Scope,
    pub(crate) opened_at: Timestamp,
    pub(crate) newest_at: Timestamp,
    pub(crate) placements: BTreeMap<Rank, NodeId>,
    pub(crate) signs: Vec<Shared<Sign>>,
    /// Text of the signs, bytes.
    #[serde(default)]
    bytes: usize,
    /// Cascades and noise among the signs: what can make room.
    idle: usize,
    /// Cascades and noise that found no room.
    pub(crate) dropped: u64,
    /// What was said too often to be kept.
    pub(crate) repeats: Repeats,
    /// Whether signs that may tell something new came since the draft was weighed.
    fresh: bool,
    /// What its signs, as they are, amount to.
    #[serde(skip)]
    ranked: Ranked,
    /// Whether anything in it can explain the rest; while nothing does, the draft waits for its cap.
    pub(crate) explained: bool,
    /// Set when concluded.
    pub(crate) concluded: Option<Conclusion>,
}

/// The candidates of a draft's signs by one catalogue, the best first, from when it was weighed until a sign comes or it is
/// concluded. It can be made again at any time, so it makes no draft another one.
#[derive(Debug, Clone, Default)]
struct Ranked(Option<(u64, Vec<Candidate>)>);

impl Ranked {
    /// What it is by this catalogue, where it was made by this one.
    fn of(self, catalogue: &Catalogue) -> Option<Vec<Candidate>> {
        let (edition, ranking) = self.0?;
        (edition == catalogue.edition()).then_some(ranking)
    }
}

impl PartialEq for Ranked {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Draft {
    pub(crate) fn open(id: DraftId, scope: Scope, now: Timestamp, context: &Context) -> Self {
        let placements = match &scope {
            Scope::Job { job, .. } => context.job(job).map(|job| job.placements.clone()).unwrap_or_default(),
            Scope::Node { .. } => BTreeMap::new(),
        };
        Self {
            id,
            scope,
            opened_at: now,
            newest_at: now,
            placements,
            signs: Vec::new(),
            bytes: 0,
            idle: 0,
            dropped: 0,
            repeats: Repeats::default(),
            fresh: true,
            ranked: Ranked::default(),
            explained: false,
            concluded: None,
        }
    }

    /// When it is concluded if nothing more arrives.
    pub(crate) fn deadline(&self, policy: &Policy) -> Timestamp {
        let cap = self.opened_at.after(policy.cap);
        if self.explained {
            self.newest_at.after(policy.settle).min(cap)
        } else {
            cap
        }
    }

    /// Takes a sign in, in order of time, where there is room.
    pub(crate) fn add(&mut self, glimpse: &Glimpse<'_>, policy: &Policy) {
        let kept = self.repeats.take(glimpse);
        if kept == Kept::No {
            return;
        }
        let idle = !glimpse.decides();
        let bytes = glimpse.text.len();
        // What decides may take twice as much, and an end or a silence has a short text always.
        let room = if idle {
            policy.draft_bytes
        } else {
            policy.draft_bytes.saturating_mul(2)
        };
        if self.bytes.saturating_add(bytes) > room && glimpse.mark().is_some() {
            self.dropped += 1;
            return;
        }
        if self.signs.len() >= policy.draft_signs {
            self.dropped += 1;
            if idle || self.idle == 0 {
                return;
            }
            let is_idle = |held: &Shared<Sign>| held.mark().is_some_and(|mark| !decides(mark));
            let Some(victim) = self.signs.iter().rposition(is_idle) else {
                return;
            };
            self.bytes = self.bytes.saturating_sub(self.signs.remove(victim).text.len());
            self.idle -= 1;
        }
        let place = self
            .signs
            .partition_point(|held| (held.at, &held.evidence) <= (glimpse.at, glimpse.evidence));
        self.bytes += bytes;
        self.signs.insert(place, glimpse.sign());
        self.ranked = Ranked::default();
        self.idle += usize::from(idle);
        self.fresh |= kept == Kept::Telling;
    }

    /// The nodes of its job, of ranks that follow each other once; none where it is a node's own.
    pub(crate) fn nodes_of_job(&self) -> impl Iterator<Item = &NodeId> {
        let mut before = None;
        let nodes = self.placements.values();
        nodes.filter(move |node| before.replace(*node) != Some(*node))
    }

    /// Whether a rank of its job ended, or a node of it fell silent.
    pub(crate) fn has_failed(&self) -> bool {
        self.signs.iter().any(|sign| sign.mark().is_none())
    }

    /// Whether a drill is part of it.
    pub(crate) fn is_synthetic(&self) -> bool {
        self.signs.iter().any(|sign| sign.synthetic)
    }

    /// Whether a sign of this meaning is in it.
    pub(crate) fn holds(&self, what: &What) -> bool {
        self.signs.iter().any(|sign| sign.what == *what)
    }

    fn scene<'a>(&'a self, catalogue: &'a Catalogue) -> Scene<'a> {
        let (job, generation) = match &self.scope {
            Scope::Job { job, generation } => (Some(job), *generation),
            Scope::Node { .. } => (None, Generation::default()),
        };
        Scene::new(&self.signs, job, generation, &self.placements, catalogue)
    }

    /// Weighs what is known so far and writes down why.
    pub(crate) fn opinion(&mut self, now: Timestamp, catalogue: &Catalogue) -> Opinion {
        self.fresh = false;
        let ranked = std::mem::take(&mut self.ranked);
        let scene = self.scene(catalogue);
        let ranking = ranked.of(catalogue).unwrap_or_else(|| arbiter::ranking(&scene));
        arbiter::opinion(&scene, &ranking, now)
    }

    /// Weighs what is known so far, if anything came since that was last done; nothing is written.
    fn weigh(&mut self, catalogue: &Catalogue) -> Option<Option<&Candidate>> {
        if !std::mem::take(&mut self.fresh) {
            return None;
        }
        let ranking = arbiter::ranking(&self.scene(catalogue));
        let (_, ranking) = self.ranked.0.insert((catalogue.edition(), ranking));
        Some(ranking.first())
    }

    /// Looks again whether something explains the rest.
    pub(crate) fn look(&mut self, catalogue: &Catalogue) {
        if !self.explained {
            let winner = self.weigh(catalogue).flatten();
            self.explained = winner.is_some_and(|winner| winner.strength >= Strength::Cause);
        }
    }

    /// Whether what came since the conclusion makes it another one.
    pub(crate) fn thinks_again(&mut self, catalogue: &Catalogue) -> bool {
        let nobody = self.scene(catalogue).job_entity();
        let Some(winner) = self.weigh(catalogue) else {
            return false;
        };
        let (class, blamed) = winner.map_or_else(
            || (arbiter::UNKNOWN.into(), nobody),
            |winner| (winner.class.clone(), winner.blamed.clone()),
        );
        let before = self.concluded.as_ref();
        let another = before.is_some_and(|before| before.class != class || before.blamed != blamed);
        if !another {
            self.ranked = Ranked::default();
        }
        another
    }

    /// How many nodes speak in it, for a person. In most it is one, which is seen without putting any in order.
    pub(crate) fn nodes(&self) -> usize {
        let nodes = || self.signs.iter().filter_map(|sign| sign.node());
        let Some(first) = nodes().next() else { return 0 };
        if nodes().all(|node| node == first) {
            return 1;
        }
        nodes().collect::<BTreeSet<_>>().len()
    }
}
