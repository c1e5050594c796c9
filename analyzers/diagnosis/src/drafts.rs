//! All drafts of a diagnosis, found by whose failure they are and by when something is to be done with them.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Folded, NodeId, Timestamp};

use crate::by_fold::{ByFold, fold};
use crate::draft::Draft;
use crate::scope::ScopeRef;
use crate::{DraftId, Policy};

/// Open drafts and those concluded within the window.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Drafts {
    /// Oldest first. Boxed, because they come and go by the thousand and are large.
    all: BTreeMap<DraftId, Box<Draft>>,
    orders: Orders,
}

/// Drafts by what they are asked for.
#[derive(Debug, Clone, Default, PartialEq)]
struct Orders {
    /// The open draft of each scope; there is never a second one.
    open_of: ByFold,
    /// When each open draft is concluded.
    due: BTreeSet<(Timestamp, DraftId)>,
    /// When each concluded draft was concluded.
    done: BTreeSet<(Timestamp, DraftId)>,
    /// Concluded drafts by scope.
    done_of: ByFold,
    /// Concluded drafts of jobs by the nodes of the job.
    done_on: BTreeSet<(Folded<NodeId>, DraftId)>,
}

impl Orders {
    /// A draft is there, or is there again.
    fn enter(&mut self, draft: &Draft, policy: &Policy) {
        let (id, scope) = (draft.id, fold(&draft.scope.lend()));
        match &draft.concluded {
            None => {
                self.open_of.insert(scope, id.0);
                self.due.insert((draft.deadline(policy), id));
            }
            Some(conclusion) => {
                self.done.insert((conclusion.at, id));
                self.done_of.insert(scope, id.0);
                let nodes = draft.nodes_of_job().map(|node| (Folded::of(node), id));
                self.done_on.extend(nodes);
            }
        }
    }

    /// A draft is gone, or is about to be concluded.
    fn leave(&mut self, draft: &Draft, policy: &Policy) {
        let (id, scope) = (draft.id, fold(&draft.scope.lend()));
        match &draft.concluded {
            None => {
                self.open_of.remove(scope, id.0);
                self.due.remove(&(draft.deadline(policy), id));
            }
            Some(conclusion) => {
                self.done.remove(&(conclusion.at, id));
                self.done_of.remove(scope, id.0);
                for node in draft.nodes_of_job() {
                    self.done_on.remove(&(Folded::of(node), id));
                }
            }
        }
    }
}

impl Drafts {
    /// Of drafts that were written down.
    pub(crate) fn of(all: Vec<Draft>, policy: &Policy) -> Self {
        let mut drafts = Self::default();
        for draft in all {
            drafts.insert(Box::new(draft), policy);
        }
        drafts
    }

    /// Takes a draft in.
    pub(crate) fn insert(&mut self, draft: Box<Draft>, policy: &Policy) {
        self.orders.enter(&draft, policy);
        self.all.insert(draft.id, draft);
    }

    /// Changes the signs of a draft, which stays open or concluded.
    pub(crate) fn change<T>(&mut self, id: DraftId, policy: &Policy, how: impl FnOnce(&mut Draft) -> T) -> Option<T> {
        let draft = self.all.get_mut(&id)?;
        let before = draft.deadline(policy);
        let told = how(draft);
        let after = draft.deadline(policy);
        let due = &mut self.orders.due;
        if before != after && due.remove(&(before, id)) {
            due.insert((after, id));
        }
        Some(told)
    }

    /// Concludes an open draft again or for the first time: `how` sets its conclusion.
    pub(crate) fn conclude<T>(&mut self, id: DraftId, policy: &Policy, how: impl FnOnce(&mut Draft) -> T) -> Option<T> {
        let draft = self.all.get_mut(&id)?;
        self.orders.leave(draft, policy);
        let told = how(draft);
        self.orders.enter(draft, policy);
        Some(told)
    }

    pub(crate) fn get(&self, id: DraftId) -> Option<&Draft> {
        self.all.get(&id).map(Box::as_ref)
    }

    /// The open draft of a scope.
    pub(crate) fn open_of(&self, scope: ScopeRef<'_>) -> Option<DraftId> {
        self.of_scope(&self.orders.open_of, scope).next()
    }

    /// Open drafts, oldest first.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Draft> {
        self.all
            .values()
            .map(Box::as_ref)
            .filter(|draft| draft.concluded.is_none())
    }

    /// The next moment at which a draft is to be concluded.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.orders.due.first().map(|(at, _)| *at)
    }

    /// Open drafts that are to be concluded by now, oldest first.
    pub(crate) fn due_by(&self, now: Timestamp) -> Vec<DraftId> {
        let due = self.orders.due.iter().take_while(|(at, _)| *at <= now);
        let mut due: Vec<DraftId> = due.map(|(_, id)| *id).collect();
        due.sort_unstable();
        due
    }

    /// The newest concluded draft of a scope, or of those that concern a node and pass a test.
    pub(crate) fn newest_done(
        &self,
        scope: ScopeRef<'_>,
        node: Option<&NodeId>,
        test: impl Fn(&Draft) -> bool,
    ) -> Option<DraftId> {
        let own = self.of_scope(&self.orders.done_of, scope).next();
        let newer = |id: &DraftId| own.is_none_or(|own| *id > own);
        let passes = |id: &DraftId| self.all.get(id).is_some_and(|draft| test(draft));
        let of_jobs = |node: &NodeId| self.done_on(node).take_while(newer).find(passes);
        let of_itself = |node: &NodeId| {
            let there = self.of_scope(&self.orders.done_of, ScopeRef::Node(node));
            there.take_while(newer).find(passes)
        };
        let other = node.and_then(|node| of_jobs(node).max(of_itself(node)));
        other.or(own)
    }

    /// Drafts of one scope among some, newest first. Scopes that fold alike are still two.
    fn of_scope<'a>(&'a self, among: &'a ByFold, scope: ScopeRef<'a>) -> impl Iterator<Item = DraftId> + 'a {
        let ids = among.of(fold(&scope)).rev().map(DraftId);
        ids.filter(move |id| self.all.get(id).is_some_and(|draft| draft.scope.lend() == scope))
    }

    /// Concluded drafts of jobs that ran on a node, newest first.
    fn done_on(&self, node: &NodeId) -> impl Iterator<Item = DraftId> {
        let (oldest, newest) = (DraftId(0), DraftId(u64::MAX));
        let there = (Folded::of(node), oldest)..=(Folded::of(node), newest);
        self.orders.done_on.range(there).rev().map(|(_, id)| *id)
    }

    /// Forgets drafts that were concluded before the window.
    pub(crate) fn forget(&mut self, now: Timestamp, policy: &Policy) {
        while let Some((_, id)) = self
            .orders
            .done
            .first()
            .filter(|(at, _)| now.since(*at) > policy.window)
            .copied()
        {
            let Some(draft) = self.all.remove(&id) else { return };
            self.orders.leave(&draft, policy);
        }
    }

    /// All drafts, oldest first.
    pub(crate) fn into_all(self) -> Vec<Draft> {
        self.all.into_values().map(|draft| *draft).collect()
    }
}
