//! The memory: signs that may belong to a failure which shows later, found by whom they speak of.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Entity, Generation, JobId, NodeId, Timestamp};

use crate::repeats::{KEPT, sameness};
use crate::{Context, Policy, Scope, Sign, What};

/// Whom a sign speaks of, as far as it decides whose failure it may belong to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whom {
    Ranks(JobId, Generation),
    Job(JobId),
    Node(NodeId),
}

impl Whom {
    fn of(sign: &Sign) -> Self {
        match &sign.entity {
            Entity::Rank { job, generation, .. } => Self::Ranks(job.clone(), *generation),
            Entity::Job { job } => Self::Job(job.clone()),
            Entity::Node { node } | Entity::Device { node, .. } => Self::Node(node.clone()),
            Entity::Unknown => Self::Node(sign.evidence.node.clone()),
        }
    }
}

/// The number of an arrival; what arrived first has the lowest.
type Arrival = u64;

/// Signs in the order of their arrival.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    signs: BTreeMap<Arrival, Sign>,
    arrived: Arrival,
    by_time: BTreeSet<(Timestamp, Arrival)>,
    by_whom: BTreeMap<Whom, BTreeSet<Arrival>>,
    /// Of what says the same, with its number.
    alike: BTreeMap<u64, BTreeSet<Arrival>>,
    sameness: BTreeMap<Arrival, u64>,
}

/// The same signs in the same order; the numbers of their arrival say nothing.
impl PartialEq for Memory {
    fn eq(&self, other: &Self) -> bool {
        self.signs.values().eq(other.signs.values())
    }
}

impl Memory {
    /// Remembers a sign. When there is no room the oldest is forgotten; of what says the same the first ones and the newest
    /// are held, because a complaint that was overcome and comes back is the newer one.
    pub(crate) fn hold(&mut self, sign: Sign, policy: &Policy) {
        if let Some(same) = sameness(&sign) {
            let alike = self.alike.get(&same).filter(|alike| alike.len() >= KEPT);
            if let Some(newest) = alike.and_then(|alike| alike.last().copied()) {
                self.remove(newest);
            }
            self.sameness.insert(self.arrived, same);
            self.alike.entry(same).or_default().insert(self.arrived);
        }
        if self.signs.len() >= policy.memory_signs
            && let Some(oldest) = self.signs.keys().next().copied()
        {
            self.remove(oldest);
        }
        self.by_time.insert((sign.at, self.arrived));
        self.by_whom.entry(Whom::of(&sign)).or_default().insert(self.arrived);
        self.signs.insert(self.arrived, sign);
        self.arrived += 1;
    }

    /// Forgets what happened before the window.
    pub(crate) fn forget(&mut self, now: Timestamp, policy: &Policy) {
        while let Some((_, arrival)) = self
            .by_time
            .first()
            .filter(|(at, _)| now.since(*at) > policy.window)
            .copied()
        {
            self.remove(arrival);
        }
    }

    /// A node speaks again: its silence is forgotten.
    pub(crate) fn forget_silence(&mut self, node: &NodeId) {
        let Some(held) = self.by_whom.get(&Whom::Node(node.clone())) else {
            return;
        };
        let silent = |arrival: &&Arrival| self.signs.get(arrival).is_some_and(|sign| sign.what == What::Silent);
        for arrival in held.iter().filter(silent).copied().collect::<Vec<_>>() {
            self.remove(arrival);
        }
    }

    /// Signs that may belong to a scope's failure, in the order of their arrival.
    pub(crate) fn of_scope<'a>(&'a self, scope: &Scope, context: &Context) -> Vec<&'a Sign> {
        let mut found: BTreeSet<Arrival> = BTreeSet::new();
        let mut take = |whom: &Whom| found.extend(self.by_whom.get(whom).into_iter().flatten());
        match scope {
            Scope::Node { node } => {
                if context.jobs_on(node).next().is_none() {
                    take(&Whom::Node(node.clone()));
                }
            }
            Scope::Job { job, generation } => {
                take(&Whom::Ranks(job.clone(), *generation));
                let known = context.jobs.get(job);
                if known.map(|known| known.generation).unwrap_or_default() == *generation {
                    take(&Whom::Job(job.clone()));
                    let placed = known.into_iter().flat_map(|known| known.placements.values());
                    for node in placed.collect::<BTreeSet<_>>() {
                        take(&Whom::Node(node.clone()));
                    }
                }
            }
        }
        found.iter().filter_map(|arrival| self.signs.get(arrival)).collect()
    }

    /// All signs, oldest arrival first.
    pub(crate) fn into_signs(self) -> Vec<Sign> {
        self.signs.into_values().collect()
    }

    fn remove(&mut self, arrival: Arrival) {
        let Some(sign) = self.signs.remove(&arrival) else {
            return;
        };
        self.by_time.remove(&(sign.at, arrival));
        drop_from(&mut self.by_whom, &Whom::of(&sign), arrival);
        if let Some(same) = self.sameness.remove(&arrival) {
            drop_from(&mut self.alike, &same, arrival);
        }
    }
}

fn drop_from<K: Ord>(groups: &mut BTreeMap<K, BTreeSet<Arrival>>, key: &K, arrival: Arrival) {
    let Some(group) = groups.get_mut(key) else { return };
    group.remove(&arrival);
    if group.is_empty() {
        groups.remove(key);
    }
}
