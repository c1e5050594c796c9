//! All drafts of a diagnosis, indexed by scope and by due time.

use std::collections::BTreeSet;

use rankguard_model::{LookupMap, NodeId, Timestamp};

use crate::draft::Draft;
use crate::scope::ScopeRef;
use crate::sorted_deque::SortedDeque;
use crate::sorted_set::SmallSortedSet;
use crate::{DraftId, DraftPolicy, DraftScope};

/// Open drafts and those concluded within the window.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DraftTable {
    /// Ordered by age. Boxed, because drafts are large and created by the thousand.
    all: SortedDeque<DraftId, Box<Draft>>,
    orders: DraftIndexes,
}

/// Indexes of the drafts.
#[derive(Debug, Clone, Default, PartialEq)]
struct DraftIndexes {
    of: LookupMap<DraftScope, ScopeDrafts>,
    /// Due time of each open draft.
    due: BTreeSet<(Timestamp, DraftId)>,
    /// Time of conclusion of each concluded draft.
    done: SortedDeque<(Timestamp, DraftId), ()>,
    /// Concluded drafts of jobs by the nodes of the job.
    done_on: LookupMap<NodeId, SmallSortedSet>,
}

/// Drafts of a scope.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ScopeDrafts {
    /// Open draft; at most one.
    pub(crate) open: Option<DraftId>,
    /// Numbers of the concluded drafts.
    done: SmallSortedSet,
}

impl ScopeDrafts {
    /// Returns the newest concluded draft.
    pub(crate) fn newest_done(&self) -> Option<DraftId> {
        self.done.greatest().map(DraftId)
    }

    /// Returns the concluded drafts, newest first.
    pub(crate) fn all_done(&self) -> impl Iterator<Item = DraftId> {
        self.done.falling().map(DraftId)
    }

    fn leave(&mut self, draft: &Draft) {
        match draft.concluded {
            None => self.open = None,
            Some(_) => self.done.remove(draft.id.0),
        }
    }
}

impl DraftIndexes {
    /// Adds a draft to the indexes.
    fn enter(&mut self, draft: &Draft, policy: &DraftPolicy) {
        if draft.concluded.is_some() {
            return self.conclude(draft);
        }
        self.of.of(&draft.scope).open = Some(draft.id);
        self.due.insert((draft.deadline(policy), draft.id));
    }

    /// Moves a draft to the concluded ones; it may have been open, concluded before, or absent.
    fn conclude(&mut self, draft: &Draft) {
        let id = draft.id;
        let Some(from) = draft.window_from() else { return };
        let of = self.of.of(&draft.scope);
        of.open = of.open.filter(|open| *open != id);
        of.done.insert(id.0);
        self.done.insert((from, id), ());
        for node in draft.nodes_of_job() {
            self.done_on.of(node).insert(id.0);
        }
    }

    /// Removes a draft from all indexes.
    fn forget(&mut self, draft: &Draft, policy: &DraftPolicy) {
        self.of.update_or_remove(&draft.scope, |of| {
            of.leave(draft);
            of.open.is_none() && of.done.is_empty()
        });
        self.leave_moments(draft, policy);
    }

    fn leave_moments(&mut self, draft: &Draft, policy: &DraftPolicy) {
        let id = draft.id;
        let Some(from) = draft.window_from() else {
            self.due.remove(&(draft.deadline(policy), id));
            return;
        };
        self.done.remove(&(from, id));
        for node in draft.nodes_of_job() {
            self.done_on.update_or_remove(node, |there| {
                there.remove(id.0);
                there.is_empty()
            });
        }
    }
}

impl DraftTable {
    /// Rebuilds the indexes of stored drafts.
    pub(crate) fn of(all: Vec<Draft>, policy: &DraftPolicy) -> Self {
        let mut drafts = Self::default();
        for draft in all {
            drafts.insert(Box::new(draft), policy);
        }
        drafts
    }

    /// Adds a draft to the indexes and the map.
    pub(crate) fn insert(&mut self, draft: Box<Draft>, policy: &DraftPolicy) {
        self.orders.enter(&draft, policy);
        self.all.insert(draft.id, draft);
    }

