//! Why a controller cannot start or go on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::journal::JournalError;

/// Why a controller cannot start or go on. Agents and ranks work on without it (RG-5).
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Anyone who can reach the port could run programs on every node.
    #[error("refuse to listen on {address}, where whoever reaches the port could start programs on every node")]
    Exposed {
        /// The address that was asked for.
        address: SocketAddr,
        /// What would make it safe.
        source: rankguard_identity::Exposed,
    },
    /// The files of the identity cannot be used.
    #[error("the identity cannot be used:\n{problems}")]
    Identity {
        /// Every mistake.
        problems: rankguard_identity::Problems,
    },
    /// The identity is that of something else.
    #[error(
        "{} is the certificate of {name}, and a controller needs one of its own: `rankguard identity issue --role controller`",
        file.display()
    )]
    Role {
        /// The certificate.
        file: PathBuf,
        /// Whose it is.
        name: String,
    },
    /// A healthy node would be taken for lost.
    #[error("silence limit of {limit_ms} ms is too short: heartbeats need at least {min_ms} ms")]
    SilenceLimit {
        /// What was asked for.
        limit_ms: u128,
        /// The shortest that is allowed.
        min_ms: u128,
    },
    /// There is no name for this start, under which agents would know its generations.
    #[error("cannot name this start of the controller: the system gives no random numbers (is /dev/urandom there?)")]
    Random,
    /// Somebody else listens there.
    #[error(
        "port in use: {address}; another controller may be running there: stop it, listen on another port, or listen on \
         port 0 to take any free one"
    )]
    PortInUse {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The address cannot be used for another reason.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The files of the catalogue cannot be used.
    #[error(
        "the catalogue files cannot be used (controller.catalogue names them; `rankguard taxonomy ls --catalogue FILE` \
         lists their mistakes)"
    )]
    Catalogue {
        /// Why.
        #[source]
        source: rankguard_faults::CatalogueFilesError,
    },
    /// The state directory, or a file in it, cannot be used.
    #[error("cannot {what} {}", path.display())]
    StateDir {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users keep files in the state directory.
    #[error(
        "{} is shared by several users; give the controller a directory of its own (controller.state_dir)", path.display()
    )]
    SharedDir {
        /// The directory.
        path: PathBuf,
    },
    /// The numbers cannot be served.
    #[error("cannot serve health and numbers on {address} (controller.metrics_listen)")]
    Metrics {
        /// The address that was asked for.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// A controller that only replays ends when its journal cannot be written.
    #[error("{problem}")]
    Degraded {
        /// Why, and what to do.
        problem: String,
    },
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Replayed history and the life of a cluster must never share a journal.
    #[error(
        "the journal in {} {}; use another state directory",
        path.display(),
        match is_replay {
            true => "holds replayed history, and a live controller would take it for its cluster's",
            false => "is that of a live cluster, and a replay would write made-up cases into it",
        }
    )]
    ReplayJournal {
        /// The state directory.
        path: PathBuf,
        /// Whether the journal holds replayed history.
        is_replay: bool,
    },
    /// The server ended by itself.
    #[error("the server on {address} ended unexpectedly: {problem}")]
    Server {
        /// Where it listened.
        address: SocketAddr,
        /// Why, as far as it is known.
        problem: String,
    },
    /// A task of the controller panicked: a bug.
    #[error("a task of the controller ended unexpectedly ({task}): {problem}")]
    Task {
        /// Which one.
        task: &'static str,
        /// Why.
        problem: String,
    },
}
