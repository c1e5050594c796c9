//! `rankguard identity init|issue|revoke|show`: the certificate authority and certificates of a cluster.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use rankguard_identity::{
    AuthorityError, AuthorityFingerprint, CertificateAuthority, CertificateFields, CertificateSerial, IssueRequest,
    PeerName, PeerRole,
};
use serde::Serialize;

use crate::args::FormatArgs;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

#[derive(Debug, Clone, Args)]
pub(crate) struct IdentityArgs {
    #[command(subcommand)]
    pub(crate) action: IdentityAction,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum IdentityAction {
    /// Create the certificate authority of a cluster; its key signs every certificate, so keep it off the nodes
    Init {
        /// Output directory; existing files are kept
        dir: PathBuf,
        /// Name of the cluster
        #[arg(long, default_value = "rankguard")]
        cluster: String,
        /// Validity period in days
        #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Create a key and a certificate for a controller, agent, operator, viewer or launcher
    Issue(IssueArgs),
    /// Create the key and certificate with which a controller signs those of agents; it can sign nothing else
    IssueIntermediate {
        /// Directory of the certificate authority
        #[arg(long, value_name = "DIR")]
        ca: PathBuf,
        /// Validity period in days
        #[arg(long, default_value_t = 730, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
        /// Output directory for issuer.pem and issuer.key; existing files are kept
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Revoke certificates: writes the revocation list of the authority, for `identity.crl` on every machine
    Revoke(RevokeArgs),
    /// Show a certificate's role, name and expiry; exit code 1 if one expires within 14 days
    Show {
        /// Certificate (PEM), or a directory: its certificate.pem and those of its folders
        file: PathBuf,
        #[command(flatten)]
        format: FormatArgs,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct IssueArgs {
    /// Directory of the certificate authority
    #[arg(long, value_name = "DIR")]
    pub(crate) ca: PathBuf,
    /// Role of the certificate's owner
    #[arg(long)]
    pub(crate) role: IssuedRole,
    /// Name of the owner: the node of an agent, the person or tool of an operator or viewer, the person or team of a launcher; may be
    /// repeated
    #[arg(long = "name", value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// File with one name per line, each followed by its hosts
    #[arg(long, value_name = "FILE")]
    pub(crate) names_from: Option<PathBuf>,
    /// Host name or address that clients connect to; may be repeated. Required for a controller
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// Validity period in days
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: u32,
    /// Output directory for certificate.pem, key.pem and ca.pem; existing files are kept. With several names, each gets
    /// a folder in it
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RevokeArgs {
    /// Directory of the certificate authority
    #[arg(long, value_name = "DIR")]
    pub(crate) ca: PathBuf,
    /// Certificates (PEM), or directories with them, as for `identity show`
    #[arg(value_name = "FILE", required_unless_present_any = ["serials", "role"])]
    pub(crate) files: Vec<PathBuf>,
    /// Serial number, as `identity show` prints it; may be repeated
    #[arg(long = "serial", value_name = "HEX")]
    pub(crate) serials: Vec<CertificateSerial>,
    /// Revoke all certificates that the authority has issued to the owner of this role and of --name
    #[arg(long)]
    pub(crate) role: Option<IssuedRole>,
    /// With --role, name of the owner; a controller has none
    #[arg(long, value_name = "NAME", requires = "role")]
    pub(crate) name: Option<String>,
}

/// Role of a certificate's owner.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum IssuedRole {
    /// Receives evidence, sends orders to agents
    Controller,
    /// Acts for one node
    Agent,
    /// Submits jobs, drains nodes, reads state, issues tokens
    Operator,
    /// Reads state, changes nothing
    Viewer,
    /// Joins runs of torchrun, nothing else
    Launcher,
}

impl From<IssuedRole> for PeerRole {
    fn from(role: IssuedRole) -> Self {
        match role {
            IssuedRole::Controller => Self::Controller,
            IssuedRole::Agent => Self::Agent,
            IssuedRole::Operator => Self::Operator,
            IssuedRole::Viewer => Self::Viewer,
            IssuedRole::Launcher => Self::Launcher,
        }
    }
}

/// Hints for unusable names.
const CLUSTER_HINT: &str = "set the name of the cluster with --cluster";
const OWNER_HINT: &str = "set the name of an agent's node, an operator, a viewer or a launcher with --name";
/// Maximum size of a file of names, in bytes.
const NAMES_BYTES: u64 = 4 << 20;
/// Maximum size of a certificate file, in bytes.
const PEM_BYTES: u64 = 1 << 20;

/// Printed form of a certificate.
#[derive(Debug, Serialize)]
struct CertificateView {
    role: &'static str,
    name: String,
    cluster: String,
    hosts: Vec<String>,
    valid_until: String,
    days_left: f64,
    serial: String,
}

const COLUMNS: &[TableColumn<CertificateView>] = &[
    ("role", |shown| shown.role.to_owned()),
    ("name", |shown| shown.name.clone()),
    ("cluster", |shown| shown.cluster.clone()),
    ("hosts", |shown| shown.hosts.join(", ")),
    ("valid until", |shown| shown.valid_until.clone()),
    ("days left", |shown| format!("{:.1}", shown.days_left)),
    ("serial", |shown| shown.serial.clone()),
];

impl From<&CertificateFields> for CertificateView {
    fn from(card: &CertificateFields) -> Self {
        Self {
            role: card.name.role().word(),
            name: card.name.own().to_owned(),
            cluster: card.name.cluster().to_owned(),
            hosts: card.hosts.clone(),
            valid_until: card.valid_until().to_string(),
            days_left: (card.days_left() * 10.0).round() / 10.0,
            serial: card.serial.to_string(),
        }
    }
}

pub(crate) fn run(args: &IdentityArgs) -> Result<CommandExit, CliError> {
    match &args.action {
        IdentityAction::Init { dir, cluster, days } => {
            let card =
                CertificateAuthority::create(dir, cluster, *days).map_err(|problem| refused(problem, CLUSTER_HINT))?;
            let dir = dir.display();
            let until = card.valid_until();
            out::note(&format!(
                "created the authority of cluster {cluster}, valid until {until}: {dir}/ca.pem and {dir}/ca.key"
            ));
            out::note("ca.key signs all certificates: store it readable by its owner only, and not on the nodes");
        }
        IdentityAction::Issue(args) => issue(args)?,
        IdentityAction::IssueIntermediate { ca, days, out } => issue_intermediate(ca, *days, out)?,
        IdentityAction::Revoke(args) => revoke(args)?,
        IdentityAction::Show { file, format } => return show(file, format),
    }
    Ok(CommandExit::Fine)
}

/// A certificate to issue.
struct CertificateOwner {
    name: String,
    hosts: Vec<String>,
}

/// Returns the owners on the command line and in the file. Without any name there is one owner with an empty name, for
/// roles that need none.
fn owners(args: &IssueArgs) -> Result<Vec<CertificateOwner>, CliError> {
    let owner = |name: &str, hosts: &[String]| CertificateOwner {
        name: name.to_owned(),
        hosts: args.hosts.iter().chain(hosts).cloned().collect(),
    };
    let mut owners: Vec<CertificateOwner> = args.names.iter().map(|name| owner(name, &[])).collect();
    if let Some(file) = &args.names_from {
        let text = rankguard_files::read_text(file, NAMES_BYTES).map_err(|problem| {
            CliError::failure(
                format!("cannot read {}", file.display()),
                "write one name per line, followed by its hosts",
            )
            .because(problem)
        })?;
        for line in text.lines().map(|line| line.split('#').next().unwrap_or_default()) {
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            let hosts: Vec<String> = words.map(str::to_owned).collect();
            owners.push(owner(name, &hosts));
        }
    }
    if owners.is_empty() {
        owners.push(owner("", &[]));
    }
    let mut seen = BTreeSet::new();
    match owners.iter().find(|owner| !seen.insert(&owner.name)) {
        Some(twice) => Err(CliError::usage(
            format!("{} is named twice", twice.name),
            "name each owner once",
        )),
        None => Ok(owners),
    }
}

fn issue(args: &IssueArgs) -> Result<(), CliError> {
    let role = PeerRole::from(args.role);
    let owners = owners(args)?;
    if role == PeerRole::Controller && owners.iter().any(|owner| owner.hosts.is_empty()) {
        return Err(CliError::usage(
            "a controller certificate needs at least one host",
            "set --host to each name or address that agents and operators connect to",
        ));
    }
    let authority = CertificateAuthority::open(&args.ca).map_err(|problem| refused(problem, OWNER_HINT))?;
    let is_one = owners.len() == 1;
    for CertificateOwner { name, hosts } in owners {
        let folder = if is_one { args.out.clone() } else { args.out.join(&name) };
        let wanted = IssueRequest {
            role,
            name,
            hosts,
            days: args.days,
        };
        let (card, files) = authority
            .issue(&wanted, &folder)
            .map_err(|problem| refused(problem, OWNER_HINT))?;
        out::note(&format!(
            "issued a certificate for {}, valid until {}",
            card.name,
            card.valid_until()
        ));
        if is_one {
            let setting = |name: &str, path: &Path| out::line(&format!("{name} = {:?}", path.display().to_string()));
            out::line("[identity]");
            setting("ca", &files.ca);
            setting("certificate", &files.certificate);
            setting("key", &files.key);
        } else {
            out::line(&folder.display().to_string());
        }
    }
    Ok(())
}

fn issue_intermediate(ca: &Path, days: u32, out: &Path) -> Result<(), CliError> {
    let authority = CertificateAuthority::open(ca).map_err(|problem| refused(problem, OWNER_HINT))?;
    let issued = authority.issue_intermediate(days, out);
    let files = issued.map_err(|problem| refused(problem, OWNER_HINT))?;
    out::note(&format!(
        "issued a certificate for {}, valid until {}; copy both files to the controller, and leave ca.key where it is",
        files.fields.name,
        files.fields.valid_until()
    ));
    out::line("[enrolment]");
    out::line(&format!("ca = {:?}", files.certificate.display().to_string()));
    out::line(&format!("ca_key = {:?}", files.key.display().to_string()));
    Ok(())
}

fn revoke(args: &RevokeArgs) -> Result<(), CliError> {
    let authority = CertificateAuthority::open(&args.ca).map_err(|problem| refused(problem, OWNER_HINT))?;
    let cluster = authority.card().name.cluster();
    let mut revoked: Vec<(CertificateSerial, String)> = Vec::new();
    for path in &args.files {
        for file in certificates(path)? {
            let card = read_certificate(&file)?;
            let name = &card.name;
            let is_own = name.cluster() == cluster && name.role() != PeerRole::Authority;
            if !is_own {
                return Err(CliError::usage(
                    format!("{} is the certificate of {name}", file.display()),
                    format!("name certificates that the authority of cluster {cluster} has issued"),
                ));
            }
            revoked.push((card.serial, name.to_string()));
        }
    }
    let issued = match authority.issued() {
        Ok(issued) => issued,
        Err(problem) if args.role.is_some() => return Err(refused(problem, OWNER_HINT)),
        // A damaged record must not hold up a revocation that does not need it.
        Err(problem) => {
            out::note(&format!("the record of issued certificates is not used: {problem}"));
            Vec::new()
        }
    };
    if let Some(role) = args.role {
        let role = PeerRole::from(role);
        let owner = args.name.as_deref().unwrap_or_default();
        let is_owner = |name: &PeerName| name.role() == role && name.own() == owner;
        let all = issued.iter().filter(|issued| is_owner(&issued.name));
        let before = revoked.len();
        revoked.extend(all.map(|issued| (issued.serial.clone(), issued.name.to_string())));
        if revoked.len() == before {
            return Err(CliError::failure(
                format!("the record of the authority has no certificate of role {role} and name {owner:?}"),
                "name the certificate or its serial number; certificates of older versions are not in the record",
            ));
        }
    }
    for serial in &args.serials {
        let known = issued.iter().find(|issued| issued.serial == *serial);
        let name = known.map_or_else(
            || "an owner that is not in the record".to_owned(),
            |one| one.name.to_string(),
        );
        revoked.push((serial.clone(), name));
    }
    let serials: Vec<CertificateSerial> = revoked.iter().map(|(serial, _)| serial.clone()).collect();
    let list = authority
        .revoke(&serials)
        .map_err(|problem| refused(problem, OWNER_HINT))?;
    for (serial, name) in &revoked {
        out::note(&format!("revoked the certificate {serial} of {name}"));
    }
    out::line(&list.display().to_string());
    out::note(
        "copy this list to the file of identity.crl on every machine; it is read at the next handshake, every hour, or on SIGHUP",
    );
    Ok(())
}

fn read_certificate(file: &Path) -> Result<CertificateFields, CliError> {
    let failed = |what: String| {
        let what = format!("{}: {what}", file.display());
        CliError::failure(what, "expected a certificate created by `rankguard identity issue`")
    };
    let text = rankguard_files::read_text(file, PEM_BYTES)
        .map_err(|problem| failed(format!("cannot read the file: {problem}")))?;
    CertificateFields::of_pem(text.as_bytes()).map_err(failed)
}

/// Returns the certificates at a path: the file, or those of a directory and its folders.
fn certificates(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(|problem| {
        CliError::failure(
            format!("cannot read {}", path.display()),
            "check the permissions of this user",
        )
        .because(problem)
    })?;
    let mut below: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    below.sort();
    let folders = std::iter::once(path.to_owned()).chain(below.into_iter().filter(|path| path.is_dir()));
    // A directory of an authority has only ca.pem; an issued identity has certificate.pem next to ca.pem.
    let in_folder = |folder: PathBuf| {
        let own = [folder.join("certificate.pem"), folder.join("ca.pem")];
        own.into_iter().find(|file| file.is_file())
    };
    let found: Vec<PathBuf> = folders.filter_map(in_folder).collect();
    if found.is_empty() {
        return Err(CliError::failure(
            format!("no certificate.pem in {} or its folders", path.display()),
            "`rankguard identity issue --ca DIR --role ROLE --name NAME --out DIR` creates one",
        ));
    }
    Ok(found)
}

fn show(path: &Path, format: &FormatArgs) -> Result<CommandExit, CliError> {
    let mut cards = Vec::new();
    let mut prints = Vec::new();
    for file in certificates(path)? {
        cards.push(read_certificate(&file)?);
        let print = AuthorityFingerprint::all_of_file(&file)
            .first()
            .map(ToString::to_string);
        prints.push(print.unwrap_or_default());
    }
    let shown: Vec<CertificateView> = cards.iter().map(CertificateView::from).collect();
    listing::print(format.format, &shown, COLUMNS);
    for (shown, print) in shown
        .iter()
        .zip(&prints)
        .filter(|(shown, _)| shown.role == PeerRole::Authority.word())
    {
        out::note(&format!(
            "fingerprint of {} {} (SHA-256): {print}",
            shown.role, shown.cluster
        ));
    }
    for card in cards.iter().filter(|card| card.ends_soon()) {
        out::note(&expiry_note(card));
    }
    Ok(if cards.iter().any(CertificateFields::ends_soon) {
        CommandExit::Finding
    } else {
        CommandExit::Fine
    })
}

/// Returns the end of a certificate's validity, which may be over.
fn expiry_note(card: &CertificateFields) -> String {
    let verb = if card.days_left() < 0.0 { "expired" } else { "expires" };
    format!("the certificate of {} {verb} at {}", card.name, card.valid_until())
}

fn refused(problem: AuthorityError, name_hint: &'static str) -> CliError {
    let hint = match &problem {
        AuthorityError::Name(_) => name_hint,
        AuthorityError::Exists { .. } => "choose another directory, or move the old files",
        AuthorityError::Io { .. } => {
            "`rankguard identity init DIR` creates an authority; `rankguard identity issue --ca DIR --role ROLE --name NAME --out DIR` signs with it"
        }
        AuthorityError::Unusable { .. } => {
            "expected a directory with ca.pem and ca.key, created by `rankguard identity init`"
        }
        AuthorityError::Outlives { .. } => "use fewer --days, or create a new authority and list both in identity.ca",
        AuthorityError::NoIssuers => {
            "create a new authority and list both in identity.ca, or set enrolment.ca and enrolment.ca_key to ca.pem and ca.key"
        }
        AuthorityError::Host { .. } => "write one name or address for each --host, without a port",
        AuthorityError::Library(_) | AuthorityError::Random => {
            "check the installation of this program and /dev/urandom"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_over_has_expired() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut card = CertificateAuthority::create(&dir.path().join("ca"), "c", 1).expect("an authority");
        let note = expiry_note(&card);
        assert!(note.contains(" expires at "), "{note}");
        card.until = card.from;
        let note = expiry_note(&card);
        assert!(note.ends_with(&format!(" expired at {}", card.valid_until())), "{note}");
    }
}
