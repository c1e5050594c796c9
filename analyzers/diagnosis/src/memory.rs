//! Memory: signs that may belong to a later failure, indexed by subject.
//!
//! A repeat beyond the limit only overwrites the newest sign of its kind. The indexes by place and by time are not
//! updated then: their keys are lower bounds, and a reader of the first entry checks that it is still the first.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use rankguard_model::{Entity, EvidenceId, FoldHasher, JobId, LookupMap, NodeId, SharedValue, Timestamp};

use crate::repeats::KEPT;
use crate::scope::ScopeRef;
use crate::signal_ref::SignalRef;
use crate::sorted_deque::SortedDeque;
use crate::sorted_set::SmallSortedSet;
use crate::{DraftPolicy, DraftScope, PlacementIndex, Signal};

/// Subject of a sign, as far as it decides the scopes of the sign.
#[derive(Clone, Copy, PartialEq, Hash)]
enum SubjectRef<'a> {
    /// Ranks of a generation, or a node.
    Scope(ScopeRef<'a>),
    /// Job, independent of its generation.
    Job(&'a JobId),
}

impl SubjectRef<'_> {
    fn folded(self) -> u64 {
        let mut fold = FoldHasher::default();
        self.hash(&mut fold);
        fold.finish()
    }
}

fn subject_of<'a>(entity: &'a Entity, evidence: &'a EvidenceId) -> SubjectRef<'a> {
    match entity {
        Entity::Rank { job, generation, .. } => SubjectRef::Scope(ScopeRef::Job(job, *generation)),
        Entity::Job { job } => SubjectRef::Job(job),
        Entity::Node { node } | Entity::Device { node, .. } => SubjectRef::Scope(ScopeRef::Node(node)),
        Entity::Unknown => SubjectRef::Scope(ScopeRef::Node(&evidence.node)),
    }
}

/// Number of an arrival, ascending.
type ArrivalNumber = u64;
/// Key of a held sign: the number of an arrival that is no later than its own.
type ArrivalKey = ArrivalNumber;

/// Sign in the memory.
#[derive(Debug, Clone)]
pub(crate) struct RememberedSignal {
    pub(crate) sign: SharedValue<Signal>,
    arrival: ArrivalNumber,
    /// Hash of the subject.
    whom: u64,
    /// Hash that all repeats share; none for signs that are never repeats.
    same: Option<u64>,
    /// Key in the index by time: no later than the sign's own time.
    filed: Timestamp,
}

/// Signs of one subject.
#[derive(Debug, Clone, Default)]
struct SubjectSignals {
    /// Places, in order of arrival.
    all: SmallSortedSet,
    /// True if the signs are indexed by kind: below [`KEPT`] signs in total, no kind can be full.
    by_kind: bool,
}

impl RememberedSignal {
    pub(crate) fn glimpse(&self) -> SignalRef<'_> {
        SignalRef::again(&self.sign, self.same)
    }
}

/// Signs that may explain later failures.
#[derive(Debug, Clone, Default)]
pub(crate) struct SignalMemory {
    held: SortedDeque<ArrivalKey, RememberedSignal>,
    arrived: ArrivalNumber,
    by_time: SortedDeque<(Timestamp, ArrivalKey), ()>,
    /// Signs by hash of the subject.
    of: LookupMap<u64, SubjectSignals>,
    /// Signs by subject and repeat hash, for subjects with many signs.
    alike: LookupMap<(u64, u64), SmallSortedSet>,
}

/// Compares the signs and their order; arrival numbers do not matter.
impl PartialEq for SignalMemory {
    fn eq(&self, other: &Self) -> bool {
        self.in_order().eq(other.in_order())
    }
}

impl SignalMemory {
    /// Stores a sign. If the memory is full, the oldest is removed; of repeats the first ones and the newest are
    /// held, because a complaint that was overcome and returns is the newer one.
    pub(crate) fn insert_signal(&mut self, glimpse: &SignalRef<'_>, policy: &DraftPolicy) {
        let whom = subject_of(glimpse.entity, glimpse.evidence).folded();
        if let Some(newest) = glimpse.same.and_then(|same| self.full_of((whom, same))) {
            if self.renew(newest, glimpse) {
                return;
            }
            self.remove(newest);
        }
        if self.held.len() >= policy.memory_signs {
            self.forget_oldest();
        }
        let sign = glimpse.sign();
        let held = RememberedSignal {
            arrival: self.arrived,
            whom,
            same: glimpse.same,
            filed: sign.at,
            sign,
        };
        self.insert(held);
        self.arrived += 1;
    }

