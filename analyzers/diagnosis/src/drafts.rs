//! All drafts of a diagnosis, found by whose failure they are and by when something is to be done with them.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Folded, NodeId, Timestamp};

use crate::draft::Draft;
use crate::scope::{ByScope, ScopeRef};
use crate::{DraftId, Policy};

/// Drafts in the order of their numbers; few as a rule.
type Ids = Vec<DraftId>;

/// Open drafts and those concluded within the window.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Drafts {
    /// Oldest first. Boxed, because they come and go by the thousand and are large.
    all: BTreeMap<DraftId, Box<Draft>>,
    /// The open draft of each scope; there is never a second one.
    open: ByScope<DraftId>,
    /// When each open draft is concluded.
    due: BTreeSet<(Timestamp, DraftId)>,
    /// When each concluded draft was concluded.
    done: BTreeSet<(Timestamp, DraftId)>,
    /// Concluded drafts by scope, and by the nodes that they concern.
    done_of: ByScope<Ids>,
    done_on: BTreeMap<Folded<NodeId>, Ids>,
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
        let id = draft.id;
        match &draft.concluded {
            None => {
                self.open.insert(&draft.scope, id);
                self.due.insert((draft.deadline(policy), id));
            }
            Some(conclusion) => {
                self.done.insert((conclusion.at, id));
                match self.done_of.get_mut(draft.scope.lend()) {
                    Some(known) => add(known, id),
                    None => self.done_of.insert(&draft.scope, vec![id]),
                }
                draft.concerned(|node| add(self.done_on.entry(Folded::of(node)).or_default(), id));
            }
        }
        self.all.insert(id, draft);
    }

    /// Takes a draft out, which is put back with [`Drafts::insert`] or forgotten.
    pub(crate) fn take(&mut self, id: DraftId, policy: &Policy) -> Option<Box<Draft>> {
        let draft = self.all.remove(&id)?;
        match &draft.concluded {
            None => {
                self.open.remove(draft.scope.lend());
                self.due.remove(&(draft.deadline(policy), id));
            }
            Some(conclusion) => {
                self.done.remove(&(conclusion.at, id));
                let known = self.done_of.get_mut(draft.scope.lend());
                if known.is_some_and(|known| leave(known, id)) {
                    self.done_of.remove(draft.scope.lend());
                }
                draft.concerned(|node| {
                    let node = Folded::of(node);
                    if self.done_on.get_mut(&node).is_some_and(|known| leave(known, id)) {
                        self.done_on.remove(&node);
                    }
                });
            }
        }
        Some(draft)
    }

    /// Changes the signs of a draft, which stays open or concluded.
    pub(crate) fn change<T>(&mut self, id: DraftId, policy: &Policy, how: impl FnOnce(&mut Draft) -> T) -> Option<T> {
        let draft = self.all.get_mut(&id)?;
        let before = draft.deadline(policy);
        let told = how(draft);
        let after = draft.deadline(policy);
        if before != after && self.due.remove(&(before, id)) {
            self.due.insert((after, id));
        }
        Some(told)
    }

    /// Concludes an open draft again or for the first time: `how` sets its conclusion.
    pub(crate) fn conclude<T>(&mut self, id: DraftId, policy: &Policy, how: impl FnOnce(&mut Draft) -> T) -> Option<T> {
        let mut draft = self.take(id, policy)?;
        let told = how(&mut draft);
        self.insert(draft, policy);
        Some(told)
    }

    pub(crate) fn get(&self, id: DraftId) -> Option<&Draft> {
        self.all.get(&id).map(Box::as_ref)
    }

    /// The open draft of a scope.
    pub(crate) fn open_of(&self, scope: ScopeRef<'_>) -> Option<DraftId> {
        self.open.get(scope).copied()
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
        self.due.first().map(|(at, _)| *at)
    }

    /// Open drafts that are to be concluded by now, oldest first.
    pub(crate) fn due_by(&self, now: Timestamp) -> Vec<DraftId> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
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
        let own = self.done_of.get(scope).and_then(|ids| ids.last().copied());
        let there = node
            .and_then(|node| self.done_on.get(&Folded::of(node)))
            .into_iter()
            .flatten();
        let other = there
            .rev()
            .take_while(|id| own.is_none_or(|own| **id > own))
            .find(|id| self.all.get(id).is_some_and(|draft| test(draft)));
        other.copied().or(own)
    }

    /// Forgets drafts that were concluded before the window.
    pub(crate) fn forget(&mut self, now: Timestamp, policy: &Policy) {
        while let Some((_, id)) = self
            .done
            .first()
            .filter(|(at, _)| now.since(*at) > policy.window)
            .copied()
        {
            self.take(id, policy);
        }
    }

    /// All drafts, oldest first.
    pub(crate) fn into_all(self) -> Vec<Draft> {
        self.all.into_values().map(|draft| *draft).collect()
    }
}

/// Adds a draft that may be among them already.
fn add(ids: &mut Ids, id: DraftId) {
    if let Err(at) = ids.binary_search(&id) {
        ids.insert(at, id);
    }
}

/// Takes a draft out, and says whether none is left.
fn leave(ids: &mut Ids, id: DraftId) -> bool {
    if let Ok(at) = ids.binary_search(&id) {
        ids.remove(at);
    }
    ids.is_empty()
}
