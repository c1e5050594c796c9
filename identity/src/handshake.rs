//! Result of a handshake: one byte on success, and an error message on failure.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError};

/// First byte of a TLS connection, sent by the listener: the caller's certificate was accepted.
pub(crate) const WELCOME: u8 = 0x06;

/// Formats the error of a failed handshake.
pub(crate) fn failed(problem: &io::Error) -> String {
    let inner = problem.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match (inner, problem.kind()) {
        (Some(inner), _) => words(inner),
        (None, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
            "it ended the connection in the handshake: does it speak TLS? (it needs identity.* settings too)".to_owned()
        }
        (None, _) => problem.to_string(),
    }
}

/// Formats a TLS error for operators: the fault of the peer's certificate or protocol, or the peer's complaint about
/// this side.
pub(crate) fn words(problem: &Error) -> String {
    match problem {
        Error::InvalidCertificate(why) => certificate(why),
        Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it does not speak TLS: it was started without identity.* settings, or is something else".to_owned()
        }
        Error::AlertReceived(alert) => alerted(*alert),
        other => other.to_string(),
    }
}

fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate was signed by another authority".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: one of the two clocks is wrong".to_owned()
        }
        CertificateError::Revoked => "its certificate is revoked".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is not for this side of a connection: an operator's cannot serve".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let hosts = if presented.is_empty() {
                "no host".to_owned()
            } else {
                presented.join(", ")
            };
            let host = expected.to_str();
            format!("its certificate is for {hosts}, and {host} was dialled: issue one with --host {host}")
        }
        CertificateError::Other(OtherError(what)) => what.to_string(),
        other => format!("its certificate is refused: {other}"),
    }
}

/// Formats an alert that the peer sent.
fn alerted(alert: AlertDescription) -> String {
    let why = match alert {
        AlertDescription::CertificateRequired => "it demands a certificate, and was shown none",
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it refuses this side's certificate: signed by another authority"
        }
        AlertDescription::CertificateExpired => "it refuses this side's certificate: expired",
        AlertDescription::CertificateRevoked => "it refuses this side's certificate: revoked",
        // The dialler reports the host that it dialled; this side does not know it.
        AlertDescription::BadCertificate => {
            "it refuses this side's certificate: it dialled a host that the certificate does not name (issue one with --host)"
        }
        AlertDescription::CertificateUnknown | AlertDescription::AccessDenied => {
            "it refuses this side's certificate: it expects another cluster, role or node; its own message has the details"
        }
        AlertDescription::NoApplicationProtocol => "another service listens on this port",
        AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion => {
            "no common TLS version: check the versions of both programs"
        }
        other => return format!("it ended the handshake: {other:?}"),
    };
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    /// Checks the message of the dialler, and that of the listener that receives its alert.
    fn check(problem: CertificateError, dialler: &str, listener: &str) {
        let alert = AlertDescription::from(problem.clone());
        assert_eq!(words(&problem.into()), dialler);
        let heard = alerted(alert);
        assert!(heard.contains(listener), "{heard}");
    }

    #[test]
    fn both_sides_name_a_host_that_the_certificate_lacks() {
        let mismatch = CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("10.0.0.7").expect("an address"),
            presented: vec!["ctl.example.com".to_owned()],
        };
        check(
            mismatch,
            "its certificate is for ctl.example.com, and 10.0.0.7 was dialled: issue one with --host 10.0.0.7",
            "it dialled a host that the certificate does not name",
        );
    }
}
