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
        "files of signatures, classes, codes and taxonomies besides the built-in ones (TOML); SIGHUP reads them again",
    ),
    key(
        "agent.checks",
        SettingKind::Checks,
        "plug-in checks: tables with name, command, interval_s, timeout_s, class, cpu_s, memory_mb",
    ),
    key("agent.controller", SettingKind::Address, "address of the controller"),
    key(
        "agent.copy_bytes_per_s",
        SettingKind::Count(1, u64::MAX),
        "most bytes a second that copies of images to other nodes and to object stores take; all there are when not set; restores take what there is",
    ),
    key(
        "agent.failure_domain",
        SettingKind::Text,
        "what fails together with this node (rack, switch, power feed)",
    ),
    key(
        "agent.flight_recorder_pipe",
        SettingKind::Switch,
        "whether ranks make a pipe at which PyTorch's flight recorder is asked when they are silent; one that cannot ends",
    ),
    key(
        "agent.host",
        SettingKind::Name,
        "address at which other nodes reach this one, without a port",
    ),
    key(
        "agent.image_slots",
        SettingKind::Count(1, 3),
        "images of a rank in memory at a time; each costs as much memory as its state",
    ),
    key(
        "agent.image_wait_ms",
        WAIT,
        "longest wait of a save for the image before it to be on disk; then it is skipped and counted",
    ),
    key(
        "agent.image_when_full",
        SettingKind::Choice(&["wait", "replace-oldest", "skip"]),
        "what a save does when no image in memory is on disk yet, where the trainer asked for nothing else",
    ),
    key(
        "agent.injection",
        SettingKind::Switch,
        "whether `rankguard inject` may let faults happen here; everything that comes of it is marked synthetic",
    ),
    key(
        "agent.intervals.arenas_kept_ms",
        SettingKind::Count(0, 86_400_000),
        "how long sealed images wait in memory for an agent that was killed to come back; 0: they end with it",
    ),
    key(
        "agent.intervals.controller_silence_ms",
        WAIT,
        "silence of the controller after which the session is opened anew",
    ),
    key(
        "agent.intervals.gpu_deadline_ms",
        WAIT,
        "longest time one call into the GPU library may take",
    ),
    key("agent.intervals.gpu_ms", WAIT, "between two looks at the GPUs"),
    key("agent.intervals.heartbeat_ms", WAIT, "between heartbeats"),
    key(
        "agent.intervals.host_ms",
        WAIT,
        "between two looks at memory, disks and load",
    ),
    key(
        "agent.intervals.kill_ms",
        WAIT,
        "longest wait for killed ranks to be gone",
    ),
    key(
        "agent.intervals.last_checkpoint_ms",
        WAIT,
        "longest wait for one more checkpoint when the agent is asked to end",
    ),
    key(
        "agent.intervals.logs_ms",
        WAIT,
        "between two looks at followed log files",
    ),
    key(
        "agent.intervals.nic_ms",
        WAIT,
        "between two looks at the network adapters",
    ),
    key(
        "agent.intervals.otlp_ms",
        WAIT,
        "between two exports of numbers by OTLP",
    ),
    key(
        "agent.intervals.peer_fetch_ms",
        WAIT,
        "longest wait for one chunk from another agent",
    ),
    key(
        "agent.intervals.progress_ms",
        WAIT,
        "least time between two progress reports of one rank",
    ),
    key(
        "agent.intervals.ranks_ms",
        WAIT,
        "between two looks at the steps of the ranks",
    ),
    key(
        "agent.intervals.reconnect_max_ms",
        WAIT,
        "longest pause before a reconnect",
    ),
    key(
        "agent.intervals.reconnect_min_ms",
        WAIT,
        "first pause before a reconnect",
    ),
    key(
        "agent.intervals.restore_retry_ms",
        WAIT,
        "how long a restore is tried again while a store cannot be read; less than the 120 s that a rank waits",
    ),
    key(
        "agent.intervals.share_wait_ms",
        WAIT,
        "least wait of a job's first node for the shares of the others in a checkpoint that goes to an object store",
    ),
    key(
        "agent.intervals.shutdown_grace_ms",
        WAIT,
        "between SIGTERM and SIGKILL of the ranks when the agent ends",
    ),
    key(
        "agent.intervals.spool_linger_ms",
        WAIT,
        "longest wait of evidence for others to share its commit",
    ),
    key(
        "agent.intervals.stall_ms",
        WAIT,
        "least silence of a rank that is strange, however fast its steps are",
    ),
    key(
        "agent.job_logs",
        SettingKind::LogPaths,
        "log files to follow besides the output of the ranks; *, ?, [...] and ** name several",
    ),
    key(
        "agent.job_users",
        SettingKind::Names,
        "users that jobs may run as instead (`run --user`); a name that ends in * stands for all that begin so; none when empty",
    ),
    key(
        "agent.kept_for_others_bytes",
        SettingKind::Count(0, u64::MAX),
        "most bytes of images that are kept in memory for other nodes; a quarter of what is available when not set",
    ),
    key(
        "agent.kernel_log",
        SettingKind::Name,
        "/dev/kmsg, a file that kernel lines are appended to, or off",
    ),
    key(
        "agent.lease_ms",
        SettingKind::Count(100, 86_400_000),
        "longest time that ranks run without a sign of the controller (unless most other agents have lost it too) or of a frozen agent",
    ),
    key(
        "agent.memory_reserve_bytes",
        SettingKind::Count(0, u64::MAX),
        "memory that stays free on the node: images that would leave less are refused",
    ),
    key(
        "agent.metrics_listen",
        SettingKind::Socket,
        "where numbers for Prometheus are served; nowhere when not set, port 0 takes a free one",
    ),
    key("agent.node", SettingKind::Name, "name of this node"),
    key(
        "agent.nvml_library",
        SettingKind::Name,
        "the GPU management library; the system's own when not set",
    ),
    key(
        "agent.otlp_ca",
        SettingKind::Name,
        "certificates (PEM) of authorities that an https endpoint may be signed by; the system's own when not set",
    ),
    key(
        "agent.otlp_endpoint",
        SettingKind::Endpoint,
        "OpenTelemetry collector that evidence and numbers are pushed to, host:port or a URL; none when not set",
    ),
    key(
        "agent.otlp_headers",
        SettingKind::Name,
        "a file of lines `name: value` that go with each export, such as a token",
    ),
    key(
        "agent.otlp_protocol",
        SettingKind::Choice(&["grpc", "http/protobuf"]),
        "what is spoken with the OpenTelemetry collector",
    ),
    key(
        "agent.peer_listen",
        SettingKind::Socket,
        "where chunks are served to other agents; port 0 takes a free one",
    ),
    key("agent.proc_root", SettingKind::Name, "the procfs tree"),
    key(
        "agent.rank_cgroups",
        SettingKind::Switch,
        "whether ranks run in control groups, where the agent may create them; the kernel then ends a generation at once",
    ),
    key(
        "agent.rank_environment",
        SettingKind::Names,
        "variables of the agent's environment that ranks get besides those of their job; a name that ends in * stands for all that begin so",
    ),
    key(
        "agent.rank_peers",
        SettingKind::Choice(&["own-processes", "same-user"]),
        "which processes may speak for a rank: its own, or all of its user, where another service starts ranks",
    ),
    key(
        "agent.rank_user",
        SettingKind::Name,
        "user that ranks run as, by name or number; the agent's own when not set, which can read the agent's key",
    ),
    key(
        "agent.slots",
        SettingKind::Count(1, 4096),
        "ranks this node can run at once",
    ),
    key(
        "agent.spool_bytes",
        SettingKind::Count(65_536, u64::MAX),
        "most bytes of unacknowledged evidence on disk",
    ),
    key(
        "agent.state_dir",
        SettingKind::Name,
        "directory of the agent's own files; one agent a directory",
    ),
    key("agent.sysfs_root", SettingKind::Name, "the sysfs tree"),
    key(
        "client.controller",
        SettingKind::Address,
        "address of the controller, for the commands that ask it",
    ),
    key(
        "controller.catalogue",
        SettingKind::Paths,
        "files of classes, codes and taxonomies besides the built-in ones (TOML); SIGHUP reads them again",
    ),
    key(
        "controller.journal.retain_bytes",
        SettingKind::Count(1 << 20, 1 << 50),
        "bytes of entries beyond which the journal lets the oldest go, whatever their age",
    ),
    key(
        "controller.journal.retain_days",
        SettingKind::Count(1, 36_500),
        "days after which the journal may let entries go",
    ),
    key(
        "controller.journal.snapshot_entries",
        SettingKind::Count(100, 1 << 32),
        "entries after which the journal gets a snapshot: a start replays the entries behind the newest one",
    ),
    key(
        "controller.listen",
        SettingKind::Socket,
        "where the controller listens; port 0 takes a free one",
    ),
    key(
        "controller.metrics_listen",
        SettingKind::Socket,
        "where the controller serves /healthz, /readyz and /metrics over HTTP; nowhere when not set",
    ),
    key(
        "controller.policy.adopt_ms",
        ANY,
        "how long it may take to commit what an ended generation had sealed; 0: only what was told in time",
    ),
    key(
        "controller.policy.checkpoint_budget",
        SettingKind::Count(1, 100),
        "percent of the work that images may take, where the interval is adaptive",
    ),
    key(
        "controller.policy.checkpoint_interval",
        SettingKind::Choice(&["fixed", "adaptive"]),
        "fixed: the job's own rule; adaptive: follows what images cost and how often the job fails",
    ),
    key(
        "controller.policy.checkpoint_max_ms",
        WAIT,
        "longest interval between checkpoints, where it is adaptive",
    ),
    key(
        "controller.policy.cordon_share",
        SettingKind::Count(0, 100),
        "percent of the live nodes that may be cordoned before verdicts cordon no more; at least one node",
    ),
    key(
        "controller.policy.cordon_window_ms",
        WAIT,
        "window of the rate breaker: as many automatic cordons as cordon_share allows within so long",
    ),
    key(
        "controller.policy.fence_ms",
        WAIT,
        "how long agents may take to end old ranks",
    ),
    key(
        "controller.policy.first_step_ms",
        WAIT,
        "how long ranks may take from their start to their first step",
    ),
    key(
        "controller.policy.forget_ms",
        SettingKind::Count(1, 366 * 86_400_000),
        "how long a lost node is remembered that is not cordoned and has no part in a job",
    ),
    key(
        "controller.policy.gather_ms",
        ANY,
        "how long a new job waits for its full size before it starts smaller",
    ),
    key(
        "controller.policy.grow_ms",
        ANY,
        "how long a node must have been back before a job grows onto it",
    ),
    key(
        "controller.policy.hang_ms",
        ANY,
        "how long ranks that agents found silent may stay so before the job is started anew; 0: not heeded",
    ),
    key(
        "controller.policy.launch_ms",
        WAIT,
        "how long agents may take to start ranks",
    ),
    key(
        "controller.policy.pending_ms",
        WAIT,
        "how long a job waits for its smallest size before it is stopped",
    ),
    key(
        "controller.policy.preflight",
        SettingKind::Choice(&["off", "warn", "require"]),
        "nodes are looked at before each generation: not at all, to tell what fails, or to use none that fails",
    ),
    key(
        "controller.policy.preflight_between",
        SettingKind::Switch,
        "whether preflight before a generation also measures the ways between its nodes",
    ),
    key("controller.policy.preflight_ms", WAIT, "how long that look may take"),
    key(
        "controller.policy.prior",
        SettingKind::Choice(&["llama3-2024", "meta-rsc-1", "meta-rsc-2"]),
        "the published figure that the belief in failure rates begins with",
    ),
    key(
        "controller.policy.record.domain_failures",
        COUNTED,
        "failures of nodes that go together, in the cluster's own record (`simulate calibrate` counts it)",
    ),
    key(
        "controller.policy.record.node_failures",
        COUNTED,
        "failures of single nodes, in the cluster's own record",
    ),
    key(
        "controller.policy.record.node_hours",
        COUNTED,
        "hours summed over the nodes that were watched, in the cluster's own record",
    ),
    key(
        "controller.policy.record.process_failures",
        COUNTED,
        "failures that left the node as it was, in the cluster's own record",
    ),
    key(
        "controller.policy.risk_ms",
        ANY,
        "a node at risk makes its job checkpoint at once, at most once in so long; 0 is never",
    ),
    key(
        "controller.policy.settle_ms",
        WAIT,
        "how long evidence of a failure is gathered after the last decisive one",
    ),
    key(
        "controller.policy.stall_ms",
        ANY,
        "how long a running job may go without a step; 0 is for ever",
    ),
    key(
        "controller.policy.store_wait_ms",
        ANY,
        "how long a job waits for a checkpoint that cannot be read and is not known to be damaged, before it goes on from the one before",
    ),
    key(
        "controller.policy.user_retries",
        SettingKind::Count(0, 1_000),
        "how often a failure of the user's own program is tried again",
    ),
    key(
        "controller.silence_limit_ms",
        SettingKind::Count(100, 86_400_000),
        "silence after which a node is taken for lost",
    ),
    key(
        "controller.state_dir",
        SettingKind::Name,
        "directory of the controller's journal",
    ),
    key(
        "identity.ca",
        SettingKind::Name,
        "certificate of the cluster's authority; with the two below, everything is spoken over mutual TLS",
    ),
    key(
        "identity.certificate",
        SettingKind::Name,
        "the own certificate, which names cluster, role and node; read again on SIGHUP and when it changes",
    ),
    key("identity.key", SettingKind::Name, "its key, readable by its owner only"),
    key("log.filter", SettingKind::Filter, "which log lines to show"),
    key(
        "log.format",
        SettingKind::Choice(&["text", "json"]),
        "how log lines look",
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
