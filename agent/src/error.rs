//! Errors of an agent's start and operation, and the result of its end.

use std::io;
use std::path::PathBuf;

use crate::outlets::OtlpError;
use crate::spool::SpoolError;

/// Failure to start or continue an agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The state directory cannot be used.
    #[error("prepare the state directory {path} (set state_dir to a directory this user may write)")]
    StateDir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The files of the catalogue cannot be used.
    #[error(
        "the catalogue files cannot be used (agent.catalogue names them; `rankguard taxonomy ls --catalogue FILE` lists their mistakes)"
    )]
    Catalogue {
        #[source]
        source: rankguard_faults::CatalogueFilesError,
    },
    /// The spool cannot be used.
    #[error("open the spool in {path}")]
    Spool {
        path: PathBuf,
        #[source]
        source: SpoolError,
    },
    /// The fences cannot be read: acting without them could obey a stale order.
    #[error("read the fences in {path} (restore the file, or remove it once no controller has orders for old jobs)")]
    Fences {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The files of the identity cannot be used.
    #[error("use the identity:\n{0}")]
    Identity(#[from] rankguard_identity::IdentityProblems),
    /// The identity's certificate belongs to another node or role.
    #[error(
        "speak as the agent of {node}: {file} is the certificate of {name} ({remedy} one for {node}: `rankguard identity issue --ca DIR --role agent --name {node} --out DIR`)"
    )]
    Name {
        /// Configured node name.
        node: rankguard_model::NodeId,
        file: PathBuf,
        /// Name in the certificate.
        name: String,
        /// Beginning of the advice: the certificate of another agent may be right, and the configured name wrong.
        remedy: &'static str,
    },
    /// A listener beyond loopback requires an identity.
    #[error("listen for peers beyond this machine")]
    Exposed(#[from] rankguard_identity::ExposedAddress),
    /// The peer service cannot listen.
    #[error("listen for peers on {address} (set peer_listen to a free address of this host, port 0 takes any)")]
    PeerListen {
        address: String,
        #[source]
        source: io::Error,
    },
    /// The bulk service for images cannot listen.
    #[error("listen for images of other nodes beside peer_listen")]
    ImageListen(#[from] rankguard_checkpoint_tiers::bulk::BulkError),
    /// The metrics endpoint cannot listen.
    #[error("serve metrics on {address} (set metrics_listen to a free address of this host, port 0 takes any)")]
    MetricsListen {
        address: String,
        #[source]
        source: io::Error,
    },
    /// The socket for local status queries cannot be created.
    #[error("listen for questions in the state directory {path}")]
    LocalSocket {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Ranks cannot be supervised.
    #[error("prepare the supervision of ranks in the state directory {path}")]
    Supervision {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The socket for the ranks cannot be created.
    #[error("listen for ranks on {path}")]
    RankSocket {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The controller's address is not valid.
    #[error("use the controller address {address} (write host:port)")]
    ControllerAddress {
        address: String,
        #[source]
        source: tonic::transport::Error,
    },
    /// The OTLP settings are not valid.
    #[error("export by OTLP")]
    Otlp(#[from] OtlpError),
    /// A thread cannot be started.
    #[error("start the {part} thread")]
    Thread {
        /// Name of the thread.
        part: &'static str,
        #[source]
        source: io::Error,
    },
    /// A part of the agent ended without a stop request.
    #[error("keep the {part} running: it ended unexpectedly ({problem})")]
    PartEnded {
        /// Name of the part.
        part: &'static str,
        /// Panic message or reason.
        problem: String,
    },
}

/// Result of an agent's orderly end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Number of ranks that were still running and were ended.
    pub ranks_ended: usize,
    /// Messages about ranks that did not end within the deadline; empty in a clean shutdown.
    pub left_behind: Vec<String>,
    /// Number of evidence records on disk that are not acknowledged; the next start sends them.
    pub unacknowledged: u64,
}
