//! The server over real sockets: limits, fairness, hostile clients, shutdown.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rankguard_tcp_store::wire::{RequestItems, StoreRequest, encode_validation};
use rankguard_tcp_store::{StoreHandle, StoreLimits, serve};

const PATIENCE: Duration = Duration::from_secs(20);

fn start(limits: StoreLimits) -> StoreHandle {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    serve(listener, limits).expect("the server starts")
}

struct Client(TcpStream);

impl Client {
    fn raw(store: &StoreHandle) -> Self {
        let stream = TcpStream::connect(store.address()).expect("connected");
        stream.set_nodelay(true).expect("set");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.set_write_timeout(Some(PATIENCE)).expect("set");
        Self(stream)
    }

    fn new(store: &StoreHandle) -> Self {
        let mut client = Self::raw(store);
        let mut bytes = Vec::new();
        encode_validation(&mut bytes);
        client.send(&bytes);
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("sent");
    }

    fn ask(&mut self, request: &StoreRequest<'_>) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.send(&bytes);
    }

    fn receive<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).expect("received");
        bytes
    }

    fn number(&mut self) -> i64 {
        i64::from_le_bytes(self.receive())
    }

    fn ping(&mut self) {
        self.ask(&StoreRequest::Ping { nonce: 7 });
        assert_eq!(self.receive(), 7_u32.to_le_bytes());
    }

    /// True if the server closes the connection in time, with or without a reset.
    fn is_closed(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}

/// Waits until a condition on the store holds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn requests_in_pieces_and_many_at_once_get_their_replies_in_order() {
    let store = start(StoreLimits::default());
    let mut client = Client::raw(&store);
    let mut bytes = Vec::new();
    encode_validation(&mut bytes);
    for amount in 1..=3 {
        StoreRequest::Add { key: b"n", amount }.encode(&mut bytes);
    }
    for byte in &bytes {
        client.send(std::slice::from_ref(byte));
    }
    assert_eq!([client.number(), client.number(), client.number()], [1, 3, 6]);
    let mut bytes = Vec::new();
    for _ in 0..1_000 {
        StoreRequest::Add { key: b"m", amount: 1 }.encode(&mut bytes);
    }
    client.send(&bytes);
    for sum in 1..=1_000 {
        assert_eq!(client.number(), sum);
    }
}

#[test]
fn a_value_of_the_greatest_size_goes_in_and_out() {
    let store = start(StoreLimits::default());
    let mut client = Client::new(&store);
    let value: Vec<u8> = (0..8 << 20).map(|at: usize| at as u8).collect();
    client.ask(&StoreRequest::Set {
        key: b"k",
        value: &value,
    });
    client.ask(&StoreRequest::Get { key: b"k" });
    assert_eq!(client.number(), value.len() as i64);
    let mut received = vec![0; value.len()];
    client.0.read_exact(&mut received).expect("received");
    assert!(received == value);
    client.ping();
    eventually("release of the buffers", || store.figures().buffered_bytes < 64 << 10);
}

#[test]
fn a_wait_ends_when_another_client_sets_the_key() {
    let store = start(StoreLimits::default());
    let mut waiters: Vec<Client> = (0..20).map(|_| Client::new(&store)).collect();
    let mut buffer = Vec::new();
    let keys = RequestItems::encode([b"k".as_slice()], &mut buffer);
    for waiter in &mut waiters {
        waiter.ask(&StoreRequest::Wait { keys });
    }
    eventually("waits", || store.figures().requests == 20);
    Client::new(&store).ask(&StoreRequest::Set { key: b"k", value: b"v" });
    for waiter in &mut waiters {
        assert_eq!(waiter.receive(), [0]);
    }
}

#[test]
fn a_lost_client_leaves_no_wait_and_its_queued_value_goes_to_the_next() {
    let store = start(StoreLimits::default());
    let mut buffer = Vec::new();
    let keys = RequestItems::encode([b"q".as_slice()], &mut buffer);
    let mut first = Client::new(&store);
    first.ask(&StoreRequest::Wait { keys });
    eventually("the first wait", || store.figures().requests == 1);
    let mut second = Client::new(&store);
    second.ask(&StoreRequest::Wait { keys });
    eventually("the second wait", || store.figures().requests == 2);
    let mut third = Client::new(&store);
    third.ask(&StoreRequest::QueuePush { key: b"q", value: b"v" });
    assert_eq!(first.receive(), [0]);
    drop(first);
    assert_eq!(second.receive(), [0]);
    second.ask(&StoreRequest::QueuePop { key: b"q" });
    assert_eq!([second.number(), second.number()], [1, 1]);
    assert_eq!(second.receive(), *b"v");
    drop((second, third));
    eventually("the end of all", || store.figures().connections == 0);
    assert_eq!(store.figures().stored_bytes, 0);
}

