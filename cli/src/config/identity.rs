//! Identity settings: three files and a revocation list, or none.

use std::path::PathBuf;

use rankguard_agent::NodeEnrolment;
use rankguard_identity::{
    AuthorityFingerprint, CertificateFields, CertificateIssuer, IdentityFiles, PeerTransport, TlsIdentity,
};

use super::mistake::{ConfigMistake, ConfigMistakes};
use super::{ResolvedConfig, SettingValue};

const CA: &str = "identity.ca";
const CERTIFICATE: &str = "identity.certificate";
const KEY: &str = "identity.key";
const CRL: &str = "identity.crl";
const JOIN_TOKEN: &str = "identity.join_token_file";
const JOIN_CA: &str = "identity.join_ca_sha256";
/// Files of the controller's issuer.
const ISSUER: [&str; 2] = ["enrolment.ca", "enrolment.ca_key"];

impl ResolvedConfig {
    /// Builds the transport settings. No file is read yet.
    pub(crate) fn network(&self) -> PeerTransport {
        let path = |setting| self.value(setting).map(|value| value.show().into());
        match (path(CA), path(CERTIFICATE), path(KEY)) {
            (Some(ca), Some(certificate), Some(key)) => {
                let crl = path(CRL);
                PeerTransport::with(TlsIdentity::new(IdentityFiles {
                    ca,
                    certificate,
                    key,
                    crl,
                }))
            }
            _ => PeerTransport::loopback(),
        }
    }

    /// Returns a mistake if only some of the three files are set: an incomplete identity is not a choice to run without
    /// one.
    pub(super) fn half_an_identity(&self) -> Option<ConfigMistake> {
        let all = [CA, CERTIFICATE, KEY];
        let first = all
            .iter()
            .chain([&CRL, &JOIN_TOKEN])
            .find_map(|setting| self.values.get(setting))?;
        let missing: Vec<&str> = all
            .into_iter()
            .filter(|setting| self.value(setting).is_none())
            .collect();
        (!missing.is_empty()).then(|| ConfigMistake {
            at: first.1.clone(),
            what: format!(
                "an identity needs identity.ca, identity.certificate and identity.key; not set: {}",
                missing.join(", ")
            ),
        })
    }

    /// Returns a mistake if only one of the issuer's two files is set.
    pub(super) fn half_an_issuer(&self) -> Option<ConfigMistake> {
        let set = ISSUER.iter().find_map(|setting| self.values.get(setting))?;
        let missing = ISSUER.into_iter().find(|setting| self.value(setting).is_none())?;
        Some(ConfigMistake {
            at: set.1.clone(),
            what: format!("enrolment needs enrolment.ca and enrolment.ca_key; not set: {missing}"),
        })
    }

    /// Opens the issuer of the controller; returns its mistake.
    pub(super) fn unusable_issuer(&self) -> Option<ConfigMistake> {
        let path = |setting| self.value(setting).map(|file| PathBuf::from(file.show()));
        let (certificate, key) = (path(ISSUER[0])?, path(ISSUER[1])?);
        let at = self.values.get(ISSUER[0])?.1.clone();
        let Some(ca) = path(CA) else {
            let what =
                "enrolment.ca: enrolment needs an identity: set identity.ca, identity.certificate and identity.key";
            return Some(ConfigMistake {
                at,
                what: what.to_owned(),
            });
        };
        let problem = CertificateIssuer::open(&certificate, &key, &ca).err()?;
        Some(ConfigMistake {
            at,
            what: format!("enrolment.ca: {problem}"),
        })
    }

    /// Returns the request for the first certificate of this node; `None` without a join token, and if the node has a
    /// certificate that is valid.
    pub(crate) fn pending_enrolment(&self) -> Option<NodeEnrolment> {
        let token_file = PathBuf::from(self.value(JOIN_TOKEN)?.show());
        let network = self.network();
        let files = network.identity()?.files().clone();
        let has_valid = std::fs::read(&files.certificate)
            .is_ok_and(|text| CertificateFields::of_pem(&text).is_ok_and(|fields| fields.days_left() > 0.0));
        if has_valid {
            return None;
        }
        let stated = self.value(JOIN_CA).and_then(|text| text.show().parse().ok());
        let authorities = stated.map_or_else(|| AuthorityFingerprint::all_of_file(&files.ca), |print| vec![print]);
        Some(self.node_enrolment(token_file, authorities, files))
    }

