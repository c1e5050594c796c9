//! `rankguard identity init|issue|show`: who may speak in a cluster.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use rankguard_identity::{Authority, AuthorityError, Card, Issue, Role};
use serde::Serialize;

use crate::args::FormatArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::listing::{self, Column};
use crate::out;

/// `identity`.
#[derive(Debug, Clone, Args)]
pub(crate) struct IdentityArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: IdentityAction,
}

/// `identity ...`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum IdentityAction {
    /// Make the authority of a cluster: its key signs everybody's certificate, so keep it off the nodes
    Init {
        /// Where to; nothing in it is overwritten
        dir: PathBuf,
        /// What the cluster is called
        #[arg(long, default_value = "rankguard")]
        cluster: String,
        /// Valid for so many days
        #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Make a key and a certificate for one controller, agent or operator
    Issue(IssueArgs),
    /// Say what a certificate is; exit code 1 where it ends within 14 days
    Show {
        /// The certificate (PEM)
        file: PathBuf,
        /// How to print.
        #[command(flatten)]
        format: FormatArgs,
    },
}

/// `identity issue`.
#[derive(Debug, Clone, Args)]
pub(crate) struct IssueArgs {
    /// Directory of the authority
    #[arg(long, value_name = "DIR")]
    pub(crate) ca: PathBuf,
    /// What its owner may do
    #[arg(long)]
    pub(crate) role: IssuedRole,
    /// What its owner is called: the node of an agent, the person or tool of an operator
    #[arg(long, default_value = "")]
    pub(crate) name: String,
    /// A host name or address at which it is dialled; may be repeated. A controller needs one
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// Valid for so many days
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: u32,
    /// Where to put certificate.pem, key.pem and ca.pem; nothing is overwritten
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// Who gets a certificate.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum IssuedRole {
    /// Takes evidence, gives orders
    Controller,
    /// Speaks for one node
    Agent,
    /// Hands in jobs, drains nodes, asks
    Operator,
}

impl From<IssuedRole> for Role {
    fn from(role: IssuedRole) -> Self {
        match role {
            IssuedRole::Controller => Self::Controller,
            IssuedRole::Agent => Self::Agent,
            IssuedRole::Operator => Self::Operator,
        }
    }
}

/// Largest certificate that is shown, bytes.
const PEM_BYTES: u64 = 1 << 20;

/// A certificate, printed.
#[derive(Debug, Serialize)]
struct Shown {
    role: &'static str,
    name: String,
    cluster: String,
    hosts: Vec<String>,
    valid_until: String,
    days_left: f64,
}

const COLUMNS: &[Column<Shown>] = &[
    ("role", |shown| shown.role.to_owned()),
    ("name", |shown| shown.name.clone()),
    ("cluster", |shown| shown.cluster.clone()),
    ("hosts", |shown| shown.hosts.join(", ")),
    ("valid until", |shown| shown.valid_until.clone()),
    ("days left", |shown| format!("{:.1}", shown.days_left)),
];

impl From<&Card> for Shown {
    fn from(card: &Card) -> Self {
        Self {
            role: card.name.role().word(),
            name: card.name.own().to_owned(),
            cluster: card.name.cluster().to_owned(),
            hosts: card.hosts.clone(),
            valid_until: card.valid_until().to_string(),
            days_left: (card.days_left() * 10.0).round() / 10.0,
        }
    }
}

pub(crate) fn run(args: &IdentityArgs) -> Result<Exit, CliError> {
    match &args.action {
        IdentityAction::Init { dir, cluster, days } => {
            let card = Authority::create(dir, cluster, *days).map_err(refused)?;
            let (dir, until) = (dir.display(), card.valid_until());
            out::note(&format!(
                "{dir}/ca.pem and {dir}/ca.key are the authority of {cluster} until {until}"
            ));
            out::note("ca.key signs everybody's certificate: keep it where only you can read it, and off the nodes");
        }
        IdentityAction::Issue(args) => issue(args)?,
        IdentityAction::Show { file, format } => return show(file, format),
    }
    Ok(Exit::Fine)
}

fn issue(args: &IssueArgs) -> Result<(), CliError> {
    let role = Role::from(args.role);
    if role == Role::Controller && args.hosts.is_empty() {
        return Err(CliError::usage(
            "a controller's certificate names the hosts at which it is dialled, and none was given",
            "--host NAME or --host ADDRESS, as agents and operators write it; may be repeated",
        ));
    }
    let wanted = Issue {
        role,
        name: args.name.clone(),
        hosts: args.hosts.clone(),
        days: args.days,
    };
    let authority = Authority::open(&args.ca).map_err(refused)?;
    let (card, files) = authority.issue(&wanted, &args.out).map_err(refused)?;
    out::note(&format!("{} until {}", card.name, card.valid_until()));
    let setting = |name: &str, path: &Path| out::line(&format!("{name} = {:?}", path.display().to_string()));
    out::line("[identity]");
    setting("ca", &files.ca);
    setting("certificate", &files.certificate);
    setting("key", &files.key);
    Ok(())
}

fn show(file: &Path, format: &FormatArgs) -> Result<Exit, CliError> {
    let failed = |what: String| {
        let what = format!("{}: {what}", file.display());
        CliError::failure(
            what,
            "`rankguard identity issue` makes certificates that this command can show",
        )
    };
    let text =
        rankguard_files::read_text(file, PEM_BYTES).map_err(|problem| failed(format!("cannot be read: {problem}")))?;
    let card = Card::of_pem(text.as_bytes()).map_err(failed)?;
    listing::print(format.format, &[Shown::from(&card)], COLUMNS);
    Ok(match card.ends_soon() {
        true => Exit::Finding,
        false => Exit::Fine,
    })
}

fn refused(problem: AuthorityError) -> CliError {
    let hint = match &problem {
        AuthorityError::Name(_) => "--name names an agent's node or an operator; --cluster the cluster",
        AuthorityError::Exists { .. } => "choose another directory, or move the old files away first",
        AuthorityError::Io { .. } => "`rankguard identity init DIR` makes an authority; `issue --ca DIR` signs with it",
        AuthorityError::Unusable { .. } => {
            "the directory of the authority holds ca.pem and ca.key, as `init` made them"
        }
        AuthorityError::Outlives { .. } => "ask for fewer --days, or make a new authority and list both in identity.ca",
        AuthorityError::Host { .. } => "--host takes one name or address, without a port",
        AuthorityError::Library(_) | AuthorityError::Random => {
            "is this program whole, and the system's /dev/urandom there?"
        }
    };
    let what = problem.to_string();
    match problem {
        AuthorityError::Name(_) | AuthorityError::Host { .. } | AuthorityError::Outlives { .. } => {
            CliError::usage(what, hint)
        }
        AuthorityError::Io { source, .. } => CliError::failure(what, hint).because(source),
        _ => CliError::failure(what, hint),
    }
}