#[test]
fn what_no_client_of_torch_sends_closes_that_connection_only() {
    let store = start(StoreLimits::default());
    let mut honest = Client::new(&store);
    honest.ping();
    let with_validation = |rest: &[u8]| {
        let mut bytes = Vec::new();
        encode_validation(&mut bytes);
        bytes.extend_from_slice(rest);
        bytes
    };
    let huge = u64::MAX.to_le_bytes();
    let long_key = [[3].as_slice(), (8_193_u64.to_le_bytes()).as_slice()].concat();
    let long_value = [
        &[1],
        1_u64.to_le_bytes().as_slice(),
        b"k",
        &(8_388_609_u64).to_le_bytes(),
    ]
    .concat();
    let cases = [
        (
            "GET / HTTP/1.1\r\n\r\n".as_bytes().to_vec(),
            "first request has opcode 71 instead of VALIDATE",
        ),
        (
            vec![0, 1, 2, 3, 4],
            "VALIDATE with 0x04030201 instead of the magic number",
        ),
        (with_validation(&with_validation(b"")), "second VALIDATE"),
        (with_validation(&[19]), "unknown opcode 19"),
        (with_validation(&long_key), "key of 8193 bytes"),
        (with_validation(&long_value), "value of 8388609 bytes"),
        (
            with_validation(&[[3].as_slice(), huge.as_slice()].concat()),
            "key of 18446744073709551615 bytes",
        ),
        (
            with_validation(&[[6].as_slice(), huge.as_slice()].concat()),
            "request with 18446744073709551615 keys",
        ),
        (
            with_validation(&[[11].as_slice(), 131_073_u64.to_le_bytes().as_slice()].concat()),
            "request with 131073 keys",
        ),
    ];
    for (at, (bytes, reason)) in cases.into_iter().enumerate() {
        let mut client = Client::raw(&store);
        client.send(&bytes);
        assert!(client.is_closed(), "{reason}");
        eventually(reason, || store.figures().closed_connections == at as u64 + 1);
        assert_eq!(store.figures().last_reason.as_deref(), Some(reason));
        honest.ping();
    }
    let mut client = Client::new(&store);
    client.ask(&StoreRequest::Set {
        key: b"text",
        value: b"text",
    });
    client.ask(&StoreRequest::Add {
        key: b"text",
        amount: 1,
    });
    assert!(client.is_closed());
    eventually("the reason", || store.figures().connections == 1);
    assert_eq!(
        store.figures().last_reason.as_deref(),
        Some("value of key \"text\" is not a number")
    );
    honest.ping();
}

#[test]
fn a_connection_that_does_not_validate_is_closed() {
    let store = start(StoreLimits {
        validation: Duration::from_millis(50),
        ..StoreLimits::default()
    });
    let mut silent = Client::raw(&store);
    let mut honest = Client::new(&store);
    honest.ping();
    assert!(silent.is_closed());
    assert_eq!(
        store.figures().last_reason.as_deref(),
        Some("no VALIDATE request in time")
    );
    honest.ping();
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let store = start(StoreLimits {
        connections: 2,
        ..StoreLimits::default()
    });
    let mut first = Client::new(&store);
    first.ping();
    let mut second = Client::new(&store);
    second.ping();
    assert!(Client::raw(&store).is_closed());
    drop(second);
    eventually("a free place", || store.figures().connections == 1);
    Client::new(&store).ping();
    first.ping();
}

#[test]
fn replies_that_are_not_read_stop_requests_and_not_other_clients() {
    let store = start(StoreLimits::default());
    let mut honest = Client::new(&store);
    let value = vec![7; 1 << 20];
    honest.ask(&StoreRequest::Set {
        key: b"k",
        value: &value,
    });
    honest.ping();
    let mut hostile = Client::new(&store);
    hostile
        .0
        .set_write_timeout(Some(Duration::from_millis(200)))
        .expect("set");
    let mut gets = Vec::new();
    for _ in 0..10_000 {
        StoreRequest::Get { key: b"k" }.encode(&mut gets);
    }
    // Ten gigabytes of replies; the write fails as soon as the server does not read further, unless all fits.
    let _ = hostile.0.write_all(&gets);
    std::thread::sleep(Duration::from_millis(200));
    let figures = store.figures();
    assert!(figures.requests < 50, "{figures:?}");
    assert!(figures.buffered_bytes < 5 << 20, "{figures:?}");
    honest.ping();
    // What was asked for comes once it is read.
    for _ in 0..10 {
        let length = hostile.number();
        let mut received = vec![0; length as usize];
        hostile.0.read_exact(&mut received).expect("received");
        assert!(received == value);
    }
}

