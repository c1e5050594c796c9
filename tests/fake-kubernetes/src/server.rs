//! Listener, TLS and watches.

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::cluster::FakeCluster;
use crate::connection::ResourceRequest;
use crate::http::{HttpAnswer, HttpRequest, begin_chunks, status_object, write_chunk};

/// Pause between two looks of a watch at the history.
const WATCH_PAUSE: Duration = Duration::from_millis(5);
/// Silence of a watch after which a bookmark is sent.
const BOOKMARK_AFTER: Duration = Duration::from_millis(100);

/// Request as it was answered.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Verb of RBAC.
    pub verb: String,
    /// Group of the API; empty for the core.
    pub group: String,
    /// Resource with its subresource: `nodes/status`.
    pub resource: String,
    /// Namespace; empty for nodes and lists of all namespaces.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// Body as JSON; `Null` without one.
    pub body: Value,
}

impl RecordedRequest {
    /// Returns the right that the request needs, as `VERB GROUP/RESOURCE`.
    pub fn right(&self) -> String {
        format!("{} {}/{}", self.verb, self.group, self.resource)
    }

    /// True if the request changes something.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// Server on a port of its own; it ends when it is dropped.
#[derive(Debug)]
pub struct FakeServer {
    /// Address: `https://127.0.0.1:PORT`.
    pub url: String,
    /// Certificate of the server (PEM), which signs itself.
    pub ca_pem: String,
    cluster: Arc<Mutex<FakeCluster>>,
    has_ended: Arc<AtomicBool>,
}

impl FakeServer {
    /// Starts a server without objects.
    ///
    /// # Panics
    /// There is no port or no certificate.
    pub fn start() -> Self {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let chain = vec![CertificateDer::from(made.cert.der().to_vec())];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().expect("TLS");
        let config = builder.with_no_client_auth().with_single_cert(chain, key);
        let config = Arc::new(config.expect("a pair of certificate and key"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let cluster: Arc<Mutex<FakeCluster>> = Arc::default();
        let has_ended = Arc::new(AtomicBool::new(false));
        let (shared, ended) = (Arc::clone(&cluster), Arc::clone(&has_ended));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (cluster, ended, config) = (Arc::clone(&shared), Arc::clone(&ended), Arc::clone(&config));
                std::thread::spawn(move || serve(stream, config, &cluster, &ended));
            }
        });
        Self {
            url,
            ca_pem: made.cert.pem(),
            cluster,
            has_ended,
        }
    }

    /// Locks the objects, to read or to change them.
    pub fn cluster(&self) -> MutexGuard<'_, FakeCluster> {
        locked(&self.cluster)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // A last connection ends the listener.
        let address = self.url.trim_start_matches("https://");
        let _ = TcpStream::connect(address);
    }
}

fn locked(cluster: &Mutex<FakeCluster>) -> MutexGuard<'_, FakeCluster> {
    cluster.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the requests of one connection until either side ends it.
fn serve(stream: TcpStream, config: Arc<ServerConfig>, cluster: &Mutex<FakeCluster>, ended: &AtomicBool) {
    let Ok(connection) = ServerConnection::new(config) else {
        return;
    };
    // An answer is written in one piece: without this, each waits for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    while let Some(request) = HttpRequest::read(&mut reader) {
        if locked(cluster).is_down || ended.load(Ordering::Relaxed) {
            return;
        }
        let is_watch = ResourceRequest::of(&request).is_some_and(|wanted| wanted.verb == "watch");
        let written = if is_watch {
            watch(reader.get_mut(), &request, cluster, ended)
        } else {
            let (answer, offset) = {
                let mut cluster = locked(cluster);
                (cluster.answer(&request), cluster.clock_offset)
            };
            answer.write(reader.get_mut(), offset)
        };
        if written.is_err() {
            return;
        }
    }
}

/// Answers a watch: events behind its version, bookmarks, 410 as an event if the version is forgotten.
fn watch(
    writer: &mut (impl Read + Write),
    request: &HttpRequest,
    cluster: &Mutex<FakeCluster>,
    ended: &AtomicBool,
) -> std::io::Result<()> {
    let (refusal, epoch, offset) = begin_watch(request, &mut locked(cluster));
    if let Some(refusal) = refusal {
        return refusal.write(writer, offset);
    }
    let from = request
        .parameter("resourceVersion")
        .and_then(|text| text.parse::<u64>().ok());
    let mut version = from.unwrap_or_default();
    begin_chunks(writer, offset)?;
    let mut sent_at = Instant::now();
    loop {
        let lines = {
            let cluster = locked(cluster);
            if cluster.is_down {
                return Err(std::io::Error::other("down"));
            }
            let has_ended = cluster.watch_epoch != epoch || ended.load(Ordering::Relaxed);
            if has_ended {
                None
            } else if version < cluster.oldest {
                let gone = status_object(410, "Expired", "too old resource version");
                Some(vec![json!({ "type": "ERROR", "object": gone })])
            } else {
                Some(lines_behind(&cluster, &mut version, sent_at.elapsed()))
            }
        };
        let Some(lines) = lines else {
            return write_chunk(writer, "");
        };
        for line in &lines {
            write_chunk(writer, &format!("{line}\n"))?;
            sent_at = Instant::now();
            if line["type"] == "ERROR" {
                return write_chunk(writer, "");
            }
        }
        std::thread::sleep(WATCH_PAUSE);
    }
}

/// Records a watch, and returns its refusal, the epoch in which it begins and the offset of the clock.
fn begin_watch(request: &HttpRequest, cluster: &mut FakeCluster) -> (Option<HttpAnswer>, u64, i64) {
    let wanted = ResourceRequest::of(request).unwrap_or_default();
    let refusal = cluster.permit(request, &wanted);
    cluster.requests.push(RecordedRequest {
        verb: wanted.verb.to_owned(),
        group: wanted.group,
        resource: wanted.resource,
        namespace: wanted.namespace,
        name: wanted.name,
        code: refusal.as_ref().map_or(200, |refusal| refusal.code),
        body: Value::Null,
    });
    (refusal, cluster.watch_epoch, cluster.clock_offset)
}

fn lines_behind(cluster: &FakeCluster, version: &mut u64, silence: Duration) -> Vec<Value> {
    let behind = cluster.history.iter().filter(|(at, _, _)| *at > *version);
    let lines: Vec<Value> = behind
        .map(|(_, kind, node)| json!({ "type": kind, "object": node }))
        .collect();
    if lines.is_empty() && silence < BOOKMARK_AFTER {
        return lines;
    }
    *version = cluster.version.max(*version);
    if lines.is_empty() {
        let metadata = json!({ "resourceVersion": version.to_string() });
        return vec![json!({ "type": "BOOKMARK", "object": { "kind": "Node", "metadata": metadata } })];
    }
    lines
}
