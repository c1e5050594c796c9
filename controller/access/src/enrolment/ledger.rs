//! Ledger of the enrolment: join tokens, and the newest certificate of each node.
//!
//! One mutex orders all changes. A certificate is signed and recorded while it is held, so that a token gives no more
//! certificates than it permits, however many nodes ask at once, and also if the controller is killed meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rankguard_model::{PrintableText, Timestamp};

use super::join_token::{JoinTokenDetails, JoinTokenError, JoinTokenState, JoinTokenView, NewJoinToken};
use super::ledger_file::{self, LEDGER_FILE, LedgerEvent, LedgerFile, LedgerFileError, NodeCertificate};
use crate::digest::{Digest, hex, is_equal, parse_hex};
use crate::secret::TokenSecret;

/// Most active join tokens. Every attempt compares its hash with all of them.
const TOKENS_MAX: usize = 1_000;
/// Time for which ended tokens and certificates are retained.
const ENDED_RETENTION: Duration = Duration::from_secs(90 * 86_400);

/// Ledger; clones share it. All methods block on the disk.
#[derive(Debug, Clone)]
pub struct EnrolmentLedger {
    state: Arc<Mutex<LedgerState>>,
}

#[derive(Debug)]
struct LedgerState {
    path: PathBuf,
    /// `None` until the first change: a controller without enrolment has no file.
    file: Option<LedgerFile>,
    tokens: BTreeMap<String, StoredJoinToken>,
    /// Newest certificate by node.
    certificates: BTreeMap<String, NodeCertificate>,
}

#[derive(Debug)]
struct StoredJoinToken {
    details: JoinTokenDetails,
    hash: Digest,
}

/// Request of a node for a certificate.
#[derive(Debug, Clone, Copy)]
pub struct IssueAttempt<'a> {
    /// Text of the join token.
    pub token: &'a str,
    /// Name of the node.
    pub node: &'a str,
    /// SHA-256 of the public key of its request.
    pub key: [u8; 32],
    /// Time of the request.
    pub now: Timestamp,
}

/// Certificate that a node receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedToNode {
    /// Certificate with its chain and the id of the token.
    pub certificate: NodeCertificate,
    /// True if the node requested it before with the same token and key, and receives the same one again.
    pub is_repeated: bool,
}

/// Reason to refuse the enrolment of a node.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentRefusal {
    /// The text is no join token, or was mistyped.
    #[error("the value is no join token of Rankguard: its form or its checksum is wrong")]
    Malformed,
    /// This controller has not created it, or has removed it after its end.
    #[error("this controller does not know the join token")]
    Unknown,
    /// The token has expired.
    #[error("join token {id} has expired")]
    Expired { id: String },
    /// The token was revoked.
    #[error("join token {id} is revoked")]
    Revoked { id: String },
    /// All of its certificates were issued.
    #[error("join token {id} is used up: its {uses} certificates were issued")]
    UsedUp { id: String, uses: u32 },
    /// The token is for other nodes.
    #[error("join token {id} is not for node {node}")]
    OtherNode { id: String, node: String },
    /// The node has a valid certificate.
    #[error(
        "node {node} has a certificate that is valid until {until} (serial number {serial}), and a second one could evict it: a \
         token that was stolen must not do that"
    )]
    HasCertificate {
        node: String,
        serial: String,
        until: Timestamp,
    },
    /// The key of the request is that of a revoked certificate.
    #[error("the key of this request is that of a revoked certificate")]
    RevokedKey,
    /// The certificate could not be signed.
    #[error("{0}")]
    Signing(String),
    /// The certificate could not be recorded, so it was not issued.
    #[error("the certificate was not issued: {source}")]
    File { source: LedgerFileError },
}