#[test]
fn the_client_with_the_most_buffered_bytes_makes_room_for_others() {
    let store = start(StoreLimits {
        buffered_bytes: 6 << 20,
        ..StoreLimits::default()
    });
    let mut honest = Client::new(&store);
    honest.ping();
    // Announced values of which most comes and the end does not.
    let mut hostile: Vec<Client> = Vec::new();
    for size in [3_usize, 2, 2] {
        let mut client = Client::new(&store);
        let value = vec![0; (size << 20) + 10];
        let mut bytes = Vec::new();
        StoreRequest::Set {
            key: b"k",
            value: &value,
        }
        .encode(&mut bytes);
        client.send(&bytes[..size << 20]);
        hostile.push(client);
    }
    let mut largest = hostile.remove(0);
    assert!(largest.is_closed());
    let reason = store.figures().last_reason.expect("a reason");
    assert!(reason.starts_with("connections would buffer "), "{reason}");
    honest.ping();
    assert!(store.figures().buffered_bytes <= 6 << 20);
    drop(hostile);
    eventually("release", || store.figures().connections == 1);
    assert!(store.figures().buffered_bytes < 64 << 10, "{:?}", store.figures());
}

#[test]
fn a_full_store_closes_the_connection_that_fills_it_and_still_answers() {
    let store = start(StoreLimits {
        stored_bytes: 1 << 20,
        ..StoreLimits::default()
    });
    let mut honest = Client::new(&store);
    honest.ask(&StoreRequest::Set { key: b"k", value: b"v" });
    let mut hostile = Client::new(&store);
    let value = vec![0; 100_000];
    for key in 0..20_u8 {
        let mut bytes = Vec::new();
        StoreRequest::Set {
            key: &[key],
            value: &value,
        }
        .encode(&mut bytes);
        let _ = hostile.0.write_all(&bytes);
    }
    assert!(hostile.is_closed());
    assert!(store.figures().stored_bytes <= 1 << 20);
    honest.ask(&StoreRequest::Get { key: b"k" });
    assert_eq!(honest.number(), 1);
    assert_eq!(honest.receive(), *b"v");
}

#[test]
fn a_client_with_many_requests_does_not_delay_another() {
    let store = start(StoreLimits::default());
    let mut honest = Client::new(&store);
    honest.ping();
    let mut greedy = Client::new(&store);
    let mut adds = Vec::new();
    for _ in 0..200_000 {
        StoreRequest::Set { key: b"n", value: b"1" }.encode(&mut adds);
    }
    let sender = std::thread::spawn(move || {
        greedy.send(&adds);
        greedy.ping();
        greedy
    });
    let mut slowest = Duration::ZERO;
    for _ in 0..200 {
        let start = Instant::now();
        honest.ping();
        slowest = slowest.max(start.elapsed());
    }
    sender.join().expect("all are carried out");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

#[test]
fn a_prefix_is_removed_while_clients_are_connected() {
    let store = start(StoreLimits::default());
    let mut client = Client::new(&store);
    client.ask(&StoreRequest::Set {
        key: b"/g1/a",
        value: b"v",
    });
    client.ask(&StoreRequest::Set {
        key: b"/g2/a",
        value: b"v",
    });
    client.ping();
    assert_eq!(store.remove_prefix(b"/g1/"), 1);
    client.ask(&StoreRequest::CountKeys);
    assert_eq!(client.number(), 1);
}

#[test]
fn a_shutdown_closes_connections_and_frees_the_port() {
    let store = start(StoreLimits::default());
    let address = store.address();
    let mut client = Client::new(&store);
    client.ping();
    store.shutdown();
    assert!(client.is_closed());
    assert!(TcpStream::connect(address).is_err());
    let store = start(StoreLimits::default());
    let mut client = Client::new(&store);
    client.ping();
    client.0.shutdown(Shutdown::Write).expect("shut down");
    assert!(client.is_closed());
    drop(store);
}
