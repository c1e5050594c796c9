//! Private certificate authority of a cluster: creates itself, and signs certificates.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::certificate::CertificateFields;
use crate::files::IdentityFiles;
use crate::issuer::{SigningPair, ValidityPeriod};
use crate::name::{NameError, PeerName, PeerRole};
use crate::revocation::{self, CertificateSerial};

/// Files of the authority in its directory.
const CA_CERTIFICATE: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
/// Revocation list of the authority: its entries are what has been revoked.
const CA_CRL: &str = "crl.pem";
/// Record of the issued certificates: serial number, name and end of validity, one a line.
const CA_ISSUED: &str = "issued.txt";
/// File that a process holds locked while it replaces the revocation list.
const CA_CRL_LOCK: &str = "crl.lock";
/// Longest wait for that lock.
const LOCK_DEADLINE: Duration = Duration::from_secs(30);
/// Interval between two attempts to take it.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// Files of an issuer in the directory that it was issued into.
const ISSUER_CERTIFICATE: &str = "issuer.pem";
const ISSUER_KEY: &str = "issuer.key";
/// Files of an identity in the directory that it was issued into.
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";
/// Latest expiry that every reader of certificates accepts, in Unix seconds: the end of 9999.
const FOREVER: i64 = 253_402_300_799;

/// Request to issue a certificate.
#[derive(Debug, Clone)]
pub struct IssueRequest {
    /// Role of the certificate's owner.
    pub role: PeerRole,
    /// Name of the owner; empty for a controller.
    pub name: String,
    /// Host names and addresses of the owner.
    pub hosts: Vec<String>,
    /// Validity in days.
    pub days: u32,
}

/// Failure to create an authority or to issue a certificate.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum AuthorityError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{} exists already and is not overwritten", path.display())]
    Exists { path: PathBuf },
    #[error("cannot {what} {}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} {why}", path.display())]
    Unusable { path: PathBuf, why: String },
    #[error("the authority itself is valid for {left:.0} more days, and {days} were asked for")]
    Outlives { days: u32, left: f64 },
    #[error("{host:?} is neither an address nor a host name")]
    Host { host: String },
    #[error("the authority was created by an earlier version and permits no issuer below it")]
    NoIssuers,
    #[error("the library of certificates refuses: {0}")]
    Library(#[from] rcgen::Error),
    #[error("the system gives no random numbers")]
    Random,
}

/// Issuer that an authority has created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerFiles {
    /// Contents of its certificate.
    pub fields: CertificateFields,
    /// Path of its certificate (PEM).
    pub certificate: PathBuf,
    /// Path of its key (PEM).
    pub key: PathBuf,
}

/// Certificate that an authority has issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    pub serial: CertificateSerial,
    /// Name of its owner.
    pub name: PeerName,
}

/// Certificate authority: its directory holds its certificate, its signing key, the record of issued certificates and the
/// revocation list.
#[derive(Debug)]
pub struct CertificateAuthority {
    dir: PathBuf,
    card: CertificateFields,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Maximum bytes of a certificate, a key and a revocation list.
pub(crate) const KEY_BYTES: u64 = 1 << 20;

impl CertificateAuthority {
    /// Creates an authority for a cluster, in a directory that only its owner can enter.
    pub fn create(dir: &Path, cluster: &str, days: u32) -> Result<CertificateFields, AuthorityError> {
        let name = PeerName::new(cluster, PeerRole::Authority, "")?;
        let mut params = params(&name, &[], ValidityPeriod::days(days))?;
        // One issuer below it may sign the certificates of agents.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        make(dir)?;
        close(dir)?;
        let files = [dir.join(CA_KEY), dir.join(CA_CERTIFICATE)];
        nothing_at(&files)?;
        write(&files[0], key.serialize_pem().as_bytes(), 0o600)?;
        write(&files[1], certificate.pem().as_bytes(), 0o644)?;
        read_back(certificate.pem().as_bytes(), &files[1])
    }

    /// Opens the authority of a directory.
    pub fn open(dir: &Path) -> Result<Self, AuthorityError> {
        let pair = SigningPair::read(&dir.join(CA_CERTIFICATE), &dir.join(CA_KEY), &[PeerRole::Authority])?;
        Ok(Self {
            dir: dir.to_owned(),
            card: pair.card,
            certificate: pair.certificate,
            issuer: pair.issuer,
        })
    }

    /// Returns the contents of the authority's certificate.
    pub fn card(&self) -> &CertificateFields {
        &self.card
    }

    /// Creates a key, signs a certificate for it, and writes both with the authority's certificate to a directory.
    pub fn issue(
        &self,
        wanted: &IssueRequest,
        out: &Path,
    ) -> Result<(CertificateFields, IdentityFiles), AuthorityError> {
        let name = PeerName::new(self.card.name.cluster(), wanted.role, &wanted.name)?;
        let left = self.card.days_left();
        if f64::from(wanted.days) > left {
            let days = wanted.days;
            return Err(AuthorityError::Outlives { days, left });
        }
        self.issue_for(&name, &wanted.hosts, ValidityPeriod::days(wanted.days), out)
    }

