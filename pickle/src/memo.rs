//! Memo of a pickle: values that it stores for later use.

use std::collections::BTreeMap;

use crate::tree::ValueId;

/// Memo table. Writers number its entries from zero upwards; other numbers cost a map entry, never an array of that
/// size.
#[derive(Default)]
pub(crate) struct MemoTable {
    dense: Vec<ValueId>,
    sparse: BTreeMap<u64, ValueId>,
}

impl MemoTable {
    pub(crate) fn len(&self) -> usize {
        self.dense.len() + self.sparse.len()
    }

    pub(crate) fn put(&mut self, key: u64, id: ValueId) {
        let next = self.dense.len() as u64;
        if key < next {
            self.dense[key as usize] = id;
        } else if key == next && self.sparse.is_empty() {
            self.dense.push(id);
        } else {
            self.sparse.insert(key, id);
        }
    }

    pub(crate) fn get(&self, key: u64) -> Option<ValueId> {
        let dense = usize::try_from(key).ok().and_then(|key| self.dense.get(key));
        dense.or_else(|| self.sparse.get(&key)).copied()
    }
}
