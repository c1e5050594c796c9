//! Errors that prevent a controller from starting or continuing.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use rankguard_journal::JournalError;

/// Error that prevents a controller from starting or continuing. Agents and ranks continue without it (RG-5).
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The listen address is exposed: any client that reaches the port could run programs on every node.
    #[error("cannot listen on {address}: anyone who reaches the port could start programs on every node")]
    Exposed {
        address: SocketAddr,
        /// Requirement for a safe exposure.
        source: rankguard_identity::ExposedAddress,
    },
    /// The identity files cannot be used.
    #[error("the identity cannot be used:\n{problems}")]
    Identity {
        /// All problems of the files.
        problems: rankguard_identity::IdentityProblems,
    },
    /// The certificate has another role than controller.
    #[error(
        "{} is the certificate of {name}, and a controller needs one of its own: `rankguard identity issue --ca DIR --role controller --host HOST --out DIR`",
        file.display()
    )]
    Role {
        file: PathBuf,
        /// Name and role in the certificate.
        name: String,
    },
    /// The silence limit is too short: a healthy node would count as lost.
    #[error("silence limit of {limit_ms} ms is too short: heartbeats need at least {min_ms} ms")]
    SilenceLimit {
        /// Requested limit, milliseconds.
        limit_ms: u128,
        /// Shortest allowed limit, milliseconds.
        min_ms: u128,
    },
    /// No random id is available for this start, under which agents record its generations.
    #[error("cannot name this start of the controller: the system gives no random numbers (is /dev/urandom there?)")]
    Random,
    /// Another process listens on the address.
    #[error(
        "port in use: {address}; another controller may be running there: stop it, listen on another port, or listen on \
         port 0 to take any free one"
    )]
    PortInUse { address: SocketAddr, source: io::Error },
    /// The address cannot be used for another reason.
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The catalogue files cannot be used.
    #[error(
        "the catalogue files cannot be used (controller.catalogue names them; `rankguard taxonomy ls --catalogue FILE` \
         lists their mistakes)"
    )]
    Catalogue {
        #[source]
        source: rankguard_faults::CatalogueFilesError,
    },
    /// The state directory, or a file in it, cannot be used.
    #[error("cannot {what} {}", path.display())]
    StateDir {
        /// Failed operation, a verb phrase for the message.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Several users may write to the state directory.
    #[error(
        "{} is shared by several users; give the controller a directory of its own (controller.state_dir)", path.display()
    )]
    SharedDir { path: PathBuf },
    /// The metrics endpoint cannot be served.
    #[error("cannot serve health and numbers on {address} (controller.metrics_listen)")]
    Metrics { address: String, source: io::Error },
    /// The HTTP API would be exposed without authentication.
    #[error("cannot serve the HTTP API on {address} (controller.http_listen): any client could read jobs and cases")]
    HttpExposed {
        address: SocketAddr,
        /// Requirement for a safe exposure.
        source: rankguard_identity::ExposedAddress,
    },
    /// The tokens cannot be read.
    #[error("cannot read the access tokens: {source}")]
    Tokens { source: rankguard_access::TokenFileError },
    /// The audit log cannot be used; without it no change is possible.
    #[error("{source}")]
    Audit { source: rankguard_access::AuditError },
    /// The record of the enrolment cannot be read.
    #[error("cannot read the join tokens: {source}")]
    Ledger { source: rankguard_access::LedgerFileError },
    /// The issuer of the enrolment cannot be used.
    #[error("cannot issue certificates (enrolment.ca, enrolment.ca_key): {source}")]
    Enrolment { source: rankguard_identity::AuthorityError },
    /// Nodes cannot enrol at a controller without an identity.
    #[error(
        "enrolment.ca is set, and the controller has no identity: set identity.ca, identity.certificate and identity.key"
    )]
    EnrolmentWithoutIdentity,
    /// The HTTP API cannot be served.
    #[error("cannot serve the HTTP API on {address} (controller.http_listen)")]
    Http { address: SocketAddr, source: io::Error },
    /// Notifications cannot start.
    #[error("cannot start notifications (controller.notify): {source}")]
    Notify { source: rankguard_notify::NotifyError },
    /// The lighthouse would listen on all addresses.
    #[error(
        "{address} is every address of this machine, and torchft has neither TLS nor authentication; set the address that the \
         hosts of the job reach (controller.torchft_listen)"
    )]
    TorchftExposed { address: SocketAddr },
    /// The lighthouse for torchft cannot be served.
    #[error("cannot serve the lighthouse for torchft on {address} (controller.torchft_listen)")]
    Torchft { address: SocketAddr, source: io::Error },
    /// A replay-only controller ends when its journal cannot be written.
    #[error("{problem}")]
    Degraded {
        /// Cause and remedy.
        problem: String,
    },
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Replayed history and a live cluster must never share a journal.
    #[error(
        "the journal in {} {}; use another state directory",
        path.display(),
        if *is_replay { "holds replayed history, and a live controller would take it for its cluster's" } else { "is that of a live cluster, and a replay would write made-up cases into it" }
    )]
    ReplayJournal {
        path: PathBuf,
        /// True if the journal holds replayed history.
        is_replay: bool,
    },
    /// The server ended by itself.
    #[error("the server on {address} ended unexpectedly: {problem}")]
    Server {
        address: SocketAddr,
        /// Cause, if known.
        problem: String,
    },
    /// A task of the controller panicked: a bug.
    #[error("a task of the controller ended unexpectedly ({task}): {problem}")]
    Task { task: &'static str, problem: String },
}
