//! Wire format: requests and replies as bytes.

mod decoder;
mod frame;
mod reply;
mod request;

pub use decoder::{ProtocolViolation, RequestDecoder};
pub use reply::StoreReply;
pub use request::{RequestItems, RequestOpcode, StoreRequest};

/// Content of the `VALIDATE` request.
pub const VALIDATION_MAGIC: u32 = 0x3C85_F7CE;

/// Encodes the first request of a connection.
pub fn encode_validation(out: &mut Vec<u8>) {
    out.push(RequestOpcode::Validate as u8);
    out.extend_from_slice(&VALIDATION_MAGIC.to_le_bytes());
}

/// Encodes a key or a value.
fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}
