//! The memory: signs that may belong to a failure which shows later, found by whom they speak of.
//!
//! A repeat of what is held often enough only overwrites the newest of its kind. The orders by place and by time are not told
//! of that: they say *not before*, and whoever takes the first of one looks whether it is still the first.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Entity, JobId, NodeId, Timestamp};

use crate::glimpse::Glimpse;
use crate::repeats::KEPT;
use crate::scope::{ByScope, ScopeRef};
use crate::{Context, Policy, Scope, Sign, What};

/// Something of whomever a sign may speak of, as far as it decides whose failure it may belong to.
#[derive(Debug, Clone, Default)]
struct ByWhom {
    /// Ranks of a generation, and nodes.
    scopes: ByScope<Places>,
    /// Jobs as such, whatever their generation.
    jobs: BTreeMap<JobId, Places>,
}

impl ByWhom {
    fn insert(&mut self, sign: &Sign, place: Place) {
        let known = match whom(sign) {
            Whom::Scope(scope) => self.scopes.get_mut(scope),
            Whom::Job(job) => self.jobs.get_mut(job),
        };
        match (known, whom(sign)) {
            (Some(places), _) => file(places, place),
            (None, Whom::Scope(scope)) => self.scopes.insert(&scope.own(), vec![place]),
            (None, Whom::Job(job)) => drop(self.jobs.insert(job.clone(), vec![place])),
        }
    }

    fn remove(&mut self, sign: &Sign, place: Place) {
        let whom = whom(sign);
        let known = match whom {
            Whom::Scope(scope) => self.scopes.get_mut(scope),
            Whom::Job(job) => self.jobs.get_mut(job),
        };
        let Some(places) = known else { return };
        if let Ok(at) = places.binary_search(&place) {
            places.remove(at);
        }
        if places.is_empty() {
            match whom {
                Whom::Scope(scope) => self.scopes.remove(scope),
                Whom::Job(job) => drop(self.jobs.remove(job)),
            }
        }
    }
}

/// Whom a sign speaks of.
#[derive(Clone, Copy)]
enum Whom<'a> {
    Scope(ScopeRef<'a>),
    Job(&'a JobId),
}

fn whom(sign: &Sign) -> Whom<'_> {
    match &sign.entity {
        Entity::Rank { job, generation, .. } => Whom::Scope(ScopeRef::Job(job, *generation)),
        Entity::Job { job } => Whom::Job(job),
        Entity::Node { node } | Entity::Device { node, .. } => Whom::Scope(ScopeRef::Node(node)),
        Entity::Unknown => Whom::Scope(ScopeRef::Node(&sign.evidence.node)),
    }
}

/// The number of an arrival; what arrived first has the lowest.
type Arrival = u64;
/// Where a sign is held: the number of an arrival that is no later than its own.
type Place = Arrival;
/// Places in rising order.
type Places = Vec<Place>;

/// Puts a place among others; it is the highest as a rule.
fn file(places: &mut Places, place: Place) {
    let at = places.partition_point(|other| *other < place);
    places.insert(at, place);
}

/// A sign that is held.
#[derive(Debug, Clone)]
struct Held {
    sign: Sign,
    arrival: Arrival,
    /// What is the same in all repeats of it.
    same: Option<u64>,
    /// Where it stands in the order by time: no later than its own.
    filed: Timestamp,
}

/// Signs that may explain what comes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    held: BTreeMap<Place, Box<Held>>,
    arrived: Arrival,
    by_time: BTreeSet<(Timestamp, Place)>,
    by_whom: ByWhom,
    /// Of what says the same, in the order of arrival.
    alike: BTreeMap<u64, Vec<Place>>,
}

/// The same signs in the same order; the numbers of their arrival say nothing.
impl PartialEq for Memory {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.in_order(self.held.keys()), other.in_order(other.held.keys()));
        let theirs = theirs.iter().map(|held| &held.sign);
        ours.iter().map(|held| &held.sign).eq(theirs)
    }
}