    /// Creates a key, signs a certificate of this validity for it, and writes both as [`issue`](Self::issue) does.
    pub fn issue_for(
        &self,
        name: &PeerName,
        hosts: &[String],
        validity: ValidityPeriod,
        out: &Path,
    ) -> Result<(CertificateFields, IdentityFiles), AuthorityError> {
        let params = peer_params(name, hosts, validity)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        make(out)?;
        let files = IdentityFiles {
            ca: out.join(CA_CERTIFICATE),
            certificate: out.join(CERTIFICATE),
            key: out.join(KEY),
            crl: None,
        };
        nothing_at(&[files.ca.clone(), files.certificate.clone(), files.key.clone()])?;
        write(&files.key, key.serialize_pem().as_bytes(), 0o600)?;
        write(&files.certificate, certificate.as_bytes(), 0o644)?;
        write(&files.ca, self.certificate.as_bytes(), 0o644)?;
        let card = read_back(certificate.as_bytes(), &files.certificate)?;
        self.record(&card)?;
        Ok((card, files))
    }

    /// Creates the key and the certificate of an issuer, which signs certificates of agents for a controller, and writes
    /// `issuer.pem` and `issuer.key` to a directory.
    pub fn issue_intermediate(&self, days: u32, out: &Path) -> Result<IssuerFiles, AuthorityError> {
        if !permits_issuers(self.certificate.as_bytes()) {
            return Err(AuthorityError::NoIssuers);
        }
        let left = self.card.days_left();
        if f64::from(days) > left {
            return Err(AuthorityError::Outlives { days, left });
        }
        let name = PeerName::new(self.card.name.cluster(), PeerRole::Issuer, "")?;
        let mut params = params(&name, &[], ValidityPeriod::days(days))?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        make(out)?;
        let (certificate_path, key_path) = (out.join(ISSUER_CERTIFICATE), out.join(ISSUER_KEY));
        nothing_at(&[certificate_path.clone(), key_path.clone()])?;
        write(&key_path, key.serialize_pem().as_bytes(), 0o600)?;
        write(&certificate_path, certificate.as_bytes(), 0o644)?;
        let fields = read_back(certificate.as_bytes(), &certificate_path)?;
        self.record(&fields)?;
        Ok(IssuerFiles {
            fields,
            certificate: certificate_path,
            key: key_path,
        })
    }

    /// Appends a certificate to the record of those issued.
    fn record(&self, card: &CertificateFields) -> Result<(), AuthorityError> {
        let path = self.dir.join(CA_ISSUED);
        let written = || {
            let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
            let line = format!("{} {} {}\n", card.serial, card.name, card.valid_until());
            file.write_all(line.as_bytes())?;
            file.sync_all()
        };
        written().map_err(|source| io_error("write", &path, source))
    }

    /// Returns the issued certificates of the record, oldest first. Authorities of older versions have issued certificates
    /// that are not in it.
    pub fn issued(&self) -> Result<Vec<IssuedCertificate>, AuthorityError> {
        let path = self.dir.join(CA_ISSUED);
        let text = match rankguard_files::read_text(&path, RECORD_BYTES) {
            Ok(text) => text,
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(io_error("read", &path, source)),
        };
        let certificate = |(at, line): (usize, &str)| {
            let mut words = line.split_whitespace();
            let serial = words.next().and_then(|word| word.parse().ok());
            let name = words.next().and_then(|word| word.parse().ok());
            let read = serial
                .zip(name)
                .map(|(serial, name)| IssuedCertificate { serial, name });
            read.ok_or_else(|| AuthorityError::Unusable {
                path: path.clone(),
                why: format!("has no serial number and name in line {}", at + 1),
            })
        };
        text.lines().enumerate().map(certificate).collect()
    }

    /// Adds certificates to the revocation list and signs it again. Returns the path of the list. The list is read and
    /// replaced under a lock, so that two revocations at once lose no entry.
    pub fn revoke(&self, serials: &[CertificateSerial]) -> Result<PathBuf, AuthorityError> {
        let path = self.dir.join(CA_CRL);
        let _lock = self.lock_list()?;
        let now = crate::now();
        let mut revoked = self.revoked()?;
        for serial in serials {
            revoked.entry(serial.clone()).or_insert(now);
        }
        let epoch = date_time_ymd(1970, 1, 1);
        let entry = |(serial, at): (&CertificateSerial, &i64)| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial.bytes()),
            revocation_time: epoch + since_1970(*at),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: epoch + since_1970(now),
            // The list does not end before the authority.
            next_update: epoch + since_1970(self.card.until),
            // Entries are only added, so that each other list has a higher number.
            crl_number: SerialNumber::from(revoked.len() as u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer)?.pem()?;
        let written = rankguard_files::private::replace_file(&path, list.as_bytes(), 0o644);
        written.map_err(|source| io_error("write", &path, source))?;
        Ok(path)
    }

