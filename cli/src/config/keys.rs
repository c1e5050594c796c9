//! Table of all settings. A setting that is not listed here does not exist.

use super::key::SettingKey;
use super::value::SettingKind;

const ANY: SettingKind = SettingKind::Count(0, u64::MAX);
/// Counted quantity: exact as a double, too.
const COUNTED: SettingKind = SettingKind::Count(0, 1 << 50);
/// Duration in milliseconds: at least 1, at most a day.
const WAIT: SettingKind = SettingKind::Count(1, 86_400_000);

const fn key(path: &'static str, kind: SettingKind, doc: &'static str) -> SettingKey {
    SettingKey { path, kind, doc }
}

/// All settings, sorted by path.
pub(crate) const KEYS: &[SettingKey] = &[
    key(
        "agent.catalogue",
        SettingKind::Paths,
        "additional catalogue files (TOML): signatures, classes, codes and taxonomies; reloaded on SIGHUP",
    ),
    key(
        "agent.checks",
        SettingKind::Checks,
        "plug-in checks: tables with name, command, interval_s, timeout_s, class, cpu_s, memory_mb",
    ),
    key(
        "agent.controller",
        SettingKind::Address,
        "address of the controller, host:port",
    ),
    key(
        "agent.copy_bytes_per_s",
        SettingKind::Count(1, u64::MAX),
        "bandwidth limit of copies to other nodes and object stores, bytes/s; default unlimited; restores are not limited",
    ),
    key(
        "agent.failure_domain",
        SettingKind::Text,
        "failure domain of this node: rack, switch or power feed that fails as one",
    ),
    key(
        "agent.flight_recorder_pipe",
        SettingKind::Switch,
        "create a pipe per rank to request a dump of PyTorch's flight recorder when the rank is silent; a rank that cannot answer is ended",
    ),
    key(
        "agent.host",
        SettingKind::Host,
        "host name or address at which other nodes reach this node, without a port",
    ),
    key(
        "agent.image_slots",
        SettingKind::Count(1, 3),
        "images of a rank held in memory; each needs as much memory as the state of the rank",
    ),
    key(
        "agent.image_wait_ms",
        WAIT,
        "maximum wait of a save for the previous image to reach the disk, ms; the save is then skipped and counted",
    ),
    key(
        "agent.image_when_full",
        SettingKind::Choice(&["wait", "replace-oldest", "skip"]),
        "behaviour of a save when all image slots are in use, unless the trainer requests another: wait, replace the oldest image, or skip the save",
    ),
    key(
        "agent.injection",
        SettingKind::Switch,
        "allow fault injection on this node (`rankguard inject FAULT`); its evidence is marked synthetic",
    ),
    key(
        "agent.intervals.arenas_kept_ms",
        SettingKind::Count(0, 86_400_000),
        "time that sealed images of a killed agent are kept in memory for its restart, ms; 0 disables it",
    ),
    key(
        "agent.intervals.controller_silence_ms",
        WAIT,
        "silence of the controller after which the session is reopened, ms",
    ),
    key(
        "agent.intervals.gpu_deadline_ms",
        WAIT,
        "timeout of one call into the GPU library, ms",
    ),
    key("agent.intervals.gpu_ms", WAIT, "poll interval of the GPUs, ms"),
    key(
        "agent.intervals.heartbeat_ms",
        WAIT,
        "interval between heartbeats to the controller, ms",
    ),
    key(
        "agent.intervals.host_ms",
        WAIT,
        "poll interval of memory, disks and load, ms",
    ),
    key(
        "agent.intervals.kill_ms",
        WAIT,
        "maximum wait for killed ranks to exit, ms",
    ),
    key(
        "agent.intervals.last_checkpoint_ms",
        WAIT,
        "maximum wait for a last checkpoint when the agent shuts down, ms",
    ),
    key(
        "agent.intervals.logs_ms",
        WAIT,
        "poll interval of followed log files, ms",
    ),
    key(
        "agent.intervals.nic_ms",
        WAIT,
        "poll interval of the network adapters, ms",
    ),
    key(
        "agent.intervals.otlp_ms",
        WAIT,
        "interval between OTLP exports of metrics, ms",
    ),
    key(
        "agent.intervals.peer_fetch_ms",
        WAIT,
        "timeout of one chunk from another agent, ms",
    ),
    key(
        "agent.intervals.progress_ms",
        WAIT,
        "minimum interval between progress reports of one rank, ms",
    ),
    key(
        "agent.intervals.ranks_ms",
        WAIT,
        "poll interval of the steps of the ranks, ms",
    ),
    key(
        "agent.intervals.reconnect_max_ms",
        WAIT,
        "maximum delay before a reconnect, ms",
    ),
    key(
        "agent.intervals.reconnect_min_ms",
        WAIT,
        "initial delay before a reconnect, ms",
    ),
    key(
        "agent.intervals.removal_ms",
        WAIT,
        "poll interval of notices that this machine is about to be taken away, ms",
    ),
    key(
        "agent.intervals.restore_retry_ms",
        WAIT,
        "time for which a restore from an unreadable store is retried, ms; below the 120 s that a rank waits",
    ),
    key(
        "agent.intervals.share_wait_ms",
        WAIT,
        "minimum wait of a job's first node for the shards of the other nodes in an upload to an object store, ms",
    ),
    key(
        "agent.intervals.shutdown_grace_ms",
        WAIT,
        "time between SIGTERM and SIGKILL of the ranks when the agent shuts down, ms",
    ),
    key(
        "agent.intervals.spool_linger_ms",
        WAIT,
        "maximum delay of evidence to share a write with later evidence, ms",
    ),
    key(
        "agent.intervals.stall_ms",
        WAIT,
        "minimum silence of a rank that is reported, ms, however short its steps are",
    ),
    key(
        "agent.job_logs",
        SettingKind::LogPaths,
        "additional log files to follow, with the patterns *, ?, [...] and **",
    ),
    key(
        "agent.job_users",
        SettingKind::Names,
        "users that `run --user` may select; a trailing * matches a prefix; empty: none",
    ),
    key(
        "agent.kept_for_others_bytes",
        SettingKind::Count(0, u64::MAX),
        "memory limit of image copies held for other nodes, bytes; default a quarter of the available memory",
    ),
    key(
        "agent.kernel_log",
        SettingKind::Name,
        "kernel log: /dev/kmsg, a file that kernel lines are appended to, or off",
    ),
    key(
        "agent.lease_ms",
        SettingKind::Count(100, 86_400_000),
        "lease of the ranks, ms: maximum time that ranks run without contact to the controller (unless most other agents have lost it too) or with a frozen agent",
    ),
    key(
        "agent.memory_reserve_bytes",
        SettingKind::Count(0, u64::MAX),
        "memory of the node to leave free, bytes; images that would need it are refused",
    ),
    key(
        "agent.metrics_listen",
        SettingKind::Socket,
        "listen address of the Prometheus endpoint; port 0 selects a free port; default none",
    ),
    key(
        "agent.node",
        SettingKind::Name,
        "name of this node; default the host name",
    ),
    key(
        "agent.nvml_library",
        SettingKind::Name,
        "path of the GPU management library (NVML); default the library of the system",
    ),
    key(
        "agent.otlp_ca",
        SettingKind::Name,
        "CA certificates (PEM) for an https OTLP endpoint; default those of the system",
    ),
    key(
        "agent.otlp_endpoint",
        SettingKind::Endpoint,
        "OpenTelemetry collector for evidence and metrics, host:port or URL; default none",
    ),
    key(
        "agent.otlp_headers",
        SettingKind::Name,
        "file with additional headers of OTLP exports, lines `name: value`, for example a token",
    ),
    key(
        "agent.otlp_protocol",
        SettingKind::Choice(&["grpc", "http/protobuf"]),
        "protocol of the OpenTelemetry collector",
    ),
    key(
        "agent.peer_listen",
        SettingKind::Socket,
        "listen address for other agents; port 0 selects a free port",
    ),
    key("agent.proc_root", SettingKind::Name, "root of the procfs tree"),
    key(
        "agent.rank_cgroups",
        SettingKind::Switch,
        "run ranks in control groups where the agent may create them; the kernel then ends a generation at once",
    ),
    key(
        "agent.rank_environment",
        SettingKind::Names,
        "variables of the agent's environment that are passed to ranks; a trailing * matches a prefix",
    ),
    key(
        "agent.rank_peers",
        SettingKind::Choice(&["own-processes", "same-user"]),
        "processes that may use a rank's socket: its own, or all of its user, for ranks that another service starts",
    ),
    key(
        "agent.rank_user",
        SettingKind::Name,
        "user that ranks run as, name or number; default the user of the agent, who can read the agent's key",
    ),
    key(
        "agent.removal.cloud",
        SettingKind::Choice(&["off", "aws", "azure", "gcp"]),
        "cloud whose metadata service gives notice before it takes this machine away: the node is then drained",
    ),
    key(
        "agent.removal.file",
        SettingKind::Name,
        "file whose existence is such a notice, its first line the cause; default none",
    ),
    key(
        "agent.removal.lead_s",
        SettingKind::Count(0, 604_800),
        "time before a planned removal from which the node is drained, s",
    ),
    key(
        "agent.removal.metadata",
        SettingKind::Address,
        "address of the metadata service, host:port; default that of the cloud",
    ),
    key(
        "agent.slots",
        SettingKind::Count(1, 4096),
        "maximum number of ranks on this node",
    ),
    key(
        "agent.spool_bytes",
        SettingKind::Count(65_536, u64::MAX),
        "disk limit of unacknowledged evidence, bytes",
    ),
    key(
        "agent.state_dir",
        SettingKind::Name,
        "directory of the agent's files; one per agent",
    ),
    key("agent.sysfs_root", SettingKind::Name, "root of the sysfs tree"),
    key(
        "client.controller",
        SettingKind::Address,
        "address of the controller for client commands, host:port",
    ),
    key(
        "controller.alarms.fruitless_restarts",
        SettingKind::Count(0, 1_000),
        "restarts of a job without progress in between at which the alarm no-progress is raised; 0 disables it",
    ),
    key(
        "controller.alarms.restart_window_s",
        SettingKind::Count(1, 86_400),
        "window of controller.alarms.restarts, s",
    ),
    key(
        "controller.alarms.restarts",
        SettingKind::Count(0, 64),
        "restarts of a job after failures at which the alarm restart-storm is raised; 0 disables it",
    ),
    key(
        "controller.alarms.spares_min",
        SettingKind::Count(0, 1_000_000),
        "free nodes below which the alarm spares-low is raised while jobs run; 0 disables it",
    ),
    key(
        "controller.alarms.suspect_cases",
        SettingKind::Count(0, 1_000),
        "cases of 24 h that blame one node at which the alarm suspect-node is raised; 0 disables it",
    ),
    key(
        "controller.alarms.unheard_share",
        SettingKind::Count(0, 100),
        "share of nodes from which nothing is received at which the alarm agents-unheard is raised, percent; 0 disables it",
    ),
    key(
        "controller.catalogue",
        SettingKind::Paths,
        "additional catalogue files (TOML): classes, codes and taxonomies; reloaded on SIGHUP",
    ),
    key(
        "controller.http_listen",
        SettingKind::Socket,
        "listen address of the HTTP API (docs/http-api.md); loopback only without an identity; default none",
    ),
    key(
        "controller.journal.retain_bytes",
        SettingKind::Count(1 << 20, 1 << 50),
        "journal size above which the oldest entries are removed, bytes",
    ),
    key(
        "controller.journal.retain_days",
        SettingKind::Count(1, 36_500),
        "age above which journal entries may be removed, days",
    ),
    key(
        "controller.journal.snapshot_entries",
        SettingKind::Count(100, 1 << 32),
        "number of entries between journal snapshots; a start replays the entries after the newest snapshot",
    ),
    key(
        "controller.listen",
        SettingKind::Socket,
        "listen address of the controller; port 0 selects a free port",
    ),
    key(
        "controller.metrics_listen",
        SettingKind::Socket,
        "listen address of the HTTP endpoint with /healthz, /readyz and /metrics; default none",
    ),
    key(
        "controller.notify",
        SettingKind::Receivers,
        "receivers of notifications (docs/notifications.md): tables with name, kind, url, url_file, secret_file and filters",
    ),
    key(
        "controller.notify_cluster",
        SettingKind::Text,
        "name of the cluster in notifications; default that of the identity, else rankguard",
    ),
    key(
        "controller.policy.adopt_ms",
        ANY,
        "time limit to commit the sealed images of an ended generation, ms; 0 commits only images that were reported in time",
    ),
    key(
        "controller.policy.checkpoint_budget",
        SettingKind::Count(1, 100),
        "maximum share of time for checkpoints, percent, with an adaptive interval",
    ),
    key(
        "controller.policy.checkpoint_interval",
        SettingKind::Choice(&["fixed", "adaptive"]),
        "checkpoint interval: fixed by the job, or adaptive to checkpoint cost and failure rate",
    ),
    key(
        "controller.policy.checkpoint_max_ms",
        WAIT,
        "maximum adaptive checkpoint interval, ms",
    ),
    key(
        "controller.policy.cordon_share",
        SettingKind::Count(0, 100),
        "maximum share of live nodes that verdicts may cordon, percent; at least one node",
    ),
    key(
        "controller.policy.cordon_window_ms",
        WAIT,
        "window of the rate limit of automatic cordons, ms; cordon_share limits the cordons within it",
    ),
    key(
        "controller.policy.fence_ms",
        WAIT,
        "time limit of agents to end old ranks, ms",
    ),
    key(
        "controller.policy.first_step_ms",
        WAIT,
        "time limit of ranks from start to first step, ms",
    ),
    key(
        "controller.policy.forget_ms",
        SettingKind::Count(1, 366 * 86_400_000),
        "time after which a lost node without cordon and job is removed, ms",
    ),
    key(
        "controller.policy.gather_ms",
        ANY,
        "maximum wait of a new job for its full size before it starts smaller, ms",
    ),
    key(
        "controller.policy.grow_ms",
        ANY,
        "minimum time that a node must be back before a job grows onto it, ms",
    ),
    key(
        "controller.policy.hang_ms",
        ANY,
        "silence of ranks after which the job is restarted, ms; 0 disables hang detection",
    ),
    key(
        "controller.policy.launch_ms",
        WAIT,
        "time limit of agents to start ranks, ms",
    ),
    key(
        "controller.policy.pending_ms",
        WAIT,
        "maximum wait of a job for its minimum size before it is stopped, ms",
    ),
    key(
        "controller.policy.preflight",
        SettingKind::Choice(&["off", "warn", "require"]),
        "preflight of nodes before each generation: off, warn about failed checks, or require nodes that pass",
    ),
    key(
        "controller.policy.preflight_between",
        SettingKind::Switch,
        "measure the links between a generation's nodes in its preflight",
    ),
    key(
        "controller.policy.preflight_ms",
        WAIT,
        "time limit of the preflight of a generation, ms",
    ),
    key(
        "controller.policy.prior",
        SettingKind::Choice(&["llama3-2024", "meta-rsc-1", "meta-rsc-2"]),
        "published failure rate used as prior",
    ),
    key(
        "controller.policy.record.domain_failures",
        COUNTED,
        "recorded failures of several nodes at once (counted by `rankguard simulate calibrate`)",
    ),
    key(
        "controller.policy.record.node_failures",
        COUNTED,
        "recorded failures of single nodes",
    ),
    key("controller.policy.record.node_hours", COUNTED, "recorded node-hours"),
    key(
        "controller.policy.record.process_failures",
        COUNTED,
        "recorded failures that did not affect the node",
    ),
    key(
        "controller.policy.risk_ms",
        ANY,
        "minimum interval between immediate checkpoints of a job for nodes at risk, ms; 0 disables them",
    ),
    key(
        "controller.policy.settle_ms",
        WAIT,
        "time for which further evidence is collected after the last decisive evidence of a failure, ms",
    ),
    key(
        "controller.policy.stall_ms",
        ANY,
        "time without a step after which a running job counts as stalled, ms; 0 disables it",
    ),
    key(
        "controller.policy.store_wait_ms",
        ANY,
        "maximum wait of a job for an unreadable checkpoint that is not known to be damaged, ms; the job then resumes from the previous one",
    ),
    key(
        "controller.policy.user_retries",
        SettingKind::Count(0, 1_000),
        "number of retries after a failure of the user's program",
    ),
    key(
        "controller.report.at",
        SettingKind::Name,
        "time at which a scheduled report is made: 07:00, for a week also Mon 07:00 (docs/reports.md)",
    ),
    key(
        "controller.report.directory",
        SettingKind::Name,
        "folder of the scheduled reports; default: reports in controller.state_dir",
    ),
    key(
        "controller.report.every",
        SettingKind::Choice(&["off", "day", "week"]),
        "scheduled reports of the fleet, of the newest whole day or week",
    ),
    key(
        "controller.report.keep",
        SettingKind::Count(1, 10_000),
        "scheduled reports that are retained",
    ),
    key(
        "controller.report.send_to",
        SettingKind::Names,
        "receivers of notifications that get each scheduled report as text; default none",
    ),
    key(
        "controller.report.timezone",
        SettingKind::Name,
        "time zone of controller.report.at and of the periods: UTC, or a name of the system such as Europe/Berlin",
    ),
    key(
        "controller.silence_limit_ms",
        SettingKind::Count(100, 86_400_000),
        "silence after which a node counts as lost, ms",
    ),
    key(
        "controller.state_dir",
        SettingKind::Name,
        "directory of the controller's journal",
    ),
    key(
        "controller.torchft_heartbeat_timeout_ms",
        WAIT,
        "silence after which a replica of torchft counts as lost, ms",
    ),
    key(
        "controller.torchft_join_timeout_ms",
        WAIT,
        "maximum wait of a torchft quorum for live replicas that do not request it, ms",
    ),
    key(
        "controller.torchft_listen",
        SettingKind::Socket,
        "listen address of the lighthouse for torchft, without TLS and authentication; default none",
    ),
    key(
        "controller.torchft_min_replicas",
        SettingKind::Count(1, 1_024),
        "minimum of replicas in a torchft quorum",
    ),
    key(
        "enrolment.ca",
        SettingKind::Name,
        "certificate with which the controller signs those of agents (PEM), from `rankguard identity issue-intermediate`; default none: enrolment is off",
    ),
    key(
        "enrolment.ca_key",
        SettingKind::Name,
        "private key of enrolment.ca (PEM), readable by its owner only",
    ),
    key(
        "enrolment.certificate_days",
        SettingKind::Count(1, 366),
        "validity of the certificates that the controller signs, days",
    ),
    key(
        "identity.ca",
        SettingKind::Name,
        "certificate of the cluster's authority (PEM); with certificate and key it enables mutual TLS",
    ),
    key(
        "identity.certificate",
        SettingKind::Name,
        "certificate of this process (PEM), with cluster, role and node; reloaded on SIGHUP and on changes",
    ),
    key(
        "identity.crl",
        SettingKind::Name,
        "revocation list of the cluster's authority (PEM), from `rankguard identity revoke`; reloaded on SIGHUP and on changes",
    ),
    key(
        "identity.join_ca_sha256",
        SettingKind::Fingerprint,
        "fingerprint of the cluster's authority (SHA-256), for identity.join_token_file; default that of the file identity.ca",
    ),
    key(
        "identity.join_token_file",
        SettingKind::Name,
        "file with a join token, with which an agent without a valid certificate obtains one at its start; default none",
    ),
    key(
        "identity.key",
        SettingKind::Name,
        "private key of the certificate (PEM), readable by its owner only",
    ),
    key(
        "log.filter",
        SettingKind::Filter,
        "log filter in the syntax of RUST_LOG, for example info or rankguard_agent=debug",
    ),
    key(
        "log.format",
        SettingKind::Choice(&["text", "json"]),
        "format of log lines",
    ),
    key(
        "reader.answer_tokens",
        SettingKind::Count(0, 1 << 20),
        "maximum length of an answer of the second reader, tokens of the model; 0 leaves it to the service",
    ),
    key(
        "reader.ca_file",
        SettingKind::Name,
        "certificates (PEM) of the authorities of reader.url; default: those of the system",
    ),
    key(
        "reader.excerpt_bytes",
        SettingKind::Count(1_000, 1 << 20),
        "maximum size of the excerpt of logs for the second reader, bytes",
    ),
    key(
        "reader.key_file",
        SettingKind::Name,
        "file with the key of reader.url, sent as a bearer token",
    ),
    key(
        "reader.model",
        SettingKind::Name,
        "name of the language model at reader.url",
    ),
    key(
        "reader.record_dir",
        SettingKind::Name,
        "folder of the stored requests and answers of the second reader; default: rankguard/readings in the user's state folder",
    ),
    key(
        "reader.requests",
        SettingKind::Count(1, 1_000),
        "maximum number of requests of one command to the second reader",
    ),
    key(
        "reader.timeout_ms",
        WAIT,
        "maximum wait for an answer of the second reader, ms",
    ),
    key(
        "reader.url",
        SettingKind::Name,
        "URL with the chat-completions interface of a language model, for `diagnose --reader` and `cases show --reader`",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_no_two_settings_share_a_name_in_the_environment() {
        assert!(KEYS.is_sorted_by(|a, b| a.path < b.path));
        let mut names: Vec<String> = KEYS.iter().map(SettingKey::env).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), KEYS.len());
    }
}
