//! Files of an identity, with their checks.

use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, InconsistentKeys, RootCertStore};

use crate::certificate::CertificateFields;
use crate::handshake;
use crate::loaded::LoadedIdentity;
use crate::name::PeerRole;
use crate::problem::{IdentityProblem, IdentityProblems};
use crate::revocation::{self, RevokedSerials};
use crate::rotation::next_key;
use crate::verify::permitted_intermediates;

/// Maximum bytes of a file; a certificate has about a thousand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Paths of an identity's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The authority's certificates (PEM): one, or the old and the new during a replacement.
    pub ca: PathBuf,
    /// Own certificate (PEM).
    pub certificate: PathBuf,
    /// Key of the certificate (PEM), readable by its owner only.
    pub key: PathBuf,
    /// Revocation lists of the authorities (PEM), if there are any.
    pub crl: Option<PathBuf>,
}

/// Inode, size and change time of the files; a difference means that they were replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStamps([Option<(u64, u64, i64, i64)>; 5]);

impl IdentityFiles {
    pub(crate) fn stamp(&self) -> FileStamps {
        let stamp = |path: Option<&PathBuf>| {
            let it: Metadata = std::fs::metadata(path?).ok()?;
            Some((it.ino(), it.size(), it.ctime(), it.ctime_nsec()))
        };
        let files = [
            Some(&self.ca),
            Some(&self.certificate),
            Some(&self.key),
            self.crl.as_ref(),
            Some(&next_key(&self.key)),
        ];
        FileStamps(files.map(stamp))
    }

    /// Returns true if the certificate belongs to the key that was written for the next one.
    pub(crate) fn next_key_is_in_use(&self) -> bool {
        let (Ok((chain, _)), Ok(key)) = (read_chain(&self.certificate), read_key(&next_key(&self.key))) else {
            return false;
        };
        CertifiedKey::from_der(chain, key, &crate::provider()).is_ok()
    }

    /// Reads all files and checks them together: the key belongs to the certificate, the authority has signed it and the
    /// revocation list, it is valid now and not revoked, it has a name, and only its owner can read the key.
    pub(crate) fn read(&self) -> Result<LoadedIdentity, IdentityProblems> {
        let mut problems = Vec::new();
        let mut note = |file: &Path, what: String| {
            problems.push(IdentityProblem {
                file: file.to_owned(),
                what,
            });
        };
        let roots = read_ca(&self.ca).map_err(|what| note(&self.ca, what)).ok();
        let chain = read_chain(&self.certificate)
            .map_err(|what| note(&self.certificate, what))
            .ok();
        let key = read_key(&self.key).map_err(|what| note(&self.key, what)).ok();
        let revoked = self.crl.as_ref().map_or(Some(RevokedSerials::new()), |path| {
            read_crl(path, &self.ca).map_err(|what| note(path, what)).ok()
        });
        if let (Some(revoked), Some((_, card))) = (&revoked, &chain)
            && revoked.contains_key(&card.serial)
        {
            note(
                &self.certificate,
                "is revoked; `rankguard identity issue` makes a new one".to_owned(),
            );
        }
        if let (Some(roots), Some((chain, card))) = (&roots, &chain)
            && let Err(what) = signed(&roots.store, chain, card)
        {
            note(&self.certificate, what);
        }
        let certified = key.zip(chain.as_ref()).and_then(|(key, (chain, _))| {
            let pair = |key| CertifiedKey::from_der(chain.clone(), key, &crate::provider());
            // A renewal writes the new key under this name before the certificate.
            let next = || read_key(&next_key(&self.key)).ok().and_then(|next| pair(next).ok());
            pair(key)
                .or_else(|problem| next().ok_or(problem))
                .map_err(|problem| match problem {
                    rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                        let certificate = self.certificate.display();
                        note(&self.key, format!("is not the key of {certificate}: another pair's"));
                    }
                    problem => note(&self.key, format!("cannot be used: {problem}")),
                })
                .ok()
        });
        match (problems.is_empty(), roots, chain, certified, revoked) {
            (true, Some(roots), Some((_, card)), Some(certified), Some(revoked)) => {
                let loaded = LoadedIdentity::new(card, Arc::new(certified), roots, Arc::new(revoked));
                loaded.map_err(|what| {
                    IdentityProblems(vec![IdentityProblem {
                        file: self.ca.clone(),
                        what,
                    }])
                })
            }
            _ => Err(IdentityProblems(problems)),
        }
    }
}

