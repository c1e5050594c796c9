//! Conversion between the table of settings and the settings of agent and controller. Defaults are taken from these,
//! never repeated.

use std::path::PathBuf;
use std::time::Duration;

use rankguard_agent::{
    CatalogueHandle, CloudKind, FullArenaPolicy, ImageSettings, KernelLogSource, OtlpProtocol, OtlpSettings,
    RankPeerPolicy, RemovalSettings,
};
use rankguard_controller::{CatalogueFiles, EnrolmentSettings, PreflightMode};
use rankguard_model::NodeId;
use rankguard_notify::AlarmLimits;

use super::ResolvedConfig;
use super::value::SettingValue;

/// Default address of the controller for client commands.
const CLIENT_CONTROLLER: &str = "127.0.0.1:7700";
/// Checkpoint interval: fixed by the job, or adapted by the controller.
const FIXED: &str = "fixed";
const ADAPTIVE: &str = "adaptive";
/// Seconds per day.
const DAY_S: u64 = 86_400;
/// Default validity of the certificates that a controller signs, days.
const CERTIFICATE_DAYS: u64 = 90;
/// Default log filter.
const LOG_FILTER: &str = "info";
/// Scheduled reports that are retained: a year of weeks.
const REPORTS_KEPT: u64 = 53;

impl ResolvedConfig {
    /// Returns the settings of the controller.
    pub(crate) fn controller(&self) -> rankguard_controller::Settings {
        let mut settings = rankguard_controller::Settings::new(self.path("controller.state_dir"));
        if let Ok(listen) = self.text("controller.listen").parse() {
            settings.listen = listen;
        }
        settings.network = self.network();
        settings.silence_limit = self.wait("controller.silence_limit_ms");
        settings.catalogue = CatalogueFiles::new(self.paths("controller.catalogue"));
        settings.metrics_listen = self.value("controller.metrics_listen").map(SettingValue::show);
        settings.http_listen = self.text("controller.http_listen").parse().ok();
        settings.torchft.listen = self.text("controller.torchft_listen").parse().ok();
        settings.torchft.replicas_min =
            u32::try_from(self.count("controller.torchft_min_replicas")).unwrap_or(u32::MAX);
        settings.torchft.join_timeout = self.wait("controller.torchft_join_timeout_ms");
        settings.torchft.heartbeat_timeout = self.wait("controller.torchft_heartbeat_timeout_ms");
        if let Some(SettingValue::Receivers(receivers)) = self.value("controller.notify") {
            settings.notify.receivers.clone_from(receivers);
        }
        settings.enrolment = self.enrolment();
        settings.notify.cluster = self.text("controller.notify_cluster");
        settings.notify.alarms = self.alarms();
        settings.report = self.report();
        settings.journal.max_bytes = self.count("controller.journal.retain_bytes");
        settings.journal.max_age = Duration::from_secs(self.count("controller.journal.retain_days") * DAY_S);
        settings.journal.snapshot_entries = self.count("controller.journal.snapshot_entries");
        settings.policy.prior = self.text("controller.policy.prior");
        settings.policy.adapt = self.text("controller.policy.checkpoint_interval") == ADAPTIVE;
        settings.policy.preflight = match self.text("controller.policy.preflight").as_str() {
            "warn" => PreflightMode::Warn,
            "require" => PreflightMode::Require,
            _ => PreflightMode::Off,
        };
        settings.policy.preflight_between =
            self.value("controller.policy.preflight_between") == Some(&SettingValue::Switch(true));
        for (path, number) in policy(&mut settings) {
            match number {
                PolicyNumber::Wide(number) => *number = self.count(path),
                PolicyNumber::Narrow(number) => *number = u32::try_from(self.count(path)).unwrap_or(u32::MAX),
            }
        }
        settings
    }

    /// Returns the settings of the enrolment; `None` if it is off.
    fn enrolment(&self) -> Option<EnrolmentSettings> {
        let path = |setting| self.value(setting).map(|file| PathBuf::from(file.show()));
        Some(EnrolmentSettings {
            ca: path("enrolment.ca")?,
            ca_key: path("enrolment.ca_key")?,
            valid: Duration::from_secs(self.count("enrolment.certificate_days") * DAY_S),
        })
    }

