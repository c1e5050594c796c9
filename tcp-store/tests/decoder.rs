//! The decoder: requests of any kind in pieces of any size, and bytes of any kind.

use proptest::prelude::*;
use rankguard_tcp_store::StoreLimits;
use rankguard_tcp_store::wire::{
    ProtocolViolation, RequestDecoder, RequestItems, RequestOpcode, StoreRequest, encode_validation,
};

/// Number of decoded requests and the encoded requests, up to the end or a violation.
type Decoded = (Vec<u8>, usize, Option<ProtocolViolation>);

/// Decodes bytes that arrive in pieces of these sizes, in turn; an empty list is one piece.
fn decode(bytes: &[u8], pieces: &[usize]) -> Decoded {
    let mut decoder = RequestDecoder::new(limits());
    let mut encoded = Vec::new();
    let mut count = 0;
    let mut rest = bytes;
    let mut sizes = pieces.iter().cycle();
    loop {
        loop {
            match decoder.next_request() {
                Ok(Some(request)) => {
                    request.encode(&mut encoded);
                    count += 1;
                }
                Ok(None) => break,
                Err(violation) => return (encoded, count, Some(violation)),
            }
        }
        if rest.is_empty() {
            return (encoded, count, None);
        }
        let size = sizes.next().map_or(rest.len(), |size| (*size).clamp(1, rest.len()));
        let (piece, after) = rest.split_at(size);
        decoder.read_buffer().extend_from_slice(piece);
        rest = after;
    }
}

fn limits() -> StoreLimits {
    StoreLimits {
        key_bytes: 40,
        value_bytes: 6_000,
        keys_per_request: 50,
        request_bytes: 20_000,
        ..StoreLimits::default()
    }
}

fn bytes(limit: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..limit)
}

/// One encoded request of any opcode.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let items = prop::collection::vec((bytes(40), bytes(20)), 0..6);
    (
        1..RequestOpcode::ALL.len(),
        bytes(40),
        bytes(3_000),
        bytes(30),
        any::<i64>(),
        items,
    )
        .prop_map(|(opcode, key, value, other, number, items)| {
            let (key, value) = (key.as_slice(), value.as_slice());
            let mut buffer = Vec::new();
            let names = items.iter().map(|(key, _)| key.as_slice());
            let request = match RequestOpcode::ALL[opcode] {
                RequestOpcode::Validate | RequestOpcode::Set => StoreRequest::Set { key, value },
                RequestOpcode::CompareSet => StoreRequest::CompareSet {
                    key,
                    expected: &other,
                    desired: value,
                },
                RequestOpcode::Get => StoreRequest::Get { key },
                RequestOpcode::Add => StoreRequest::Add { key, amount: number },
                RequestOpcode::Check => StoreRequest::Check {
                    keys: RequestItems::encode(names, &mut buffer),
                },
                RequestOpcode::Wait => StoreRequest::Wait {
                    keys: RequestItems::encode(names, &mut buffer),
                },
                RequestOpcode::CountKeys => StoreRequest::CountKeys,
                RequestOpcode::Delete => StoreRequest::Delete { key },
                RequestOpcode::Append => StoreRequest::Append { key, value },
                RequestOpcode::MultiGet => StoreRequest::MultiGet {
                    keys: RequestItems::encode(names, &mut buffer),
                },
                RequestOpcode::MultiSet => {
                    let pairs = items.iter().flat_map(|(key, value)| [key.as_slice(), value.as_slice()]);
                    StoreRequest::MultiSet {
                        pairs: RequestItems::encode(pairs, &mut buffer),
                    }
                }
                RequestOpcode::CancelWait => StoreRequest::CancelWait,
                RequestOpcode::Ping => StoreRequest::Ping { nonce: number as u32 },
                RequestOpcode::QueuePush => StoreRequest::QueuePush { key, value },
                RequestOpcode::QueuePop => StoreRequest::QueuePop { key },
                RequestOpcode::QueueLength => StoreRequest::QueueLength { key },
                RequestOpcode::ListKeys => StoreRequest::ListKeys,
                RequestOpcode::Barrier => StoreRequest::Barrier {
                    key,
                    world_size: number,
                },
            };
            let mut encoded = Vec::new();
            request.encode(&mut encoded);
            encoded
        })
}

fn validated(rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_validation(&mut bytes);
    bytes.extend_from_slice(rest);
    bytes
}

#[test]
fn the_bytes_of_requests_are_those_of_torch() {
    let mut buffer = Vec::new();
    let keys = RequestItems::encode([b"ab".as_slice(), b""], &mut buffer);
    let mut bytes = Vec::new();
    StoreRequest::Wait { keys }.encode(&mut bytes);
    let wanted = [
        [6].as_slice(),
        &[2, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0, 0, 0, 0, 0, 0, 0],
        b"ab",
        &[0; 8],
    ];
    assert_eq!(bytes, wanted.concat());
    assert_eq!(validated(b""), [0, 0xCE, 0xF7, 0x85, 0x3C]);
    for (byte, opcode) in RequestOpcode::ALL.into_iter().enumerate() {
        assert_eq!(opcode as usize, byte);
    }
    assert_eq!(RequestOpcode::ALL.len(), 19);
    assert_eq!(RequestOpcode::Barrier as u8, 18);
}

#[test]
fn an_announced_length_occupies_no_memory_before_bytes_come() {
    let mut decoder = RequestDecoder::new(StoreLimits::default());
    let value = vec![0; 8 << 20];
    let mut bytes = Vec::new();
    StoreRequest::Set {
        key: b"k",
        value: &value,
    }
    .encode(&mut bytes);
    let bytes = validated(&bytes);
    let mut sent = 0;
    while sent < bytes.len() {
        let buffer = decoder.read_buffer();
        let room = buffer.capacity() - buffer.len();
        let size = room.min(bytes.len() - sent);
        buffer.extend_from_slice(&bytes[sent..sent + size]);
        sent += size;
        assert!(
            decoder.capacity() <= 2 * sent + 4_096,
            "{} of {sent}",
            decoder.capacity()
        );
        let is_complete = decoder.next_request().expect("no violation").is_some();
        assert_eq!(is_complete, sent == bytes.len());
    }
    assert!(decoder.next_request().expect("no violation").is_none());
    decoder.read_buffer();
    assert!(decoder.capacity() <= 4_096, "the memory is released");
}

proptest! {
    #[test]
    fn requests_are_decoded_as_they_were_encoded_in_any_pieces(
        requests in prop::collection::vec(request(), 0..12),
        pieces in prop::collection::vec(1..400_usize, 0..20),
    ) {
        let encoded = requests.concat();
        let (decoded, count, violation) = decode(&validated(&encoded), &pieces);
        prop_assert_eq!(violation, None);
        prop_assert_eq!(count, requests.len());
        prop_assert!(decoded == encoded);
    }

    #[test]
    fn any_bytes_give_the_same_in_any_pieces(
        requests in prop::collection::vec(request(), 0..4),
        noise in bytes(60),
        place in any::<prop::sample::Index>(),
        pieces in prop::collection::vec(1..40_usize, 1..20),
    ) {
        let mut bytes = validated(&requests.concat());
        for (at, byte) in (place.index(bytes.len())..bytes.len()).zip(noise) {
            bytes[at] = byte;
        }
        prop_assert_eq!(decode(&bytes, &[]), decode(&bytes, &pieces));
    }
}
