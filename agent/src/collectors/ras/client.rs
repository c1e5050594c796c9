//! RAS protocol: lines over TCP, a greeting from both sides, then one request; the answer ends with the connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::stop_flag::StopFlag;

/// Greeting of this side; the version is the one that all released servers speak.
const GREETING: &[u8] = b"CLIENT PROTOCOL 2\n";
/// Start of the server's greeting.
const GREETED: &str = "server protocol ";
/// Request: verbose, so that every rank that differs is listed and not only the first ten.
const QUESTION: &[u8] = b"VERBOSE STATUS\n";
/// Longest greeting, bytes.
const GREETING_BYTES: usize = 256;
/// Interval at which a wait checks the stop flag.
const HEAR: Duration = Duration::from_millis(100);

/// Limits of one query.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueryLimits {
    /// Time for a connection and its greeting. All processes of a node share the port, and a stopped one still receives
    /// its part of the connections.
    pub(super) greeting: Duration,
    /// Number of attempts to connect.
    pub(super) tries: u32,
    /// Time for the answer, which NCCL itself sends within 10 s.
    pub(super) answer: Duration,
    /// Most bytes that are read of the answer.
    pub(super) bytes: usize,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            greeting: Duration::from_secs(1),
            tries: 3,
            answer: Duration::from_secs(12),
            bytes: 1 << 20,
        }
    }
}

/// Answer, as far as it was received.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RasReply {
    pub(super) text: String,
    /// Cause if the answer is incomplete.
    pub(super) broken: Option<String>,
}

/// Reason for a missing answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueryError {
    /// No listener at the port.
    Nobody,
    /// The listener does not speak the RAS protocol; with a message.
    Foreign(String),
    /// The stop flag was set.
    Stopped,
}

/// Sends the request to the first of these addresses that has a listener.
pub(super) fn ask(addresses: &[SocketAddr], limits: &QueryLimits, stop: &StopFlag) -> Result<RasReply, QueryError> {
    let mut why = None;
    for _ in 0..limits.tries {
        for address in addresses {
            match greet(address, limits, stop) {
                Ok(stream) => return question(stream, limits, stop),
                Err(QueryError::Nobody) => {}
                Err(QueryError::Stopped) => return Err(QueryError::Stopped),
                Err(QueryError::Foreign(told)) => why = Some(told),
            }
        }
        if why.is_none() {
            return Err(QueryError::Nobody);
        }
    }
    Err(why.map_or(QueryError::Nobody, QueryError::Foreign))
}

fn greet(address: &SocketAddr, limits: &QueryLimits, stop: &StopFlag) -> Result<TcpStream, QueryError> {
    let until = Instant::now() + limits.greeting;
    let mut stream = TcpStream::connect_timeout(address, limits.greeting).map_err(|problem| match problem.kind() {
        io::ErrorKind::TimedOut => QueryError::Foreign(format!("{address} takes no connection")),
        _ => QueryError::Nobody,
    })?;
    let failed = |problem: io::Error| QueryError::Foreign(format!("{address}: {problem}"));
    stream
        .set_read_timeout(Some(HEAR.min(limits.greeting)))
        .map_err(failed)?;
    stream.set_write_timeout(Some(limits.greeting)).map_err(failed)?;
    stream.write_all(GREETING).map_err(failed)?;
    let mut greeted = Vec::new();
    let mut byte = [0];
    // Byte by byte, because the data after the line belongs to the answer.
    while !greeted.ends_with(b"\n") {
        match read_bytes(&mut stream, &mut byte, until, stop) {
            ReadOutcome::Bytes(_) if greeted.len() < GREETING_BYTES => greeted.push(byte[0]),
            ReadOutcome::Stopped => return Err(QueryError::Stopped),
            ReadOutcome::Late => return Err(QueryError::Foreign(format!("{address} does not greet"))),
            ReadOutcome::Bytes(_) | ReadOutcome::End | ReadOutcome::Broken(_) => break,
        }
    }
    let text = String::from_utf8_lossy(&greeted);
    if greeted.ends_with(b"\n") && text.to_ascii_lowercase().starts_with(GREETED) {
        return Ok(stream);
    }
    let begins: String = text.chars().take(40).collect();
    Err(QueryError::Foreign(format!("{address} greets with {begins:?}")))
}

fn question(mut stream: TcpStream, limits: &QueryLimits, stop: &StopFlag) -> Result<RasReply, QueryError> {
    let until = Instant::now() + limits.answer;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    let mut broken = stream.write_all(QUESTION).err().map(|problem| problem.to_string());
    while broken.is_none() {
        match read_bytes(&mut stream, &mut buffer, until, stop) {
            ReadOutcome::Bytes(count) => bytes.extend_from_slice(&buffer[..count]),
            ReadOutcome::End => break,
            ReadOutcome::Stopped => return Err(QueryError::Stopped),
            ReadOutcome::Late => broken = Some(format!("it did not end within {:.0?}", limits.answer)),
            ReadOutcome::Broken(problem) => broken = Some(problem.to_string()),
        }
        if bytes.len() >= limits.bytes {
            bytes.truncate(limits.bytes);
            broken = Some(format!("only {} bytes of it were read", limits.bytes));
        }
    }
    Ok(RasReply {
        text: String::from_utf8_lossy(&bytes).into_owned(),
        broken,
    })
}