    /// Changes the signs of a draft, which remains open or concluded, and updates its due time or its window.
    pub(crate) fn change<T>(
        &mut self,
        id: DraftId,
        policy: &DraftPolicy,
        how: impl FnOnce(&mut Draft) -> T,
    ) -> Option<T> {
        let draft = self.all.get_mut(&id)?;
        let before = draft.deadline(policy);
        let window = draft.window_from();
        let told = how(draft);
        let after = draft.deadline(policy);
        if let (Some(old), Some(new)) = (window, draft.window_from())
            && old != new
            && self.orders.done.remove(&(old, id)).is_some()
        {
            self.orders.done.insert((new, id), ());
        }
        let due = &mut self.orders.due;
        if before != after && due.remove(&(before, id)) {
            due.insert((after, id));
        }
        Some(told)
    }

    /// Concludes an open or concluded draft: `how` sets its conclusion.
    pub(crate) fn conclude<T>(
        &mut self,
        id: DraftId,
        policy: &DraftPolicy,
        how: impl FnOnce(&mut Draft) -> T,
    ) -> Option<T> {
        let draft = self.all.get_mut(&id)?;
        self.orders.leave_moments(draft, policy);
        let told = how(draft);
        self.orders.conclude(draft);
        Some(told)
    }

    /// Returns the number of drafts.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, id: DraftId) -> Option<&Draft> {
        self.all.get(&id).map(Box::as_ref)
    }

    /// Returns the drafts of a scope, if it has any.
    pub(crate) fn of_scope(&self, scope: ScopeRef<'_>) -> Option<&ScopeDrafts> {
        self.orders.of.get(&scope)
    }

    /// Returns the open drafts, oldest first.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Draft> {
        self.all
            .values()
            .map(Box::as_ref)
            .filter(|draft| draft.concluded.is_none())
    }

    /// Returns the time at which a draft is due next.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.orders.due.first().map(|(at, _)| *at)
    }

    /// Returns the open drafts that are due by now, oldest first.
    pub(crate) fn due_by(&self, now: Timestamp) -> Vec<DraftId> {
        let due = self.orders.due.iter().take_while(|(at, _)| *at <= now);
        let mut due: Vec<DraftId> = due.map(|(_, id)| *id).collect();
        due.sort_unstable();
        due
    }

    /// Returns the newest concluded draft of another scope that concerns the node, is newer than the `newest` of this
    /// scope and passes `test`.
    pub(crate) fn newest_elsewhere(
        &self,
        node: &NodeId,
        (scope, newest): (ScopeRef<'_>, Option<DraftId>),
        test: impl Fn(&Draft) -> bool,
    ) -> Option<DraftId> {
        let first = |row: &SmallSortedSet| {
            let ids = row.falling().map(DraftId);
            let mut newer = ids.take_while(|id| newest.is_none_or(|newest| *id > newest));
            newer.find(|id| self.all.get(id).is_some_and(|draft| test(draft)))
        };
        let of_jobs = self.orders.done_on.get(node).and_then(first);
        let itself = Some(ScopeRef::Node(node)).filter(|node| *node != scope);
        let of_itself = itself.and_then(|node| first(&self.of_scope(node)?.done));
        of_jobs.max(of_itself)
    }

    /// Returns the concluded drafts that concern a node.
    pub(crate) fn concluded_on(&self, node: &NodeId) -> impl Iterator<Item = &Draft> {
        let of_jobs = self.orders.done_on.get(node).into_iter().flat_map(|row| row.falling());
        let of_itself = self.of_scope(ScopeRef::Node(node));
        let of_itself = of_itself.into_iter().flat_map(|of| of.done.falling());
        of_jobs.chain(of_itself).filter_map(|id| self.get(DraftId(id)))
    }

    /// Returns the drafts in which a node became silent, each with the time of the node's last report. Drafts of older
    /// rules are omitted.
    pub(crate) fn silences_of(&self, node: &NodeId) -> Vec<(DraftId, Timestamp)> {
        let limited = self
            .open()
            .chain(self.concluded_on(node))
            .filter(|draft| draft.has_cause_limits);
        limited
            .filter_map(|draft| Some((draft.id, draft.silence_of(node)?)))
            .collect()
    }

    /// Removes drafts that were concluded before the window.
    pub(crate) fn forget(&mut self, now: Timestamp, policy: &DraftPolicy) {
        while let Some((_, id)) = self
            .orders
            .done
            .first()
            .map(|(done, ())| *done)
            .filter(|(at, _)| now.since(*at) > policy.window)
        {
            let Some(draft) = self.all.remove(&id) else { return };
            self.orders.forget(&draft, policy);
        }
    }

    /// Returns all drafts, oldest first.
    pub(crate) fn into_all(self) -> Vec<Draft> {
        self.all.into_values().map(|draft| *draft).collect()
    }
}
