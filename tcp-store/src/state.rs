//! Content of a store and the waits of its clients, as a state machine without I/O.
//!
//! A wait ends when each of its keys has been ready once: a key is ready if it has a value or a non-empty queue. A pushed
//! value ends the wait of one client. If that client goes on without taking the value, the next waiter is woken.

mod entries;
mod number;
#[cfg(test)]
mod tests;
mod waits;

use crate::StoreLimits;
use crate::wire::{RequestItems, StoreReply, StoreRequest};
use entries::StoreEntries;
use waits::{WaitTable, WokenClient};

/// Number of a connection, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// Receiver of replies. Replies to one client must reach it in this order.
pub trait ReplySink {
    fn send(&mut self, to: ClientId, reply: &StoreReply<'_>);
}

/// Reason for which a complete request is not carried out. The connection must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    #[error("value of key {key:?} is not a number")]
    NotANumber { key: String },
    #[error("value of {bytes} bytes after APPEND")]
    ValueTooLong { bytes: usize },
    #[error("store has {keys} keys already")]
    TooManyKeys { keys: usize },
    #[error("store would hold {bytes} bytes")]
    StoreFull { bytes: usize },
    #[error("reply of {bytes} bytes")]
    ReplyTooLong { bytes: usize },
}

/// Keys, queues and waits.
#[derive(Debug)]
pub struct StoreState {
    limits: StoreLimits,
    entries: StoreEntries,
    waits: WaitTable,
}

impl StoreState {
    pub fn new(limits: StoreLimits) -> Self {
        Self {
            limits,
            entries: StoreEntries::default(),
            waits: WaitTable::default(),
        }
    }

    /// Keys with a value and non-empty queues.
    pub fn keys(&self) -> usize {
        self.entries.keys()
    }

    /// Bytes that count against [`StoreLimits::stored_bytes`].
    pub fn stored_bytes(&self) -> usize {
        self.entries.bytes() + self.waits.bytes()
    }

    /// Carries out a request; replies go to this and other clients.
    pub fn execute(
        &mut self,
        client: ClientId,
        request: &StoreRequest<'_>,
        sink: &mut impl ReplySink,
    ) -> Result<(), RequestRefusal> {
        let woken = self.waits.take_woken(client);
        let result = self.carry_out(client, request, sink);
        if let Some(woken) = woken
            && !matches!(request, StoreRequest::QueuePop { key } if woken.key == *key)
        {
            self.offer_again(&woken, sink);
        }
        result
    }

    /// Forgets a client after the end of its connection.
    pub fn disconnect(&mut self, client: ClientId, sink: &mut impl ReplySink) {
        self.waits.cancel(client);
        if let Some(woken) = self.waits.take_woken(client) {
            self.offer_again(&woken, sink);
        }
    }

    /// Removes all keys and queues with this prefix and returns their number. Clients of torch put `/` before each key.
    pub fn remove_prefix(&mut self, prefix: &[u8]) -> usize {
        self.entries.remove_prefix(prefix)
    }

    /// Recounts all figures; returns what is inconsistent. For tests and fuzzing.
    pub fn audit(&self) -> Result<(), String> {
        self.entries.audit()?;
        self.waits.audit()?;
        if self.stored_bytes() > self.limits.stored_bytes || self.keys() > self.limits.keys {
            return Err(format!("{} bytes, {} keys", self.stored_bytes(), self.keys()));
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        client: ClientId,
        request: &StoreRequest<'_>,
        sink: &mut impl ReplySink,
    ) -> Result<(), RequestRefusal> {
        match *request {
            StoreRequest::Set { key, value } => self.set(key, value, sink)?,
            StoreRequest::CompareSet { key, expected, desired } => {
                self.compare_set(client, key, (expected, desired), sink)?;
            }
            StoreRequest::Get { key } => {
                sink.send(client, &StoreReply::Value(self.entries.get(key).unwrap_or_default()))
            }
            StoreRequest::Add { key, amount } => {
                let sum = self.number(key)?.unwrap_or(0).wrapping_add(amount);
                self.set(key, sum.to_string().as_bytes(), sink)?;
                sink.send(client, &StoreReply::Number(sum));
            }
            StoreRequest::Check { keys } => {
                let is_ready = keys.iter().all(|key| self.entries.is_ready(key));
                sink.send(client, &StoreReply::Ready(is_ready));
            }
            StoreRequest::Wait { keys } => self.wait(client, keys, sink)?,
            StoreRequest::CountKeys => sink.send(client, &StoreReply::Number(self.entries.values() as i64)),
            StoreRequest::Delete { key } => {
                let count = i64::from(self.entries.remove(key));
                sink.send(client, &StoreReply::Number(count));
            }
            StoreRequest::Append { key, value } => self.append(key, value, sink)?,
            StoreRequest::MultiGet { keys } => {
                let values = keys.iter().map(|key| self.entries.get(key).unwrap_or_default());
                send_long(client, &StoreReply::Values(values.collect()), &self.limits, sink)?;
            }
            StoreRequest::MultiSet { pairs } => {
                for (key, value) in pairs.pairs() {
                    self.set(key, value, sink)?;
                }
            }
            StoreRequest::CancelWait => {
                self.waits.cancel(client);
                sink.send(client, &StoreReply::WaitCanceled);
            }
            StoreRequest::Ping { nonce } => sink.send(client, &StoreReply::Nonce(nonce)),
            StoreRequest::QueuePush { key, value } => {
                let room = self.room();
                self.entries.push(key, value, &room)?;
                self.waits.wake_one(key, sink);
            }
            StoreRequest::QueuePop { key } => {
                let length = self.entries.queue_length(key) as i64;
                let value = self.entries.pop(key);
                let value = value.as_deref();
                sink.send(client, &StoreReply::Popped { length, value });
            }
            StoreRequest::QueueLength { key } => {
                sink.send(client, &StoreReply::Number(self.entries.queue_length(key) as i64));
            }
            StoreRequest::ListKeys => {
                let keys = self.entries.value_keys().collect();
                send_long(client, &StoreReply::Keys(keys), &self.limits, sink)?;
            }
            StoreRequest::Barrier { key, world_size } => self.barrier(client, key, world_size, sink)?,
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8], sink: &mut impl ReplySink) -> Result<(), RequestRefusal> {
        self.put(key, value)?;
        self.waits.wake_all(key, sink);
        Ok(())
    }

    /// Sets a value without an end of waits.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RequestRefusal> {
        let room = self.room();
        self.entries.put(key, value, &room)
    }

