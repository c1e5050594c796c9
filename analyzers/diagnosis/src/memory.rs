//! The memory: signs that may belong to a failure which shows later, found by whom they speak of.
//!
//! A repeat of what is held often enough only overwrites the newest of its kind. The orders by place and by time are not told
//! of that: they say *not before*, and whoever takes the first of one looks whether it is still the first.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use rankguard_model::{ByName, Entity, EvidenceId, Fold, JobId, NodeId, Timestamp};

use crate::glimpse::Glimpse;
use crate::repeats::KEPT;
use crate::rising::Rising;
use crate::row::Row;
use crate::scope::ScopeRef;
use crate::{Context, Policy, Scope, Sign, What};

/// Whom a sign speaks of, as far as it decides whose failure it may belong to.
#[derive(Clone, Copy, PartialEq, Hash)]
enum Whom<'a> {
    /// Ranks of a generation, and nodes.
    Scope(ScopeRef<'a>),
    /// A job as such, whatever its generation.
    Job(&'a JobId),
}

impl Whom<'_> {
    fn folded(self) -> u64 {
        let mut fold = Fold::default();
        self.hash(&mut fold);
        fold.finish()
    }
}

fn whom<'a>(entity: &'a Entity, evidence: &'a EvidenceId) -> Whom<'a> {
    match entity {
        Entity::Rank { job, generation, .. } => Whom::Scope(ScopeRef::Job(job, *generation)),
        Entity::Job { job } => Whom::Job(job),
        Entity::Node { node } | Entity::Device { node, .. } => Whom::Scope(ScopeRef::Node(node)),
        Entity::Unknown => Whom::Scope(ScopeRef::Node(&evidence.node)),
    }
}

/// The number of an arrival; what arrived first has the lowest.
type Arrival = u64;
/// Where a sign is held: the number of an arrival that is no later than its own.
type Place = Arrival;

/// A sign that is held.
#[derive(Debug, Clone)]
struct Held {
    sign: Sign,
    arrival: Arrival,
    /// Whom it speaks of, folded.
    whom: u64,
    /// What is the same in all repeats of it; none for what is never a repeat.
    same: Option<u64>,
    /// Where it stands in the order by time: no later than its own.
    filed: Timestamp,
}

/// Signs that may explain what comes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    held: Rising<Place, Box<Held>>,
    arrived: Arrival,
    by_time: Rising<(Timestamp, Place), ()>,
    /// What speaks of whom, in the order of arrival.
    of: ByName<u64, Row>,
    /// Of it what says the same, as far as that can be a repeat.
    alike: ByName<(u64, u64), Row>,
}

/// The same signs in the same order; the numbers of their arrival say nothing.
impl PartialEq for Memory {
    fn eq(&self, other: &Self) -> bool {
        self.in_order().eq(other.in_order())
    }
}

impl Memory {
    /// Remembers a sign. When there is no room the oldest is forgotten; of what says the same the first ones and the newest
    /// are held, because a complaint that was overcome and comes back is the newer one.
    pub(crate) fn hold(&mut self, glimpse: &Glimpse<'_>, policy: &Policy) {
        let whom = whom(glimpse.entity, glimpse.evidence).folded();
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
        let held = Held {
            arrival: self.arrived,
            whom,
            same: glimpse.same,
            filed: sign.at,
            sign,
        };
        self.insert(Box::new(held));
        self.arrived += 1;
    }

    /// Holds a sign at the place of its arrival.
    fn insert(&mut self, held: Box<Held>) {
        let place = held.arrival;
        self.of.of(&held.whom).insert(place);
        if let Some(same) = held.same {
            self.alike.of(&(held.whom, same)).insert(place);
        }
        self.by_time.insert((held.filed, place), ());
        self.held.insert(place, held);
    }

    /// Where the newest stands of a kind, if enough of it is held.
    fn full_of(&self, kind: (u64, u64)) -> Option<Place> {
        let alike = self.alike.get(&kind)?;
        alike.greatest().filter(|_| alike.len() >= KEPT)
    }

