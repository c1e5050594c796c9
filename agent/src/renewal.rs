//! Renewal of the node's certificate, for which the controller issues another one over mutual TLS.

use std::time::Duration;

use rankguard_identity::{CertificateFields, DialError, ExpectedPeer, TlsIdentity};
use rankguard_proto::v1;
use rankguard_proto::v1::certificate_renewal_client::CertificateRenewalClient;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use tonic::Code;
use tonic::transport::Endpoint;

use crate::clock;
use crate::enrolment::{self, EnrolmentError};
use crate::settings::AgentSettings;

/// Interval of the checks of the certificate's age.
const CHECK_INTERVAL: Duration = Duration::from_secs(3_600);
/// Shortest wait after a failure; it doubles up to the interval of the checks.
const RETRY_MIN: Duration = Duration::from_secs(5);
/// Time limit of the connection and of the answer.
const LIMIT: Duration = Duration::from_secs(15);

/// Reason why a certificate was not renewed.
#[derive(Debug, thiserror::Error)]
enum RenewalError {
    #[error("{0}")]
    Connect(String),
    #[error("the controller issues no certificates")]
    Off,
    #[error("the controller refuses: {0}")]
    Refused(String),
    #[error("the controller has not answered within {LIMIT:?}")]
    Late,
    #[error(transparent)]
    Files(#[from] EnrolmentError),
    #[error("cannot write the new certificate: {0}")]
    Write(std::io::Error),
    #[error("{0}")]
    Task(String),
}

/// Returns true once two thirds of a certificate's life are over.
fn is_due(card: &CertificateFields, now_s: i64) -> bool {
    let life = card.until.saturating_sub(card.from);
    now_s.saturating_sub(card.from) >= life / 3 * 2
}

/// Starts the renewal. Without an identity it does nothing. It ends when it is aborted.
pub(crate) fn start(settings: &AgentSettings) -> JoinHandle<()> {
    let settings = settings.clone();
    tokio::spawn(async move {
        let Some(identity) = settings.network.identity().cloned() else {
            return;
        };
        let mut pause = RETRY_MIN;
        let mut reported = None;
        loop {
            match renew_if_due(&settings, &identity).await {
                Ok(()) => {
                    (pause, reported) = (RETRY_MIN, None);
                    sleep(CHECK_INTERVAL).await;
                    continue;
                }
                Err(problem) => {
                    let problem = problem.to_string();
                    if reported.as_ref() != Some(&problem) {
                        tracing::warn!(
                            problem,
                            "the certificate is not renewed; the present one remains in use"
                        );
                        reported = Some(problem);
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(CHECK_INTERVAL);
        }
    })
}

async fn renew_if_due(settings: &AgentSettings, identity: &TlsIdentity) -> Result<(), RenewalError> {
    let read = identity.clone();
    let card = in_background(move || read.card()).await?;
    // A certificate that cannot be read is reported elsewhere.
    let Ok(card) = card else { return Ok(()) };
    if !is_due(&card, clock::now().0 / 1_000_000_000) {
        return Ok(());
    }
    let files = identity.files().clone();
    let name = card.name.clone();
    let request = in_background(move || {
        let key = enrolment::prepare_key(&files)?;
        key.request(&name).map_err(EnrolmentError::from)
    });
    let request = request.await??;
    let answered = timeout(LIMIT, ask(settings, request)).await;
    let v1::AgentCertificate { chain, .. } = answered.map_err(|_| RenewalError::Late)??;
    enrolment::check(&chain, &card.name)?;
    let (files, reload) = (identity.files().clone(), identity.clone());
    let used = in_background(move || {
        files.store_certificate(&chain).map_err(RenewalError::Write)?;
        reload
            .reload()
            .map_err(|problems| RenewalError::Task(format!("the new certificate cannot be used:\n{problems}")))
    });
    let card = used.await??;
    tracing::info!(serial = %card.serial, until = %card.valid_until(), "the certificate is renewed");
    Ok(())
}

async fn ask(settings: &AgentSettings, request: Vec<u8>) -> Result<v1::AgentCertificate, RenewalError> {
    let connect = |problem: String| RenewalError::Connect(problem);
    let endpoint = Endpoint::from_shared(format!("http://{}", settings.controller));
    let endpoint = endpoint.map_err(|problem| connect(problem.to_string()))?;
    let connector = settings.network.connector(ExpectedPeer::Controller, LIMIT);
    let channel = endpoint.connect_with_connector(connector).await;
    let channel = channel.map_err(|problem| {
        connect(DialError::within(&problem).map_or_else(|| problem.to_string(), DialError::words))
    })?;
    let mut client = CertificateRenewalClient::new(channel);
    let answered = client.renew(v1::RenewRequest { request }).await;
    let answered = answered.map_err(|status| match status.code() {
        // An older controller does not know the call.
        Code::Unimplemented | Code::FailedPrecondition => RenewalError::Off,
        _ => RenewalError::Refused(status.message().to_owned()),
    })?;
    Ok(answered.into_inner())
}

async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, RenewalError> {
    let done = spawn_blocking(work).await;
    done.map_err(|problem| RenewalError::Task(problem.to_string()))
}

#[cfg(test)]
mod tests {
    use rankguard_identity::CertificateAuthority;

    use super::*;

    #[test]
    fn a_certificate_is_due_after_two_thirds_of_its_life() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut card = CertificateAuthority::create(&dir.path().join("ca"), "c", 1).expect("an authority");
        (card.from, card.until) = (1_000, 1_900);
        for (now, due) in [
            (0, false),
            (1_000, false),
            (1_599, false),
            (1_600, true),
            (1_900, true),
            (9_000, true),
        ] {
            assert_eq!(is_due(&card, now), due, "{now}");
        }
    }
}
