//! Checks of `rankguard config check` beyond the form of the settings: consistency with each other and with this
//! machine.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use rankguard_faults::CatalogueFile;
use rankguard_identity::PeerRole;
use rankguard_model::{NodeId, with_causes};

use super::mistake::{ConfigMistake, ConfigMistakes, ValueOrigin};
use super::{ResolvedConfig, SettingValue};

/// Minimum number of heartbeats within the silence limit of a node.
const HEARTBEATS: u64 = 3;
/// Maximum length of a node name, as in certificates.
const NAME_MAX: usize = 128;
/// Settings with listen addresses.
const LISTENERS: [&str; 6] = [
    "controller.listen",
    "controller.http_listen",
    "controller.metrics_listen",
    "controller.torchft_listen",
    "agent.peer_listen",
    "agent.metrics_listen",
];
/// Settings with one file or folder that must exist.
const SINGLE_PATHS: [&str; 5] = [
    "agent.nvml_library",
    "agent.otlp_ca",
    "agent.otlp_headers",
    "agent.proc_root",
    "agent.sysfs_root",
];

/// Settings with catalogue files.
const CATALOGUES: [&str; 2] = ["agent.catalogue", "controller.catalogue"];
/// Settings with the state directories of the processes.
const STATE_DIRS: [&str; 2] = ["agent.state_dir", "controller.state_dir"];

impl ResolvedConfig {
    /// Checks a deployment: identity, addresses, waits, files and programs; returns every mistake.
    pub(crate) fn check_deployment(&self) -> Result<(), ConfigMistakes> {
        let mut mistakes = match self.check_identity() {
            Ok(()) => self.wrong_node().into_iter().collect(),
            Err(ConfigMistakes(mistakes)) => mistakes,
        };
        mistakes.extend(self.unusable_issuer());
        mistakes.extend(self.impossible_node_name());
        mistakes.extend(self.rare_heartbeat());
        mistakes.extend(self.open_addresses());
        mistakes.extend(self.open_lighthouse());
        mistakes.extend(self.exposed_controllers());
        mistakes.extend(self.shared_addresses());
        mistakes.extend(self.unknown_users());
        mistakes.extend(self.missing_files());
        mistakes.extend(self.inverted_delays());
        mistakes.extend(self.broken_catalogues());
        mistakes.extend(self.impossible_folders());
        mistakes.extend(self.missing_programs());
        mistakes.extend(self.unreadable_receivers());
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
        let at = self.origin("agent.node")?;
        let network = self.network();
        let card = network.identity()?.card().ok()?;
        let node = NodeId::from(self.text("agent.node"));
        let is_agent = card.name.role() == PeerRole::Agent;
        (is_agent && !card.name.is_agent_of(&node)).then(|| ConfigMistake {
            at: self.set("identity.certificate").unwrap_or(at).clone(),
            what: if self.set("agent.node").is_some() {
                format!(
                    "identity.certificate: the certificate belongs to {}, but agent.node is {node}; issue one with `rankguard \
                     identity issue --ca DIR --role agent --name {node} --out DIR`",
                    card.name.short()
                )
            } else {
                format!(
                    "identity.certificate: the certificate belongs to {}, but agent.node is not set and defaults to the host \
                     name {node}; set agent.node to the name in the certificate",
                    card.name.short()
                )
            },
        })
    }

    /// Checks that no delay has a minimum above its maximum.
    fn inverted_delays(&self) -> Option<ConfigMistake> {
        let min = "agent.intervals.reconnect_min_ms";
        let max = "agent.intervals.reconnect_max_ms";
        let shortest = self.count(min);
        let longest = self.count(max);
        if shortest <= longest {
            return None;
        }
        let at = self.set(min).or_else(|| self.set(max))?;
        Some(ConfigMistake {
            at: at.clone(),
            what: format!(
                "{min} is {shortest}, more than {max} ({longest}); set a longer maximum or a shorter minimum"
            ),
        })
    }

    /// Checks that the catalogue files can be used: the processes would not start. Missing files are reported by
    /// [`Self::missing_files`].
    fn broken_catalogues(&self) -> Vec<ConfigMistake> {
        let check = |setting: &str| {
            let at = self.set(setting)?.clone();
            let mut files = self.paths(setting);
            files.retain(|file| file.exists());
            let problem = CatalogueFile::read(&files, |path| std::fs::read_to_string(path)).err()?;
            let what = format!("{setting}: {}", with_causes(&problem));
            Some(ConfigMistake { at, what })
        };
        CATALOGUES.into_iter().filter_map(check).collect()
    }