    /// Returns the settings of the OTLP export; `None` if no endpoint is set.
    fn otlp(&self) -> Option<OtlpSettings> {
        let file = |key| self.value(key).map(|file| PathBuf::from(file.show()));
        let protocol = match self.text("agent.otlp_protocol").as_str() {
            "http/protobuf" => OtlpProtocol::HttpProtobuf,
            _ => OtlpProtocol::Grpc,
        };
        Some(OtlpSettings {
            endpoint: self.value("agent.otlp_endpoint")?.show(),
            protocol,
            ca: file("agent.otlp_ca"),
            headers: file("agent.otlp_headers"),
        })
    }

    /// Returns the settings of the agent.
    pub(crate) fn agent(&self) -> rankguard_agent::AgentSettings {
        let node = NodeId::from(self.text("agent.node"));
        let mut settings =
            rankguard_agent::AgentSettings::new(node, self.text("agent.controller"), self.path("agent.state_dir"));
        settings.network = self.network();
        settings.host = self.text("agent.host");
        settings.slots = u32::try_from(self.count("agent.slots")).unwrap_or(u32::MAX);
        settings.failure_domain = self.text("agent.failure_domain");
        settings.peer_listen = self.text("agent.peer_listen");
        settings.metrics_listen = self.value("agent.metrics_listen").map(SettingValue::show);
        settings.otlp = self.otlp();
        settings.kernel_log = match self.text("agent.kernel_log").as_str() {
            "/dev/kmsg" => KernelLogSource::DevKmsg,
            "off" => KernelLogSource::Off,
            file => KernelLogSource::File(PathBuf::from(file)),
        };
        settings.sysfs_root = self.path("agent.sysfs_root");
        settings.proc_root = self.path("agent.proc_root");
        settings.nvml_library = self
            .value("agent.nvml_library")
            .map(|library| PathBuf::from(library.show()));
        settings.knowledge = CatalogueHandle::new(self.paths("agent.catalogue"));
        settings.job_logs = self.paths("agent.job_logs");
        if let Some(SettingValue::Checks(checks)) = self.value("agent.checks") {
            settings.checks.clone_from(checks);
        }
        settings.removal = self.removal();
        settings.injection = self.value("agent.injection") == Some(&SettingValue::Switch(true));
        settings.flight_recorder_pipe = self.value("agent.flight_recorder_pipe") == Some(&SettingValue::Switch(true));
        settings.rank_peers = rank_peers(&self.text("agent.rank_peers"));
        settings.spool_bytes = self.count("agent.spool_bytes");
        settings.lease = self.wait("agent.lease_ms");
        settings.rank_environment = self.names("agent.rank_environment");
        settings.rank_cgroups = self.value("agent.rank_cgroups") == Some(&SettingValue::Switch(true));
        settings.rank_user = self.value("agent.rank_user").map(SettingValue::show);
        settings.job_users = self.names("agent.job_users");
        settings.images = ImageSettings {
            slots: u32::try_from(self.count("agent.image_slots")).unwrap_or(u32::MAX),
            when_full: when_full(&self.text("agent.image_when_full")),
            wait: self.wait("agent.image_wait_ms"),
            memory_reserve: self.count("agent.memory_reserve_bytes"),
            kept_for_others: self.counted("agent.kept_for_others_bytes"),
            copy_rate: self.counted("agent.copy_bytes_per_s"),
        };
        for (path, interval) in intervals(&mut settings.intervals) {
            *interval = self.wait(path);
        }
        settings
    }

    /// Returns the sources of notices that the machine is about to be taken away.
    fn removal(&self) -> RemovalSettings {
        RemovalSettings {
            cloud: match self.text("agent.removal.cloud").as_str() {
                "aws" => Some(CloudKind::Aws),
                "azure" => Some(CloudKind::Azure),
                "gcp" => Some(CloudKind::Gcp),
                _ => None,
            },
            metadata: self.value("agent.removal.metadata").map(SettingValue::show),
            file: self.value("agent.removal.file").map(|file| PathBuf::from(file.show())),
            lead: Duration::from_secs(self.count("agent.removal.lead_s")),
        }
    }

