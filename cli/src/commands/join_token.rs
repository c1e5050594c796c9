//! `rankguard join-token create|list|revoke`: tokens with which nodes obtain their certificates.

use std::time::Duration;

use clap::{Args, Subcommand};
use rankguard_access::{JoinTokenDetails, JoinTokenView};
use rankguard_console::times::rfc3339;
use rankguard_proto::v1;

use super::token::validity;
use crate::args::{CommonArgs, ControllerAddress, FormatArgs};
use crate::client::{ControllerClient, CreatedJoinToken};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::node_list::{self, NODES_MAX};
use crate::out;
use crate::runtime::block_on;

#[derive(Debug, Clone, Args)]
pub(crate) struct JoinTokenArgs {
    #[command(subcommand)]
    pub(crate) action: JoinTokenAction,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum JoinTokenAction {
    /// Create a token for the enrolment of nodes; its value is printed once and stored nowhere
    Create(JoinTokenCreateArgs),
    /// List join tokens with nodes, uses and end
    List {
        #[command(flatten)]
        address: ControllerAddress,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Revoke join tokens; certificates that were issued with them remain valid
    Revoke {
        /// Ids of the tokens
        #[arg(required = true)]
        tokens: Vec<String>,
        #[command(flatten)]
        address: ControllerAddress,
    },
}

/// Options of `join-token create`.
#[derive(Debug, Clone, Args)]
pub(crate) struct JoinTokenCreateArgs {
    /// Nodes that may enrol with it, as names or ranges: n1,gpu-[01-32]; may be repeated
    #[arg(long, value_name = "NODES", required = true)]
    pub(crate) nodes: Vec<String>,
    /// Certificates that may be issued with it [default: one for each node]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) uses: Option<u32>,
    /// Time until it expires: 90m, 2h or 3d, at most 30d
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = validity)]
    pub(crate) expires: Duration,
    /// Permit a certificate for a node that has a valid one: its holder may then evict these nodes
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
}

const COLUMNS: &[TableColumn<JoinTokenView>] = &[
    ("id", |token| token.details.id.clone()),
    ("state", |token| token.state.word().to_owned()),
    ("nodes", |token| nodes(&token.details)),
    ("uses", |token| {
        format!("{} of {}", token.details.used, token.details.uses)
    }),
    ("replaces", |token| {
        if token.details.may_replace { "yes" } else { "no" }.to_owned()
    }),
    ("expires", |token| rfc3339(token.details.expires_at)),
    ("created by", |token| token.details.created_by.clone()),
];

/// Names the nodes of a token; of many the first ones.
fn nodes(details: &JoinTokenDetails) -> String {
    let first: Vec<&str> = details.nodes.iter().take(4).map(String::as_str).collect();
    match details.nodes.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

pub(crate) fn run(args: JoinTokenArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    match args.action {
        JoinTokenAction::Create(args) => {
            let client = args.address.client(common)?;
            block_on(create(args, &client))?
        }
        JoinTokenAction::List { address, format } => {
            let client = address.client(common)?;
            let tokens = block_on(client.join_tokens())??;
            listing::print(format.format, &tokens, COLUMNS);
            Ok(CommandExit::Fine)
        }
        JoinTokenAction::Revoke { tokens, address } => {
            let client = address.client(common)?;
            block_on(revoke(&tokens, &client))?
        }
    }
}

async fn create(args: JoinTokenCreateArgs, client: &ControllerClient) -> Result<CommandExit, CliError> {
    let nodes = node_list::expand(&args.nodes).map_err(|problem| {
        let hint = format!("write names or ranges such as gpu-[01-32,40], at most {NODES_MAX} nodes together");
        CliError::usage(problem, hint)
    })?;
    let uses = args.uses.unwrap_or(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
    let request = v1::JoinTokenRequest {
        nodes: nodes.into_iter().collect(),
        uses,
        valid_s: args.expires.as_secs(),
        may_replace: args.replace,
    };
    let CreatedJoinToken {
        token,
        value,
        ca_sha256,
    } = client.create_join_token(request).await?;
    let details = &token.details;
    let uses = details.uses;
    let end = rfc3339(details.expires_at);
    out::note(&format!(
        "created join token {}: {}, {uses} uses, until {end}",
        details.id,
        self::nodes(details)
    ));
    out::note("the value is shown this once; write it to a file of mode 0600 on each node, and run there");
    out::note(&format!(
        "rankguard agent enrol --controller {} --token-file FILE --ca-sha256 {ca_sha256} --directory /etc/rankguard",
        client.address()
    ));
    out::line(&value);
    Ok(CommandExit::Fine)
}

/// Revokes all tokens that can be revoked; the command fails with the last problem.
async fn revoke(tokens: &[String], client: &ControllerClient) -> Result<CommandExit, CliError> {
    let mut outcome = Ok(CommandExit::Fine);
    for token in tokens {
        match client.revoke_join_token(token).await {
            Ok(revoked) => {
                let details = &revoked.details;
                let used = details.used;
                out::note(&format!(
                    "revoked join token {}; {used} certificates were issued with it: `rankguard audit --action enrolment` lists them",
                    details.id
                ));
            }
            Err(problem) => {
                out::note(&format!("join token {token} was not revoked by this command"));
                outcome = Err(problem.into());
            }
        }
    }
    outcome
}
