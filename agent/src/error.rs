//! Why an agent cannot start, and how it ended.

use std::io;
use std::path::PathBuf;

use crate::outlets::OtlpError;
use crate::spool::SpoolError;

/// Why an agent could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The state directory cannot be used.
    #[error("prepare the state directory {path} (set state_dir to a directory this user may write)")]
    StateDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The files of the catalogue cannot be used.
    #[error(
        "the catalogue files cannot be used (agent.catalogue names them; `rankguard taxonomy ls --catalogue FILE` lists their mistakes)"
    )]
    Catalogue {
        /// Why.
        #[source]
        source: rankguard_faults::CatalogueFilesError,
    },
    /// The spool cannot be used.
    #[error("open the spool in {path}")]
    Spool {
        /// The state directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: SpoolError,
    },
    /// The fences cannot be read: acting without them could obey a stale order.
    #[error("read the fences in {path} (restore the file, or remove it once no controller has orders for old jobs)")]
    Fences {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The files of the identity cannot be used.
    #[error("use the identity:\n{0}")]
    Identity(#[from] rankguard_identity::Problems),
    /// The identity is that of something else.
    #[error(
        "speak as the agent of {node}: {file} is the certificate of {name} (set agent.node to it, or issue one: `rankguard identity issue --role agent --name {node}`)"
    )]
    Name {
        /// What the node is called.
        node: rankguard_model::NodeId,
        /// The certificate.
        file: PathBuf,
        /// Whose it is.
        name: String,
    },
    /// Without an identity there is loopback only.
    #[error("listen for peers beyond this machine")]
    Exposed(#[from] rankguard_identity::Exposed),
    /// The peer service cannot listen.
    #[error("listen for peers on {address} (set peer_listen to a free address of this host, port 0 takes any)")]
    PeerListen {
        /// The address.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Images cannot be taken.
    #[error("listen for images of other nodes beside peer_listen")]
    ImageListen(#[from] rankguard_checkpoint_tiers::bulk::BulkError),
    /// The numbers cannot be served.
    #[error("serve metrics on {address} (set metrics_listen to a free address of this host, port 0 takes any)")]
    MetricsListen {
        /// The address.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The socket for those who ask on this node cannot be made.
    #[error("listen for questions in the state directory {path}")]
    LocalSocket {
        /// The state directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Ranks cannot be supervised.
    #[error("prepare the supervision of ranks in the state directory {path}")]
    Supervision {
        /// The state directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The socket for the ranks cannot be made.
    #[error("listen for ranks on {path}")]
    RankSocket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The controller's address cannot be one.
    #[error("use the controller address {address} (write host:port)")]
    ControllerAddress {
        /// The address.
        address: String,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
    /// Nothing can be exported as the settings say.
    #[error("export by OTLP")]
    Otlp(#[from] OtlpError),
    /// A thread cannot be started.
    #[error("start the {part} thread")]
    Thread {
        /// Which part it would have served.
        part: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A part ended although nobody asked it to.
    #[error("keep the {part} running: it ended unexpectedly ({problem})")]
    PartEnded {
        /// Which part.
        part: &'static str,
        /// What is known.
        problem: String,
    },
}

/// How an agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Ranks that were still running and were ended.
    pub ranks_ended: usize,
    /// Ranks that did not die within the deadline, as sentences; empty in a clean shutdown.
    pub left_behind: Vec<String>,
    /// Evidence that is on disk and not yet acknowledged; the next start sends it.
    pub unacknowledged: u64,
}