impl Memory {
    /// Remembers a sign. When there is no room the oldest is forgotten; of what says the same the first ones and the newest
    /// are held, because a complaint that was overcome and comes back is the newer one.
    pub(crate) fn hold(&mut self, glimpse: &Glimpse<'_>, policy: &Policy) {
        if let Some(newest) = self.full_of(glimpse) {
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
        if let Some(same) = held.same {
            file(self.alike.entry(same).or_default(), place);
        }
        self.by_time.insert((held.filed, place));
        self.by_whom.insert(&held.sign, place);
        self.held.insert(place, held);
    }

    /// Where the newest stands of what says the same, if enough of it is held.
    fn full_of(&self, glimpse: &Glimpse<'_>) -> Option<Place> {
        let alike = self.alike.get(&glimpse.same?)?;
        alike.last().copied().filter(|_| alike.len() >= KEPT)
    }

    /// Puts a repeat in the place of the newest of its kind, where the orders stay true.
    fn renew(&mut self, newest: Place, glimpse: &Glimpse<'_>) -> bool {
        let Some(held) = self.held.get_mut(&newest) else {
            return false;
        };
        let elsewhere = *glimpse.entity == Entity::Unknown && held.sign.evidence.node != glimpse.evidence.node;
        if glimpse.at < held.filed || elsewhere {
            return false;
        }
        glimpse.overwrite(&mut held.sign);
        held.arrival = self.arrived;
        self.arrived += 1;
        true
    }

    /// Forgets the oldest arrival. What was renewed since it got its place gets the place of its newest one.
    fn forget_oldest(&mut self) {
        while let Some(place) = self.held.keys().next().copied() {
            match self.remove(place) {
                Some(held) if held.arrival != place => self.insert(held),
                _ => return,
            }
        }
    }

    /// Forgets what happened before the window.
    pub(crate) fn forget(&mut self, now: Timestamp, policy: &Policy) {
        let gone = |at: Timestamp| now.since(at) > policy.window;
        while let Some((filed, place)) = self.by_time.first().filter(|(at, _)| gone(*at)).copied() {
            match self.held.get_mut(&place) {
                Some(held) if !gone(held.sign.at) => {
                    held.filed = held.sign.at;
                    self.by_time.remove(&(filed, place));
                    self.by_time.insert((held.sign.at, place));
                }
                _ => drop(self.remove(place)),
            }
        }
    }

    /// A node speaks again: its silence is forgotten.
    pub(crate) fn forget_silence(&mut self, node: &NodeId) {
        let Some(held) = self.by_whom.scopes.get(ScopeRef::Node(node)) else {
            return;
        };
        let silent = |place: &&Place| self.held.get(place).is_some_and(|held| held.sign.what == What::Silent);
        for place in held.iter().filter(silent).copied().collect::<Vec<_>>() {
            self.remove(place);
        }
    }

    /// Signs that may belong to a scope's failure, in the order of their arrival.
    pub(crate) fn of_scope<'a>(&'a self, scope: &Scope, context: &Context) -> Vec<&'a Sign> {
        let mut found = Places::new();
        let mut take = |places: Option<&Places>| found.extend(places.into_iter().flatten());
        let (scopes, jobs) = (&self.by_whom.scopes, &self.by_whom.jobs);
        match scope {
            Scope::Node { node } => {
                if context.jobs_on(node).next().is_none() {
                    take(scopes.get(ScopeRef::Node(node)));
                }
            }
            Scope::Job { job, generation } => {
                take(scopes.get(ScopeRef::Job(job, *generation)));
                let known = context.job(job);
                if known.map(|known| known.generation).unwrap_or_default() == *generation {
                    take(jobs.get(job));
                    let placed = known.into_iter().flat_map(|known| known.placements.values());
                    for node in placed.collect::<BTreeSet<_>>() {
                        take(scopes.get(ScopeRef::Node(node)));
                    }
                }
            }
        }
        let held = self.in_order(found.iter()).into_iter();
        held.map(|held| &held.sign).collect()
    }

    /// What is held at some places, in the order of arrival.
    fn in_order<'a>(&self, places: impl Iterator<Item = &'a Place>) -> Vec<&Held> {
        let mut held: Vec<&Held> = places.filter_map(|place| Some(&**self.held.get(place)?)).collect();
        held.sort_unstable_by_key(|held| held.arrival);
        held
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
        self.by_whom.remove(&held.sign, place);
        if let Some(same) = held.same
            && let Some(alike) = self.alike.get_mut(&same)
        {
            alike.retain(|other| *other != place);
            if alike.is_empty() {
                self.alike.remove(&same);
            }
        }
        Some(held)
    }
}
