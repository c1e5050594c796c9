//! Requests of clients.

use super::encode_bytes;

/// First byte of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestOpcode {
    Validate,
    Set,
    CompareSet,
    Get,
    Add,
    Check,
    Wait,
    CountKeys,
    Delete,
    Append,
    MultiGet,
    MultiSet,
    CancelWait,
    Ping,
    QueuePush,
    QueuePop,
    QueueLength,
    ListKeys,
    Barrier,
}

impl RequestOpcode {
    /// All opcodes, ordered by their byte.
    pub const ALL: [Self; 19] = [
        Self::Validate,
        Self::Set,
        Self::CompareSet,
        Self::Get,
        Self::Add,
        Self::Check,
        Self::Wait,
        Self::CountKeys,
        Self::Delete,
        Self::Append,
        Self::MultiGet,
        Self::MultiSet,
        Self::CancelWait,
        Self::Ping,
        Self::QueuePush,
        Self::QueuePop,
        Self::QueueLength,
        Self::ListKeys,
        Self::Barrier,
    ];

    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// Keys, or keys and values in turn, in the bytes of a complete request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestItems<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> RequestItems<'a> {
    /// Number of items; pairs of a `MULTI_SET` count twice.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Encodes items into an empty buffer, for requests of a client.
    pub fn encode<'i>(items: impl IntoIterator<Item = &'i [u8]>, buffer: &'a mut Vec<u8>) -> Self {
        buffer.clear();
        let mut count = 0;
        for item in items {
            encode_bytes(item, buffer);
            count += 1;
        }
        Self { bytes: buffer, count }
    }

    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut cursor = FrameCursor(self.bytes);
        (0..self.count).map(move |_| cursor.bytes())
    }

    /// Returns the keys and values of a `MULTI_SET`.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut cursor = FrameCursor(self.bytes);
        (0..self.count / 2).map(move |_| (cursor.bytes(), cursor.bytes()))
    }
}

/// Request after `VALIDATE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreRequest<'a> {
    Set {
        key: &'a [u8],
        value: &'a [u8],
    },
    CompareSet {
        key: &'a [u8],
        expected: &'a [u8],
        desired: &'a [u8],
    },
    Get {
        key: &'a [u8],
    },
    Add {
        key: &'a [u8],
        amount: i64,
    },
    Check {
        keys: RequestItems<'a>,
    },
    Wait {
        keys: RequestItems<'a>,
    },
    CountKeys,
    Delete {
        key: &'a [u8],
    },
    Append {
        key: &'a [u8],
        value: &'a [u8],
    },
    MultiGet {
        keys: RequestItems<'a>,
    },
    MultiSet {
        pairs: RequestItems<'a>,
    },
    CancelWait,
    Ping {
        nonce: u32,
    },
    QueuePush {
        key: &'a [u8],
        value: &'a [u8],
    },
    QueuePop {
        key: &'a [u8],
    },
    QueueLength {
        key: &'a [u8],
    },
    ListKeys,
    Barrier {
        key: &'a [u8],
        world_size: i64,
    },
}

impl<'a> StoreRequest<'a> {
    /// Reads the fields of a complete frame; `None` for `VALIDATE`.
    pub(super) fn of_frame(opcode: RequestOpcode, fields: &'a [u8]) -> Option<Self> {
        let mut at = FrameCursor(fields);
        Some(match opcode {
            RequestOpcode::Validate => return None,
            RequestOpcode::Set => Self::Set {
                key: at.bytes(),
                value: at.bytes(),
            },
            RequestOpcode::CompareSet => Self::CompareSet {
                key: at.bytes(),
                expected: at.bytes(),
                desired: at.bytes(),
            },
            RequestOpcode::Get => Self::Get { key: at.bytes() },
            RequestOpcode::Add => Self::Add {
                key: at.bytes(),
                amount: i64::from_le_bytes(at.array()),
            },
            RequestOpcode::Check => Self::Check { keys: at.items(1) },
            RequestOpcode::Wait => Self::Wait { keys: at.items(1) },
            RequestOpcode::CountKeys => Self::CountKeys,
            RequestOpcode::Delete => Self::Delete { key: at.bytes() },
            RequestOpcode::Append => Self::Append {
                key: at.bytes(),
                value: at.bytes(),
            },
            RequestOpcode::MultiGet => Self::MultiGet { keys: at.items(1) },
            RequestOpcode::MultiSet => Self::MultiSet { pairs: at.items(2) },
            RequestOpcode::CancelWait => Self::CancelWait,
            RequestOpcode::Ping => Self::Ping {
                nonce: u32::from_le_bytes(at.array()),
            },
            RequestOpcode::QueuePush => Self::QueuePush {
                key: at.bytes(),
                value: at.bytes(),
            },
            RequestOpcode::QueuePop => Self::QueuePop { key: at.bytes() },
            RequestOpcode::QueueLength => Self::QueueLength { key: at.bytes() },
            RequestOpcode::ListKeys => Self::ListKeys,
            RequestOpcode::Barrier => Self::Barrier {
                key: at.bytes(),
                world_size: i64::from_le_bytes(at.array()),
            },
        })
    }