    /// Locks the revocation list against other processes, until the file is dropped.
    fn lock_list(&self) -> Result<File, AuthorityError> {
        let path = self.dir.join(CA_CRL_LOCK);
        let failed = |source| io_error("lock", &path, source);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(failed)?;
        let started = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
                Err(TryLockError::WouldBlock) if started.elapsed() > LOCK_DEADLINE => {
                    let what = "another process has held it for 30 s";
                    return Err(failed(io::Error::new(io::ErrorKind::TimedOut, what)));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
            }
        }
    }

    /// Returns the entries of the revocation list with their Unix times; none without a list.
    pub fn revoked(&self) -> Result<BTreeMap<CertificateSerial, i64>, AuthorityError> {
        let path = self.dir.join(CA_CRL);
        let text = match rankguard_files::read_text(&path, KEY_BYTES) {
            Ok(text) => text,
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(source) => return Err(io_error("read", &path, source)),
        };
        let unusable = |why: String| AuthorityError::Unusable {
            path: path.clone(),
            why,
        };
        let own = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        let own = own.map_err(|problem| unusable(format!("cannot be verified: {problem}")))?;
        revocation::parse_lists(text.as_bytes(), &[own]).map_err(unusable)
    }
}

/// Maximum bytes of the record: 100,000 certificates and more.
const RECORD_BYTES: u64 = 16 << 20;

pub(crate) fn io_error(what: &'static str, path: &Path, source: io::Error) -> AuthorityError {
    AuthorityError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

/// Returns the time from the beginning of 1970 to a Unix time.
fn since_1970(at: i64) -> Duration {
    Duration::from_secs(at.max(0).unsigned_abs())
}

/// Returns the contents of the certificate of a peer.
pub(crate) fn peer_params(
    name: &PeerName,
    hosts: &[String],
    validity: ValidityPeriod,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = params(name, hosts, validity)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if name.role().is_server() {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn params(name: &PeerName, hosts: &[String], validity: ValidityPeriod) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    let epoch = date_time_ymd(1970, 1, 1);
    let until = validity.until.min(FOREVER);
    (params.not_before, params.not_after) = (epoch + since_1970(validity.from), epoch + since_1970(until));
    let mut serial = crate::secret::<16>().ok_or(AuthorityError::Random)?;
    // Positive and of full length, as RFC 5280 requires.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.distinguished_name.push(DnType::OrganizationName, "Rankguard");
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{} {}", name.cluster(), name.short()));
    params.subject_alt_names = vec![SanType::URI(name.to_string().try_into()?)];
    for host in hosts {
        params.subject_alt_names.push(match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host_name(host)?.try_into()?),
        });
    }
    Ok(params)
}

fn host_name(host: &str) -> Result<&str, AuthorityError> {
    let fine = rustls::pki_types::DnsName::try_from(host).is_ok();
    fine.then_some(host).ok_or_else(|| AuthorityError::Host {
        host: host.chars().take(300).collect(),
    })
}

/// Returns true if an authority may have an issuer below it.
fn permits_issuers(pem: &[u8]) -> bool {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let Ok(der) = CertificateDer::from_pem_slice(pem) else {
        return false;
    };
    let Ok((_, read)) = X509Certificate::from_der(&der) else {
        return false;
    };
    let constraints = read.basic_constraints().ok().flatten();
    constraints.is_some_and(|found| found.value.path_len_constraint.is_none_or(|length| length > 0))
}

pub(crate) fn read_back(pem: &[u8], path: &Path) -> Result<CertificateFields, AuthorityError> {
    CertificateFields::of_pem(pem).map_err(|why| AuthorityError::Unusable {
        path: path.to_owned(),
        why,
    })
}

fn make(dir: &Path) -> Result<(), AuthorityError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| AuthorityError::Io {
        what: "create",
        path: dir.to_owned(),
        source,
    })
}

/// Removes the access of others from an authority's directory that existed before.
fn close(dir: &Path) -> Result<(), AuthorityError> {
    rankguard_files::private::create_folder(dir).map_err(|source| AuthorityError::Io {
        what: "close to others",
        path: dir.to_owned(),
        source,
    })
}

/// Checks that none of the files exists, so that a conflict does not leave half of a pair.
fn nothing_at(files: &[PathBuf]) -> Result<(), AuthorityError> {
    match files.iter().find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => Err(AuthorityError::Exists { path: path.clone() }),
        None => Ok(()),
    }
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), AuthorityError> {
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    written().map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => AuthorityError::Exists { path: path.to_owned() },
        _ => AuthorityError::Io {
            what: "write",
            path: path.to_owned(),
            source,
        },
    })
}