    fn alarms(&self) -> AlarmLimits {
        let size = |path| usize::try_from(self.count(path)).unwrap_or(usize::MAX);
        AlarmLimits {
            restarts: size("controller.alarms.restarts"),
            restart_window: Duration::from_secs(self.count("controller.alarms.restart_window_s")),
            fruitless: u32::try_from(self.count("controller.alarms.fruitless_restarts")).unwrap_or(u32::MAX),
            suspect_cases: size("controller.alarms.suspect_cases"),
            spares_min: size("controller.alarms.spares_min"),
            unheard_share: size("controller.alarms.unheard_share"),
        }
    }

    /// Returns the address of the controller for client commands.
    pub(crate) fn client_address(&self) -> String {
        self.text("client.controller")
    }

    /// Returns the address of the controller for the agent of this node.
    pub(crate) fn agent_controller(&self) -> String {
        self.text("agent.controller")
    }

    /// Returns the name of this node.
    pub(crate) fn node_name(&self) -> String {
        self.text("agent.node")
    }

    fn path(&self, key: &str) -> PathBuf {
        PathBuf::from(self.text(key))
    }

    pub(super) fn paths(&self, key: &str) -> Vec<PathBuf> {
        match self.value(key) {
            Some(SettingValue::List(items)) => items.iter().map(PathBuf::from).collect(),
            _ => Vec::new(),
        }
    }

    pub(super) fn names(&self, key: &str) -> Vec<String> {
        match self.value(key) {
            Some(SettingValue::List(items)) => items.clone(),
            _ => Vec::new(),
        }
    }

    pub(super) fn text(&self, key: &str) -> String {
        self.value(key).map(SettingValue::show).unwrap_or_default()
    }

    pub(super) fn count(&self, key: &str) -> u64 {
        self.counted(key).unwrap_or(0)
    }

    fn counted(&self, key: &str) -> Option<u64> {
        match self.value(key) {
            Some(SettingValue::Count(count)) => Some(*count),
            _ => None,
        }
    }

    pub(super) fn wait(&self, key: &str) -> Duration {
        Duration::from_millis(self.count(key))
    }

    /// True if log lines are JSON.
    pub(crate) fn log_is_json(&self) -> bool {
        self.text("log.format") == "json"
    }

    /// Returns the directives of the log filter.
    pub(crate) fn log_filter(&self) -> String {
        self.text("log.filter")
    }
}

/// Policies of a save when all images in memory are in use; the first is the default.
const WHEN_FULL: [(&str, FullArenaPolicy); 3] = [
    ("wait", FullArenaPolicy::Wait),
    ("replace-oldest", FullArenaPolicy::ReplaceOldest),
    ("skip", FullArenaPolicy::Skip),
];

fn when_full(name: &str) -> FullArenaPolicy {
    let known = WHEN_FULL.iter().find(|(known, _)| *known == name);
    known.map_or(WHEN_FULL[0].1, |(_, policy)| *policy)
}

/// Processes that may use a rank's socket; the first is the default.
const RANK_PEERS: [(&str, RankPeerPolicy); 2] = [
    ("own-processes", RankPeerPolicy::OwnProcesses),
    ("same-user", RankPeerPolicy::SameUser),
];

fn rank_peers(name: &str) -> RankPeerPolicy {
    let known = RANK_PEERS.iter().find(|(known, _)| *known == name);
    known.map_or(RANK_PEERS[0].1, |(_, peers)| *peers)
}

