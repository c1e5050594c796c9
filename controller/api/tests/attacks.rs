//! Clients that mean harm, over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use rankguard_api::{ApiServer, StateFeed};
use rankguard_core::DecisionState;
use rankguard_identity::PeerTransport;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::SampleCluster;

/// Longest wait of a test for anything.
const LIMIT: Duration = Duration::from_secs(120);

/// API on a free port of loopback.
struct Site {
    server: ApiServer,
    feed: StateFeed,
    cluster: SampleCluster,
}

impl Site {
    async fn start(cluster: SampleCluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (service, feed, _) = cluster.service();
        let server = ApiServer::start(listener, &PeerTransport::loopback(), service).expect("it listens");
        Self { server, feed, cluster }
    }

    fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Applies a change to the state of the cluster, and passes on its events.
    fn change(&mut self, change: impl FnOnce(&mut SampleCluster)) {
        let known = self.cluster.events.len();
        change(&mut self.cluster);
        let events = self.cluster.events.split_off(known);
        let state: &DecisionState = &self.cluster.state;
        self.feed.push(events, 1, state);
    }
}

/// Sends bytes and reads until the server closes the connection.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let exchanged = timeout(LIMIT, async {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        // The server may close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    });
    exchanged.await.expect("the server closes the connection")
}

async fn request(address: SocketAddr, line: &str, rest: &str) -> String {
    let text = format!("{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{rest}\r\n");
    exchange(address, text.as_bytes()).await
}