    /// Checks that the state directories can be created. A lack of permission is no mistake: the processes may run as
    /// another user.
    fn impossible_folders(&self) -> Vec<ConfigMistake> {
        let check = |setting: &str| {
            let at = self.set(setting)?.clone();
            let folder = PathBuf::from(self.text(setting));
            let problem = try_create(&folder).err()?;
            let is_other_user = problem.kind() == std::io::ErrorKind::PermissionDenied;
            (!is_other_user).then(|| ConfigMistake {
                at,
                what: format!("{setting}: cannot create {}: {problem}", folder.display()),
            })
        };
        STATE_DIRS.into_iter().filter_map(check).collect()
    }

    fn impossible_node_name(&self) -> Option<ConfigMistake> {
        let name = self.text("agent.node");
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let is_fine = (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain);
        (!is_fine).then(|| ConfigMistake {
            at: self.origin("agent.node").cloned().unwrap_or(ValueOrigin::Default),
            what: format!(
                "agent.node: {name:?} is not a node name; expected 1 to {NAME_MAX} letters, digits, `.`, `_` or `-`"
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
        if self.has_identity_setting() {
            return Vec::new();
        }
        let is_open = |setting: &str| {
            let address = self.text(setting).parse::<SocketAddr>();
            address.is_ok_and(|address| !address.ip().to_canonical().is_loopback())
        };
        let settings = ["controller.listen", "controller.http_listen", "agent.peer_listen"];
        let open = settings.into_iter().filter(|setting| is_open(setting));
        open.filter_map(|setting| {
            Some(ConfigMistake {
                at: self.set(setting)?.clone(),
                what: format!(
                    "{setting}: {} is reachable from other machines, which requires an identity; set identity.ca, \
                     identity.certificate and identity.key (`rankguard identity issue`)",
                    self.text(setting)
                ),
            })
        })
        .collect()
    }

    /// Checks that the lighthouse for torchft, which has no authentication, does not listen on every address.
    fn open_lighthouse(&self) -> Option<ConfigMistake> {
        let setting = "controller.torchft_listen";
        let address = self.text(setting).parse::<SocketAddr>().ok()?;
        address.ip().is_unspecified().then_some(())?;
        Some(ConfigMistake {
            at: self.set(setting)?.clone(),
            what: format!(
                "{setting}: {address} is every address of this machine, and torchft has neither TLS nor authentication; set the \
                 address that the hosts of the job reach"
            ),
        })
    }

    /// True if any file of an identity is set. An incomplete identity is a mistake of its own.
    fn has_identity_setting(&self) -> bool {
        ["identity.ca", "identity.certificate", "identity.key", "identity.crl"]
            .into_iter()
            .any(|setting| self.set(setting).is_some())
    }

    /// Checks controller addresses beyond loopback without an identity: agent and commands refuse to connect.
    fn exposed_controllers(&self) -> Vec<ConfigMistake> {
        if self.has_identity_setting() {
            return Vec::new();
        }
        let exposed = |setting: &str| {
            let at = self.set(setting)?.clone();
            let address = self.text(setting);
            is_exposed(&address).then(|| ConfigMistake {
                at,
                what: format!(
                    "{setting}: {address} is not a loopback address, and connections to it require an identity; set \
                     identity.ca, identity.certificate and identity.key (`rankguard identity issue`)"
                ),
            })
        };
        ["agent.controller", "client.controller"]
            .into_iter()
            .filter_map(exposed)
            .collect()
    }

    /// Checks that no two listeners have one address: the second would not start.
    fn shared_addresses(&self) -> Vec<ConfigMistake> {
        let mut mistakes = Vec::new();
        for (index, setting) in LISTENERS.into_iter().enumerate() {
            for other in LISTENERS.into_iter().skip(index + 1) {
                mistakes.extend(self.shared_address(setting, other));
            }
        }
        mistakes
    }

    fn shared_address(&self, one: &str, other: &str) -> Option<ConfigMistake> {
        let process = |setting: &str| setting.split('.').next().map(str::to_owned);
        // Defaults of the other process may be unused on this machine.
        let is_relevant = |setting: &str| self.set(setting).is_some() || process(one) == process(other);
        if !is_relevant(one) || !is_relevant(other) {
            return None;
        }
        let at = self.set(other).or_else(|| self.set(one))?;
        let first = self.text(one).parse::<SocketAddr>().ok()?;
        let second = self.text(other).parse::<SocketAddr>().ok()?;
        let is_same_host = first.ip() == second.ip() || first.ip().is_unspecified() || second.ip().is_unspecified();
        let is_shared = is_same_host && first.port() == second.port() && first.port() != 0;
        is_shared.then(|| ConfigMistake {
            at: at.clone(),
            what: format!("{other}: {second} is already used by {one} ({first}); choose another port"),
        })
    }

    /// Checks that the users of ranks exist on this machine: their ranks would not start.
    fn unknown_users(&self) -> Vec<ConfigMistake> {
        let mut named: Vec<(&str, String)> = Vec::new();
        named.extend(
            self.value("agent.rank_user")
                .map(|user| ("agent.rank_user", user.show())),
        );
        if let Some(SettingValue::List(users)) = self.value("agent.job_users") {
            let exact = users.iter().filter(|user| !user.ends_with('*'));
            named.extend(exact.map(|user| ("agent.job_users", user.clone())));
        }
        let mistake = |(setting, user): (&str, String)| {
            let problem = rankguard_agent::check_rank_user(&user).err()?;
            Some(ConfigMistake {
                at: self.set(setting)?.clone(),
                what: format!("{setting}: {problem}"),
            })
        };
        named.into_iter().filter_map(mistake).collect()
    }

    fn missing_files(&self) -> Vec<ConfigMistake> {
        let mut missing = Vec::new();
        for setting in CATALOGUES {
            for file in self.paths(setting).into_iter().filter(|file| !file.exists()) {
                missing.extend(self.absent(setting, &file));
            }
        }
        for setting in SINGLE_PATHS {
            let path = self.value(setting).map(|path| PathBuf::from(path.show()));
            // A name without a folder is searched by the system's loader.
            let absent = path.filter(|path| path.to_string_lossy().contains('/') && !path.exists());
            missing.extend(absent.and_then(|path| self.absent(setting, &path)));
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
        let what = format!("{setting}: {} does not exist", file.display());
        Some(ConfigMistake { at, what })
    }

    /// Checks that secrets and authorities of the receivers can be read.
    pub(crate) fn check_receivers(&self) -> Result<(), ConfigMistakes> {
        let mistakes = self.unreadable_receivers();
        if mistakes.is_empty() {
            Ok(())
        } else {
            Err(ConfigMistakes(mistakes))
        }
    }

    /// Returns a mistake for each secret or authority of a receiver that cannot be read.
    fn unreadable_receivers(&self) -> Vec<ConfigMistake> {
        let Some((SettingValue::Receivers(receivers), at)) = self.values.get("controller.notify") else {
            return Vec::new();
        };
        let found = super::receivers::unreadable(receivers).into_iter();
        found.map(|what| ConfigMistake { at: at.clone(), what }).collect()
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
                what: format!(
                    "agent.checks: check {}: the program {program} does not exist",
                    check.name
                ),
            })
        });
        missing.collect()
    }
}

