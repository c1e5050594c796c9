//! Checks of `rankguard config check` beyond the form of the settings: consistency with each other and with this
//! machine.

use std::net::SocketAddr;
use std::path::Path;

use rankguard_identity::PeerRole;
use rankguard_model::NodeId;

use super::mistake::{ConfigMistake, ConfigMistakes, ValueOrigin};
use super::{ResolvedConfig, SettingValue};

/// Minimum number of heartbeats within the silence limit of a node.
const HEARTBEATS: u64 = 3;
/// Maximum length of a node name, as in certificates.
const NAME_MAX: usize = 128;

impl ResolvedConfig {
    /// Checks a deployment: identity, addresses, waits, files and programs; returns every mistake.
    pub(crate) fn check_deployment(&self) -> Result<(), ConfigMistakes> {
        let mut mistakes = match self.check_identity() {
            Ok(()) => self.wrong_node().into_iter().collect(),
            Err(ConfigMistakes(mistakes)) => mistakes,
        };
        mistakes.extend(self.impossible_node_name());
        mistakes.extend(self.rare_heartbeat());
        mistakes.extend(self.open_addresses());
        mistakes.extend(self.missing_files());
        mistakes.extend(self.missing_programs());
        if mistakes.is_empty() {
            return Ok(());
        }
        mistakes.sort();
        Err(ConfigMistakes(mistakes))
    }

    fn origin(&self, setting: &str) -> Option<&ValueOrigin> {
        self.values.get(setting).map(|(_, at)| at)
    }

    /// Returns the origin of a setting unless it has its default.
    fn set(&self, setting: &str) -> Option<&ValueOrigin> {
        self.origin(setting).filter(|at| **at != ValueOrigin::Default)
    }

    /// Checks that the certificate belongs to `agent.node`; the controller would reject this agent otherwise.
    fn wrong_node(&self) -> Option<ConfigMistake> {
        let at = self.set("agent.node")?;
        let network = self.network();
        let card = network.identity()?.card().ok()?;
        let node = NodeId::from(self.text("agent.node"));
        let is_agent = card.name.role() == PeerRole::Agent;
        (is_agent && !card.name.is_agent_of(&node)).then(|| ConfigMistake {
            at: self.set("identity.certificate").unwrap_or(at).clone(),
            what: format!(
                "identity.certificate: it is that of {}, and agent.node is {node}; issue one with `rankguard identity issue --role \
                 agent --name {node}`",
                card.name.short()
            ),
        })
    }

    fn impossible_node_name(&self) -> Option<ConfigMistake> {
        let name = self.text("agent.node");
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let is_fine = (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain);
        (!is_fine).then(|| ConfigMistake {
            at: self.origin("agent.node").cloned().unwrap_or(ValueOrigin::Default),
            what: format!(
                "agent.node: {name:?} is no name of a node; want 1 to {NAME_MAX} letters, digits, `.`, `_` or `-`"
            ),
        })
    }

    /// Checks the heartbeat interval: a node with rarer heartbeats counts as lost while it is healthy.
    fn rare_heartbeat(&self) -> Option<ConfigMistake> {
        let heartbeat = "agent.intervals.heartbeat_ms";
        let silence = "controller.silence_limit_ms";
        let beat = self.count(heartbeat);
        let limit = self.count(silence);
        if limit >= beat.saturating_mul(HEARTBEATS) {
            return None;
        }
        let at = self.set(heartbeat).or_else(|| self.set(silence))?;
        Some(ConfigMistake {
            at: at.clone(),
            what: format!(
                "{silence} is {limit}, less than {HEARTBEATS} times {heartbeat} ({beat}): healthy nodes would count as lost; set \
                 a shorter heartbeat or a longer limit"
            ),
        })
    }

    /// Checks listen addresses beyond loopback without an identity: the processes would not start.
    fn open_addresses(&self) -> Vec<ConfigMistake> {
        if self.network().identity().is_some() {
            return Vec::new();
        }
        let is_open = |setting: &str| {
            let address = self.text(setting).parse::<SocketAddr>();
            address.is_ok_and(|address| !address.ip().to_canonical().is_loopback())
        };
        let settings = ["controller.listen", "agent.peer_listen"];
        let open = settings.into_iter().filter(|setting| is_open(setting));
        open.filter_map(|setting| {
            Some(ConfigMistake {
                at: self.set(setting)?.clone(),
                what: format!(
                    "{setting}: {} can be reached by others, and there is no identity; set identity.ca, identity.certificate and \
                     identity.key (`rankguard identity`)",
                    self.text(setting)
                ),
            })
        })
        .collect()
    }

