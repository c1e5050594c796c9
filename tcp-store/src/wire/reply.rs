//! Replies to clients.

use super::encode_bytes;

/// Reply to a request, or the end of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreReply<'a> {
    /// Echo of the number in a `PING`.
    Nonce(u32),
    Number(i64),
    Value(&'a [u8]),
    Values(Vec<&'a [u8]>),
    /// Of `CHECK`: whether all keys are present.
    Ready(bool),
    /// Of `WAIT` and `BARRIER`.
    WaitEnded,
    WaitCanceled,
    /// Of `QUEUE_POP`: length before the pop, and the first value unless that was 0.
    Popped {
        length: i64,
        value: Option<&'a [u8]>,
    },
    Keys(Vec<&'a [u8]>),
}

impl StoreReply<'_> {
    /// Number of bytes that [`StoreReply::encode`] writes.
    pub fn encoded_len(&self) -> usize {
        let sized = |bytes: &[u8]| 8 + bytes.len();
        match self {
            Self::Nonce(_) => 4,
            Self::Number(_) => 8,
            Self::Value(value) => sized(value),
            Self::Values(values) => values.iter().map(|value| sized(value)).sum(),
            Self::Ready(_) | Self::WaitEnded | Self::WaitCanceled => 1,
            Self::Popped { value, .. } => 8 + value.map_or(0, sized),
            Self::Keys(keys) => 8 + keys.iter().map(|key| sized(key)).sum::<usize>(),
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nonce(nonce) => out.extend_from_slice(&nonce.to_le_bytes()),
            Self::Number(number) => out.extend_from_slice(&number.to_le_bytes()),
            Self::Value(value) => encode_bytes(value, out),
            Self::Values(values) => values.iter().for_each(|value| encode_bytes(value, out)),
            Self::Ready(is_ready) => out.push(u8::from(!is_ready)),
            Self::WaitEnded => out.push(0),
            Self::WaitCanceled => out.push(1),
            Self::Popped { length, value } => {
                out.extend_from_slice(&length.to_le_bytes());
                value.iter().for_each(|value| encode_bytes(value, out));
            }
            Self::Keys(keys) => {
                out.extend_from_slice(&(keys.len() as i64).to_le_bytes());
                keys.iter().for_each(|key| encode_bytes(key, out));
            }
        }
    }
}
