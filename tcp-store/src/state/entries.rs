//! Values and queues.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use super::{EntryRoom, RequestRefusal};

/// Allowance for the memory of an entry beside its bytes.
pub(super) const ENTRY_BYTES: usize = 96;

/// Values and non-empty queues with the number of their bytes, which counts allocated ones.
#[derive(Debug, Default)]
pub(super) struct StoreEntries {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    queues: BTreeMap<Vec<u8>, VecDeque<Vec<u8>>>,
    bytes: usize,
}

impl StoreEntries {
    /// Number of values.
    pub(super) fn values(&self) -> usize {
        self.values.len()
    }

    /// Number of values and queues.
    pub(super) fn keys(&self) -> usize {
        self.values.len() + self.queues.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// True for a key with a value or with a queue that is not empty.
    pub(super) fn is_ready(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    pub(super) fn value_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.values.keys().map(Vec::as_slice)
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8], room: &EntryRoom) -> Result<(), RequestRefusal> {
        let value = value.to_vec();
        if let Some(old) = self.values.get_mut(key) {
            let bytes = self.bytes - old.capacity() + value.capacity();
            admit_bytes(bytes, room)?;
            *old = value;
            self.bytes = bytes;
            return Ok(());
        }
        let bytes = self.bytes + entry_bytes(key) + value.capacity();
        self.admit_key(room)?;
        admit_bytes(bytes, room)?;
        self.values.insert(key.to_vec(), value);
        self.bytes = bytes;
        Ok(())
    }

    pub(super) fn append(&mut self, key: &[u8], value: &[u8], room: &EntryRoom) -> Result<(), RequestRefusal> {
        let Some(old) = self.values.get_mut(key) else {
            return self.put(key, value, room);
        };
        let length = old.len() + value.len();
        let mut capacity = old.capacity();
        if length > capacity {
            // Doubled, so that many small appends take linear time.
            capacity = length.max(2 * capacity);
        }
        admit_bytes(self.bytes - old.capacity() + capacity, room)?;
        self.bytes -= old.capacity();
        old.reserve_exact(capacity - old.len());
        old.extend_from_slice(value);
        self.bytes += old.capacity();
        Ok(())
    }

    /// Removes a value; returns whether there was one.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let Some(value) = self.values.remove(key) else {
            return false;
        };
        self.bytes -= entry_bytes(key) + value.capacity();
        true
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8], room: &EntryRoom) -> Result<(), RequestRefusal> {
        let is_new = !self.queues.contains_key(key);
        let value = value.to_vec();
        let mut bytes = self.bytes + ENTRY_BYTES + value.capacity();
        if is_new {
            self.admit_key(room)?;
            bytes += entry_bytes(key);
        }
        admit_bytes(bytes, room)?;
        if is_new {
            self.queues.insert(key.to_vec(), VecDeque::new());
        }
        let queue = self.queues.get_mut(key).expect("the queue is present now");
        queue.push_back(value);
        self.bytes = bytes;
        Ok(())
    }

    pub(super) fn pop(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let queue = self.queues.get_mut(key)?;
        let value = queue.pop_front()?;
        self.bytes -= ENTRY_BYTES + value.capacity();
        if queue.is_empty() {
            self.queues.remove(key);
            self.bytes -= entry_bytes(key);
        }
        Some(value)
    }

    pub(super) fn queue_length(&self, key: &[u8]) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    pub(super) fn remove_prefix(&mut self, prefix: &[u8]) -> usize {
        let before = self.keys();
        drain_prefix(&mut self.values, prefix, |key, value| {
            self.bytes -= entry_bytes(key) + value.capacity();
        });
        drain_prefix(&mut self.queues, prefix, |key, queue| {
            self.bytes -= entry_bytes(key) + queue_bytes(queue);
        });
        before - self.keys()
    }

    pub(super) fn audit(&self) -> Result<(), String> {
        let values = self
            .values
            .iter()
            .map(|(key, value)| entry_bytes(key) + value.capacity());
        let queues = self
            .queues
            .iter()
            .map(|(key, queue)| entry_bytes(key) + queue_bytes(queue));
        let bytes: usize = values.chain(queues).sum();
        if bytes != self.bytes {
            return Err(format!("entries of {bytes} bytes are counted as {}", self.bytes));
        }
        if self.queues.values().any(VecDeque::is_empty) {
            return Err("a queue is empty".to_owned());
        }
        Ok(())
    }

    fn admit_key(&self, room: &EntryRoom) -> Result<(), RequestRefusal> {
        let keys = self.keys();
        if keys >= room.keys {
            return Err(RequestRefusal::TooManyKeys { keys });
        }
        Ok(())
    }
}

fn admit_bytes(bytes: usize, room: &EntryRoom) -> Result<(), RequestRefusal> {
    if bytes > room.bytes {
        return Err(RequestRefusal::StoreFull { bytes });
    }
    Ok(())
}

fn entry_bytes(key: &[u8]) -> usize {
    ENTRY_BYTES + key.len()
}

fn queue_bytes(queue: &VecDeque<Vec<u8>>) -> usize {
    queue.iter().map(|value| ENTRY_BYTES + value.capacity()).sum()
}

fn drain_prefix<V>(map: &mut BTreeMap<Vec<u8>, V>, prefix: &[u8], mut removed: impl FnMut(&[u8], &V)) {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    let keys = map.range::<[u8], _>(from).map(|(key, _)| key);
    let keys: Vec<Vec<u8>> = keys.take_while(|key| key.starts_with(prefix)).cloned().collect();
    for key in keys {
        if let Some(value) = map.remove(&key) {
            removed(&key, &value);
        }
    }
}
