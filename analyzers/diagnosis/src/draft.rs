//! Drafts: failures with open collection of evidence, or that were concluded recently.

use std::collections::BTreeMap;
use std::fmt;

use rankguard_faults::{Catalogue, classes};
use rankguard_model::{ClassId, EXIT_MESSAGE, EvidenceId, Generation, NodeId, Rank, Role, SharedValue, Timestamp};
use serde::{Deserialize, Serialize};

use crate::conclusion::DraftConclusion;
use crate::repeats::{RepeatDecision, RepeatTracker};
use crate::separate::{SeparateFailure, separate_failure, separate_failures};
use crate::signal::CHECK_SIGNATURE;
use crate::signal_ref::{SignalRef, decides};
use crate::{
    CandidateStrength, CauseCandidate, DraftPolicy, DraftScope, FailureScene, PlacementIndex, SceneVerdict, Signal,
    SignalMeaning, arbiter,
};

/// Number of a draft, counted from 1; unchanged when the draft is concluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DraftId(pub u64);

impl fmt::Display for DraftId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "draft {}", self.0)
    }
}

/// Classes of a collective operation that did not end in time.
const TIMEOUTS: [&str; 5] = [
    classes::COLLECTIVE_MISMATCH,
    classes::HANG_NO_ERROR,
    classes::HANG_STALLED_RANKS,
    classes::HCCL_TIMEOUT,
    classes::NCCL_TIMEOUT,
];

/// Signs of one failure, with the state that decides its deadline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Draft {
    pub(crate) id: DraftId,
    pub(crate) scope: DraftScope,
    pub(crate) opened_at: Timestamp,
    pub(crate) newest_at: Timestamp,
    pub(crate) placements: BTreeMap<Rank, NodeId>,
    pub(crate) signs: Vec<SharedValue<Signal>>,
    /// Total text of the signs, bytes.
    #[serde(default)]
    bytes: usize,
    /// Number of cascade and noise signs, which may be evicted.
    idle: usize,
    /// Number of signs that were dropped for lack of room.
    pub(crate) dropped: u64,
    /// Counters of repeated signs.
    pub(crate) repeats: RepeatTracker,
    /// True if signs with possibly new information arrived since the draft was weighed.
    fresh: bool,
    /// Cached ranking of its candidates.
    #[serde(skip)]
    ranked: RankingCache,
    /// True if a candidate explains the rest; otherwise the draft waits for its cap.
    pub(crate) explained: bool,
    /// True if its causes are limited to its own time ([`crate::Diagnosis::set_cause_limits`]).
    #[serde(default)]
    pub(crate) has_cause_limits: bool,
    /// True if faults are limited to what they affect ([`crate::Diagnosis::set_fault_limits`]).
    #[serde(default)]
    pub(crate) has_fault_limits: bool,
    /// True if the ends of ranks are distinguished, and the message of an end is dropped beside the same line of the rank's
    /// log, which is one fact ([`crate::Diagnosis::set_fault_ends`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) has_fault_ends: bool,
    /// True if causes lie where their effects are ([`crate::Diagnosis::set_local_causes`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) has_local_causes: bool,
    /// Start of its generation, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// Time at which no rank of its generation was left that could report something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ranks_ended_at: Option<Timestamp>,
    /// True if everything that the kernels of its nodes logged until then had been reported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_ordered: bool,
    /// Time of the newest report of the same failure after the conclusion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) renewed_at: Option<Timestamp>,
    /// Time at which the end of the failure was seen, after the conclusion: later reports belong to another failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) over_since: Option<Timestamp>,
    /// Set when concluded.
    pub(crate) concluded: Option<DraftConclusion>,
}

/// Cached candidates of a draft for one catalogue edition, best first, from weighing until the next sign or the
/// conclusion. It can be recomputed at any time, so equality of drafts ignores it.
#[derive(Debug, Clone, Default)]
struct RankingCache(Option<(u64, Vec<CauseCandidate>)>);

impl RankingCache {
    /// Returns the candidates if they were computed with this catalogue.
    fn of(self, catalogue: &Catalogue) -> Option<Vec<CauseCandidate>> {
        let (edition, ranking) = self.0?;
        (edition == catalogue.edition()).then_some(ranking)
    }
}