    /// Puts a repeat in the place of the newest of its kind, where the order by time stays true.
    fn renew(&mut self, newest: Place, glimpse: &Glimpse<'_>) -> bool {
        let Some(held) = self.held.get_mut(&newest).filter(|held| glimpse.at >= held.filed) else {
            return false;
        };
        glimpse.overwrite(&mut held.sign);
        held.arrival = self.arrived;
        self.arrived += 1;
        true
    }

    /// Forgets the oldest arrival. What was renewed since it got its place gets the place of its newest one.
    fn forget_oldest(&mut self) {
        while let Some(place) = self.held.first().map(|(place, _)| *place) {
            match self.remove(place) {
                Some(held) if held.arrival != place => self.insert(held),
                _ => return,
            }
        }
    }

    /// Forgets what happened before the window.
    pub(crate) fn forget(&mut self, now: Timestamp, policy: &Policy) {
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

    /// Whose moment is the earliest, as far as the order by time was told.
    fn first_filed(&self) -> Option<(Timestamp, Place)> {
        self.by_time.first().map(|(filed, ())| *filed)
    }

    /// A node speaks again: its silence is forgotten.
    pub(crate) fn forget_silence(&mut self, node: &NodeId) {
        let there = self.of_whom(Whom::Scope(ScopeRef::Node(node)));
        let silent = there.filter(|(_, held)| held.sign.what == What::Silent);
        for place in silent.map(|(place, _)| place).collect::<Vec<_>>() {
            self.remove(place);
        }
    }

    /// Signs that may belong to a scope's failure, in the order of their arrival.
    pub(crate) fn of_scope<'a>(&'a self, scope: &Scope, context: &Context) -> Vec<&'a Sign> {
        let mut found: Vec<&Held> = Vec::new();
        let mut take = |whom| found.extend(self.of_whom(whom).map(|(_, held)| held));
        match scope {
            Scope::Node { node } => {
                if context.jobs_on(node).next().is_none() {
                    take(Whom::Scope(ScopeRef::Node(node)));
                }
            }
            Scope::Job { job, generation } => {
                take(Whom::Scope(ScopeRef::Job(job, *generation)));
                let known = context.job(job);
                if known.map(|known| known.generation).unwrap_or_default() == *generation {
                    take(Whom::Job(job));
                    let placed = known.into_iter().flat_map(|known| known.placements.values());
                    for node in placed.collect::<BTreeSet<_>>() {
                        take(Whom::Scope(ScopeRef::Node(node)));
                    }
                }
            }
        }
        found.sort_unstable_by_key(|held| held.arrival);
        found.into_iter().map(|held| &held.sign).collect()
    }

    /// What is held of whom. Names that fold alike are still two.
    fn of_whom<'a, 'w>(&'a self, asked: Whom<'w>) -> impl Iterator<Item = (Place, &'a Held)> + use<'a, 'w> {
        let places = self.of.get(&asked.folded()).into_iter().flat_map(Row::iter);
        let held = places.filter_map(|place| Some((place, &**self.held.get(&place)?)));
        held.filter(move |(_, held)| whom(&held.sign.entity, &held.sign.evidence) == asked)
    }

    /// Everything that is held, in the order of arrival.
    fn in_order(&self) -> impl Iterator<Item = &Sign> {
        let mut held: Vec<&Held> = self.held.values().map(Box::as_ref).collect();
        held.sort_unstable_by_key(|held| held.arrival);
        held.into_iter().map(|held| &held.sign)
    }

    /// All signs, oldest arrival first.
    pub(crate) fn into_signs(self) -> Vec<Sign> {
        let mut held: Vec<Box<Held>> = self.held.into_values().collect();
        held.sort_unstable_by_key(|held| held.arrival);
        held.into_iter().map(|held| held.sign).collect()
    }

    fn remove(&mut self, place: Place) -> Option<Box<Held>> {
        let held = self.held.remove(&place)?;
        self.by_time.remove(&(held.filed, place));
        let leave = |row: &mut Row| {
            row.remove(place);
            row.is_empty()
        };
        self.of.lessen(&held.whom, leave);
        if let Some(same) = held.same {
            self.alike.lessen(&(held.whom, same), leave);
        }
        Some(held)
    }
}