/// Tries whether a folder can be created: creates and removes an empty folder in its nearest existing ancestor. Some
/// file systems refuse new folders to every user, and no attribute of them shows it.
fn try_create(folder: &Path) -> std::io::Result<()> {
    let folder = std::path::absolute(folder)?;
    let existing = folder.ancestors().find(|path| path.symlink_metadata().is_ok());
    let existing = existing.unwrap_or(Path::new("/"));
    if !std::fs::metadata(existing)?.is_dir() {
        let what = format!("{} is not a directory", existing.display());
        return Err(std::io::Error::new(std::io::ErrorKind::NotADirectory, what));
    }
    let probe = existing.join(format!(".rankguard-check-{}", std::process::id()));
    std::fs::create_dir(&probe)?;
    std::fs::remove_dir(&probe)
}

/// True if a controller address leads to another machine. A name that cannot be resolved now is not judged.
fn is_exposed(address: &str) -> bool {
    let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    match address.to_socket_addrs() {
        Ok(addresses) => {
            let addresses: Vec<SocketAddr> = addresses.collect();
            !addresses.is_empty() && !addresses.iter().any(|address| is_loopback(address.ip()))
        }
        Err(_) => false,
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
            "c.toml:3: agent.kernel_log: /nowhere/kmsg does not exist",
            "c.toml:4: agent.catalogue: /nowhere/own.toml does not exist",
            "c.toml:5: agent.peer_listen: 0.0.0.0:7702 is reachable from other machines",
            "c.toml:7: controller.silence_limit_ms is 3000, less than 3 times",
            "c.toml:10: controller.listen",
            "check one: the program no-such-program-1 does not exist",
            "check two: the program /no/such/program-2 does not exist",
        ] {
            assert!(found.contains(part), "{part:?} is not in:\n{found}");
        }
        let defaults = ResolvedConfig::load(None, [], &[]).expect("fine");
        defaults.check_deployment().expect("the defaults are fine everywhere");
    }

    /// Finding 9 of the first operator: each of these was called fine.
    #[test]
    fn addresses_and_users_that_stop_a_process_are_mistakes() {
        let dir = tempfile::tempdir().expect("a folder");
        let check = |text: &str, expect: &str| {
            let file = dir.path().join("c.toml");
            fs::write(&file, text).expect("written");
            let config = ResolvedConfig::load(Some(&file), [], &[]).expect("its form is fine");
            let found = config.check_deployment().err().map(|found| found.to_string());
            match found {
                Some(found) => assert!(!expect.is_empty() && found.contains(expect), "{text}: {found}"),
                None => assert_eq!(expect, "", "{text}"),
            }
        };
        check(
            "[agent]\ncontroller = '10.0.0.1:7700'\n",
            "c.toml:2: agent.controller: 10.0.0.1:7700 is not a loopback address",
        );
        check(
            "[agent]\ncontroller = '127.0.0.1:7700'\n[client]\ncontroller = '[::1]:7700'\n",
            "",
        );
        check(
            "[controller]\nlisten = '127.0.0.1:7799'\nmetrics_listen = '127.0.0.1:7799'\n",
            "c.toml:3: controller.metrics_listen: 127.0.0.1:7799 is already used by controller.listen",
        );
        check(
            "[controller]\nmetrics_listen = '127.0.0.1:7700'\n",
            "already used by controller.listen",
        );
        check(
            "[controller]\nlisten = '127.0.0.1:0'\nmetrics_listen = '127.0.0.1:0'\n",
            "",
        );
        check("[agent]\nmetrics_listen = '127.0.0.1:7700'\n", "");
        check(
            "[controller]\nhttp_listen = '127.0.0.1:7700'\n",
            "c.toml:2: controller.http_listen: 127.0.0.1:7700 is already used by controller.listen",
        );
        check(
            "[controller]\nhttp_listen = '0.0.0.0:7701'\n",
            "c.toml:2: controller.http_listen: 0.0.0.0:7701 is reachable from other machines, which requires an identity",
        );
        check(
            "[controller]\ntorchft_listen = '127.0.0.1:7700'\n",
            "c.toml:2: controller.torchft_listen: 127.0.0.1:7700 is already used by controller.listen",
        );
        check(
            "[controller]\ntorchft_listen = '0.0.0.0:29510'\n",
            "c.toml:2: controller.torchft_listen: 0.0.0.0:29510 is every address of this machine",
        );
        check("[controller]\ntorchft_listen = '10.0.0.1:29510'\n", "");
        check(
            "[agent]\nrank_user = 'no-such-user-here'\n",
            "c.toml:2: agent.rank_user: ",
        );
        check(
            "[agent]\njob_users = ['nobody', 'no-such-user-here', 'train-*']\n",
            "no-such-user-here",
        );
        check(
            "[agent]\nnvml_library = '/no/lib.so'\n",
            "agent.nvml_library: /no/lib.so does not exist",
        );
        check("[agent]\nnvml_library = 'libnvidia-ml.so.1'\n", "");
        check(
            "[agent.intervals]\nreconnect_min_ms = 5000\nreconnect_max_ms = 1000\n",
            "c.toml:2: agent.intervals.reconnect_min_ms is 5000, more than agent.intervals.reconnect_max_ms (1000)",
        );
        check(
            "[agent]\nstate_dir = '/proc/x'\n[controller]\nstate_dir = '/dev/null/x'\n",
            "c.toml:2: agent.state_dir: cannot create /proc/x",
        );
        check(
            "[controller]\nstate_dir = '/dev/null/x'\n",
            "/dev/null is not a directory",
        );
        let broken = dir.path().join("own.toml");
        fs::write(&broken, "[[signature]]\nclass = 'no-such-class'\n").expect("written");
        for process in ["agent", "controller"] {
            check(
                &format!("[{process}]\ncatalogue = ['{}']\n", broken.display()),
                &format!("c.toml:2: {process}.catalogue: "),
            );
        }
        let fine = dir.path().join("state").join("deep");
        check(&format!("[agent]\nstate_dir = '{}'\n", fine.display()), "");
        assert!(!dir.path().join("state").exists(), "the check creates nothing");
    }

    #[test]
    fn a_mistake_of_form_does_not_hide_one_of_the_deployment() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("c.toml");
        fs::write(&file, "[agent]\nnode = 'a b/c'\nslots = 0\n").expect("written");
        let (config, mistakes) = ResolvedConfig::read(Some(&file), [], &[]);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        let found = config.check_deployment().expect_err("the name").to_string();
        assert!(found.contains("agent.node: \"a b/c\" is not a node name"), "{found}");
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
        let file = dir.path().join("c.toml");
        let text = fs::read_to_string(&file).expect("written").replace("node = 'n1'", "");
        fs::write(&file, text).expect("written");
        let unnamed = ResolvedConfig::load(Some(&file), [], &[]).expect("its form is fine");
        let found = unnamed.check_deployment().expect_err("no name is set").to_string();
        assert!(
            found.contains(
                "c.toml:5: identity.certificate: the certificate belongs to agent n1, but agent.node is not set"
            ),
            "{found}"
        );
        let found = check("n2").expect_err("another node's").to_string();
        assert!(
            found.contains("c.toml:5: identity.certificate: the certificate belongs to agent n1"),
            "{found}"
        );
    }
}