fn contents(path: &Path) -> Result<(Vec<u8>, Metadata), String> {
    let read = || {
        let file = rankguard_files::open_regular(path)?;
        let metadata = file.metadata()?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>((bytes, metadata))
    };
    let (bytes, metadata) = read().map_err(|problem| format!("cannot be read: {problem}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "has more than {FILE_BYTES_MAX} bytes, and is no PEM file of an identity"
        ));
    }
    Ok((bytes, metadata))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let (bytes, _) = contents(path)?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|problem| format!("is not PEM: {problem}"))?;
    if all.is_empty() {
        Err("holds no certificate (-----BEGIN CERTIFICATE-----)".to_owned())
    } else {
        Ok(all)
    }
}

/// Certificates of the cluster's authorities.
#[derive(Debug)]
pub(crate) struct TrustedAuthorities {
    pub(crate) store: Arc<RootCertStore>,
    pub(crate) certificates: Vec<CertificateDer<'static>>,
}

pub(crate) fn read_ca(path: &Path) -> Result<TrustedAuthorities, String> {
    let mut roots = RootCertStore::empty();
    let mut all = Vec::new();
    for der in certificates(path)? {
        let card = CertificateFields::of(&der)?;
        if card.name.role() != PeerRole::Authority {
            return Err(format!("is the certificate of {}, and no authority's", card.name));
        }
        roots
            .add(der.clone())
            .map_err(|problem| format!("is no authority: {problem}"))?;
        all.push(der);
    }
    Ok(TrustedAuthorities {
        store: Arc::new(roots),
        certificates: all,
    })
}

fn read_chain(path: &Path) -> Result<(Vec<CertificateDer<'static>>, CertificateFields), String> {
    let chain = certificates(path)?;
    let card = CertificateFields::of(&chain[0])?;
    if matches!(card.name.role(), PeerRole::Authority | PeerRole::Issuer) {
        return Err("is the authority's own certificate; `rankguard identity issue` makes one to work with".to_owned());
    }
    Ok((chain, card))
}

fn read_crl(path: &Path, ca: &Path) -> Result<RevokedSerials, String> {
    let (bytes, _) = contents(path)?;
    // An authority that cannot be read is a fault of its own file.
    revocation::parse_lists(&bytes, &certificates(ca).unwrap_or_default())
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let (bytes, metadata) = contents(path)?;
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "others can read it (mode {mode:03o}): chmod 600 {}",
            path.display()
        ));
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|problem| format!("holds no key: {problem}"))
}

fn signed(roots: &Arc<RootCertStore>, chain: &[CertificateDer<'_>], card: &CertificateFields) -> Result<(), String> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), crate::provider()).build();
    let verifier = verifier.map_err(|problem| problem.to_string())?;
    let (leaf, between) = chain.split_first().ok_or("holds no certificate")?;
    let between = permitted_intermediates(leaf, between);
    let asked = verifier.verify_client_cert(leaf, between, UnixTime::now());
    asked.map(drop).map_err(|problem| match problem {
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            let ago = -card.days_left();
            format!("has expired {ago:.1} days ago; `rankguard identity issue` makes a new one")
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "is not valid yet: is the clock of this machine wrong?".to_owned(),
        problem => format!("{}: identity.ca did not sign it", handshake::words(&problem)),
    })
}
