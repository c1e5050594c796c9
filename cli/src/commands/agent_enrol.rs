//! `rankguard agent enrol`: obtains the certificate of this node for a join token; also at the start of an agent.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rankguard_agent::{EnrolmentError, NodeEnrolment};
use rankguard_identity::{AuthorityFingerprint, CertificateFields, IdentityFiles};

use crate::args::CommonArgs;
use crate::config::{FlagValue, ResolvedConfig};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;
use crate::runtime::block_on;

/// Waits between attempts of a starting agent while the controller is away.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Options of `agent enrol`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentEnrolArgs {
    /// Address of the controller [setting agent.controller]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) controller: Option<String>,
    /// Name of this node [setting agent.node]
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// File with the value of a join token, readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// Fingerprint of the cluster's authority (SHA-256), as `join-token create` and `identity show` print it
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) ca_sha256: AuthorityFingerprint,
    /// Output directory for key.pem, certificate.pem and ca.pem
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

pub(crate) fn run(args: &AgentEnrolArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let config = common.settings([
        FlagValue::of("agent.node", "--node", args.node.as_deref()),
        FlagValue::of("agent.controller", "--controller", args.controller.as_deref()),
    ])?;
    let file = |name: &str| args.directory.join(name);
    let files = IdentityFiles {
        ca: file("ca.pem"),
        certificate: file("certificate.pem"),
        key: file("key.pem"),
        crl: None,
    };
    if let Some(present) = present(&files) {
        out::note(&format!(
            "this node has a certificate already: {}, valid until {}",
            present.name,
            present.valid_until()
        ));
        return Ok(CommandExit::Fine);
    }
    let enrolment = config.node_enrolment(args.token_file.clone(), vec![args.ca_sha256], files);
    let card = block_on(rankguard_agent::enrol(&enrolment))?.map_err(failure)?;
    report(&enrolment, &card);
    Ok(CommandExit::Fine)
}

/// Returns the certificate of the node, if it is valid.
fn present(files: &IdentityFiles) -> Option<CertificateFields> {
    let text = std::fs::read(&files.certificate).ok()?;
    CertificateFields::of_pem(&text)
        .ok()
        .filter(|card| card.days_left() > 0.0)
}

/// Obtains the certificate of a starting agent, if its settings have a join token and it has no valid certificate. Waits
/// for a controller that is away.
pub(crate) async fn enrol_at_start(config: &ResolvedConfig) -> Result<(), CliError> {
    let Some(enrolment) = config.pending_enrolment() else {
        return Ok(());
    };
    if enrolment.authorities.is_empty() {
        return Err(CliError::usage(
            "identity.join_token_file needs the fingerprint of the cluster's authority",
            "set identity.join_ca_sha256, or copy the authority's certificate to the file of identity.ca",
        ));
    }
    let mut pause = RETRY_MIN;
    loop {
        match rankguard_agent::enrol(&enrolment).await {
            Ok(card) => {
                report(&enrolment, &card);
                return Ok(());
            }
            Err(problem) if problem.is_retryable() => {
                tracing::warn!(%problem, "this node has no certificate yet; trying again in {pause:?}");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_MAX);
            }
            Err(problem) => return Err(failure(problem)),
        }
    }
}

fn report(enrolment: &NodeEnrolment, card: &CertificateFields) {
    let file = enrolment.files.certificate.display();
    let (name, until) = (&card.name, card.valid_until());
    out::note(&format!(
        "enrolled as {name}, valid until {until}: {file}; remove the token file"
    ));
}

fn failure(problem: EnrolmentError) -> CliError {
    let hint = match &problem {
        EnrolmentError::Refused { hint, .. } if !hint.is_empty() => hint.clone(),
        EnrolmentError::Refused { .. } => "the log and the audit log of the controller have the details".to_owned(),
        EnrolmentError::OpenToken { .. } => "a join token is a secret: only the user of the agent may read it".to_owned(),
        EnrolmentError::Dial(dial) if dial.is_about_identity() => {
            "compare --ca-sha256 with `rankguard identity show ca.pem` on the controller, and --controller with the hosts of its certificate".to_owned()
        }
        EnrolmentError::Dial(_) | EnrolmentError::Silent(_) => {
            "check the address, and that the controller runs with an identity".to_owned()
        }
        EnrolmentError::File { .. } | EnrolmentError::Identity(_) | EnrolmentError::Key(_) => {
            "run the command again when the cause is removed: it continues with the same key, without another use of the token".to_owned()
        }
        EnrolmentError::Answer(_) => "use the same version of rankguard on controller and node".to_owned(),
        EnrolmentError::Name(_) => "set the name of the node with --node".to_owned(),
    };
    CliError::failure(format!("cannot enrol this node: {problem}"), hint)
}