impl EnrolmentLedger {
    /// Opens the ledger of a state directory. A damaged file is an error: it may lack revocations and uses.
    pub fn open(state_dir: &Path, now: Timestamp) -> Result<Self, LedgerFileError> {
        let path = state_dir.join(LEDGER_FILE);
        let events = ledger_file::read(&path)?;
        let is_present = !events.is_empty();
        let mut state = LedgerState {
            path,
            file: None,
            tokens: BTreeMap::new(),
            certificates: BTreeMap::new(),
        };
        events.into_iter().for_each(|event| state.apply(event));
        state.remove_ended(now);
        if is_present {
            state.open_file()?;
        }
        Ok(Self {
            state: Arc::new(Mutex::new(state)),
        })
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        // A change is applied after its last fallible step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a join token; returns it with its value.
    pub fn create(
        &self,
        request: &NewJoinToken,
        by: &str,
        now: Timestamp,
    ) -> Result<(JoinTokenView, TokenSecret), JoinTokenError> {
        request.check()?;
        let secret = TokenSecret::generate_join().ok_or(JoinTokenError::Random)?;
        let id = rankguard_identity::secret::<6>().ok_or(JoinTokenError::Random)?;
        let details = JoinTokenDetails {
            id: format!("jt-{}", hex(&id)),
            nodes: request.nodes.clone(),
            uses: request.uses,
            used: 0,
            may_replace: request.may_replace,
            created_at: now,
            created_by: by.to_owned(),
            expires_at: now.after(request.valid),
            revoked_at: None,
            revoked_by: None,
        };
        let mut state = self.state();
        state.remove_ended(now);
        let is_active = |token: &&StoredJoinToken| token.details.state(now) == JoinTokenState::Active;
        if state.tokens.values().filter(is_active).count() >= TOKENS_MAX {
            return Err(JoinTokenError::Full { most: TOKENS_MAX });
        }
        let event = LedgerEvent::Token {
            sha256: hex(&secret.hash()),
            details: details.clone(),
        };
        state.record(event).map_err(|source| JoinTokenError::File { source })?;
        Ok((details.view(now), secret))
    }

    /// Revokes a join token. Certificates that were issued with it remain valid.
    pub fn revoke(&self, id: &str, by: &str, now: Timestamp) -> Result<JoinTokenView, JoinTokenError> {
        let mut state = self.state();
        let absent = || JoinTokenError::Absent {
            id: id.chars().take(100).collect(),
        };
        let token = state.tokens.get_mut(id).ok_or_else(absent)?;
        if token.details.revoked_at.is_some() {
            return Err(JoinTokenError::Revoked { id: id.to_owned() });
        }
        let event = LedgerEvent::Revoked {
            id: id.to_owned(),
            at: now,
            by: by.to_owned(),
        };
        state.record(event).map_err(|source| JoinTokenError::File { source })?;
        Ok(state.tokens[id].details.view(now))
    }

    /// Returns all join tokens, oldest first.
    pub fn list(&self, now: Timestamp) -> Vec<JoinTokenView> {
        let state = self.state();
        let mut views: Vec<JoinTokenView> = state.tokens.values().map(|token| token.details.view(now)).collect();
        views.sort_by_key(|view| (view.details.created_at, view.details.id.clone()));
        views
    }

    /// Returns the id of the token of a text, if this node may enrol with it or may already have done so.
    pub fn check(&self, token: &str, node: &str, now: Timestamp) -> Result<String, EnrolmentRefusal> {
        self.state().admit(token, node, now).map(|details| details.id.clone())
    }

    /// Issues a certificate for a node: checks the token, signs and records. `is_revoked` decides about serial numbers;
    /// `sign` returns serial number, end and PEM.
    pub fn issue(
        &self,
        attempt: IssueAttempt<'_>,
        is_revoked: impl Fn(&str) -> bool,
        sign: impl FnOnce() -> Result<(String, Timestamp, String), String>,
    ) -> Result<IssuedToNode, EnrolmentRefusal> {
        let IssueAttempt { token, node, key, now } = attempt;
        let mut state = self.state();
        let details = state.admit(token, node, now)?.clone();
        let key = hex(&key);
        if let Some(known) = state.certificates.get(node).filter(|known| known.until > now) {
            let is_revoked = is_revoked(&known.serial);
            let is_same_key = known.key == key;
            if is_same_key && is_revoked {
                return Err(EnrolmentRefusal::RevokedKey);
            }
            if is_same_key && known.token.as_ref() == Some(&details.id) {
                let certificate = known.clone();
                return Ok(IssuedToNode {
                    certificate,
                    is_repeated: true,
                });
            }
            if !is_revoked && !details.may_replace {
                return Err(EnrolmentRefusal::HasCertificate {
                    node: node.to_owned(),
                    serial: known.serial.clone(),
                    until: known.until,
                });
            }
        }
        if details.used >= details.uses {
            let JoinTokenDetails { id, uses, .. } = details;
            return Err(EnrolmentRefusal::UsedUp { id, uses });
        }
        let (serial, until, chain) = sign().map_err(EnrolmentRefusal::Signing)?;
        let certificate = NodeCertificate {
            node: node.to_owned(),
            serial,
            until,
            token: Some(details.id),
            key,
            chain,
        };
        let event = LedgerEvent::Certificate {
            is_use: true,
            certificate: certificate.clone(),
        };
        state
            .record(event)
            .map_err(|source| EnrolmentRefusal::File { source })?;
        Ok(IssuedToNode {
            certificate,
            is_repeated: false,
        })
    }

    /// Records a certificate that a node received without a token: a renewal, or one that a person issued. A known one that
    /// is valid for longer is retained, unless `is_newer`.
    pub fn note(&self, certificate: NodeCertificate, is_newer: bool) -> Result<(), LedgerFileError> {
        let mut state = self.state();
        let known = state.certificates.get(&certificate.node);
        let is_kept = known
            .is_some_and(|known| known.serial == certificate.serial || (!is_newer && known.until >= certificate.until));
        if is_kept {
            return Ok(());
        }
        state.record(LedgerEvent::Certificate {
            is_use: false,
            certificate,
        })
    }
}

impl LedgerState {
    /// Returns the token of a text, if this node may enrol with it.
    fn admit(&self, text: &str, node: &str, now: Timestamp) -> Result<&JoinTokenDetails, EnrolmentRefusal> {
        let secret = TokenSecret::parse_join(text).ok_or(EnrolmentRefusal::Malformed)?;
        let hash = secret.hash();
        let mut found = None;
        // All tokens are compared, so that the time of the answer depends on their number only.
        for token in self.tokens.values() {
            if is_equal(&token.hash, &hash) {
                found = Some(token);
            }
        }
        let details = &found.ok_or(EnrolmentRefusal::Unknown)?.details;
        let id = details.id.clone();
        match details.state(now) {
            JoinTokenState::Revoked => Err(EnrolmentRefusal::Revoked { id }),
            JoinTokenState::Expired => Err(EnrolmentRefusal::Expired { id }),
            // A node that did not receive its certificate may ask for it again.
            JoinTokenState::UsedUp | JoinTokenState::Active if details.nodes.contains(node) => Ok(details),
            JoinTokenState::UsedUp | JoinTokenState::Active => {
                let node = PrintableText::first(node, 128).to_string();
                Err(EnrolmentRefusal::OtherNode { id, node })
            }
        }
    }