fn status(answer: &str) -> u16 {
    let word = answer.split(' ').nth(1);
    word.and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no status: {answer:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_and_foreign_requests_are_refused_with_a_problem() {
    let site = Site::start(SampleCluster::new(4, 2)).await;
    let address = site.address();
    for (line, rest, expected) in [
        ("GET /api/v1/nodes", "", 200),
        ("GET /api/v1/nodes/a%2Fb", "", 200),
        ("GET /api/v1/nodes/x%2500y", "", 200),
        ("GET /api/v1/nodes/x%00y", "", 404),
        ("GET /api/v1/nodes/%ff", "", 400),
        ("GET /api/v1/nodes/../../../etc/passwd", "", 404),
        ("GET /api/v1/nodes/..%2f..%2fetc%2fpasswd", "", 404),
        ("GET //api/v1/nodes", "", 404),
        ("GET /api/v1/nodes/", "", 404),
        ("GET /API/V1/NODES", "", 404),
        ("GET /", "", 302),
        ("GET /console", "", 302),
        ("GET /console/", "", 200),
        ("GET /console/main.js?x", "", 200),
        ("GET /console/..%2fCargo.toml", "", 404),
        ("GET /console/../Cargo.toml", "", 404),
        ("POST /console/", "Content-Length: 0\r\n", 405),
        ("GET /api/v1/nodes/n00000/cordon", "", 405),
        ("HEAD /api/v1/nodes/n00000/cordon", "", 405),
        (
            "OPTIONS /api/v1/nodes/n00000/cordon",
            "Origin: https://evil.example\r\n",
            405,
        ),
        ("PUT /api/v1/nodes/n00000/cordon", "", 405),
        ("POST /api/v1/nodes/n00000/cordon", "Content-Length: 0\r\n", 401),
        ("POST /api/v1/nodes/n00000/cordon", "Content-Length: 2\r\n\r\n{}", 401),
        ("GET /api/v1/nodes?access_token=x", "", 400),
        ("GET http://evil.example/console/", "", 421),
        ("POST /api/v1/nodes", "Content-Length: 0\r\n", 405),
        ("PUT /api/v1/nodes/n00000", "", 405),
        ("DELETE /api/v1/cases/1", "", 405),
        ("OPTIONS /api/v1/cases", "Origin: https://evil.example\r\n", 405),
        ("TRACE /api/v1/cases", "", 405),
        ("BREW /api/v1/cases", "", 405),
        ("GET /api/v1/cases", "Content-Length: 5\r\n\r\nhello", 413),
        (
            "GET /api/v1/cases",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
            413,
        ),
        ("GET /api/v1/watch", "Last-Event-ID: nonsense\r\n", 400),
        ("GET /api/v1/cases?a", "", 400),
        ("GET http://evil.example/api/v1/cases", "", 421),
    ] {
        let answer = request(address, line, rest).await;
        assert_eq!(status(&answer), expected, "{line}: {answer}");
        assert!(answer.contains("x-content-type-options: nosniff"), "{answer}");
        assert!(!answer.contains("access-control-allow"), "{answer}");
        if expected >= 400 && !line.starts_with("HEAD") {
            assert!(answer.contains("application/problem+json"), "{line}: {answer}");
        }
    }
    for host in [
        "Host: evil.example\r\n",
        "",
        "Host: 127.0.0.1\r\nHost: evil.example\r\n",
        "Host: 127.0.0.1.evil.example\r\n",
    ] {
        let text = format!("GET /api/v1/cases HTTP/1.1\r\nConnection: close\r\n{host}\r\n");
        let answer = exchange(address, text.as_bytes()).await;
        assert_eq!(status(&answer), 421, "{host:?}: {answer}");
    }
    let long = request(address, &format!("GET /api/v1/cases?cursor={}", "a".repeat(5_000)), "").await;
    assert_eq!(status(&long), 414);
    let huge = request(
        address,
        &format!("GET /api/v1/cases?cursor={}", "a".repeat(100_000)),
        "",
    )
    .await;
    assert!(matches!(status(&huge), 414 | 431), "{huge}");
    let many = "X-A: b\r\n".repeat(500);
    assert_eq!(status(&request(address, "GET /api/v1/cases", &many).await), 431);
    let head = request(address, "HEAD /api/v1/cases", "").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_answered_in_order() {
    let site = Site::start(SampleCluster::new(4, 2)).await;
    let address = site.address();
    let one = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
    let text: String = (1..=50)
        .map(|number| one(&format!("/api/v1/plans/99{number:02}"), ""))
        .collect();
    let text = text + &one("/healthz", "Connection: close\r\n");
    let answer = exchange(address, text.as_bytes()).await;
    let mut rest = answer.as_str();
    for number in 1..=50 {
        let name = format!("99{number:02}");
        let (_, after) = rest.split_once(&name).unwrap_or_else(|| panic!("no {name}: {answer}"));
        rest = after;
    }
    assert!(rest.contains("HTTP/1.1 200"), "{rest}");
}

/// Half-open and idle connections hold a place only until their deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_connections_that_send_nothing_do_not_shut_others_out() {
    let site = Site::start(SampleCluster::new(4, 2)).await;
    let address = site.address();
    let mut idle = JoinSet::new();
    for number in 0..2_000 {
        idle.spawn(async move {
            let mut stream = TcpStream::connect(address).await.ok()?;
            let part: &[u8] = if number % 2 == 0 {
                b""
            } else {
                b"GET /api/v1/nodes HTTP/1.1\r\nHost: loc"
            };
            stream.write_all(part).await.ok()?;
            Some(stream)
        });
    }
    let answer = timeout(LIMIT, request(address, "GET /healthz", ""))
        .await
        .expect("an answer");
    assert_eq!(status(&answer), 200);
    idle.abort_all();
}

/// Reads from a watch until it has sent an event of this name.
async fn read_event(stream: &mut TcpStream, name: &str) -> String {
    let read = timeout(LIMIT, async {
        let mut text = String::new();
        let mut buffer = [0; 4_096];
        while !text.contains(&format!("event: {name}\n")) || !text.ends_with("\n\n\r\n") {
            let count = stream.read(&mut buffer).await.expect("readable");
            assert!(count > 0, "the watch ended: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        text
    });
    read.await.unwrap_or_else(|_| panic!("no event {name}"))
}

async fn watch(address: SocketAddr, last: Option<&str>) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
    let text = format!("GET /api/v1/watch HTTP/1.1\r\nHost: localhost\r\n{last}\r\n");
    stream.write_all(text.as_bytes()).await.expect("written");
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_reports_changes_and_continues_after_the_last_event() {
    let mut site = Site::start(SampleCluster::new(4, 2)).await;
    let address = site.address();
    let mut stream = watch(address, None).await;
    let start = read_event(&mut stream, "start").await;
    assert!(start.contains("\"is_resumed\":false"), "{start}");
    site.change(|cluster| cluster.note_cases("looked"));
    let text = read_event(&mut stream, "case").await;
    assert!(
        text.contains("\"change\":\"changed\"") && text.contains("/api/v1/cases/"),
        "{text}"
    );
    drop(stream);
    let id = text
        .lines()
        .find_map(|line| line.strip_prefix("id: "))
        .expect("an id")
        .to_owned();
    site.change(|cluster| cluster.submit("later", 1));
    let mut stream = watch(address, Some(&id)).await;
    let text = read_event(&mut stream, "job").await;
    assert!(
        text.contains("\"is_resumed\":true") && text.contains("\"name\":\"later\""),
        "{text}"
    );
    let mut stream = watch(address, Some("0000000000000001-5")).await;
    let text = read_event(&mut stream, "gap").await;
    assert!(
        text.contains("started again") && text.contains("/api/v1/jobs"),
        "{text}"
    );
}

/// Watches beyond the limit are refused, and leave their place when the client goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_are_bounded() {
    let site = Site::start(SampleCluster::new(4, 0)).await;
    let address = site.address();
    let mut streams = Vec::new();
    for _ in 0..64 {
        let mut stream = watch(address, None).await;
        read_event(&mut stream, "start").await;
        streams.push(stream);
    }
    let answer = request(address, "GET /api/v1/watch", "").await;
    assert_eq!(status(&answer), 503);
    assert!(answer.contains("retry-after"), "{answer}");
    drop(streams);
    let freed = timeout(LIMIT, async {
        loop {
            let mut stream = watch(address, None).await;
            let mut head = [0; 12];
            stream.read_exact(&mut head).await.expect("an answer");
            if head.ends_with(b"200") {
                return;
            }
        }
    });
    freed.await.expect("places become free");
}