    pub fn opcode(&self) -> RequestOpcode {
        match self {
            Self::Set { .. } => RequestOpcode::Set,
            Self::CompareSet { .. } => RequestOpcode::CompareSet,
            Self::Get { .. } => RequestOpcode::Get,
            Self::Add { .. } => RequestOpcode::Add,
            Self::Check { .. } => RequestOpcode::Check,
            Self::Wait { .. } => RequestOpcode::Wait,
            Self::CountKeys => RequestOpcode::CountKeys,
            Self::Delete { .. } => RequestOpcode::Delete,
            Self::Append { .. } => RequestOpcode::Append,
            Self::MultiGet { .. } => RequestOpcode::MultiGet,
            Self::MultiSet { .. } => RequestOpcode::MultiSet,
            Self::CancelWait => RequestOpcode::CancelWait,
            Self::Ping { .. } => RequestOpcode::Ping,
            Self::QueuePush { .. } => RequestOpcode::QueuePush,
            Self::QueuePop { .. } => RequestOpcode::QueuePop,
            Self::QueueLength { .. } => RequestOpcode::QueueLength,
            Self::ListKeys => RequestOpcode::ListKeys,
            Self::Barrier { .. } => RequestOpcode::Barrier,
        }
    }

    /// Encodes the request as a client sends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.opcode() as u8);
        match self {
            Self::Set { key, value } | Self::Append { key, value } | Self::QueuePush { key, value } => {
                encode_bytes(key, out);
                encode_bytes(value, out);
            }
            Self::CompareSet { key, expected, desired } => {
                encode_bytes(key, out);
                encode_bytes(expected, out);
                encode_bytes(desired, out);
            }
            Self::Get { key } | Self::Delete { key } | Self::QueuePop { key } | Self::QueueLength { key } => {
                encode_bytes(key, out);
            }
            Self::Add { key, amount: number }
            | Self::Barrier {
                key,
                world_size: number,
            } => {
                encode_bytes(key, out);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Self::Check { keys } | Self::Wait { keys } | Self::MultiGet { keys } => {
                out.extend_from_slice(&(keys.len() as u64).to_le_bytes());
                keys.iter().for_each(|key| encode_bytes(key, out));
            }
            Self::MultiSet { pairs } => {
                out.extend_from_slice(&(pairs.len() as u64 / 2).to_le_bytes());
                pairs.iter().for_each(|item| encode_bytes(item, out));
            }
            Self::Ping { nonce } => out.extend_from_slice(&nonce.to_le_bytes()),
            Self::CountKeys | Self::CancelWait | Self::ListKeys => {}
        }
    }
}

/// Position in the fields of a complete frame.
struct FrameCursor<'a>(&'a [u8]);

impl<'a> FrameCursor<'a> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (array, rest) = self.0.split_first_chunk().expect("the frame is complete");
        self.0 = rest;
        *array
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = u64::from_le_bytes(self.array());
        let (bytes, rest) = self.0.split_at(length as usize);
        self.0 = rest;
        bytes
    }

    fn items(&mut self, items_per_count: usize) -> RequestItems<'a> {
        let count = u64::from_le_bytes(self.array()) as usize;
        RequestItems {
            bytes: self.0,
            count: count * items_per_count,
        }
    }
}