    fn compare_set(
        &mut self,
        client: ClientId,
        key: &[u8],
        (expected, desired): (&[u8], &[u8]),
        sink: &mut impl ReplySink,
    ) -> Result<(), RequestRefusal> {
        match self.entries.get(key) {
            Some(value) if value != expected => {
                sink.send(client, &StoreReply::Value(value));
                return Ok(());
            }
            // An absent key can be compared with the empty value only; as torch's server does, the reply is the expected value.
            None if !expected.is_empty() => {
                sink.send(client, &StoreReply::Value(expected));
                return Ok(());
            }
            _ => {}
        }
        self.set(key, desired, sink)?;
        sink.send(client, &StoreReply::Value(desired));
        Ok(())
    }

    fn append(&mut self, key: &[u8], value: &[u8], sink: &mut impl ReplySink) -> Result<(), RequestRefusal> {
        let bytes = self.entries.get(key).unwrap_or_default().len() + value.len();
        if bytes > self.limits.value_bytes {
            return Err(RequestRefusal::ValueTooLong { bytes });
        }
        let room = self.room();
        self.entries.append(key, value, &room)?;
        self.waits.wake_all(key, sink);
        Ok(())
    }

    fn wait(
        &mut self,
        client: ClientId,
        keys: RequestItems<'_>,
        sink: &mut impl ReplySink,
    ) -> Result<(), RequestRefusal> {
        // A client has one wait; an interrupted one that was not canceled is replaced.
        self.waits.cancel(client);
        let entries = &self.entries;
        let missing = || keys.iter().filter(move |key| !entries.is_ready(key));
        if missing().next().is_none() {
            sink.send(client, &StoreReply::WaitEnded);
            return Ok(());
        }
        let room = self.limits.stored_bytes.saturating_sub(self.stored_bytes());
        self.waits.begin(client, missing(), room)
    }

    fn barrier(
        &mut self,
        client: ClientId,
        key: &[u8],
        world_size: i64,
        sink: &mut impl ReplySink,
    ) -> Result<(), RequestRefusal> {
        self.waits.cancel(client);
        let count = self.number(key)?.unwrap_or(0).wrapping_add(1);
        self.put(key, count.to_string().as_bytes())?;
        if count >= world_size {
            self.waits.wake_all(key, sink);
            sink.send(client, &StoreReply::WaitEnded);
            return Ok(());
        }
        let room = self.limits.stored_bytes.saturating_sub(self.stored_bytes());
        self.waits.begin(client, [key].into_iter(), room)
    }

    /// Wakes the next waiter for a value that a woken client did not take.
    fn offer_again(&mut self, woken: &WokenClient, sink: &mut impl ReplySink) {
        if self.entries.queue_length(&woken.key) > self.waits.woken_for(&woken.key) {
            self.waits.wake_one(&woken.key, sink);
        }
    }

    fn number(&self, key: &[u8]) -> Result<Option<i64>, RequestRefusal> {
        let Some(value) = self.entries.get(key) else {
            return Ok(None);
        };
        let refusal = || RequestRefusal::NotANumber {
            key: String::from_utf8_lossy(key).into_owned(),
        };
        number::parse(value).ok_or_else(refusal).map(Some)
    }

    fn room(&self) -> EntryRoom {
        EntryRoom {
            keys: self.limits.keys,
            bytes: self.limits.stored_bytes.saturating_sub(self.waits.bytes()),
        }
    }
}

/// Limits of the entries beside the present waits.
struct EntryRoom {
    keys: usize,
    bytes: usize,
}

/// Sends a reply that may be longer than any value.
fn send_long(
    client: ClientId,
    reply: &StoreReply<'_>,
    limits: &StoreLimits,
    sink: &mut impl ReplySink,
) -> Result<(), RequestRefusal> {
    let bytes = reply.encoded_len();
    if bytes > limits.reply_bytes {
        return Err(RequestRefusal::ReplyTooLong { bytes });
    }
    sink.send(client, reply);
    Ok(())
}
