//! Identity of this process: files that are read again when they change.
//!
//! They are checked on [`TlsIdentity::reload`] (SIGHUP), at every handshake, and every hour. Unusable files are refused
//! once, with file and reason, and the identity in use is retained.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::certificate::CertificateFields;
use crate::files::{FileStamps, IdentityFiles};
use crate::loaded::LoadedIdentity;
use crate::problem::IdentityProblems;
use crate::revocation::{CertificateSerial, RevokedSerials};

/// Interval of the checks without a handshake.
const LOOK: Duration = Duration::from_secs(3600);
/// Longest wait for the disk before a handshake continues with the identity in use.
const DISK_LIMIT: Duration = Duration::from_secs(1);

/// Identity of a process. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct TlsIdentity(Arc<SharedIdentity>);

struct SharedIdentity {
    files: IdentityFiles,
    current: Mutex<IdentityCache>,
    /// Number of successful readings; open connections check their certificates once for each.
    reading: AtomicU64,
    /// Revoked certificates of the last reading. Never locked while a file is read.
    revoked: Mutex<Arc<RevokedSerials>>,
}

#[derive(Default)]
struct IdentityCache {
    /// `None` until the files are first read.
    held: Option<Arc<LoadedIdentity>>,
    /// Stamp of the files at the last reading, whether it succeeded or not.
    stamp: Option<FileStamps>,
    refused: u64,
}

/// State of an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityStatus {
    /// Contents of the certificate in use.
    pub card: CertificateFields,
    /// Number of refused reloads of changed files.
    pub refused: u64,
}

impl TlsIdentity {
    /// Creates an identity of these files without reading them.
    pub fn new(files: IdentityFiles) -> Self {
        Self(Arc::new(SharedIdentity {
            files,
            current: Mutex::default(),
            reading: AtomicU64::default(),
            revoked: Mutex::default(),
        }))
    }

    /// Returns the paths of the files.
    pub fn files(&self) -> &IdentityFiles {
        &self.0.files
    }

    /// Reads the files, whether they have changed or not. If they are unusable, the identity in use is retained.
    pub fn reload(&self) -> Result<CertificateFields, IdentityProblems> {
        let mut current = self.current();
        // Taken before the files are read, so that a concurrent change is detected at the next check.
        current.stamp = Some(self.0.files.stamp());
        self.read(&mut current)
    }

    /// Returns the contents of the certificate in use; reads the files if there is none.
    pub fn card(&self) -> Result<CertificateFields, IdentityProblems> {
        let mut current = self.current();
        match &current.held {
            Some(held) => Ok(held.card.clone()),
            None => self.read(&mut current),
        }
    }

    /// Returns the state of the identity; `None` before the first reading.
    pub fn standing(&self) -> Option<IdentityStatus> {
        let current = self.current();
        let held = current.held.as_ref()?;
        Some(IdentityStatus {
            card: held.card.clone(),
            refused: current.refused,
        })
    }

    /// Returns the identity for a handshake. Changed files are read first, but a disk that hangs is not waited for.
    pub(crate) async fn held(&self) -> Result<Arc<LoadedIdentity>, IdentityProblems> {
        let look = self.clone();
        let look = tokio::task::spawn_blocking(move || look.reload_if_changed());
        if let Ok(Ok(looked)) = tokio::time::timeout(DISK_LIMIT, look).await {
            return looked;
        }
        let held = self.0.current.try_lock().ok().and_then(|current| current.held.clone());
        held.ok_or_else(|| {
            IdentityProblems(vec![crate::IdentityProblem {
                file: self.0.files.certificate.clone(),
                what: format!("could not be read within {} s", DISK_LIMIT.as_secs()),
            }])
        })
    }

    /// Returns true if a certificate is revoked; reads a changed revocation list first.
    pub async fn is_revoked(&self, serial: &CertificateSerial) -> bool {
        let _ = self.held().await;
        self.revoked().contains_key(serial)
    }

    /// Checks the files every hour, at once the first time, and passes the certificate in use to the callback. Never
    /// returns.
    pub(crate) async fn watch(&self, mut tell: impl FnMut(&CertificateFields)) -> std::convert::Infallible {
        let mut hours = tokio::time::interval(LOOK);
        loop {
            hours.tick().await;
            if let Ok(held) = self.held().await {
                if held.card.ends_soon() {
                    let days = held.card.days_left();
                    let file = self.0.files.certificate.display();
                    tracing::warn!("the certificate {file} is valid for {days:.1} more days: issue a new one");
                }
                tell(&held.card);
            }
        }
    }

    /// Returns the number of successful readings of the files.
    pub(crate) fn reading(&self) -> u64 {
        self.0.reading.load(Ordering::Acquire)
    }

    /// Returns the revoked certificates of the last reading.
    pub(crate) fn revoked(&self) -> Arc<RevokedSerials> {
        self.0.revoked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reload_if_changed(&self) -> Result<Arc<LoadedIdentity>, IdentityProblems> {
        let mut current = self.current();
        let stamp = self.0.files.stamp();
        let seen = current.stamp.replace(stamp.clone());
        let outcome = match &current.held {
            Some(_) if seen == Some(stamp) => Ok(()),
            _ => self.read(&mut current).map(drop),
        };
        match (&current.held, outcome) {
            (Some(held), _) => Ok(held.clone()),
            (None, outcome) => Err(outcome.err().unwrap_or(IdentityProblems(Vec::new()))),
        }
    }

    fn read(&self, current: &mut IdentityCache) -> Result<CertificateFields, IdentityProblems> {
        match self.0.files.read() {
            Ok(held) => {
                let card = held.card.clone();
                let days = format!("{:.1}", card.days_left());
                tracing::info!(name = %card.name, days, "identity read");
                *self.0.revoked.lock().unwrap_or_else(PoisonError::into_inner) = held.revoked().clone();
                self.0.reading.fetch_add(1, Ordering::Release);
                current.held = Some(Arc::new(held));
                Ok(card)
            }
            Err(problems) => {
                if current.held.is_some() {
                    current.refused += 1;
                    tracing::error!(
                        "the identity's files cannot be used and the ones before stay in force:\n{problems}"
                    );
                }
                Err(problems)
            }
        }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, IdentityCache> {
        // The state is consistent between any two statements.
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for TlsIdentity {
    fn eq(&self, other: &Self) -> bool {
        self.0.files == other.0.files
    }
}

impl Eq for TlsIdentity {}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.0.files).finish()
    }
}
