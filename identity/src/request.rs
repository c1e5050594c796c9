//! Certificate signing requests (PKCS #10): made by a node for its own key, and checked by the controller.
//!
//! Only the public key of a request reaches the certificate. A request that asks for anything but the one name that it may
//! have is refused all the same, because its sender is not an agent of this program.

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKey, SanType,
};
use rustls::pki_types::CertificateSigningRequestDer;

use crate::authority::AuthorityError;
use crate::name::PeerName;

/// Largest request, bytes; one of this program has about 300.
const REQUEST_BYTES_MAX: usize = 4 << 10;

/// Reason to refuse a request, or failure to sign it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request cannot be parsed, or its signature is wrong.
    #[error("the certificate request is unusable: {0}")]
    Unusable(String),
    /// The request has other names than the one that its sender may have.
    #[error("the certificate request names {found}, and it may name {expected} only")]
    Names {
        /// Name that the sender may have.
        expected: String,
        /// Names of the request.
        found: String,
    },
    /// The request asks for rights that the certificate of an agent does not have.
    #[error("the certificate request asks for {what}, which no agent has")]
    Rights {
        /// Requested right.
        what: &'static str,
    },
    /// The certificate of the issuer has expired.
    #[error("the certificate of the controller's issuer has expired")]
    IssuerOver,
    /// The certificate could not be signed.
    #[error("cannot sign the certificate: {0}")]
    Signing(String),
}

/// Key of a node, for which it requests a certificate. The key stays on the node.
pub struct KeyRequest {
    key: KeyPair,
}

impl std::fmt::Debug for KeyRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyRequest(..)")
    }
}

impl KeyRequest {
    /// Creates a key (ECDSA, P-256).
    pub fn generate() -> Result<Self, AuthorityError> {
        Ok(Self {
            key: KeyPair::generate()?,
        })
    }

    /// Reads a key that [`pem`](Self::pem) has returned.
    pub fn from_pem(text: &str) -> Result<Self, AuthorityError> {
        Ok(Self {
            key: KeyPair::from_pem(text)?,
        })
    }

    /// Returns the key as PEM, for the node's own file.
    pub fn pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Returns the signing request for a name (DER).
    pub fn request(&self, name: &PeerName) -> Result<Vec<u8>, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.subject_alt_names = vec![SanType::URI(name.to_string().try_into()?)];
        Ok(params.serialize_request(&self.key)?.der().to_vec())
    }
}

/// Returns the public key of a request that names exactly `name` and asks for nothing else.
pub(crate) fn checked_key(request: &[u8], name: &PeerName) -> Result<PublicKey, RequestError> {
    if request.len() > REQUEST_BYTES_MAX {
        let what = format!("it has more than {REQUEST_BYTES_MAX} bytes");
        return Err(RequestError::Unusable(what));
    }
    // Verifies the signature with the key of the request: its sender has the private key.
    let read = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request));
    let CertificateSigningRequestParams { params, public_key } =
        read.map_err(|problem| RequestError::Unusable(problem.to_string()))?;
    if public_key.algorithm() != &PKCS_ECDSA_P256_SHA256 {
        return Err(RequestError::Unusable("its key is not ECDSA on P-256".to_owned()));
    }
    let expected = name.to_string();
    match params.subject_alt_names.as_slice() {
        [SanType::URI(uri)] if uri.as_str() == expected => {}
        names => {
            let found: Vec<String> = names.iter().take(5).map(shown).collect();
            let found = if found.is_empty() {
                "none".to_owned()
            } else {
                found.join(", ")
            };
            return Err(RequestError::Names { expected, found });
        }
    }
    let rights = [
        (params.is_ca != IsCa::NoCa, "the basic constraints of an authority"),
        (!params.key_usages.is_empty(), "key usages"),
        (!params.extended_key_usages.is_empty(), "extended key usages"),
    ];
    match rights.into_iter().find(|(is_asked, _)| *is_asked) {
        Some((_, what)) => Err(RequestError::Rights { what }),
        None => Ok(public_key),
    }
}

/// Returns a name of a request for messages.
fn shown(name: &SanType) -> String {
    match name {
        SanType::URI(uri) => uri.as_str().chars().take(200).collect(),
        SanType::DnsName(host) => format!("host {}", host.as_str().chars().take(200).collect::<String>()),
        SanType::IpAddress(address) => format!("address {address}"),
        _ => "a name of another kind".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, KeyUsagePurpose};

    use super::*;
    use crate::name::PeerRole;

    fn name(role: PeerRole, own: &str) -> PeerName {
        PeerName::new("prod", role, own).expect("a name")
    }

    fn uri(name: &PeerName) -> SanType {
        SanType::URI(name.to_string().try_into().expect("ASCII"))
    }

    /// Returns the contents of the plain request for a name, changed.
    fn changed(own: &PeerName, change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![uri(own)];
        change(&mut params);
        params
    }

    /// RG-13: a request has the one name that its sender may have, and no further right.
    #[test]
    fn a_request_for_anything_but_the_name_is_refused() {
        let own = name(PeerRole::Agent, "n1");
        let key = KeyPair::generate().expect("a key");
        let check = |params: CertificateParams| {
            let request = params.serialize_request(&key).expect("a request");
            checked_key(request.der(), &own).map(drop)
        };
        let named = |names: Vec<SanType>| changed(&own, |params| params.subject_alt_names = names);
        check(named(vec![uri(&own)])).expect("the plain request");
        let host = SanType::DnsName("ctl.example".try_into().expect("ASCII"));
        let refused = [
            named(vec![]),
            named(vec![uri(&name(PeerRole::Agent, "n2"))]),
            named(vec![uri(&name(PeerRole::Operator, "n1"))]),
            named(vec![uri(&name(PeerRole::Controller, ""))]),
            named(vec![uri(&own), uri(&name(PeerRole::Operator, "ada"))]),
            named(vec![uri(&own), host]),
            named(vec![uri(&own), SanType::IpAddress([127, 0, 0, 1].into())]),
            changed(&own, |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
            changed(&own, |params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]),
            changed(&own, |params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]
            }),
        ];
        for params in refused {
            let described = format!("{params:?}");
            assert!(check(params).is_err(), "{described}");
        }
    }

    #[test]
    fn a_changed_request_and_another_kind_of_key_are_refused() {
        let own = name(PeerRole::Agent, "n1");
        let request = KeyRequest::generate().expect("a key").request(&own).expect("a request");
        let key = checked_key(&request, &own).expect("unchanged");
        let mut accepted = 0;
        for at in 0..request.len() {
            let mut changed = request.clone();
            changed[at] ^= 1;
            // The encoding of the algorithm has freedom; key and name have none.
            if let Ok(other) = checked_key(&changed, &own) {
                assert_eq!(other, key, "byte {at}");
                accepted += 1;
            }
        }
        assert!(accepted <= 12, "{accepted} of {} bytes", request.len());
        let long = [&request[..], &[0; REQUEST_BYTES_MAX]].concat();
        assert!(checked_key(&long, &own).is_err());
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let request = changed(&own, |_| ()).serialize_request(&key).expect("a request");
        assert!(checked_key(request.der(), &own).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_request_and_no_panic(bytes: Vec<u8>) {
            prop_assert!(checked_key(&bytes, &name(PeerRole::Agent, "n1")).is_err());
        }
    }
}
