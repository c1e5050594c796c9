//! OTLP settings: endpoint, protocol, trusted authorities and headers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Maximum bytes of a headers file.
const HEADERS_MAX: u64 = 64 << 10;

/// Settings of the OTLP export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpSettings {
    /// `host:port`, `http://host:port/path` or `https://host:port/path`: see [`OtlpEndpoint`].
    pub endpoint: String,
    pub protocol: OtlpProtocol,
    /// Certificates (PEM) of trusted authorities; default: the system's. Used only for https.
    pub ca: Option<PathBuf>,
    /// File of lines `name: value` that are sent with each export, such as a token. `#` begins a comment.
    pub headers: Option<PathBuf>,
}

/// Supported protocols of OTLP 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OtlpProtocol {
    #[default]
    Grpc,
    /// HTTP/1.1 with protocol-buffers bodies.
    HttpProtobuf,
}

/// Address of an OpenTelemetry collector. `host:port` means `http://host:port`; the default port is that of the
/// scheme. The path precedes `/v1/logs` and `/v1/metrics`; gRPC does not use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpEndpoint {
    /// True for https.
    pub(super) secure: bool,
    /// Host without the brackets of IPv6.
    pub(super) host: String,
    pub(super) port: u16,
    /// Path without a trailing slash.
    pub(super) path: String,
    /// Host and port as written in the setting.
    pub(super) authority: String,
}

/// Error of the OTLP settings.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The endpoint is not valid.
    #[error("{endpoint:?} is no endpoint (write host:port, http://host:port or https://host:port)")]
    Endpoint {
        /// Value of the setting.
        endpoint: String,
    },
    #[error("{path}: cannot be read: {source}")]
    Unread { path: PathBuf, source: io::Error },
    /// A certificate file holds no authorities.
    #[error("{path}: {why} (expected PEM certificates)")]
    Ca { path: PathBuf, why: String },
    /// A line of a headers file is not valid. Its text is not repeated: it may be a secret.
    #[error("{path}:{line}: this is no header (write name: value)")]
    Header {
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// The system has no trusted authorities.
    #[error("this system has no certificates of authorities; name a file of them (agent.otlp_ca)")]
    NoAuthorities,
    /// The TLS library refuses the configuration.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

impl FromStr for OtlpEndpoint {
    type Err = OtlpError;

    fn from_str(text: &str) -> Result<Self, OtlpError> {
        endpoint(text).ok_or_else(|| OtlpError::Endpoint {
            endpoint: text.to_owned(),
        })
    }
}

fn endpoint(text: &str) -> Option<OtlpEndpoint> {
    let bare = !text.contains("://");
    let uri: Uri = if bare {
        format!("http://{text}")
    } else {
        text.to_owned()
    }
    .parse()
    .ok()?;
    let secure = match uri.scheme_str()? {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let authority = uri.authority()?;
    let path = uri.path().trim_end_matches('/');
    // Names and passwords belong in headers, and `host:port` has neither a path nor a default port.
    let odd = authority.as_str().contains('@') || uri.query().is_some();
    let port = uri.port_u16();
    if odd || authority.host().is_empty() || bare && (port.is_none() || !path.is_empty()) {
        return None;
    }
    // The text after the colon must be a valid port.
    if port.is_none() && authority.as_str() != authority.host() {
        return None;
    }
    Some(OtlpEndpoint {
        secure,
        host: authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned(),
        port: port.unwrap_or(if secure { 443 } else { 80 }),
        path: path.to_owned(),
        authority: authority.to_string(),
    })
}

/// Returns the trusted authorities: those of a file, or those of the system.
pub(super) fn authorities(file: Option<&Path>) -> Result<RootCertStore, OtlpError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = file else {
        // Unreadable certificates of the system are skipped.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() {
            Err(OtlpError::NoAuthorities)
        } else {
            Ok(roots)
        };
    };
    let wrong = |why: String| OtlpError::Ca {
        path: path.to_owned(),
        why,
    };
    let text = fs::read(path).map_err(|source| unread(path, source))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|problem| wrong(problem.to_string()))?;
        roots.add(certificate).map_err(|problem| wrong(problem.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("it holds no certificate".to_owned()));
    }
    Ok(roots)
}

/// Reads a headers file; the values are marked as sensitive, so that they are not printed.
pub(super) fn headers(file: Option<&Path>) -> Result<HeaderMap, OtlpError> {
    let mut headers = HeaderMap::new();
    let Some(path) = file else { return Ok(headers) };
    let size = fs::metadata(path).map_err(|source| unread(path, source))?.len();
    if size > HEADERS_MAX {
        let source = io::Error::other(format!("it has {size} bytes, more than {HEADERS_MAX}"));
        return Err(unread(path, source));
    }
    let text = fs::read_to_string(path).map_err(|source| unread(path, source))?;
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = header(line).ok_or_else(|| OtlpError::Header {
            path: path.to_owned(),
            line: number,
        })?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let mut value = HeaderValue::from_str(value.trim()).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value))
}

fn unread(path: &Path, source: io::Error) -> OtlpError {
    OtlpError::Unread {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_endpoint_is_an_address_or_a_url() {
        for (text, secure, host, port, path) in [
            ("127.0.0.1:4317", false, "127.0.0.1", 4317, ""),
            ("[::1]:4317", false, "::1", 4317, ""),
            ("http://otel:4318", false, "otel", 4318, ""),
            ("http://otel/", false, "otel", 80, ""),
            ("https://otel.example/otlp/", true, "otel.example", 443, "/otlp"),
        ] {
            let found: OtlpEndpoint = text.parse().unwrap();
            let found = (found.secure, found.host.as_str(), found.port, found.path.as_str());
            assert_eq!(found, (secure, host, port, path), "{text}");
        }
        for text in [
            "",
            "otel",
            "otel:",
            "otel:99999",
            "otel:4317/v1",
            "ftp://otel:1",
            "https://",
            "https://user:secret@otel",
            "http://otel:4318/?key=1",
        ] {
            assert!(text.parse::<OtlpEndpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn headers_are_read_line_by_line_and_a_mistake_does_not_tell_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headers");
        fs::write(&path, "# for the proxy\nAuthorization: Bearer a:b\n\nX-Scope-OrgID:7\n").unwrap();
        let found = headers(Some(&path)).unwrap();
        assert_eq!(found.get("authorization").unwrap(), "Bearer a:b");
        assert_eq!(found.get("x-scope-orgid").unwrap(), "7");
        assert!(!format!("{found:?}").contains("Bearer"));
        fs::write(&path, "a: b\nBearer-secret\n").unwrap();
        let problem = headers(Some(&path)).unwrap_err().to_string();
        assert!(
            problem.ends_with("headers:2: this is no header (write name: value)"),
            "{problem}"
        );
        fs::write(&path, vec![b'#'; 70_000]).unwrap();
        assert!(headers(Some(&path)).unwrap_err().to_string().contains("70000 bytes"));
        assert!(headers(Some(&folder.path().join("none"))).is_err());
    }

    #[test]
    fn authorities_that_are_none_are_told_with_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        for (text, why) in [
            ("", "it holds no certificate"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "ca.pem: ",
            ),
        ] {
            fs::write(&path, text).unwrap();
            let problem = authorities(Some(&path)).unwrap_err().to_string();
            assert!(problem.contains(why) && problem.contains("PEM"), "{problem}");
        }
    }
}