/// Returns the default of every setting that has one.
pub(super) fn defaults() -> Vec<(&'static str, SettingValue)> {
    let text = |text: &str| SettingValue::Text(text.to_owned());
    let path = |path: &PathBuf| SettingValue::Text(path.display().to_string());
    let size = |count: usize| SettingValue::Count(u64::try_from(count).unwrap_or(u64::MAX));
    let millis = |wait: Duration| SettingValue::Count(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));

    let mut controller = rankguard_controller::Settings::new("rankguard-controller");
    let mut agent =
        rankguard_agent::AgentSettings::new(NodeId::from(host_name()), CLIENT_CONTROLLER, "rankguard-agent");
    let mut all = Vec::from(super::reader::DEFAULTS);
    all.extend([
        ("client.controller", text(CLIENT_CONTROLLER)),
        ("agent.otlp_protocol", text("grpc")),
        ("agent.removal.cloud", text("off")),
        (
            "agent.removal.lead_s",
            SettingValue::Count(agent.removal.lead.as_secs()),
        ),
        ("controller.report.at", text("07:00")),
        ("controller.report.every", text("off")),
        ("controller.report.keep", SettingValue::Count(REPORTS_KEPT)),
        ("controller.report.timezone", text("UTC")),
        ("log.filter", text(LOG_FILTER)),
        ("log.format", text("text")),
        (
            "controller.alarms.fruitless_restarts",
            SettingValue::Count(u64::from(controller.notify.alarms.fruitless)),
        ),
        (
            "controller.alarms.restart_window_s",
            SettingValue::Count(controller.notify.alarms.restart_window.as_secs()),
        ),
        ("controller.alarms.restarts", size(controller.notify.alarms.restarts)),
        (
            "controller.alarms.spares_min",
            size(controller.notify.alarms.spares_min),
        ),
        (
            "controller.alarms.suspect_cases",
            size(controller.notify.alarms.suspect_cases),
        ),
        (
            "controller.alarms.unheard_share",
            size(controller.notify.alarms.unheard_share),
        ),
        ("controller.notify_cluster", text(&controller.notify.cluster)),
        ("controller.catalogue", SettingValue::List(Vec::new())),
        ("controller.listen", text(&controller.listen.to_string())),
        ("controller.state_dir", path(&controller.state_dir)),
        ("controller.silence_limit_ms", millis(controller.silence_limit)),
        (
            "controller.torchft_heartbeat_timeout_ms",
            millis(controller.torchft.heartbeat_timeout),
        ),
        (
            "controller.torchft_join_timeout_ms",
            millis(controller.torchft.join_timeout),
        ),
        (
            "controller.torchft_min_replicas",
            SettingValue::Count(u64::from(controller.torchft.replicas_min)),
        ),
        ("enrolment.certificate_days", SettingValue::Count(CERTIFICATE_DAYS)),
        (
            "controller.journal.retain_bytes",
            SettingValue::Count(controller.journal.max_bytes),
        ),
        (
            "controller.journal.retain_days",
            SettingValue::Count(controller.journal.max_age.as_secs() / DAY_S),
        ),
        (
            "controller.journal.snapshot_entries",
            SettingValue::Count(controller.journal.snapshot_entries),
        ),
        ("agent.node", text(agent.node.as_str())),
        ("agent.host", text(&agent.host)),
        ("agent.controller", text(&agent.controller)),
        ("agent.state_dir", path(&agent.state_dir)),
        ("agent.slots", SettingValue::Count(u64::from(agent.slots))),
        ("agent.failure_domain", text(&agent.failure_domain)),
        ("agent.peer_listen", text(&agent.peer_listen)),
        ("agent.kernel_log", text("/dev/kmsg")),
        ("agent.sysfs_root", path(&agent.sysfs_root)),
        ("agent.proc_root", path(&agent.proc_root)),
        ("agent.injection", SettingValue::Switch(agent.injection)),
        (
            "agent.flight_recorder_pipe",
            SettingValue::Switch(agent.flight_recorder_pipe),
        ),
        ("agent.rank_peers", text(RANK_PEERS[0].0)),
        ("agent.catalogue", SettingValue::List(Vec::new())),
        ("agent.job_logs", SettingValue::List(Vec::new())),
        ("agent.spool_bytes", SettingValue::Count(agent.spool_bytes)),
        ("agent.lease_ms", millis(agent.lease)),
        ("agent.rank_cgroups", SettingValue::Switch(agent.rank_cgroups)),
        (
            "agent.rank_environment",
            SettingValue::List(agent.rank_environment.clone()),
        ),
        ("agent.job_users", SettingValue::List(agent.job_users.clone())),
        ("controller.policy.prior", text(&controller.policy.prior)),
        ("agent.image_slots", SettingValue::Count(u64::from(agent.images.slots))),
        ("agent.image_wait_ms", millis(agent.images.wait)),
        ("agent.image_when_full", text(WHEN_FULL[0].0)),
        (
            "agent.memory_reserve_bytes",
            SettingValue::Count(agent.images.memory_reserve),
        ),
        (
            "controller.policy.checkpoint_interval",
            SettingValue::Text(if controller.policy.adapt { ADAPTIVE } else { FIXED }.to_owned()),
        ),
        ("controller.policy.preflight", text("off")),
        (
            "controller.policy.preflight_between",
            SettingValue::Switch(controller.policy.preflight_between),
        ),
    ]);
    all.extend(intervals(&mut agent.intervals).map(|(key, interval)| (key, millis(*interval))));
    all.extend(policy(&mut controller).into_iter().map(|(key, number)| {
        let count = match number {
            PolicyNumber::Wide(number) => *number,
            PolicyNumber::Narrow(number) => u64::from(*number),
        };
        (key, SettingValue::Count(count))
    }));
    all
}

