//! Fuzzes the bytes of clients of a TCPStore: in pieces of any size they give the same requests or the same violation;
//! the store stays within its limits and its figures are right (RG-9, RG-11).

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_tcp_store::StoreLimits;
use rankguard_tcp_store::state::{ClientId, ReplySink, StoreState};
use rankguard_tcp_store::wire::{RequestDecoder, ProtocolViolation, StoreReply, encode_validation};

/// Clients with connections that share the input.
const CLIENTS: usize = 3;

/// Checks replies and drops them.
struct ReplyCheck;

impl ReplySink for ReplyCheck {
    fn send(&mut self, to: ClientId, reply: &StoreReply<'_>) {
        assert!(to.0 < CLIENTS as u64);
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(bytes.len(), reply.encoded_len());
    }
}

fn limits() -> StoreLimits {
    StoreLimits {
        keys: 20,
        stored_bytes: 20_000,
        key_bytes: 64,
        value_bytes: 1_000,
        keys_per_request: 64,
        request_bytes: 8_000,
        reply_bytes: 4_000,
        ..StoreLimits::default()
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, bytes)) = data.split_first() else {
        return;
    };
    let size = usize::from(size).max(1);
    assert_eq!(
        decode(bytes, bytes.len()),
        decode(bytes, size),
        "pieces change the requests"
    );

    let mut store = StoreState::new(limits());
    let mut decoders: Vec<RequestDecoder> = (0..CLIENTS).map(|_| RequestDecoder::new(limits())).collect();
    let mut validation = Vec::new();
    encode_validation(&mut validation);
    for decoder in &mut decoders {
        decoder.feed(&validation);
    }
    for (turn, piece) in bytes.chunks(size).enumerate() {
        let client = turn % CLIENTS;
        let id = ClientId(client as u64);
        decoders[client].feed(piece);
        loop {
            let is_closed = match decoders[client].next_request() {
                Ok(Some(request)) => store.execute(id, &request, &mut ReplyCheck).is_err(),
                Ok(None) => break,
                Err(violation) => !violation.to_string().is_empty(),
            };
            store.audit().expect("consistent");
            if is_closed {
                store.disconnect(id, &mut ReplyCheck);
                store.audit().expect("consistent");
                decoders[client] = RequestDecoder::new(limits());
                decoders[client].feed(&validation);
                break;
            }
        }
    }
    for client in 0..CLIENTS {
        store.disconnect(ClientId(client as u64), &mut ReplyCheck);
    }
    store.remove_prefix(b"");
    assert_eq!(store.stored_bytes(), 0, "something is left");
});

/// Returns the requests, encoded again, and the violation that ends them.
fn decode(bytes: &[u8], size: usize) -> (Vec<u8>, Option<ProtocolViolation>) {
    let mut decoder = RequestDecoder::new(limits());
    let mut encoded = Vec::new();
    encode_validation(&mut encoded);
    decoder.feed(&encoded);
    for piece in bytes.chunks(size.max(1)) {
        decoder.feed(piece);
        loop {
            match decoder.next_request() {
                Ok(Some(request)) => request.encode(&mut encoded),
                Ok(None) => break,
                Err(violation) => return (encoded, Some(violation)),
            }
        }
    }
    (encoded, None)
}