    /// Inserts a sign at the place of its arrival.
    fn insert(&mut self, held: RememberedSignal) {
        let place = held.arrival;
        let whom = held.whom;
        let spoken = self.of.of(&whom);
        spoken.all.insert(place);
        let told_apart = spoken.by_kind;
        spoken.by_kind |= spoken.all.len() >= KEPT;
        let tells_apart = spoken.by_kind && !told_apart;
        if let Some(same) = held.same.filter(|_| told_apart) {
            self.alike.of(&(whom, same)).insert(place);
        }
        self.by_time.insert((held.filed, place), ());
        self.held.insert(place, held);
        if tells_apart {
            self.index_by_kind(whom);
        }
    }

    /// Builds the index by kind for one subject.
    fn index_by_kind(&mut self, whom: u64) {
        for place in self.of.get(&whom).into_iter().flat_map(|spoken| spoken.all.iter()) {
            if let Some(same) = self.held.get(&place).and_then(|held| held.same) {
                self.alike.of(&(whom, same)).insert(place);
            }
        }
    }

    /// Returns the place of the newest sign of a kind, if the kind is full.
    fn full_of(&self, kind: (u64, u64)) -> Option<ArrivalKey> {
        let alike = self.alike.get(&kind)?;
        alike.greatest().filter(|_| alike.len() >= KEPT)
    }

    /// Overwrites the newest sign of its kind with a repeat, unless this would break the index by time.
    fn renew(&mut self, newest: ArrivalKey, glimpse: &SignalRef<'_>) -> bool {
        let Some(held) = self.held.get_mut(&newest).filter(|held| glimpse.at >= held.filed) else {
            return false;
        };
        glimpse.overwrite(&mut held.sign);
        held.arrival = self.arrived;
        self.arrived += 1;
        true
    }

    /// Removes the oldest arrival. A sign that was overwritten since is moved to the place of its newest arrival.
    fn forget_oldest(&mut self) {
        while let Some(place) = self.held.first().map(|(place, _)| *place) {
            match self.remove(place) {
                Some(held) if held.arrival != place => self.insert(held),
                _ => return,
            }
        }
    }

    /// Removes signs older than the window.
    pub(crate) fn forget(&mut self, now: Timestamp, policy: &DraftPolicy) {
        let gone = |at: Timestamp| now.since(at) > policy.window;
        while let Some((filed, place)) = self.first_filed().filter(|(at, _)| gone(*at)) {
            match self.held.get_mut(&place) {
                Some(held) if !gone(held.sign.at) => {
                    held.filed = held.sign.at;
                    self.by_time.remove(&(filed, place));
                    self.by_time.insert((held.sign.at, place), ());
                }
                _ => drop(self.remove(place)),
            }
        }
    }

    /// Returns the entry with the earliest lower bound in the index by time.
    fn first_filed(&self) -> Option<(Timestamp, ArrivalKey)> {
        self.by_time.first().map(|(filed, ())| *filed)
    }

    /// Removes the silence of a node that reports again.
    pub(crate) fn forget_silence(&mut self, node: &NodeId) {
        self.forget_where(ScopeRef::Node(node), |sign| sign.what.is_silence());
    }

    /// Removes the evidence against a node and its devices.
    pub(crate) fn clear_node(&mut self, node: &NodeId) {
        self.forget_where(ScopeRef::Node(node), |sign| sign.mark().is_some());
    }

    /// Removes the signs of a scope that pass a test.
    pub(crate) fn forget_where(&mut self, scope: ScopeRef<'_>, is_over: impl Fn(&Signal) -> bool) {
        let there = self.signals_of_subject(SubjectRef::Scope(scope));
        let over = there.filter(|(_, held)| is_over(&held.sign));
        for place in over.map(|(place, _)| place).collect::<Vec<_>>() {
            self.remove(place);
        }
    }