/// Mutable policy value, by its width.
enum PolicyNumber<'a> {
    Wide(&'a mut u64),
    Narrow(&'a mut u32),
}

fn policy(settings: &mut rankguard_controller::Settings) -> [(&'static str, PolicyNumber<'_>); 23] {
    let policy = &mut settings.policy;
    [
        ("controller.policy.settle_ms", PolicyNumber::Wide(&mut policy.settle_ms)),
        ("controller.policy.adopt_ms", PolicyNumber::Wide(&mut policy.adopt_ms)),
        (
            "controller.policy.store_wait_ms",
            PolicyNumber::Wide(&mut policy.store_wait_ms),
        ),
        ("controller.policy.fence_ms", PolicyNumber::Wide(&mut policy.fence_ms)),
        ("controller.policy.launch_ms", PolicyNumber::Wide(&mut policy.launch_ms)),
        (
            "controller.policy.first_step_ms",
            PolicyNumber::Wide(&mut policy.first_step_ms),
        ),
        ("controller.policy.risk_ms", PolicyNumber::Wide(&mut policy.risk_ms)),
        (
            "controller.policy.record.node_hours",
            PolicyNumber::Wide(&mut policy.record.node_hours),
        ),
        (
            "controller.policy.record.process_failures",
            PolicyNumber::Wide(&mut policy.record.process_failures),
        ),
        (
            "controller.policy.record.node_failures",
            PolicyNumber::Wide(&mut policy.record.node_failures),
        ),
        (
            "controller.policy.record.domain_failures",
            PolicyNumber::Wide(&mut policy.record.domain_failures),
        ),
        (
            "controller.policy.checkpoint_max_ms",
            PolicyNumber::Wide(&mut policy.checkpoint_max_ms),
        ),
        (
            "controller.policy.checkpoint_budget",
            PolicyNumber::Narrow(&mut policy.checkpoint_budget.0),
        ),
        ("controller.policy.stall_ms", PolicyNumber::Wide(&mut policy.stall_ms)),
        (
            "controller.policy.preflight_ms",
            PolicyNumber::Wide(&mut policy.preflight_ms),
        ),
        ("controller.policy.hang_ms", PolicyNumber::Wide(&mut policy.hang_ms)),
        ("controller.policy.gather_ms", PolicyNumber::Wide(&mut policy.gather_ms)),
        (
            "controller.policy.pending_ms",
            PolicyNumber::Wide(&mut policy.pending_ms),
        ),
        ("controller.policy.grow_ms", PolicyNumber::Wide(&mut policy.grow_ms)),
        (
            "controller.policy.user_retries",
            PolicyNumber::Narrow(&mut policy.user_retries),
        ),
        (
            "controller.policy.cordon_share",
            PolicyNumber::Narrow(&mut policy.cordon_share.0),
        ),
        (
            "controller.policy.cordon_window_ms",
            PolicyNumber::Wide(&mut policy.cordon_window_ms),
        ),
        ("controller.policy.forget_ms", PolicyNumber::Wide(&mut policy.forget_ms)),
    ]
}

fn intervals(intervals: &mut rankguard_agent::AgentIntervals) -> impl Iterator<Item = (&'static str, &mut Duration)> {
    [
        ("agent.intervals.heartbeat_ms", &mut intervals.heartbeat),
        (
            "agent.intervals.controller_silence_ms",
            &mut intervals.controller_silence,
        ),
        ("agent.intervals.reconnect_min_ms", &mut intervals.reconnect_min),
        ("agent.intervals.reconnect_max_ms", &mut intervals.reconnect_max),
        ("agent.intervals.spool_linger_ms", &mut intervals.spool_linger),
        ("agent.intervals.progress_ms", &mut intervals.progress),
        ("agent.intervals.logs_ms", &mut intervals.logs),
        ("agent.intervals.host_ms", &mut intervals.host),
        ("agent.intervals.gpu_ms", &mut intervals.gpu),
        ("agent.intervals.gpu_deadline_ms", &mut intervals.gpu_deadline),
        ("agent.intervals.nic_ms", &mut intervals.nic),
        ("agent.intervals.ranks_ms", &mut intervals.ranks),
        ("agent.intervals.removal_ms", &mut intervals.removal),
        ("agent.intervals.stall_ms", &mut intervals.stall),
        ("agent.intervals.kill_ms", &mut intervals.kill),
        ("agent.intervals.shutdown_grace_ms", &mut intervals.shutdown_grace),
        ("agent.intervals.last_checkpoint_ms", &mut intervals.last_checkpoint),
        ("agent.intervals.otlp_ms", &mut intervals.otlp),
        ("agent.intervals.peer_fetch_ms", &mut intervals.peer_fetch),
        ("agent.intervals.share_wait_ms", &mut intervals.share_wait),
        ("agent.intervals.restore_retry_ms", &mut intervals.restore_retry),
        ("agent.intervals.arenas_kept_ms", &mut intervals.arenas_kept),
    ]
    .into_iter()
}

/// Returns the kernel's host name; `node` if it is empty.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "node".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::KEYS;
    use super::*;

    #[test]
    fn every_default_is_a_setting_and_may_be_held_by_it() {
        for (path, value) in defaults() {
            let key = super::super::find::find(path).expect(path);
            assert_eq!(key.kind.check(value.clone()), Ok(value), "{path}");
        }
        let without: Vec<&str> = KEYS
            .iter()
            .map(|key| key.path)
            .filter(|path| !defaults().iter().any(|(default, _)| default == path))
            .collect();
        let optional = [
            "agent.checks",
            "agent.copy_bytes_per_s",
            "agent.kept_for_others_bytes",
            "agent.metrics_listen",
            "agent.nvml_library",
            "agent.otlp_ca",
            "agent.otlp_endpoint",
            "agent.otlp_headers",
            "agent.rank_user",
            "agent.removal.file",
            "agent.removal.metadata",
            "controller.http_listen",
            "controller.metrics_listen",
            "controller.notify",
            "controller.report.directory",
            "controller.report.send_to",
            "controller.torchft_listen",
            "enrolment.ca",
            "enrolment.ca_key",
            "identity.ca",
            "identity.certificate",
            "identity.crl",
            "identity.join_ca_sha256",
            "identity.join_token_file",
            "identity.key",
            "reader.ca_file",
            "reader.key_file",
            "reader.model",
            "reader.record_dir",
            "reader.url",
        ];
        assert_eq!(without, optional);
    }

    #[test]
    fn every_published_figure_may_be_chosen() {
        let key = super::super::find::find("controller.policy.prior").expect("a setting");
        for prior in rankguard_checkpoint_schedule::priors::FailurePrior::all() {
            assert!(key.kind.parse(&prior.id).is_ok(), "{}", prior.id);
        }
    }

    #[test]
    fn defaults_come_back_as_the_settings_of_the_parts() {
        let config = ResolvedConfig::load(None, [], &[]).expect("defaults are fine");
        assert_eq!(
            config.controller(),
            rankguard_controller::Settings::new("rankguard-controller")
        );
        let agent =
            rankguard_agent::AgentSettings::new(NodeId::from(host_name()), CLIENT_CONTROLLER, "rankguard-agent");
        assert_eq!(format!("{:?}", config.agent()), format!("{agent:?}"));
    }
}
