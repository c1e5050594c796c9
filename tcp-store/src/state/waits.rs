//! Waits of clients.

use std::collections::{BTreeMap, BTreeSet};

use super::entries::ENTRY_BYTES;
use super::{ClientId, ReplySink, RequestRefusal};
use crate::wire::StoreReply;

/// Client that a pushed value woke and that has sent nothing since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WokenClient {
    /// Key of the queue.
    pub(super) key: Vec<u8>,
}

/// Order of waits: an earlier wait is served first.
type WaitTicket = u64;

#[derive(Debug)]
struct ClientWait {
    ticket: WaitTicket,
    missing: BTreeSet<Vec<u8>>,
}

/// Waits by client and by key.
#[derive(Debug, Default)]
pub(super) struct WaitTable {
    waits: BTreeMap<ClientId, ClientWait>,
    waiters: BTreeMap<Vec<u8>, BTreeMap<WaitTicket, ClientId>>,
    woken: BTreeMap<ClientId, WokenClient>,
    next_ticket: WaitTicket,
    bytes: usize,
}

impl WaitTable {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins a wait of a client that has none, within `room` bytes.
    pub(super) fn begin<'k>(
        &mut self,
        client: ClientId,
        missing: impl Iterator<Item = &'k [u8]>,
        room: usize,
    ) -> Result<(), RequestRefusal> {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let limit = self.bytes + room;
        let mut keys = BTreeSet::new();
        for key in missing {
            if keys.contains(key) {
                continue;
            }
            self.bytes += wait_bytes(key);
            keys.insert(key.to_vec());
            if !self.waiters.contains_key(key) {
                self.waiters.insert(key.to_vec(), BTreeMap::new());
            }
            let waiters = self.waiters.get_mut(key).expect("the key is present now");
            waiters.insert(ticket, client);
            if self.bytes > limit {
                break;
            }
        }
        self.waits.insert(client, ClientWait { ticket, missing: keys });
        if self.bytes > limit {
            let bytes = self.bytes;
            self.cancel(client);
            return Err(RequestRefusal::StoreFull { bytes });
        }
        Ok(())
    }

    /// Ends a client's wait without a reply.
    pub(super) fn cancel(&mut self, client: ClientId) {
        let Some(wait) = self.waits.remove(&client) else {
            return;
        };
        for key in &wait.missing {
            self.bytes -= wait_bytes(key);
            if let Some(waiters) = self.waiters.get_mut(key) {
                waiters.remove(&wait.ticket);
                if waiters.is_empty() {
                    self.waiters.remove(key);
                }
            }
        }
    }

    /// Marks a key as ready for all waits.
    pub(super) fn wake_all(&mut self, key: &[u8], sink: &mut impl ReplySink) {
        let Some(waiters) = self.waiters.remove(key) else {
            return;
        };
        for client in waiters.into_values() {
            self.mark_ready(client, key, sink);
        }
    }

    /// Marks a key as ready for waits in their order, until one ends.
    pub(super) fn wake_one(&mut self, key: &[u8], sink: &mut impl ReplySink) {
        let Some(mut waiters) = self.waiters.remove(key) else {
            return;
        };
        while let Some((_, client)) = waiters.pop_first() {
            if self.mark_ready(client, key, sink) {
                self.bytes += wait_bytes(key);
                let key = key.to_vec();
                self.woken.insert(client, WokenClient { key });
                break;
            }
        }
        if !waiters.is_empty() {
            self.waiters.insert(key.to_vec(), waiters);
        }
    }

    pub(super) fn take_woken(&mut self, client: ClientId) -> Option<WokenClient> {
        let woken = self.woken.remove(&client)?;
        self.bytes -= wait_bytes(&woken.key);
        Some(woken)
    }

    /// Number of clients that were woken for a queue and may still pop.
    pub(super) fn woken_for(&self, key: &[u8]) -> usize {
        self.woken.values().filter(|woken| woken.key == key).count()
    }

    pub(super) fn audit(&self) -> Result<(), String> {
        let missing = self.waits.values().flat_map(|wait| &wait.missing);
        let woken = self.woken.values().map(|woken| &woken.key);
        let bytes: usize = missing.chain(woken).map(|key| wait_bytes(key)).sum();
        if bytes != self.bytes {
            return Err(format!("waits of {bytes} bytes are counted as {}", self.bytes));
        }
        let places: usize = self.waiters.values().map(BTreeMap::len).sum();
        let wanted: usize = self.waits.values().map(|wait| wait.missing.len()).sum();
        if places != wanted || self.waiters.values().any(BTreeMap::is_empty) {
            return Err(format!("{wanted} keys are awaited in {places} places"));
        }
        for (client, wait) in &self.waits {
            let is_listed = |key: &Vec<u8>| {
                let waiters = self.waiters.get(key);
                waiters.is_some_and(|waiters| waiters.get(&wait.ticket) == Some(client))
            };
            if wait.missing.is_empty() || !wait.missing.iter().all(is_listed) {
                return Err(format!("the wait of {client:?} is not listed"));
            }
        }
        Ok(())
    }

    /// Takes a key off a client's wait after its place among the waiters was removed; returns true if the wait has ended.
    fn mark_ready(&mut self, client: ClientId, key: &[u8], sink: &mut impl ReplySink) -> bool {
        let wait = self.waits.get_mut(&client).expect("a waiter has a wait");
        wait.missing.remove(key);
        self.bytes -= wait_bytes(key);
        let has_ended = wait.missing.is_empty();
        if has_ended {
            self.waits.remove(&client);
            sink.send(client, &StoreReply::WaitEnded);
        }
        has_ended
    }
}

/// Allowance for the memory of one awaited key, which is held twice.
fn wait_bytes(key: &[u8]) -> usize {
    2 * (ENTRY_BYTES + key.len())
}
