//! `rankguard token create|list|revoke`: access tokens of the HTTP API.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use rankguard_access::{AccessRole, RevokedToken, TokenState, TokenView};
use rankguard_console::times::rfc3339;
use rankguard_proto::v1;

use crate::args::{CommonArgs, ControllerAddress, FormatArgs};
use crate::client::ControllerClient;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;
use crate::runtime::block_on;

/// Seconds of a minute, an hour and a day.
const UNITS_S: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];

#[derive(Debug, Clone, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) action: TokenAction,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum TokenAction {
    /// Create a token; its value is printed once and stored nowhere
    Create(TokenCreateArgs),
    /// List tokens with role, scope, end and latest use
    List {
        #[command(flatten)]
        address: ControllerAddress,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Revoke tokens; their event streams end at once
    Revoke {
        /// Ids of the tokens, or names of active ones
        #[arg(required = true)]
        tokens: Vec<String>,
        #[command(flatten)]
        address: ControllerAddress,
    },
}

/// Options of `token create`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TokenCreateArgs {
    /// Name of the token, for lists and the audit log
    pub(crate) name: String,
    /// Right of its holder
    #[arg(long)]
    pub(crate) role: TokenRole,
    /// Time until it expires: 90m, 12h or 30d, at most 366d
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = validity)]
    pub(crate) expires: Duration,
    /// Reach only jobs with names that begin so
    #[arg(long, value_name = "PREFIX")]
    pub(crate) job_prefix: Option<String>,
    /// Reach only this node; may be repeated
    #[arg(long = "node", value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
}

/// Right of a token's holder.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TokenRole {
    /// Reads nodes, jobs and cases
    Viewer,
    /// Changes nodes, jobs and cases, too
    Operator,
    /// Reads the audit log, too
    Admin,
}

impl From<TokenRole> for AccessRole {
    fn from(role: TokenRole) -> Self {
        match role {
            TokenRole::Viewer => Self::Viewer,
            TokenRole::Operator => Self::Operator,
            TokenRole::Admin => Self::Admin,
        }
    }
}

const COLUMNS: &[TableColumn<TokenView>] = &[
    ("id", |token| token.details.id.clone()),
    ("name", |token| token.details.name.clone()),
    ("state", |token| state(token.state).to_owned()),
    ("role", |token| token.details.role.to_string()),
    ("scope", |token| token.details.scope.words()),
    ("expires", |token| rfc3339(token.details.expires_at)),
    ("last used", |token| {
        token.details.last_used_at.map(rfc3339).unwrap_or_default()
    }),
    ("created by", |token| token.details.created_by.clone()),
];

pub(crate) fn run(args: TokenArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    match args.action {
        TokenAction::Create(args) => {
            let client = args.address.client(common)?;
            block_on(create(args, &client))?
        }
        TokenAction::List { address, format } => {
            let client = address.client(common)?;
            let tokens = block_on(client.tokens())??;
            listing::print(format.format, &tokens, COLUMNS);
            Ok(CommandExit::Fine)
        }
        TokenAction::Revoke { tokens, address } => {
            let client = address.client(common)?;
            block_on(revoke(&tokens, &client))?
        }
    }
}

async fn create(args: TokenCreateArgs, client: &ControllerClient) -> Result<CommandExit, CliError> {
    let request = v1::TokenRequest {
        name: args.name,
        role: AccessRole::from(args.role).to_string(),
        job_prefix: args.job_prefix,
        nodes: args.nodes,
        valid_s: args.expires.as_secs(),
    };
    let (token, value) = client.create_token(request).await?;
    let details = &token.details;
    out::note(&format!(
        "created token {} ({}): role {}, {}, until {}",
        details.id,
        details.name,
        details.role,
        details.scope.words(),
        rfc3339(details.expires_at)
    ));
    out::note("the value is shown this once; send it as `Authorization: Bearer VALUE`");
    out::line(&value);
    Ok(CommandExit::Fine)
}

/// Revokes all tokens that can be revoked; the command fails with the last problem.
async fn revoke(tokens: &[String], client: &ControllerClient) -> Result<CommandExit, CliError> {
    let mut outcome = Ok(CommandExit::Fine);
    for token in tokens {
        match client.revoke_token(token).await {
            Ok(revoked) => {
                let is_complete = report(&revoked);
                outcome = outcome.map(|exit| if is_complete { exit } else { CommandExit::Finding });
            }
            Err(problem) => {
                out::note(&if problem.is_away() {
                    format!("it is not known whether token {token} is revoked; `rankguard token list` shows it")
                } else {
                    format!("token {token} was not revoked by this command")
                });
                outcome = Err(problem.into());
            }
        }
    }
    outcome
}

/// Reports a revocation; returns true if it is on disk and in the audit log.
fn report(revoked: &RevokedToken) -> bool {
    let details = &revoked.token.details;
    out::note(&format!("revoked token {} ({})", details.id, details.name));
    if let Some(why) = &revoked.unsaved {
        out::note(&format!(
            "warning: the revocation is not on disk ({why}); the token is refused until the controller restarts, and the \
             controller tries again every minute; `rankguard token revoke {}` tries at once",
            details.id
        ));
    }
    if let Some(why) = &revoked.unrecorded {
        out::note(&format!("warning: the revocation is not in the audit log ({why})"));
    }
    revoked.unsaved.is_none() && revoked.unrecorded.is_none()
}

fn state(state: TokenState) -> &'static str {
    match state {
        TokenState::Active => "active",
        TokenState::Expired => "expired",
        TokenState::Revoked => "revoked",
    }
}

/// Parses a number of seconds, minutes, hours or days.
pub(crate) fn validity(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time; expected a number with s, m, h or d, such as 30d");
    let unit = UNITS_S.iter().find(|(unit, _)| text.ends_with(*unit));
    let (_, seconds) = unit.ok_or_else(wrong)?;
    if text.starts_with('+') {
        return Err(wrong());
    }
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(*seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validities_have_a_unit() {
        assert_eq!(validity("90m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(validity("30d"), Ok(Duration::from_secs(2_592_000)));
        for text in ["", "30", "d", "1.5h", "-1d", "+1d", "1\u{e4}", "99999999999999999999d"] {
            assert!(validity(text).is_err(), "{text}");
        }
    }
}
