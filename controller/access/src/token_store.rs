//! Store of the tokens: a table in memory and its file.
//!
//! Changes hold `writer` while they write the file, and `table` only while they read or change the table, so that an
//! authentication never waits for the disk. A revocation changes the table first: it holds even if the disk fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rankguard_model::Timestamp;
use tokio::sync::watch;

use crate::digest::{hex, is_equal};
use crate::role::AccessRole;
use crate::scope::TokenScope;
use crate::secret::TokenSecret;
use crate::token::{
    NewToken, RevokedToken, StoredToken, TokenDetails, TokenError, TokenRejection, TokenState, TokenView,
};
use crate::token_file::{self, TokenFileError};

/// Most active tokens. Every authentication compares its hash with all of them.
const TOKENS_MAX: usize = 1_000;
/// Most tokens that ended; the oldest are removed.
const ENDED_MAX: usize = 1_000;
/// Time for which an ended token is listed.
const ENDED_RETENTION: Duration = Duration::from_secs(90 * 86_400);

/// Store of the tokens; clones share it.
#[derive(Debug, Clone)]
pub struct TokenStore {
    shared: Arc<SharedStore>,
}

#[derive(Debug)]
struct SharedStore {
    path: PathBuf,
    writer: Mutex<()>,
    table: Mutex<TokenTable>,
    /// Number of revocations since the start.
    revocations: watch::Sender<u64>,
    /// Reason why the latest attempt to write the file failed.
    failure: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct TokenTable {
    /// Tokens by id.
    tokens: BTreeMap<String, StoredToken>,
    /// True if a time of use is not in the file.
    has_unsaved_uses: bool,
    /// Ids of tokens of which the revocation is not in the file.
    unsaved_revocations: BTreeSet<String>,
}

/// Token that a request has presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedToken {
    /// Id of the token.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Role of its holder.
    pub role: AccessRole,
    /// Part of the cluster that it reaches.
    pub scope: TokenScope,
}

