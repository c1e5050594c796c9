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
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown | AlertDescription::AccessDenied => {
            "it refuses this side's certificate: not one of this cluster"
        }
        AlertDescription::NoApplicationProtocol => "another service listens on this port",
        AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion => {
            "no common TLS version: check the versions of both programs"
        }
        other => return format!("it ended the handshake: {other:?}"),
    };
    why.to_owned()
}