impl PartialEq for RankingCache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Draft {
    pub(crate) fn open(id: DraftId, scope: DraftScope, now: Timestamp, context: &PlacementIndex) -> Self {
        let known = scope.job().and_then(|job| context.job(job));
        let placements = known.map(|job| job.placements.clone()).unwrap_or_default();
        let current = known.filter(|job| scope.generation() == Some(job.generation));
        let since = current.and_then(|job| job.since);
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
            repeats: RepeatTracker::default(),
            fresh: true,
            ranked: RankingCache::default(),
            explained: false,
            has_cause_limits: false,
            has_fault_limits: false,
            has_fault_ends: false,
            has_local_causes: false,
            since,
            ranks_ended_at: None,
            is_ordered: false,
            renewed_at: None,
            over_since: None,
            concluded: None,
        }
    }

    /// Returns the time at which it is concluded if no more evidence arrives.
    pub(crate) fn deadline(&self, policy: &DraftPolicy) -> Timestamp {
        let cap = self.opened_at.after(policy.cap);
        let usual = if self.explained {
            self.newest_at.after(policy.settle).min(cap)
        } else {
            cap
        };
        let Some(ended) = self.ranks_ended_at else {
            return usual;
        };
        let settle = if self.is_ordered {
            policy.ordered_settle
        } else {
            policy.ended_settle
        };
        let wait = if self.explained { settle } else { settle * 2 };
        self.newest_at.max(ended).after(wait).min(usual)
    }

    /// Returns the time from which its window for late evidence counts; `None` while it is open. A failure that goes on,
    /// such as a full disk, renews it.
    pub(crate) fn window_from(&self) -> Option<Timestamp> {
        let conclusion = self.concluded.as_ref()?;
        Some(
            self.renewed_at
                .map_or(conclusion.at, |renewed| renewed.max(conclusion.at)),
        )
    }

    /// Records that no rank of its generation is left that could report something; `is_ordered` is true if everything
    /// that the kernels of its nodes logged until now has been reported.
    pub(crate) fn ranks_ended(&mut self, at: Timestamp, is_ordered: bool) {
        if self.ranks_ended_at.is_none() {
            self.ranks_ended_at = Some(at);
            self.is_ordered = is_ordered;
        }
    }

    /// Returns true if a collective operation timed out: the stacks and flight recorders of all ranks are being gathered.
    pub(crate) fn awaits_dumps(&self) -> bool {
        let is_timeout = |class: &ClassId| TIMEOUTS.contains(&class.as_str());
        self.signs.iter().any(|sign| sign.class().is_some_and(is_timeout))
    }

    /// Adds a sign in order of time, if there is room.
    pub(crate) fn add(&mut self, glimpse: &SignalRef<'_>, policy: &DraftPolicy) {
        let kept = self.repeats.take(glimpse);
        if kept == RepeatDecision::No || self.has_fault_ends && self.has_line_of(glimpse) {
            return;
        }
        if self.has_fault_ends {
            self.drop_message_of(glimpse);
        }
        let idle = !glimpse.decides();
        let bytes = glimpse.text.len();
        // Deciding signs may use twice the space, and exits and silences always have a short text.
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
            let is_idle = |held: &SharedValue<Signal>| held.mark().is_some_and(|mark| !decides(mark));
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
        self.ranked = RankingCache::default();
        self.idle += usize::from(idle);
        self.fresh |= kept == RepeatDecision::Telling;
    }

    /// Returns true for the message of a rank's end if it contains the same line of the rank's log.
    fn has_line_of(&self, glimpse: &SignalRef<'_>) -> bool {
        let is_message = glimpse.mark().is_some_and(|mark| mark.signature == EXIT_MESSAGE);
        let is_line = |held: &SharedValue<Signal>| {
            let is_telling = held.mark().is_some_and(|mark| mark.role != Role::Noise);
            is_telling && !held.is_signed(EXIT_MESSAGE) && held.entity == *glimpse.entity && held.text == glimpse.text
        };
        is_message && self.signs.iter().any(is_line)
    }

    /// Drops the message of a rank's end if `glimpse` is the same line of the rank's log.
    fn drop_message_of(&mut self, glimpse: &SignalRef<'_>) {
        let is_line = glimpse
            .mark()
            .is_some_and(|mark| mark.role != Role::Noise && mark.signature != EXIT_MESSAGE);
        let is_message = |held: &SharedValue<Signal>| {
            held.is_signed(EXIT_MESSAGE) && held.entity == *glimpse.entity && held.text == glimpse.text
        };
        if is_line && let Some(at) = self.signs.iter().position(is_message) {
            self.bytes = self.bytes.saturating_sub(self.signs.remove(at).text.len());
        }
    }

    /// Returns the nodes of its job, once for consecutive ranks; none for a node's own draft.
    pub(crate) fn nodes_of_job(&self) -> impl Iterator<Item = &NodeId> {
        let mut before = None;
        let nodes = self.placements.values();
        nodes.filter(move |node| before.replace(*node) != Some(*node))
    }

    /// Returns the start of its generation, if known.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        self.since
    }

    /// Returns true if a rank of its job ended, or a node of it became silent.
    pub(crate) fn has_failed(&self) -> bool {
        self.signs.iter().any(|sign| sign.mark().is_none())
    }

    /// Returns true if nodes refused to start the ranks, and nothing else ended.
    pub(crate) fn is_refused_start(&self) -> bool {
        let is_refusal = |sign: &Signal| sign.what == SignalMeaning::OrderFailed || sign.is_signed(CHECK_SIGNATURE);
        let is_end = |sign: &Signal| sign.exit().is_some() || sign.what.is_silence();
        self.signs.iter().any(|sign| is_refusal(sign)) && !self.signs.iter().any(|sign| is_end(sign))
    }

    /// Returns true if a drill is part of it.
    pub(crate) fn is_synthetic(&self) -> bool {
        self.signs.iter().any(|sign| sign.synthetic)
    }

    /// Returns the time of the earliest sign that is no noise.
    pub(crate) fn first_effect(&self) -> Option<Timestamp> {
        let is_noise = |sign: &Signal| sign.mark().is_some_and(|mark| mark.role == Role::Noise);
        self.signs.iter().find(|sign| !is_noise(sign)).map(|sign| sign.at)
    }

    /// Returns true if it contains a sign of this evidence.
    pub(crate) fn holds_evidence(&self, evidence: &EvidenceId) -> bool {
        self.signs.iter().any(|sign| sign.evidence == *evidence)
    }

    /// Returns the time of the last report of a silent node, if it contains the silence.
    pub(crate) fn silence_of(&self, node: &NodeId) -> Option<Timestamp> {
        let is_silence = |sign: &&SharedValue<Signal>| {
            let is_absence = matches!(sign.what, SignalMeaning::Silent | SignalMeaning::AgentEnded);
            is_absence && sign.node() == Some(node)
        };
        self.signs.iter().find(is_silence).map(|sign| sign.at)
    }

    /// Returns true if it was concluded as the silence of an agent.
    pub(crate) fn is_concluded_silence(&self) -> bool {
        let before = self.concluded.as_ref();
        before.is_some_and(|before| before.class.as_str() == classes::NODE_AGENT_SILENT)
    }

    /// Returns true if it contains a sign of this meaning.
    pub(crate) fn holds(&self, what: &SignalMeaning) -> bool {
        self.signs.iter().any(|sign| sign.what == *what)
    }

    /// Returns true if it holds the same fact of the caller about the same entity at the same time.
    pub(crate) fn holds_fact(&self, fact: &Signal) -> bool {
        self.signs
            .iter()
            .any(|sign| (&sign.what, &sign.entity, sign.at) == (&fact.what, &fact.entity, fact.at))
    }

    /// Weighs late evidence that does not follow from the draft.
    pub(crate) fn separate_failure(
        &self,
        now: Timestamp,
        glimpse: &SignalRef<'_>,
        catalogue: &Catalogue,
    ) -> SeparateFailure {
        let signs = [glimpse.sign()];
        separate_failure(&self.scene(catalogue).with_signs(&signs), now)
    }

    fn scene<'a>(&'a self, catalogue: &'a Catalogue) -> FailureScene<'a> {
        let (job, generation) = match &self.scope {
            DraftScope::Job { job, generation } => (Some(job), *generation),
            DraftScope::Node { .. } => (None, Generation::default()),
        };
        let scene = FailureScene::new(&self.signs, job, generation, &self.placements, catalogue);
        let scene = scene.with_limits(self.has_cause_limits, self.has_fault_limits, self.has_fault_ends);
        let scene = scene.with_local_causes(self.has_local_causes);
        scene.begun_at(self.since).of_cluster()
    }

    /// Weighs the signs and writes the reasoning. Returns the opinion, and the failures that do not follow from its
    /// cause.
    pub(crate) fn opinion(&mut self, now: Timestamp, catalogue: &Catalogue) -> (SceneVerdict, Vec<SeparateFailure>) {
        self.fresh = false;
        let ranked = std::mem::take(&mut self.ranked);
        let scene = self.scene(catalogue);
        let ranking = ranked.of(catalogue).unwrap_or_else(|| arbiter::ranking(&scene));
        let winner = ranking.first().filter(|_| self.scope.job().is_some());
        let separate = winner.map(|winner| separate_failures(&scene, winner, now));
        (arbiter::opinion(&scene, &ranking, now), separate.unwrap_or_default())
    }

    /// Weighs the signs if any arrived since the last time, without the reasoning; none otherwise.
    fn weigh(&mut self, catalogue: &Catalogue) -> Option<Option<&CauseCandidate>> {
        if !std::mem::take(&mut self.fresh) {
            return None;
        }
        let ranking = arbiter::ranking(&self.scene(catalogue));
        let (_, ranking) = self.ranked.0.insert((catalogue.edition(), ranking));
        Some(ranking.first())
    }

    /// Updates `explained` with the signs so far.
    pub(crate) fn update_explained(&mut self, catalogue: &Catalogue) {
        if !self.explained {
            let winner = self.weigh(catalogue).flatten();
            self.explained = winner.is_some_and(|winner| winner.strength >= CandidateStrength::Cause);
        }
    }

    /// Returns true if evidence since the conclusion changes class or blamed entity.
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
            self.ranked = RankingCache::default();
        }
        another
    }
}
