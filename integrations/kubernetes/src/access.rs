//! Address and credentials of an API server.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use url::{Host, Url};

/// Folder in which a pod finds the credentials of its service account.
const ACCOUNT_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Problem with the address or the credentials.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Neither an address is given nor is this a pod.
    #[error("this is no pod of Kubernetes (KUBERNETES_SERVICE_HOST is not set)")]
    NoServer,
    /// The address is no URL of an API server.
    #[error("{text:?} is not an address; expected https://HOST:PORT")]
    Address {
        /// Address as given.
        text: String,
    },
    /// Requests, and the token if there is one, would be sent to another machine without encryption.
    #[error("{host} is no address of this machine, and http would not protect the connection to it: use https")]
    Plain {
        /// Host of the address.
        host: String,
    },
}

/// Address and credentials of an API server. The token is read for each request, because the kubelet replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAccess {
    /// Address without a path.
    pub server: Url,
    /// File of the bearer token; none for a proxy that authenticates (`kubectl proxy`).
    pub token: Option<PathBuf>,
    /// File of the authorities that sign for the server (PEM); those of the system without one.
    pub ca: Option<PathBuf>,
}

impl ServerAccess {
    /// Returns the access of a pod by its service account. `host` and `port` are the variables
    /// `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`.
    ///
    /// # Errors
    /// A variable is absent or no address.
    pub fn of_pod(host: Option<&str>, port: Option<&str>) -> Result<Self, AccessError> {
        let (Some(host), Some(port)) = (host, port) else {
            return Err(AccessError::NoServer);
        };
        let is_v6 = host.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
        let text = if is_v6 {
            format!("https://[{host}]:{port}")
        } else {
            format!("https://{host}:{port}")
        };
        let folder = Path::new(ACCOUNT_FOLDER);
        Self::of_address(&text, Some(folder.join("token")), Some(folder.join("ca.crt")))
    }

    /// Returns the access to an address.
    ///
    /// # Errors
    /// The address is no URL, or that of another machine without TLS.
    pub fn of_address(text: &str, token: Option<PathBuf>, ca: Option<PathBuf>) -> Result<Self, AccessError> {
        let wrong = || AccessError::Address { text: text.to_owned() };
        let mut server = Url::parse(text).map_err(|_| wrong())?;
        let host = server.host().map(|host| host.to_owned()).ok_or_else(wrong)?;
        let has_more = server.query().is_some() || !server.username().is_empty() || server.password().is_some();
        if !matches!(server.scheme(), "http" | "https") || has_more {
            return Err(wrong());
        }
        if server.scheme() == "http" && !is_loopback(&host) {
            return Err(AccessError::Plain { host: host.to_string() });
        }
        // Paths of requests are appended: a server may lie below a path of a proxy.
        if !server.path().ends_with('/') {
            server.set_path(&format!("{}/", server.path()));
        }
        Ok(Self { server, token, ca })
    }

    /// Returns the namespace of the pod's service account, if this is a pod.
    pub fn pod_namespace() -> Option<String> {
        let text = fs::read_to_string(Path::new(ACCOUNT_FOLDER).join("namespace")).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }
}

fn is_loopback(host: &Host<String>) -> bool {
    match host {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}
