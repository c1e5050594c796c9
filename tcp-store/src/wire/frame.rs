//! Length of requests: finds the end of a frame without reading a byte twice.

use super::decoder::ProtocolViolation;
use super::request::RequestOpcode;
use crate::StoreLimits;

/// Field of a request.
#[derive(Debug, Clone, Copy)]
enum FrameField {
    Fixed(usize),
    Key,
    Value,
}

/// Fields of a request, repeated as often as a leading count states if there is one.
struct FrameLayout {
    is_counted: bool,
    fields: &'static [FrameField],
}

fn layout(opcode: RequestOpcode) -> FrameLayout {
    let single = |fields| FrameLayout {
        is_counted: false,
        fields,
    };
    let counted = |fields| FrameLayout {
        is_counted: true,
        fields,
    };
    match opcode {
        RequestOpcode::Validate | RequestOpcode::Ping => single(&[FrameField::Fixed(4)]),
        RequestOpcode::Set | RequestOpcode::Append | RequestOpcode::QueuePush => {
            single(&[FrameField::Key, FrameField::Value])
        }
        RequestOpcode::CompareSet => single(&[FrameField::Key, FrameField::Value, FrameField::Value]),
        RequestOpcode::Get | RequestOpcode::Delete | RequestOpcode::QueuePop | RequestOpcode::QueueLength => {
            single(&[FrameField::Key])
        }
        RequestOpcode::Add | RequestOpcode::Barrier => single(&[FrameField::Key, FrameField::Fixed(8)]),
        RequestOpcode::Check | RequestOpcode::Wait | RequestOpcode::MultiGet => counted(&[FrameField::Key]),
        RequestOpcode::MultiSet => counted(&[FrameField::Key, FrameField::Value]),
        RequestOpcode::CountKeys | RequestOpcode::CancelWait | RequestOpcode::ListKeys => single(&[]),
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
        let opcode = RequestOpcode::from_byte(first).ok_or(ProtocolViolation::UnknownOpcode { opcode: first })?;
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
                    FrameField::Fixed(bytes) => self.at + bytes,
                    FrameField::Key | FrameField::Value => {
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

fn checked_length(field: FrameField, length: u64, limits: &StoreLimits) -> Result<usize, ProtocolViolation> {
    let (limit, violation) = match field {
        FrameField::Key => (limits.key_bytes, ProtocolViolation::KeyTooLong { bytes: length }),
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
