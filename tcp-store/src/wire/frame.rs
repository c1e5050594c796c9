//! Length of requests: finds the end of a frame without reading a byte twice.

use super::decoder::ProtocolViolation;
use super::request::Opcode;
use crate::StoreLimits;

/// Field of a request.
#[derive(Debug, Clone, Copy)]
enum Field {
    Fixed(usize),
    Key,
    Value,
}

/// Fields of a request, repeated as often as a leading count states if there is one.
struct FrameLayout {
    is_counted: bool,
    fields: &'static [Field],
}

fn layout(opcode: Opcode) -> FrameLayout {
    let single = |fields| FrameLayout {
        is_counted: false,
        fields,
    };
    let counted = |fields| FrameLayout {
        is_counted: true,
        fields,
    };
    match opcode {
        Opcode::Validate | Opcode::Ping => single(&[Field::Fixed(4)]),
        Opcode::Set | Opcode::Append | Opcode::QueuePush => single(&[Field::Key, Field::Value]),
        Opcode::CompareSet => single(&[Field::Key, Field::Value, Field::Value]),
        Opcode::Get | Opcode::Delete | Opcode::QueuePop | Opcode::QueueLength => single(&[Field::Key]),
        Opcode::Add | Opcode::Barrier => single(&[Field::Key, Field::Fixed(8)]),
        Opcode::Check | Opcode::Wait | Opcode::MultiGet => counted(&[Field::Key]),
        Opcode::MultiSet => counted(&[Field::Key, Field::Value]),
        Opcode::CountKeys | Opcode::CancelWait | Opcode::ListKeys => single(&[]),
    }
}

/// Result of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameExtent {
    /// The frame ends at this offset.
    Complete(usize),
    /// The frame has at least this many bytes.
    AtLeast(usize),
}

/// Progress of a scan over the bytes of one frame.
#[derive(Debug, Default)]
pub(super) struct FrameScan {
    /// Offset of the next field; 0 before the opcode.
    at: usize,
    /// Index of the next field in its round.
    field: usize,
    /// Rounds of fields left; `None` before the count is known.
    rounds: Option<u64>,
}

impl FrameScan {
    /// Continues with all bytes of the frame received so far.
    pub(super) fn advance(&mut self, frame: &[u8], limits: &StoreLimits) -> Result<FrameExtent, ProtocolViolation> {
        let Some(&first) = frame.first() else {
            return Ok(FrameExtent::AtLeast(1));
        };
        let opcode = Opcode::from_byte(first).ok_or(ProtocolViolation::UnknownOpcode { opcode: first })?;
        let layout = layout(opcode);
        self.at = self.at.max(1);
        let mut rounds = match self.rounds {
            Some(rounds) => rounds,
            None if layout.is_counted => {
                let Some(count) = number_at(frame, self.at) else {
                    return Ok(FrameExtent::AtLeast(self.at + 8));
                };
                if count > limits.keys_per_request as u64 {
                    return Err(ProtocolViolation::TooManyKeys { keys: count });
                }
                self.at += 8;
                count
            }
            None => 1,
        };
        while rounds > 0 {
            self.rounds = Some(rounds);
            while let Some(field) = layout.fields.get(self.field) {
                let end = match field {
                    Field::Fixed(bytes) => self.at + bytes,
                    Field::Key | Field::Value => {
                        let Some(length) = number_at(frame, self.at) else {
                            return Ok(FrameExtent::AtLeast(self.at + 8));
                        };
                        self.at + 8 + checked_length(*field, length, limits)?
                    }
                };
                if end > limits.request_bytes {
                    return Err(ProtocolViolation::RequestTooLong { bytes: end });
                }
                if end > frame.len() {
                    return Ok(FrameExtent::AtLeast(end));
                }
                self.at = end;
                self.field += 1;
            }
            self.field = 0;
            rounds -= 1;
        }
        Ok(FrameExtent::Complete(self.at))
    }
}

fn checked_length(field: Field, length: u64, limits: &StoreLimits) -> Result<usize, ProtocolViolation> {
    let (limit, violation) = match field {
        Field::Key => (limits.key_bytes, ProtocolViolation::KeyTooLong { bytes: length }),
        _ => (limits.value_bytes, ProtocolViolation::ValueTooLong { bytes: length }),
    };
    if length > limit as u64 {
        return Err(violation);
    }
    Ok(length as usize)
}

fn number_at(frame: &[u8], at: usize) -> Option<u64> {
    let bytes = frame.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}
