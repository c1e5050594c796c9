//! HTTP server that records requests, as a receiver of notifications; with TLS if it has a certificate.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

/// Recorded request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    /// Lines of the head, names in lower case.
    pub(crate) head: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// Status of the answer; 0 if there was none.
    pub(crate) status: u16,
}

impl ReceivedRequest {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head.iter().find_map(|line| line.strip_prefix(prefix.as_str()))
    }
}

struct Shared {
    requests: Mutex<Vec<ReceivedRequest>>,
    /// Status of answers; 0 for none.
    status: Mutex<u16>,
    /// Body of answers.
    body: Mutex<String>,
    has_ended: AtomicBool,
    changed: Condvar,
}

/// Server on a port of its own; it ends when it is dropped.
pub(crate) struct HttpReceiver {
    pub(crate) address: String,
    shared: Arc<Shared>,
}

impl HttpReceiver {
    /// Starts a server that answers with a status; 0 reads a request and answers nothing.
    pub(crate) fn start(status: u16) -> Self {
        Self::serve(status, None)
    }

    /// Starts a server with the certificate of a folder.
    pub(crate) fn start_tls(folder: &Path) -> Self {
        let chain = CertificateDer::pem_file_iter(folder.join("certificate.pem")).expect("readable");
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().expect("TLS 1.3");
        let config = builder
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a pair");
        Self::serve(200, Some(Arc::new(config)))
    }

    fn serve(status: u16, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            status: Mutex::new(status),
            body: Mutex::new("ok".to_owned()),
            has_ended: AtomicBool::new(false),
            changed: Condvar::new(),
        });
        let of_server = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if of_server.has_ended.load(Ordering::SeqCst) {
                    return;
                }
                let (shared, tls) = (Arc::clone(&of_server), tls.clone());
                std::thread::spawn(move || match tls {
                    Some(tls) => {
                        let connection = ServerConnection::new(tls).expect("a connection");
                        shared.answer(StreamOwned::new(connection, stream));
                    }
                    None => shared.answer(stream),
                });
            }
        });
        Self { address, shared }
    }

    /// Changes the status of later answers.
    pub(crate) fn set_status(&self, status: u16) {
        *self.shared.status.lock().expect("no panic") = status;
    }

    /// Changes the body of later answers.
    pub(crate) fn set_body(&self, body: impl Into<String>) {
        *self.shared.body.lock().expect("no panic") = body.into();
    }

    /// Returns the requests so far.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.requests.lock().expect("no panic").clone()
    }

    /// Returns the requests that were answered with success.
    pub(crate) fn accepted(&self) -> Vec<ReceivedRequest> {
        let mut requests = self.requests();
        requests.retain(|request| (200..300).contains(&request.status));
        requests
    }
}

impl Drop for HttpReceiver {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        let _ = TcpStream::connect(&self.address);
    }
}

impl Shared {
    fn answer(&self, stream: impl Read + Write) {
        let mut reader = BufReader::new(stream);
        while let Some(mut request) = read(&mut reader) {
            let mut status = *self.status.lock().expect("no panic");
            request.status = status;
            self.requests.lock().expect("no panic").push(request);
            while status == 0 && !self.has_ended.load(Ordering::SeqCst) {
                let guard = self.status.lock().expect("no panic");
                let waited = self.changed.wait_timeout(guard, Duration::from_millis(100));
                drop(waited);
                status = 0;
            }
            if status == 0 {
                return;
            }
            let body = self.body.lock().expect("no panic").clone();
            let length = body.len();
            let text = format!("HTTP/1.1 {status} Answer\r\nContent-Length: {length}\r\n\r\n{body}");
            if reader.get_mut().write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn read(reader: &mut BufReader<impl Read>) -> Option<ReceivedRequest> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        match line.split_once(": ") {
            Some((name, value)) if !head.is_empty() => head.push(format!("{}: {value}", name.to_lowercase())),
            _ => head.push(line.to_owned()),
        }
    }
    let length = head
        .iter()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let path = head.first()?.split(' ').nth(1)?.to_owned();
    Some(ReceivedRequest {
        path,
        head,
        body,
        status: 0,
    })
}
