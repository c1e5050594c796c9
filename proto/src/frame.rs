//! Frames of the rank socket: a little-endian `u32` length, then the message. The module performs no I/O: callers read
//! and write.

use prost::Message;

/// Largest message in a frame, bytes. A longer length indicates a corrupt or foreign stream and allocates nothing.
pub const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

const LENGTH_BYTES: usize = 4;

/// Error that ends a stream of frames. The next frame cannot be found after it: close the stream.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length exceeds the limit.
    #[error("a frame of {bytes} bytes is longer than the limit of {most}; the peer is not a rankguard of this version")]
    TooLong {
        /// Length in the frame header, bytes.
        bytes: u64,
        /// Limit for messages of this kind, bytes.
        most: usize,
    },
    /// The bytes are not the expected message.
    #[error("a frame of {bytes} bytes does not hold the expected message")]
    Undecodable {
        /// Length of the frame, bytes.
        bytes: usize,
        /// Error of the decoder.
        source: prost::DecodeError,
    },
}

/// Encodes one message as a frame.
///
/// A message beyond [`FRAME_BYTES_MAX`] is encoded as well; the reader refuses it.
pub fn encode(message: &impl Message) -> Vec<u8> {
    let bytes = message.encoded_len();
    let mut frame = Vec::with_capacity(LENGTH_BYTES + bytes);
    // A length beyond `u32` is far beyond the limit: the largest `u32` makes the reader refuse the frame.
    frame.extend_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
    message
        .encode(&mut frame)
        .expect("a Vec grows to any length that fits into memory");
    frame
}

/// Splits a stream of bytes into messages.
///
/// Add received bytes with [`push`](Self::push), then take messages with [`next`](Self::next) until it returns `None`.
/// Memory is bounded by one frame plus one read.
#[derive(Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    taken: usize,
    /// Longest message, bytes.
    most: usize,
    /// First byte of the messages that may have [`FRAME_BYTES_MAX`].
    large: Option<u8>,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self {
            buffer: Vec::new(),
            taken: 0,
            most: FRAME_BYTES_MAX,
            large: None,
        }
    }
}

impl FrameReader {
    /// Creates an empty reader.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits messages to `most` bytes from now on, except those that begin with the byte `large`: the field tag of the
    /// message kind.
    pub fn limit(&mut self, most: usize, large: Option<u8>) {
        (self.most, self.large) = (most.min(FRAME_BYTES_MAX), large);
    }

    /// Adds bytes received from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete message, or `None` until more bytes are pushed.
    #[allow(clippy::should_implement_trait)] // the message type is the caller's choice at each call
    pub fn next<M: Message + Default>(&mut self) -> Result<Option<M>, FrameError> {
        let rest = &self.buffer[self.taken..];
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length);
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let is_large = self.large.is_some() && rest.first().copied() == self.large;
        let most = if is_large { FRAME_BYTES_MAX } else { self.most };
        // The first byte determines if the message may be large.
        let undecided = self.large.is_some() && rest.is_empty() && bytes <= FRAME_BYTES_MAX;
        if bytes > most && !undecided {
            return Err(FrameError::TooLong {
                bytes: length.into(),
                most,
            });
        }
        let Some(body) = rest.get(..bytes) else {
            return Ok(None);
        };
        let message = M::decode(body).map_err(|source| FrameError::Undecodable { bytes, source })?;
        self.taken += LENGTH_BYTES + bytes;
        Ok(Some(message))
    }

    /// Returns the bytes of an incomplete frame. A value other than 0 at the end of the stream means that the last
    /// frame was truncated.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::v1::{RankHello, RankWelcome};

    fn hello(rank: u32) -> RankHello {
        RankHello {
            job: "digits".to_owned(),
            generation: 3,
            rank,
            pid: 4711,
            follows: true,
            reads_failures: true,
            leaves: false,
        }
    }

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_messages(cuts in prop::collection::vec(1_usize..40, 1..60), count in 0_u32..20) {
            let stream: Vec<u8> = (0..count).flat_map(|rank| encode(&hello(rank))).collect();
            let mut reader = FrameReader::new();
            let mut at = 0;
            let mut seen = Vec::new();
            let mut cuts = cuts.into_iter().cycle();
            while at < stream.len() {
                let end = (at + cuts.next().expect("a cycle never ends")).min(stream.len());
                reader.push(&stream[at..end]);
                at = end;
                while let Some(message) = reader.next::<RankHello>().expect("whole frames") {
                    seen.push(message.rank);
                }
            }
            prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
            prop_assert_eq!(reader.pending(), 0);
        }

        #[test]
        fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = FrameReader::new();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.next::<RankHello>() {}
        }
    }

    #[test]
    fn an_empty_message_is_a_frame_of_length_zero() {
        let welcome = RankWelcome {
            checkpoint_every: 0,
            without_store: false,
        };
        let frame = encode(&welcome);
        assert_eq!(frame, [0, 0, 0, 0]);
        let mut reader = FrameReader::new();
        reader.push(&frame);
        assert_eq!(reader.next::<RankWelcome>().expect("whole"), Some(welcome));
        assert_eq!(reader.next::<RankWelcome>().expect("empty"), None);
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_memory_is_taken() {
        let mut reader = FrameReader::new();
        reader.push(&u32::MAX.to_le_bytes());
        let error = reader.next::<RankHello>().expect_err("too long");
        assert!(matches!(error, FrameError::TooLong { bytes, .. } if bytes == u64::from(u32::MAX)));
    }

    #[test]
    fn only_messages_of_one_kind_may_be_longer_than_others() {
        let check = |first: Option<u8>, length: u32| {
            let mut reader = FrameReader::new();
            reader.limit(100, Some(0x1a));
            reader.push(&length.to_le_bytes());
            reader.push(first.as_slice());
            matches!(reader.next::<RankHello>(), Ok(None))
        };
        assert!(check(Some(0x1a), 101) && check(Some(0x0a), 100), "the rest may come");
        assert!(!check(Some(0x0a), 101) && !check(Some(0x1a), u32::MAX) && !check(None, u32::MAX));
        assert!(check(None, 101), "its kind is not known yet");
    }

    #[test]
    fn a_torn_last_frame_is_visible_as_pending_bytes() {
        let frame = encode(&hello(1));
        let mut reader = FrameReader::new();
        reader.push(&frame[..frame.len() - 1]);
        assert_eq!(reader.next::<RankHello>().expect("not yet whole"), None);
        assert_eq!(reader.pending(), frame.len() - 1);
    }
}