    /// Returns the request for a certificate of this node.
    pub(crate) fn node_enrolment(
        &self,
        token_file: PathBuf,
        authorities: Vec<AuthorityFingerprint>,
        files: IdentityFiles,
    ) -> NodeEnrolment {
        NodeEnrolment {
            controller: self.text("agent.controller"),
            node: self.text("agent.node"),
            token_file,
            authorities,
            files,
        }
    }

    /// Returns a warning if the certificate of the identity expires within 14 days; `None` without an identity, and if its
    /// files have mistakes.
    pub(crate) fn expiry_warning(&self) -> Option<String> {
        let network = self.network();
        let card = network.identity()?.card().ok().filter(|card| card.ends_soon())?;
        Some(format!(
            "warning: {CERTIFICATE}: the certificate of {} expires at {}, in {:.1} days; create another one with `rankguard \
             identity issue`",
            card.name.short(),
            card.valid_until(),
            card.days_left()
        ))
    }

    /// Reads the files of the identity; returns every mistake, at the setting of the file.
    pub(crate) fn check_identity(&self) -> Result<(), ConfigMistakes> {
        let network = self.network();
        let Some(identity) = network.identity() else {
            return Ok(());
        };
        if self.pending_enrolment().is_some() {
            // The agent writes the files at its start.
            return Ok(());
        }
        let mistake = |problem: rankguard_identity::IdentityProblem| {
            let is_named = |value: &SettingValue| std::path::Path::new(&value.show()) == problem.file;
            let origin = [CA, CERTIFICATE, KEY, CRL].into_iter().find_map(|setting| {
                let (value, at) = self.values.get(setting)?;
                is_named(value).then(|| (setting, at.clone()))
            });
            let (setting, at) = origin?;
            Some(ConfigMistake {
                at,
                what: format!("{setting}: {problem}"),
            })
        };
        identity
            .card()
            .map(drop)
            .map_err(|problems| ConfigMistakes(problems.0.into_iter().filter_map(mistake).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rankguard_identity::{CertificateAuthority, IssueRequest, PeerRole};

    use super::super::FlagValue;
    use super::*;

    fn config(files: &[(&'static str, &Path)]) -> Result<ResolvedConfig, ConfigMistakes> {
        let flags: Vec<FlagValue> = files
            .iter()
            .filter_map(|(setting, path)| FlagValue::of(setting, setting, Some(path)))
            .collect();
        ResolvedConfig::load(None, [], &flags)
    }

    #[test]
    fn two_files_are_no_identity() {
        let told = config(&[(CA, Path::new("a")), (KEY, Path::new("b"))]).expect_err("one is missing");
        assert!(told.to_string().contains("not set: identity.certificate"), "{told}");
        assert_eq!(config(&[]).expect("none is fine").network(), PeerTransport::loopback());
    }

    #[test]
    fn files_that_do_not_fit_are_told_of_at_their_settings() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        CertificateAuthority::create(&path("ca"), "c", 30).expect("an authority");
        let ca = CertificateAuthority::open(&path("ca")).expect("it was just made");
        let issue = |name: &str| {
            let wanted = IssueRequest {
                role: PeerRole::Operator,
                name: name.to_owned(),
                hosts: Vec::new(),
                days: 5,
            };
            ca.issue(&wanted, &path(name)).expect("issued").1
        };
        let ada = issue("ada");
        let bob = issue("bob");
        let of = |ca: &Path, certificate: &Path, key: &Path| {
            config(&[(CA, ca), (CERTIFICATE, certificate), (KEY, key)])
                .expect("three files")
                .check_identity()
        };
        of(&ada.ca, &ada.certificate, &ada.key).expect("they fit");
        let warning = |certificate: &Path, key: &Path| {
            let files = config(&[(CA, &*ada.ca), (CERTIFICATE, certificate), (KEY, key)]).expect("three files");
            files.expiry_warning()
        };
        let told = warning(&ada.certificate, &ada.key).expect("five days are few");
        assert!(
            told.starts_with("warning: identity.certificate: the certificate of operator ada expires at "),
            "{told}"
        );
        let eve = ca
            .issue(
                &IssueRequest {
                    role: PeerRole::Operator,
                    name: "eve".to_owned(),
                    hosts: Vec::new(),
                    days: 20,
                },
                &path("eve"),
            )
            .expect("issued")
            .1;
        assert_eq!(warning(&eve.certificate, &eve.key), None);
        let told = of(&path("none"), &ada.certificate, &bob.key).expect_err("two mistakes");
        let told = told.to_string();
        for part in [
            "2 mistakes",
            "identity.ca: identity.ca:",
            "is not the key of",
            "identity.key: identity.key:",
        ] {
            assert!(told.contains(part), "{part:?} is not in:\n{told}");
        }
    }
}
