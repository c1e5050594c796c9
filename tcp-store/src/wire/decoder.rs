//! Decoder of a connection's bytes.

use super::VALIDATION_MAGIC;
use super::frame::{FrameExtent, FrameScan};
use super::request::{RequestOpcode, StoreRequest};
use crate::StoreLimits;

/// Bytes that a read asks for at least.
const READ_BYTES: usize = 2 << 10;
/// Capacity above which an empty buffer is freed.
const IDLE_BYTES: usize = 16 << 10;

/// Bytes that no client of torch sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    #[error("first request has opcode {opcode} instead of VALIDATE")]
    NotValidated { opcode: u8 },
    #[error("VALIDATE with {found:#010x} instead of the magic number")]
    WrongMagic { found: u32 },
    #[error("second VALIDATE")]
    SecondValidation,
    #[error("unknown opcode {opcode}")]
    UnknownOpcode { opcode: u8 },
    #[error("key of {bytes} bytes")]
    KeyTooLong { bytes: u64 },
    #[error("value of {bytes} bytes")]
    ValueTooLong { bytes: u64 },
    #[error("request with {keys} keys")]
    TooManyKeys { keys: u64 },
    #[error("request of {bytes} bytes or more")]
    RequestTooLong { bytes: usize },
}

/// Decoder of the requests of one connection. After a violation it must not be used again.
#[derive(Debug)]
pub struct RequestDecoder {
    limits: StoreLimits,
    buffer: Vec<u8>,
    /// Offset of the frame to read next.
    start: usize,
    /// Length of the frame at `start` that was returned last; the next call drops it.
    returned: usize,
    scan: FrameScan,
    /// Least length of the frame at `start`.
    needed: usize,
    is_validated: bool,
}

impl RequestDecoder {
    pub fn new(limits: StoreLimits) -> Self {
        Self {
            limits,
            buffer: Vec::new(),
            start: 0,
            returned: 0,
            scan: FrameScan::default(),
            needed: 1,
            is_validated: false,
        }
    }

    /// True after a right `VALIDATE`.
    pub fn is_validated(&self) -> bool {
        self.is_validated
    }

    /// Bytes of memory that the decoder holds.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns the capacity that [`RequestDecoder::read_buffer`] needs: it doubles until the announced length is reached, so that a client
    /// must send bytes to occupy memory.
    pub fn wanted_capacity(&self) -> usize {
        let held = self.buffer.len() - self.start - self.returned;
        let missing = self.needed.saturating_sub(held);
        held + missing.min(held).max(READ_BYTES)
    }

    /// Returns the buffer to which received bytes are appended, with room for [`RequestDecoder::wanted_capacity`].
    pub fn read_buffer(&mut self) -> &mut Vec<u8> {
        let wanted = self.wanted_capacity();
        self.release();
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > IDLE_BYTES {
            self.buffer = Vec::new();
        }
        self.buffer.reserve_exact(wanted - self.buffer.len());
        &mut self.buffer
    }

    /// Appends received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete request.
    pub fn next_request(&mut self) -> Result<Option<StoreRequest<'_>>, ProtocolViolation> {
        if !self.is_validated && !self.read_validation()? {
            return Ok(None);
        }
        let Some(length) = self.next_frame()? else {
            return Ok(None);
        };
        let frame = &self.buffer[self.start..self.start + length];
        let opcode = RequestOpcode::from_byte(frame[0]).expect("the scan accepts known opcodes only");
        match StoreRequest::of_frame(opcode, &frame[1..]) {
            Some(request) => Ok(Some(request)),
            None => Err(ProtocolViolation::SecondValidation),
        }
    }

    /// Reads `VALIDATE`; returns false while it is incomplete.
    fn read_validation(&mut self) -> Result<bool, ProtocolViolation> {
        if let Some(&opcode) = self.buffer.get(self.start)
            && opcode != RequestOpcode::Validate as u8
        {
            return Err(ProtocolViolation::NotValidated { opcode });
        }
        let Some(length) = self.next_frame()? else {
            return Ok(false);
        };
        let magic = self.buffer[self.start + 1..self.start + length].first_chunk();
        let found = u32::from_le_bytes(*magic.expect("the frame is complete"));
        if found != VALIDATION_MAGIC {
            return Err(ProtocolViolation::WrongMagic { found });
        }
        self.is_validated = true;
        Ok(true)
    }

    /// Returns the length of the frame at `start` if it is complete.
    fn next_frame(&mut self) -> Result<Option<usize>, ProtocolViolation> {
        self.release();
        match self.scan.advance(&self.buffer[self.start..], &self.limits)? {
            FrameExtent::AtLeast(bytes) => {
                self.needed = bytes;
                Ok(None)
            }
            FrameExtent::Complete(length) => {
                self.scan = FrameScan::default();
                self.needed = 1;
                self.returned = length;
                Ok(Some(length))
            }
        }
    }

    /// Drops the frame that was returned last.
    fn release(&mut self) {
        self.start += std::mem::take(&mut self.returned);
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
    }
}