    /// Returns the signs that may belong to a scope's failure, in order of arrival.
    pub(crate) fn of_scope<'a>(&'a self, scope: &DraftScope, context: &PlacementIndex) -> Vec<&'a RememberedSignal> {
        let mut found: Vec<&RememberedSignal> = Vec::new();
        let mut take = |whom| found.extend(self.signals_of_subject(whom).map(|(_, held)| held));
        match scope {
            DraftScope::Node { node } => {
                if context.jobs_on(node).all(|(_, known)| known.ended_at.is_some()) {
                    take(SubjectRef::Scope(ScopeRef::Node(node)));
                }
            }
            DraftScope::Job { job, generation } => {
                take(SubjectRef::Scope(ScopeRef::Job(job, *generation)));
                let known = context.job(job);
                if known.map(|known| known.generation).unwrap_or_default() == *generation {
                    let since = known.and_then(|known| known.since);
                    let of_job = self.signals_of_subject(SubjectRef::Job(job)).map(|(_, held)| held);
                    found.extend(of_job.filter(|held| since.is_none_or(|since| held.sign.at >= since)));
                    let mut take = |whom| found.extend(self.signals_of_subject(whom).map(|(_, held)| held));
                    let placed = known.into_iter().flat_map(|known| known.placements.values());
                    for node in placed.collect::<BTreeSet<_>>() {
                        take(SubjectRef::Scope(ScopeRef::Node(node)));
                    }
                }
            }
        }
        found.sort_unstable_by_key(|held| held.arrival);
        found
    }

    /// Returns the signs of a subject; different subjects with equal hash are separated.
    fn signals_of_subject<'a, 'w>(
        &'a self,
        asked: SubjectRef<'w>,
    ) -> impl Iterator<Item = (ArrivalKey, &'a RememberedSignal)> + use<'a, 'w> {
        let places = self
            .of
            .get(&asked.folded())
            .into_iter()
            .flat_map(|spoken| spoken.all.iter());
        let held = places.filter_map(|place| Some((place, self.held.get(&place)?)));
        held.filter(move |(_, held)| subject_of(&held.sign.entity, &held.sign.evidence) == asked)
    }

    /// Returns all signs in order of arrival.
    fn in_order(&self) -> impl Iterator<Item = &SharedValue<Signal>> {
        let mut held: Vec<&RememberedSignal> = self.held.values().collect();
        held.sort_unstable_by_key(|held| held.arrival);
        held.into_iter().map(|held| &held.sign)
    }

    /// Returns all signs, oldest arrival first.
    pub(crate) fn into_signs(self) -> Vec<SharedValue<Signal>> {
        let mut held: Vec<RememberedSignal> = self.held.into_values().collect();
        held.sort_unstable_by_key(|held| held.arrival);
        held.into_iter().map(|held| held.sign).collect()
    }

    fn remove(&mut self, place: ArrivalKey) -> Option<RememberedSignal> {
        let held = self.held.remove(&place)?;
        self.by_time.remove(&(held.filed, place));
        let leave = |row: &mut SmallSortedSet| {
            row.remove(place);
            row.is_empty()
        };
        let mut by_kind = false;
        self.of.update_or_remove(&held.whom, |spoken| {
            by_kind = spoken.by_kind;
            leave(&mut spoken.all)
        });
        if let Some(same) = held.same.filter(|_| by_kind) {
            self.alike.update_or_remove(&(held.whom, same), leave);
        }
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use rankguard_model::{Classification, EvidenceSource, FieldValues, Role, Sequence};

    use super::*;
    use crate::SignalMeaning;

    fn sign(number: u64, node: u8, kind: u8, at: i64) -> SharedValue<Signal> {
        let node = NodeId::from(format!("n{node}").as_str());
        let mark = Classification {
            class: format!("class-{kind}").as_str().into(),
            role: Role::Root,
            confidence: 0.9,
            signature: "s".into(),
            fields: FieldValues::new(),
        };
        SharedValue::from(Signal {
            evidence: EvidenceId {
                node: node.clone(),
                seq: Sequence(number + 1),
            },
            at: Timestamp::from_millis(at),
            timed: true,
            source: EvidenceSource::KernelLog,
            entity: Entity::Node { node },
            // Signs of the last kind are never repeats.
            what: if kind == 3 {
                SignalMeaning::Silent
            } else {
                SignalMeaning::Mark(mark)
            },
            text: "it failed".to_owned(),
            synthetic: false,
        })
    }

    /// Reference implementation: searches everything that is held.
    fn hold(held: &mut Vec<SharedValue<Signal>>, sign: &SharedValue<Signal>, policy: &DraftPolicy) {
        let same = |other: &SharedValue<Signal>| other.what == sign.what && other.entity == sign.entity;
        let alike = (0..held.len()).filter(|at| sign.mark().is_some() && same(&held[*at]));
        let alike: Vec<usize> = alike.collect();
        match alike.last() {
            Some(newest) if alike.len() >= KEPT => drop(held.remove(*newest)),
            _ if held.len() >= policy.memory_signs => drop(held.remove(0)),
            _ => {}
        }
        held.push(sign.clone());
    }

    proptest! {
        #[test]
        fn it_holds_what_a_look_at_everything_would(
            room in 8..90_usize,
            steps in prop::collection::vec((0..2_u8, 0..4_u8, 0..30_i64), 0..400),
        ) {
            let window = Duration::from_millis(300);
            let policy = DraftPolicy { memory_signs: room, window, ..DraftPolicy::default() };
            let mut memory = SignalMemory::default();
            let mut plain = Vec::new();
            for (number, (node, kind, ago)) in (0..).zip(steps) {
                let now = number as i64 * 5;
                let sign = sign(number, node, kind, now - ago);
                memory.forget(Timestamp::from_millis(now), &policy);
                plain.retain(|held: &SharedValue<Signal>| Timestamp::from_millis(now).since(held.at) <= window);
                memory.insert_signal(&SignalRef::of(&sign), &policy);
                hold(&mut plain, &sign, &policy);
                prop_assert!(memory.in_order().eq(&plain));
            }
        }
    }
}
