//! First certificate of a node: its key is made here and stays here, and the controller signs a certificate for a join token.

use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rankguard_identity::{
    AuthorityError, AuthorityFingerprint, CertificateFields, DialError, EnrolmentConnection, IdentityFiles,
    IdentityProblems, KeyRequest, NameError, PeerName, PeerRole, TlsIdentity, dial_enrolment,
};
use rankguard_proto::frame::{self, FrameError, FrameReader};
use rankguard_proto::v1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// Time limit of the connection, and of the answer.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Largest file of a token and largest reply, bytes.
const TOKEN_BYTES: u64 = 4 << 10;
const REPLY_BYTES: usize = 2 << 20;

/// Request of a node for its first certificate.
#[derive(Debug, Clone)]
pub struct NodeEnrolment {
    /// Address of the controller, `host:port`.
    pub controller: String,
    /// Name of the node.
    pub node: String,
    /// File with the value of a join token.
    pub token_file: PathBuf,
    /// Fingerprints of the cluster's authority, of which the controller must have one.
    pub authorities: Vec<AuthorityFingerprint>,
    /// Files to write.
    pub files: IdentityFiles,
}

/// Failure to enrol.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentError {
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Other users can read the token.
    #[error("others can read the join token {}: chmod 600 {}", path.display(), path.display())]
    OpenToken { path: PathBuf },
    /// The controller cannot be reached, or is not that of the cluster.
    #[error("{}", .0.words())]
    Dial(DialError),
    /// The connection ended without an answer.
    #[error("the controller has not answered: {0}")]
    Silent(String),
    /// The controller refused.
    #[error("the controller refuses: {reason}")]
    Refused {
        reason: String,
        /// Advice for the operator; may be empty.
        hint: String,
    },
    /// The answer is for another node or cluster.
    #[error("the answer of the controller is unusable: {0}")]
    Answer(String),
    /// The node cannot have this name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The key cannot be made.
    #[error(transparent)]
    Key(#[from] AuthorityError),
    /// The written files do not form an identity.
    #[error("the new identity cannot be used:\n{0}")]
    Identity(#[from] IdentityProblems),
}

impl EnrolmentError {
    /// Returns true if a later attempt may succeed without a change by a person: the controller is away.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Dial(problem) => !problem.is_about_identity(),
            Self::Silent(_) => true,
            _ => false,
        }
    }
}

fn file_error<'p>(what: &'static str, path: &'p Path) -> impl Fn(io::Error) -> EnrolmentError + 'p {
    move |source| EnrolmentError::File {
        what,
        path: path.to_owned(),
        source,
    }
}

/// Obtains a certificate for a node and writes key, certificate and authority; returns the contents of the certificate. The
/// key is on disk before it is used, so that a repetition after an interruption receives the same certificate.
pub async fn enrol(enrolment: &NodeEnrolment) -> Result<CertificateFields, EnrolmentError> {
    let token = read_token(&enrolment.token_file)?;
    let dialled = dial_enrolment(&enrolment.controller, &enrolment.authorities, DIAL_LIMIT).await;
    let connection = dialled.map_err(EnrolmentError::Dial)?;
    let name = PeerName::new(connection.controller.name.cluster(), PeerRole::Agent, &enrolment.node)?;
    let key = prepare_key(&enrolment.files)?;
    let request = v1::EnrolRequest {
        token,
        node: enrolment.node.clone(),
        request: key.request(&name)?,
    };
    let reply = timeout(ANSWER_LIMIT, exchange(connection, request)).await;
    let reply = reply.map_err(|_| EnrolmentError::Silent(format!("no answer within {ANSWER_LIMIT:?}")))??;
    let certificate = match reply.result {
        Some(v1::enrol_reply::Result::Certificate(certificate)) => certificate,
        Some(v1::enrol_reply::Result::Refusal(v1::EnrolRefusal { reason, hint })) => {
            return Err(EnrolmentError::Refused { reason, hint });
        }
        None => return Err(EnrolmentError::Answer("it is empty".to_owned())),
    };
    check(&certificate.chain, &name)?;
    store(&enrolment.files, &certificate)?;
    Ok(TlsIdentity::new(enrolment.files.clone()).reload()?)
}

fn read_token(path: &Path) -> Result<String, EnrolmentError> {
    let metadata = std::fs::metadata(path).map_err(file_error("read", path))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(EnrolmentError::OpenToken { path: path.to_owned() });
    }
    let text = rankguard_files::read_text(path, TOKEN_BYTES).map_err(file_error("read", path))?;
    Ok(text.trim().to_owned())
}

/// Returns the key of an earlier attempt, or a new one, which is on disk.
pub(crate) fn prepare_key(files: &IdentityFiles) -> Result<KeyRequest, EnrolmentError> {
    files
        .settle()
        .map_err(file_error("complete the replacement of", &files.key))?;
    let pending = files.pending_key().and_then(|pem| KeyRequest::from_pem(&pem).ok());
    if let Some(key) = pending {
        return Ok(key);
    }
    let key = KeyRequest::generate()?;
    files
        .store_next_key(&key.pem())
        .map_err(file_error("write a new key beside", &files.key))?;
    Ok(key)
}

/// Checks that a received certificate is that of the name.
pub(crate) fn check(chain: &str, name: &PeerName) -> Result<(), EnrolmentError> {
    let fields = CertificateFields::of_pem(chain.as_bytes()).map_err(EnrolmentError::Answer)?;
    if fields.name == *name {
        Ok(())
    } else {
        Err(EnrolmentError::Answer(format!(
            "it is a certificate for {}",
            fields.name
        )))
    }
}

fn store(files: &IdentityFiles, received: &v1::AgentCertificate) -> Result<(), EnrolmentError> {
    files.store_ca(&received.ca).map_err(file_error("write", &files.ca))?;
    files
        .store_certificate(&received.chain)
        .map_err(file_error("write", &files.certificate))?;
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    // The agent runs as the owner of the directory.
    for path in [&files.ca, &files.certificate, &files.key] {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let owned = std::fs::metadata(folder.unwrap_or(Path::new(".")))
            .and_then(|folder| chown(path, Some(folder.uid()), Some(folder.gid())));
        owned.map_err(file_error("change the owner of", path))?;
    }
    Ok(())
}

async fn exchange(
    connection: EnrolmentConnection,
    request: v1::EnrolRequest,
) -> Result<v1::EnrolReply, EnrolmentError> {
    let silent = |problem: io::Error| EnrolmentError::Silent(problem.to_string());
    let mut stream = connection.stream;
    stream.write_all(&frame::encode(&request)).await.map_err(silent)?;
    stream.flush().await.map_err(silent)?;
    let mut reader = FrameReader::new();
    reader.limit(REPLY_BYTES, None);
    let mut bytes = [0; 8 << 10];
    loop {
        let next = reader.next();
        let next = next.map_err(|problem: FrameError| EnrolmentError::Answer(problem.to_string()))?;
        if let Some(reply) = next {
            return Ok(reply);
        }
        match stream.read(&mut bytes).await.map_err(silent)? {
            0 => return Err(EnrolmentError::Silent("it closed the connection".to_owned())),
            count => reader.push(&bytes[..count]),
        }
    }
}