    /// Writes an event and applies it.
    fn record(&mut self, event: LedgerEvent) -> Result<(), LedgerFileError> {
        if self.file.is_none() {
            self.open_file()?;
        }
        if let Some(file) = &mut self.file {
            file.append(&event)?;
        }
        self.apply(event);
        Ok(())
    }

    /// Rewrites the file with the present state.
    fn open_file(&mut self) -> Result<(), LedgerFileError> {
        let tokens = self.tokens.values().map(|token| LedgerEvent::Token {
            sha256: hex(&token.hash),
            details: token.details.clone(),
        });
        let certificates = self.certificates.values().map(|certificate| LedgerEvent::Certificate {
            is_use: false,
            certificate: certificate.clone(),
        });
        let events: Vec<LedgerEvent> = tokens.chain(certificates).collect();
        self.file = Some(LedgerFile::create(&self.path, &events)?);
        Ok(())
    }

    fn apply(&mut self, event: LedgerEvent) {
        match event {
            LedgerEvent::Token { sha256, details } => {
                // A hash that cannot be parsed belongs to no value.
                let hash = parse_hex(&sha256).unwrap_or_default();
                self.tokens
                    .insert(details.id.clone(), StoredJoinToken { details, hash });
            }
            LedgerEvent::Revoked { id, at, by } => {
                if let Some(token) = self.tokens.get_mut(&id) {
                    (token.details.revoked_at, token.details.revoked_by) = (Some(at), Some(by));
                }
            }
            LedgerEvent::Certificate { is_use, certificate } => {
                let token = certificate.token.as_ref().filter(|_| is_use);
                if let Some(token) = token.and_then(|id| self.tokens.get_mut(id)) {
                    token.details.used += 1;
                }
                self.certificates.insert(certificate.node.clone(), certificate);
            }
        }
    }

    /// Removes tokens and certificates that ended long ago.
    fn remove_ended(&mut self, now: Timestamp) {
        let is_recent = |end: Timestamp| now < end.after(ENDED_RETENTION);
        self.tokens.retain(|_, token| {
            let details = &token.details;
            is_recent(details.revoked_at.unwrap_or(details.expires_at))
        });
        self.certificates.retain(|_, certificate| is_recent(certificate.until));
    }
}

#[cfg(test)]
mod tests;
