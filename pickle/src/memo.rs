//! Memo of a pickle: values that it stores for later use.

use std::collections::BTreeMap;

use crate::tree::Id;

/// Memo table. Writers number its entries from zero upwards; other numbers cost a map entry, never an array of that
/// size.
#[derive(Default)]
pub(crate) struct Memo {
    dense: Vec<Id>,
    sparse: BTreeMap<u64, Id>,
}

impl Memo {
    pub(crate) fn len(&self) -> usize {
        self.dense.len() + self.sparse.len()
    }

    pub(crate) fn put(&mut self, key: u64, id: Id) {
        let next = self.dense.len() as u64;
        if key < next {
            self.dense[key as usize] = id;
        } else if key == next && self.sparse.is_empty() {
            self.dense.push(id);
        } else {
            self.sparse.insert(key, id);
        }
    }

    pub(crate) fn get(&self, key: u64) -> Option<Id> {
        let dense = usize::try_from(key).ok().and_then(|key| self.dense.get(key));
        dense.or_else(|| self.sparse.get(&key)).copied()
    }
}
