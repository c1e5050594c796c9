//! Measurement between two nodes over plain TCP: receiver and sender.
//!
//! The receiver opens a port for one sender and a limited time, and accepts only a sender with the shared secret.
//! Absent: RDMA, several concurrent streams, traffic in both directions.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::plan::LinkMeasurement;

/// Length of the secret, bytes.
pub(super) const WORD: usize = 16;
/// Number of timed round trips.
const PINGS: usize = 64;
/// Size of one write, bytes.
const BLOCK: usize = 256 << 10;
/// Most bytes of one measurement.
const BYTES: u64 = 64 << 30;

/// Receives from one sender: answers its pings, reads its bytes, returns their count. Connections without the secret
/// are closed.
pub(super) fn receive(listener: &TcpListener, word: [u8; WORD], deadline: Duration) -> io::Result<u64> {
    let until = Instant::now() + deadline;
    listener.set_nonblocking(true)?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match listener.accept() {
            Ok((stream, _)) => match serve(&stream, word, until) {
                // A connection without the secret; the sender may still come.
                Err(problem) if problem.kind() == io::ErrorKind::PermissionDenied => {}
                served => return served,
            },
            Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => wait(listener, left)?,
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            Err(problem) => return Err(problem),
        }
    }
}

fn wait(listener: &TcpListener, most: Duration) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let most = Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(1),
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&most))
        .map(drop)
        .or_else(|problem| match problem {
            rustix::io::Errno::INTR => Ok(()),
            problem => Err(problem.into()),
        })
}

fn serve(mut stream: &TcpStream, word: [u8; WORD], until: Instant) -> io::Result<u64> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    limit(stream, until)?;
    let mut said = [0; WORD];
    let known = stream.read_exact(&mut said).is_ok() && said == word;
    if !known {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    for _ in 0..PINGS {
        let mut ping = [0; 1];
        stream.read_exact(&mut ping)?;
        stream.write_all(&ping)?;
    }
    let mut block = vec![0; BLOCK];
    let mut count = 0;
    loop {
        limit(stream, until)?;
        match stream.read(&mut block)? {
            0 => break,
            bytes => count += bytes as u64,
        }
        if count > BYTES {
            return Err(io::Error::other("more than anybody measures with"));
        }
    }
    stream.write_all(&count.to_be_bytes())?;
    Ok(count)
}

/// Limits each read and write to the time left until the deadline.
fn limit(stream: &TcpStream, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    stream.set_write_timeout(Some(left))
}

/// Sends to a receiver for a while, and returns bandwidth and latency.
pub(super) fn send(
    target: SocketAddr,
    word: [u8; WORD],
    lasts: Duration,
    deadline: Duration,
) -> io::Result<LinkMeasurement> {
    let until = Instant::now() + deadline;
    let mut stream = TcpStream::connect_timeout(&target, deadline)?;
    stream.set_nodelay(true)?;
    limit(&stream, until)?;
    stream.write_all(&word)?;
    let mut ways = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let since = Instant::now();
        let mut ping = [1; 1];
        stream.write_all(&ping)?;
        stream.read_exact(&mut ping)?;
        ways.push(since.elapsed());
    }
    ways.sort_unstable();
    let block = vec![0x5a; BLOCK];
    let since = Instant::now();
    let mut sent = 0;
    while since.elapsed() < lasts && sent < BYTES - BLOCK as u64 {
        limit(&stream, until)?;
        stream.write_all(&block)?;
        sent += block.len() as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    // Bandwidth counts only the bytes that arrived, until the receiver confirmed them.
    let mut count = [0; 8];
    limit(&stream, until)?;
    stream.read_exact(&mut count)?;
    if u64::from_be_bytes(count) != sent {
        return Err(io::Error::other("not all that was sent has arrived"));
    }
    Ok(LinkMeasurement {
        bandwidth: sent as f64 / since.elapsed().as_secs_f64().max(1e-9),
        latency: ways[ways.len() / 2].as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_sender_and_a_receiver_agree_and_a_stranger_is_sent_away() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let receiver = std::thread::spawn(move || receive(&listener, [7; WORD], LIMIT));
        assert!(send(target, [8; WORD], Duration::ZERO, LIMIT).is_err());
        let measured = send(target, [7; WORD], Duration::from_millis(20), LIMIT).unwrap();
        let count = receiver.join().unwrap().unwrap();
        assert!(
            count > 0 && measured.bandwidth > 0.0 && measured.latency > 0.0,
            "{measured:?}"
        );
    }

    #[test]
    fn nobody_waits_longer_than_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let short = Duration::from_millis(50);
        // A listener that never serves: the connection is open, but nothing answers.
        let told = send(target, [7; WORD], short, short);
        assert!(told.is_err(), "{told:?}");
        let told = receive(&listener, [7; WORD], short);
        assert!(told.is_err(), "{told:?}");
    }

    #[test]
    fn a_sender_that_goes_away_in_the_middle_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let receiver = std::thread::spawn(move || receive(&listener, [7; WORD], LIMIT));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&[7; WORD]).unwrap();
        drop(stream);
        assert!(receiver.join().unwrap().is_err());
    }
}