/// Locks a mutex; a panic of another holder leaves the table whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TokenStore {
    /// Opens the store of a state directory. A damaged file is an error: it may lack revocations.
    pub fn open(state_dir: &Path) -> Result<Self, TokenFileError> {
        let path = state_dir.join(token_file::TOKEN_FILE);
        let tokens = token_file::read(&path)?;
        let tokens = tokens.into_iter().map(|token| (token.details.id.clone(), token));
        let table = TokenTable {
            tokens: tokens.collect(),
            ..TokenTable::default()
        };
        let shared = SharedStore {
            path,
            writer: Mutex::new(()),
            table: Mutex::new(table),
            revocations: watch::Sender::new(0),
            failure: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Creates a token. It is accepted once it is on disk. Blocks on the disk.
    pub fn create(&self, request: &NewToken, by: &str, now: Timestamp) -> Result<(TokenView, TokenSecret), TokenError> {
        request.check()?;
        let secret = TokenSecret::generate().ok_or(TokenError::Random)?;
        let details = TokenDetails {
            id: random_id()?,
            name: request.name.clone(),
            role: request.role,
            scope: request.scope.clone(),
            created_at: now,
            created_by: by.to_owned(),
            expires_at: now.after(request.valid),
            last_used_at: None,
            revoked_at: None,
            revoked_by: None,
        };
        let token = StoredToken {
            hash: secret.hash(),
            details: details.clone(),
        };
        let _writer = lock(&self.shared.writer);
        let mut tokens = self.table().tokens.clone();
        remove_ended(&mut tokens, now);
        let active = || {
            tokens
                .values()
                .filter(|token| token.details.state(now) == TokenState::Active)
        };
        if active().count() >= TOKENS_MAX {
            return Err(TokenError::Full { most: TOKENS_MAX });
        }
        if active().any(|token| token.details.name == request.name) {
            let name = request.name.clone();
            return Err(TokenError::Exists { name });
        }
        tokens.insert(details.id.clone(), token.clone());
        self.write(tokens.values())
            .map_err(|source| TokenError::File { source })?;
        let ids: Vec<String> = tokens.into_keys().collect();
        let mut table = self.table();
        table.tokens.insert(details.id.clone(), token);
        table.tokens.retain(|id, _| ids.binary_search(id).is_ok());
        table.unsaved_revocations.clear();
        drop(table);
        let state = details.state(now);
        Ok((TokenView { state, details }, secret))
    }

    /// Revokes a token by its id, or by its name if one active token has it. It is refused from now on, also if the file
    /// cannot be written. A repetition with the id tries to write it again. Blocks on the disk.
    pub fn revoke(&self, token: &str, by: &str, now: Timestamp) -> Result<RevokedToken, TokenError> {
        let _writer = lock(&self.shared.writer);
        let details = {
            let mut table = self.table();
            let TokenTable {
                tokens,
                unsaved_revocations,
                ..
            } = &mut *table;
            let found = tokens.values_mut().find(|stored| {
                let details = &stored.details;
                let is_named = details.name == token && details.state(now) == TokenState::Active;
                details.id == token || is_named
            });
            let absent = || TokenError::Absent {
                token: token.chars().take(100).collect(),
            };
            let details = &mut found.ok_or_else(absent)?.details;
            if details.revoked_at.is_none() {
                details.revoked_at = Some(now);
                details.revoked_by = Some(by.to_owned());
                unsaved_revocations.insert(details.id.clone());
            } else if !unsaved_revocations.contains(&details.id) {
                return Err(TokenError::Revoked { id: details.id.clone() });
            }
            details.clone()
        };
        self.shared.revocations.send_modify(|count| *count += 1);
        let problem = self.save().err();
        let unsaved = problem.map(|problem| problem.to_string()).inspect(|problem| {
            let id = &details.id;
            tracing::error!(
                "token {id} is revoked until the controller restarts: the revocation is not on disk: {problem}; it is written \
                 when the disk works"
            );
        });
        let state = details.state(now);
        Ok(RevokedToken {
            token: TokenView { state, details },
            unsaved,
            unrecorded: None,
        })
    }

    /// Returns all tokens, oldest first.
    pub fn list(&self, now: Timestamp) -> Vec<TokenView> {
        let mut tokens = self.table().tokens.clone();
        remove_ended(&mut tokens, now);
        let mut views: Vec<TokenView> = tokens.values().map(|token| view(token, now)).collect();
        views.sort_by(|left, right| {
            let key = |view: &TokenView| (view.details.created_at, view.details.id.clone());
            key(left).cmp(&key(right))
        });
        views
    }

    /// Authenticates the text of a token and records its use.
    pub fn authenticate(&self, text: &str, now: Timestamp) -> Result<AuthenticatedToken, TokenRejection> {
        let secret = TokenSecret::parse(text).ok_or(TokenRejection::Malformed)?;
        let hash = secret.hash();
        let mut table = self.table();
        let mut found = None;
        // All tokens are compared, so that the time of the answer depends on their number only.
        for token in table.tokens.values_mut() {
            if is_equal(&token.hash, &hash) {
                found = Some(token);
            }
        }
        let details = &mut found.ok_or(TokenRejection::Unknown)?.details;
        match details.state(now) {
            TokenState::Revoked => return Err(TokenRejection::Revoked { id: details.id.clone() }),
            TokenState::Expired => return Err(TokenRejection::Expired { id: details.id.clone() }),
            TokenState::Active => {}
        }
        details.last_used_at = Some(now);
        let authenticated = AuthenticatedToken {
            id: details.id.clone(),
            name: details.name.clone(),
            role: details.role,
            scope: details.scope.clone(),
        };
        table.has_unsaved_uses = true;
        Ok(authenticated)
    }

    /// Returns true if the token is accepted at this time.
    pub fn is_active(&self, id: &str, now: Timestamp) -> bool {
        let table = self.table();
        let token = table.tokens.get(id);
        token.is_some_and(|token| token.details.state(now) == TokenState::Active)
    }

    /// Returns the time from which the token is refused, if it is known.
    pub fn expiry(&self, id: &str) -> Option<Timestamp> {
        self.table().tokens.get(id).map(|token| token.details.expires_at)
    }

    /// Returns a receiver that changes at each revocation.
    pub fn revocations(&self) -> watch::Receiver<u64> {
        self.shared.revocations.subscribe()
    }

    fn write<'t>(&self, tokens: impl Iterator<Item = &'t StoredToken>) -> Result<(), TokenFileError> {
        let written = token_file::write(&self.shared.path, tokens);
        *lock(&self.shared.failure) = written.as_ref().err().map(ToString::to_string);
        written
    }

    /// Returns the reason why the latest attempt to write the file failed; `None` after a successful one.
    pub fn failure(&self) -> Option<String> {
        lock(&self.shared.failure).clone()
    }

    /// Writes the times of use and the revocations that are not on disk yet. Blocks on the disk.
    pub fn save_rest(&self) -> Result<(), TokenFileError> {
        let _writer = lock(&self.shared.writer);
        let has_rest = {
            let mut table = self.table();
            std::mem::take(&mut table.has_unsaved_uses)
                || !table.unsaved_revocations.is_empty()
                || self.failure().is_some()
        };
        if !has_rest {
            return Ok(());
        }
        self.save().inspect_err(|_| self.table().has_unsaved_uses = true)
    }

    /// Writes the table; the caller holds `writer`, so that no revocation is added meanwhile.
    fn save(&self) -> Result<(), TokenFileError> {
        let tokens = self.table().tokens.clone();
        self.write(tokens.values())?;
        self.table().unsaved_revocations.clear();
        Ok(())
    }

    fn table(&self) -> MutexGuard<'_, TokenTable> {
        lock(&self.shared.table)
    }
}

fn view(token: &StoredToken, now: Timestamp) -> TokenView {
    let details = token.details.clone();
    let state = details.state(now);
    TokenView { state, details }
}

fn random_id() -> Result<String, TokenError> {
    let bytes = rankguard_identity::secret::<6>().ok_or(TokenError::Random)?;
    Ok(format!("tk-{}", hex(&bytes)))
}

/// Time at which a token ended.
fn ended_at(details: &TokenDetails, now: Timestamp) -> Option<Timestamp> {
    let expired = (now >= details.expires_at).then_some(details.expires_at);
    details.revoked_at.or(expired)
}

/// Removes tokens that ended long ago, and the oldest ones beyond their number.
fn remove_ended(tokens: &mut BTreeMap<String, StoredToken>, now: Timestamp) {
    let is_recent = |at: Timestamp| now.since(at) < ENDED_RETENTION;
    tokens.retain(|_, token| ended_at(&token.details, now).is_none_or(is_recent));
    let mut ended: Vec<(Timestamp, String)> = tokens
        .values()
        .filter_map(|token| Some((ended_at(&token.details, now)?, token.details.id.clone())))
        .collect();
    ended.sort();
    let excess = ended.len().saturating_sub(ENDED_MAX);
    for (_, id) in ended.into_iter().take(excess) {
        tokens.remove(&id);
    }
}

#[cfg(test)]
mod tests;
