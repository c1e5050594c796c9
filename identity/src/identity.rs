//! A process's own identity: three files, read again when they change.
//!
//! They are looked at again on [`Identity::reload`] (SIGHUP), at every handshake, and every hour. Files that cannot be used are
//! refused with file and reason, once, and what was in force stays.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::card::Card;
use crate::files::{Files, Stamp};
use crate::held::Held;
use crate::problem::Problems;

/// Between two looks at files that no handshake asks for.
const LOOK: Duration = Duration::from_secs(3600);
/// Longest wait for the disk before a handshake goes on with what is known.
const DISK_LIMIT: Duration = Duration::from_secs(1);

/// An identity. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Identity(Arc<Inner>);

struct Inner {
    files: Files,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    /// None until the files are first read.
    held: Option<Arc<Held>>,
    /// How the files looked at the last reading, good or not.
    stamp: Option<Stamp>,
    refused: u64,
}

/// How an identity stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// What the certificate in force says.
    pub card: Card,
    /// How often changed files were refused.
    pub refused: u64,
}

impl Identity {
    /// An identity of these files, none of which is read yet.
    pub fn new(files: Files) -> Self {
        Self(Arc::new(Inner {
            files,
            current: Mutex::default(),
        }))
    }

    /// Where it lies.
    pub fn files(&self) -> &Files {
        &self.0.files
    }

    /// Reads the files, whether they have changed or not. When they cannot be used, what was in force stays.
    pub fn reload(&self) -> Result<Card, Problems> {
        let mut current = self.current();
        // Before they are read: a change meanwhile is seen the next time.
        current.stamp = Some(self.0.files.stamp());
        self.read(&mut current)
    }

    /// What the certificate in force says; reads the files if none is.
    pub fn card(&self) -> Result<Card, Problems> {
        let mut current = self.current();
        match &current.held {
            Some(held) => Ok(held.card.clone()),
            None => self.read(&mut current),
        }
    }

    /// How it stands, once it was read.
    pub fn standing(&self) -> Option<Standing> {
        let current = self.current();
        let held = current.held.as_ref()?;
        Some(Standing {
            card: held.card.clone(),
            refused: current.refused,
        })
    }

    /// What handshakes are made of now. Files that look otherwise than before are read first; a disk that hangs is not waited for.
    pub(crate) async fn held(&self) -> Result<Arc<Held>, Problems> {
        let look = self.clone();
        let look = tokio::task::spawn_blocking(move || look.look());
        if let Ok(Ok(looked)) = tokio::time::timeout(DISK_LIMIT, look).await {
            return looked;
        }
        let held = self.0.current.try_lock().ok().and_then(|current| current.held.clone());
        held.ok_or_else(|| {
            Problems(vec![crate::Problem {
                file: self.0.files.certificate.clone(),
                what: format!("could not be read within {} s", DISK_LIMIT.as_secs()),
            }])
        })
    }

    /// Never ends: looks at the files every hour, and hands every look's standing to `tell`, the first at once.
    pub(crate) async fn watch(&self, mut tell: impl FnMut(&Card)) -> std::convert::Infallible {
        let mut hours = tokio::time::interval(LOOK);
        loop {
            hours.tick().await;
            if let Ok(held) = self.held().await {
                if held.card.ends_soon() {
                    let (days, file) = (held.card.days_left(), self.0.files.certificate.display());
                    tracing::warn!("the certificate {file} is valid for {days:.1} more days: issue a new one");
                }
                tell(&held.card);
            }
        }
    }

    fn look(&self) -> Result<Arc<Held>, Problems> {
        let mut current = self.current();
        let stamp = self.0.files.stamp();
        let seen = current.stamp.replace(stamp.clone());
        let outcome = match &current.held {
            Some(_) if seen == Some(stamp) => Ok(()),
            _ => self.read(&mut current).map(drop),
        };
        match (&current.held, outcome) {
            (Some(held), _) => Ok(held.clone()),
            (None, outcome) => Err(outcome.err().unwrap_or(Problems(Vec::new()))),
        }
    }

    fn read(&self, current: &mut Current) -> Result<Card, Problems> {
        match self.0.files.read() {
            Ok(held) => {
                let card = held.card.clone();
                let days = format!("{:.1}", card.days_left());
                tracing::info!(name = %card.name, days, "identity read");
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

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        // Whole between any two statements.
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.0.files == other.0.files
    }
}

impl Eq for Identity {}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.0.files).finish()
    }
}
