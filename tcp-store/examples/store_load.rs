//! Load on a store, of torch or of this crate: `store_load ADDRESS CLIENTS SECONDS`.
//!
//! Each client repeats what torch's `set`, `get` and `add` send, with one request under way: `SET` and `WAIT`, `GET`, `ADD`. One thread
//! serves all clients in turn, so that the server always has the requests of all others. Prints replies a second and their latencies.

#![allow(clippy::print_stdout, reason = "the caller reads the figures")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rankguard_tcp_store::wire::{RequestItems, StoreRequest, encode_validation};

const VALUE_BYTES: usize = 64;
/// Replies in the cycle of a client, by their bytes.
const REPLY_BYTES: [usize; 3] = [1, 8 + VALUE_BYTES, 8];

struct Client {
    stream: TcpStream,
    key: Vec<u8>,
    phase: usize,
    sent_at: Instant,
}

impl Client {
    fn connect(address: &str, number: usize) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut bytes = Vec::new();
        encode_validation(&mut bytes);
        StoreRequest::Ping { nonce: 7 }.encode(&mut bytes);
        stream.write_all(&bytes)?;
        // As torch's client does; the next connection then finds room in the listener's queue.
        stream.read_exact(&mut [0; 4])?;
        Ok(Self {
            stream,
            key: format!("/default_pg/0//cuda//rank/{number}").into_bytes(),
            phase: 0,
            sent_at: Instant::now(),
        })
    }

    fn send(&mut self) -> std::io::Result<()> {
        let key = &self.key;
        let value = [7; VALUE_BYTES];
        let mut bytes = Vec::with_capacity(256);
        let mut buffer = Vec::new();
        match self.phase {
            0 => {
                StoreRequest::Set { key, value: &value }.encode(&mut bytes);
                let keys = RequestItems::encode([key.as_slice()], &mut buffer);
                StoreRequest::Wait { keys }.encode(&mut bytes);
            }
            1 => StoreRequest::Get { key }.encode(&mut bytes),
            _ => {
                let key = b"/default_pg/0//counter";
                StoreRequest::Add { key, amount: 1 }.encode(&mut bytes);
            }
        }
        self.sent_at = Instant::now();
        self.stream.write_all(&bytes)
    }

    fn receive(&mut self) -> std::io::Result<Duration> {
        let mut reply = [0; 8 + VALUE_BYTES];
        self.stream.read_exact(&mut reply[..REPLY_BYTES[self.phase]])?;
        self.phase = (self.phase + 1) % REPLY_BYTES.len();
        Ok(self.sent_at.elapsed())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, clients, seconds] = arguments.as_slice() else {
        return Err("usage: store_load ADDRESS CLIENTS SECONDS".into());
    };
    let length = Duration::from_secs_f64(seconds.parse()?);
    let clients: usize = clients.parse()?;
    let connect = |number| Client::connect(address, number);
    let mut clients = (0..clients).map(connect).collect::<Result<Vec<_>, _>>()?;
    for client in &mut clients {
        client.send()?;
    }
    let mut latencies = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    while start.elapsed() < length {
        for client in &mut clients {
            latencies.push(client.receive()?);
            client.send()?;
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize].as_secs_f64() * 1e6;
    println!(
        "{{\"replies_per_s\": {:.0}, \"p50_us\": {:.1}, \"p99_us\": {:.1}}}",
        latencies.len() as f64 / elapsed,
        at(0.5),
        at(0.99)
    );
    Ok(())
}