enum ReadOutcome {
    Bytes(usize),
    End,
    /// The deadline has passed.
    Late,
    Stopped,
    Broken(io::Error),
}

fn read_bytes(stream: &mut TcpStream, buffer: &mut [u8], until: Instant, stop: &StopFlag) -> ReadOutcome {
    loop {
        if stop.stopped() {
            return ReadOutcome::Stopped;
        }
        if Instant::now() >= until {
            return ReadOutcome::Late;
        }
        match stream.read(buffer) {
            Ok(0) => return ReadOutcome::End,
            Ok(count) => return ReadOutcome::Bytes(count),
            Err(problem) => match problem.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {}
                _ => return ReadOutcome::Broken(problem),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;

    const LIMITS: QueryLimits = QueryLimits {
        greeting: Duration::from_secs(20),
        tries: 1,
        answer: Duration::from_secs(60),
        bytes: 1 << 20,
    };

    /// Serves one connection; `serve` receives the lines that are sent and the stream to write to.
    fn server(
        serve: impl FnOnce(&mut dyn Iterator<Item = String>, &mut TcpStream) + Send + 'static,
    ) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap())
                .lines()
                .map_while(Result::ok);
            serve(&mut lines, &mut stream);
        });
        (address, thread)
    }

    fn ask_it(address: SocketAddr, limits: &QueryLimits) -> Result<RasReply, QueryError> {
        ask(&[address], limits, &StopFlag::default())
    }

    #[test]
    fn both_greet_and_the_answer_is_all_until_the_connection_ends() {
        let (address, served) = server(|lines, stream| {
            assert_eq!(lines.next().as_deref(), Some("CLIENT PROTOCOL 2"));
            stream.write_all(b"SERVER PROTOCOL 2\n").unwrap();
            assert_eq!(lines.next().as_deref(), Some("VERBOSE STATUS"));
            // In pieces, as the service sends it.
            for piece in [
                "NCCL version 2.28.3 compiled with CUDA 13.0\n",
                "\nCommuni",
                "cators...",
                " (0.00s)\n",
            ] {
                stream.write_all(piece.as_bytes()).unwrap();
            }
        });
        let said = ask_it(address, &LIMITS).unwrap();
        served.join().unwrap();
        assert!(
            said.text.starts_with("NCCL version 2.28.3") && said.text.ends_with("(0.00s)\n"),
            "{said:?}"
        );
        assert_eq!(said.broken, None);
    }

    #[test]
    fn nobody_at_the_port_is_told_apart_from_somebody_else() {
        // Port 1, because a port that was free a moment ago may be another test's by now.
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        assert_eq!(ask_it(nobody, &LIMITS), Err(QueryError::Nobody));
        let (web, served) = server(|lines, stream| {
            lines.next();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        });
        let told = ask_it(web, &LIMITS);
        served.join().unwrap();
        assert!(
            matches!(&told, Err(QueryError::Foreign(why)) if why.contains("HTTP/1.1 400")),
            "{told:?}"
        );
        let (endless, served) = server(|_, stream| while stream.write_all(&[b'x'; 4096]).is_ok() {});
        let told = ask_it(endless, &LIMITS);
        served.join().unwrap();
        assert!(matches!(told, Err(QueryError::Foreign(_))), "{told:?}");
    }

    /// RG-9.
    #[test]
    fn silence_before_and_after_the_greeting_has_an_end() {
        let quick = QueryLimits {
            greeting: Duration::from_millis(300),
            ..LIMITS
        };
        let (dumb, served) = server(|lines, _| for _ in lines {});
        let told = ask_it(dumb, &quick);
        served.join().unwrap();
        assert!(
            matches!(&told, Err(QueryError::Foreign(why)) if why.ends_with("does not greet")),
            "{told:?}"
        );
        let (stuck, served) = server(|lines, stream| {
            lines.next();
            stream.write_all(b"SERVER PROTOCOL 2\nNCCL version").unwrap();
            for _ in lines {}
        });
        let quick = QueryLimits {
            answer: Duration::from_secs(2),
            ..LIMITS
        };
        let said = ask_it(stuck, &quick).unwrap();
        served.join().unwrap();
        assert_eq!(said.text, "NCCL version");
        assert_eq!(said.broken.as_deref(), Some("it did not end within 2s"));
    }

    #[test]
    fn ten_megabytes_are_not_all_read() {
        let (address, served) = server(|lines, stream| {
            lines.next();
            stream.write_all(b"SERVER PROTOCOL 2\n").unwrap();
            lines.next();
            let line = "  Rank 7 -- GPU 0 managed by process 1 on node 10.0.0.1\n".repeat(1000);
            for _ in 0..(10 << 20) / line.len() {
                if stream.write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
        });
        let said = ask_it(address, &LIMITS).unwrap();
        served.join().unwrap();
        assert_eq!(said.text.len(), LIMITS.bytes);
        assert_eq!(said.broken.as_deref(), Some("only 1048576 bytes of it were read"));
    }

    #[test]
    fn an_agent_that_ends_waits_for_nobody() {
        let (address, served) = server(|lines, _| for _ in lines {});
        let stop = StopFlag::default();
        stop.stop();
        assert_eq!(ask(&[address], &LIMITS, &stop), Err(QueryError::Stopped));
        served.join().unwrap();
    }
}