    fn missing_files(&self) -> Vec<ConfigMistake> {
        let mut missing = Vec::new();
        for setting in ["agent.catalogue", "controller.catalogue"] {
            for file in self.paths(setting).into_iter().filter(|file| !file.exists()) {
                missing.extend(self.absent(setting, &file));
            }
        }
        let kernel_log = self.text("agent.kernel_log");
        if kernel_log != "off" && !Path::new(&kernel_log).exists() {
            missing.extend(self.absent("agent.kernel_log", Path::new(&kernel_log)));
        }
        missing
    }

    /// Reports a missing file only for an explicit setting; the running agent reports a missing default.
    fn absent(&self, setting: &str, file: &Path) -> Option<ConfigMistake> {
        let at = self.set(setting)?.clone();
        let what = format!("{setting}: there is no {}", file.display());
        Some(ConfigMistake { at, what })
    }

    /// Returns a mistake for each plug-in check with a missing program.
    fn missing_programs(&self) -> Vec<ConfigMistake> {
        let Some((SettingValue::Checks(checks), at)) = self.values.get("agent.checks") else {
            return Vec::new();
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_found = |program: &str| {
            let below = |dir: std::path::PathBuf| is_program(&dir.join(program));
            is_program(Path::new(program)) && program.contains('/')
                || !program.contains('/') && std::env::split_paths(&path).any(below)
        };
        let missing = checks.iter().filter_map(|check| {
            let program = check.command.first()?;
            (!is_found(program)).then(|| ConfigMistake {
                at: at.clone(),
                what: format!("agent.checks: check {}: there is no program {program}", check.name),
            })
        });
        missing.collect()
    }
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let meta = std::fs::metadata(file);
    meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rankguard_identity::{CertificateAuthority, IssueRequest};

    use super::*;

    #[test]
    fn every_mistake_of_a_deployment_is_reported_at_its_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("c.toml");
        fs::write(
            &file,
            "[agent]\nnode = 'a b'\nkernel_log = '/nowhere/kmsg'\ncatalogue = ['/nowhere/own.toml']\npeer_listen = '0.0.0.0:7702'\n\
             [agent.intervals]\nheartbeat_ms = 4000\n[controller]\nsilence_limit_ms = 3000\nlisten = '0.0.0.0:7700'\n\
             [[agent.checks]]\nname = 'one'\ncommand = ['no-such-program-1']\nclass = 'clock-skew'\n\
             [[agent.checks]]\nname = 'two'\ncommand = ['/no/such/program-2']\nclass = 'clock-skew'\n",
        )
        .expect("written");
        let config = ResolvedConfig::load(Some(&file), [], &[]).expect("its form is fine");
        let found = config.check_deployment().expect_err("many mistakes").to_string();
        for part in [
            "c.toml:2: agent.node",
            "c.toml:3: agent.kernel_log: there is no /nowhere/kmsg",
            "c.toml:4: agent.catalogue: there is no /nowhere/own.toml",
            "c.toml:5: agent.peer_listen: 0.0.0.0:7702 can be reached by others",
            "c.toml:7: controller.silence_limit_ms is 3000, less than 3 times",
            "c.toml:10: controller.listen",
            "check one: there is no program no-such-program-1",
            "check two: there is no program /no/such/program-2",
        ] {
            assert!(found.contains(part), "{part:?} is not in:\n{found}");
        }
        let defaults = ResolvedConfig::load(None, [], &[]).expect("fine");
        defaults.check_deployment().expect("the defaults are fine everywhere");
    }

    #[test]
    fn a_certificate_of_another_node_is_a_mistake() {
        let dir = tempfile::tempdir().expect("a folder");
        CertificateAuthority::create(&dir.path().join("ca"), "c", 10).expect("an authority");
        let authority = CertificateAuthority::open(&dir.path().join("ca")).expect("it was just made");
        let wanted = IssueRequest {
            role: PeerRole::Agent,
            name: "n1".to_owned(),
            hosts: Vec::new(),
            days: 5,
        };
        let (_, files) = authority.issue(&wanted, &dir.path().join("n1")).expect("issued");
        let check = |node: &str| {
            let file = dir.path().join("c.toml");
            let text = format!(
                "[agent]\nnode = '{node}'\n[identity]\nca = '{}'\ncertificate = '{}'\nkey = '{}'\n",
                files.ca.display(),
                files.certificate.display(),
                files.key.display()
            );
            fs::write(&file, text).expect("written");
            ResolvedConfig::load(Some(&file), [], &[])
                .expect("its form is fine")
                .check_deployment()
        };
        check("n1").expect("its own");
        let found = check("n2").expect_err("another node's").to_string();
        assert!(
            found.contains("c.toml:5: identity.certificate: it is that of agent n1"),
            "{found}"
        );
    }
}
