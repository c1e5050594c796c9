//! Writer of a line, by the form of the line: one log collects the output of several programs.
//!
//! The log of a job holds lines of its launcher and of its scheduler, a system log holds lines of daemons beside those
//! of the kernel, and tables of schedulers and clusters are saved beside the logs of ranks. The form of a line is stronger
//! evidence of its writer than the file in which it lies.

use rankguard_faults::line::SyslogTag;
use rankguard_model::EvidenceSource;

/// Starts of the lines that Slurm's programs write.
const SCHEDULER_STARTS: [&str; 8] = [
    "srun: ",
    "sbatch: ",
    "salloc: ",
    "scancel: ",
    "slurmstepd",
    "slurmctld",
    "slurmd",
    "slurm_script",
];

/// Texts of Slurm's controller, of `scontrol show` and of its accounting.
const SCHEDULER_TEXTS: [&str; 7] = [
    "JobId=",
    "JobState=",
    "NodeName=",
    "NodeList=",
    "slurmstepd: error: ",
    "not responding, setting DOWN",
    "*** STEP ",
];

/// Starts of the lines of Slurm's controller and node daemon in their own logs, after time and level.
const DAEMON_STARTS: [&str; 7] = [
    "_slurm_rpc_",
    "drain_nodes: node ",
    "node_did_resp ",
    "prolog failed: ",
    "prolog_running_decr: ",
    "update_node: node ",
    "validate_node_specs: ",
];

/// States of jobs in tables of `sacct`, which are a column of their own.
const JOB_STATES: [&str; 8] = [
    "BOOT_FAIL",
    "CANCELLED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_ME+",
    "PREEMPTED",
    "TIMEOUT",
];

/// Texts of launchers: torchrun, DeepSpeed.
const LAUNCHER_TEXTS: [&str; 6] = [
    "torch/distributed/elastic/",
    "torch.distributed.elastic",
    "torch/distributed/launcher",
    "torch.distributed.run",
    "[launch.py:",
    "[runner.py:",
];

/// Starts of the lines of launchers.
const LAUNCHER_STARTS: [&str; 7] = [
    "horovodrun",
    "mpiexec",
    "mpirun",
    "orterun",
    "pdsh@",
    "prterun",
    "torchrun",
];

/// Fields of torchrun's table of failures.
const FAILURE_FIELDS: [&str; 6] = ["error_file", "exitcode", "host", "rank", "time", "traceback"];

/// Daemons that write to a system log without a process id.
const DAEMONS: [&str; 33] = [
    "abrtd",
    "automount",
    "chronyd",
    "containerd",
    "crio",
    "cron",
    "dhclient",
    "dockerd",
    "ipmievd",
    "ipmiseld",
    "iscsid",
    "kubelet",
    "logger",
    "mcelog",
    "multipathd",
    "networkmanager",
    "nscd",
    "ntpd",
    "nv-fabricmanager",
    "nv-hostengine",
    "nvidia-persistenced",
    "nvsm",
    "opensm",
    "puppet-agent",
    "rasdaemon",
    "root",
    "rpcbind",
    "slurmd",
    "slurmstepd",
    "smartd",
    "sshd",
    "sudo",
    "systemd",
];

/// Texts of the kernel after the name and number of the process that it reports on: `python3[4242]: segfault at 0`.
const TRAPS: [&str; 5] = [
    "segfault at",
    "bad frame in",
    "bad RIP value",
    "trap ",
    "general protection",
];

/// Returns true for a message of the kubelet, which begins with its place in the code: `kubelet.go:2419] "Skipping pod
/// synchronization"`.
fn is_kubelet(text: &str) -> bool {
    let place = text.split_once("] ").map_or("", |(place, _)| place);
    let (file, line) = place.split_once(".go:").unwrap_or_default();
    file.starts_with("kubelet") && !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit())
}

/// Returns the writer of a line from a log of a job, a launcher or a scheduler, if its form names one.
pub(crate) fn writer(text: &str, has_rank: bool) -> Option<&'static str> {
    let starts = |words: &[&str]| words.iter().any(|word| text.starts_with(word));
    let holds = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if starts(&SCHEDULER_STARTS) {
        return Some("the scheduler");
    }
    if starts(&LAUNCHER_STARTS) || holds(&LAUNCHER_TEXTS) || is_failure_field(text) {
        return Some("the launcher");
    }
    if has_rank {
        return None;
    }
    let is_controller = text.starts_with("Nodes ") && text.contains(" not responding")
        || text.starts_with("Node ") && text.ends_with(" rebooted unexpectedly")
        || starts(&DAEMON_STARTS);
    if holds(&SCHEDULER_TEXTS) || is_controller || is_accounting(text) {
        return Some("the scheduler");
    }
    if is_kubelet(text) {
        return Some("the kubelet");
    }
    if is_cluster_event(text) {
        return Some("Kubernetes");
    }
    if text.starts_with("TERM_") {
        return Some("the scheduler");
    }
    if text.starts_with("| ") && text.trim_end().ends_with('|') {
        return Some("a table in the log");
    }
    if text.contains("osm_") || text.contains("OpenSM") {
        return Some("the subnet manager");
    }
    if text.contains("termination-handler") || text.contains("SPOT_ITN") || text.contains("Spot ITN") {
        return Some("the termination handler of the node");
    }
    if is_board_event(text) {
        return Some("the event log of the machine's controller");
    }
    None
}

/// Returns true for an event in the log of a machine's board controller, as `ipmitool sel list` prints it.
pub fn is_board_event(text: &str) -> bool {
    text.matches(" | ").count() > 2 && text.trim_end().ends_with("sserted")
}

/// Returns true for a line that a scheduler or Kubernetes writes, by its form.
pub(crate) fn is_of_orchestrator(text: &str) -> bool {
    let writers = ["Kubernetes", "the kubelet", "the scheduler"];
    writer(text, false).is_some_and(|writer| writers.contains(&writer))
}

/// Returns true for a field of torchrun's table: `exitcode  : -9 (pid: 22)`.
fn is_failure_field(text: &str) -> bool {
    let field = text.split_once(':').map(|(name, _)| name);
    field.is_some_and(|name| name.ends_with(' ') && FAILURE_FIELDS.contains(&name.trim()))
        || text.trim_start().starts_with("error_file: ")
}

/// Returns true for a row of `sacct`: a job number first, and a column with a state.
pub(crate) fn is_accounting(text: &str) -> bool {
    let mut columns = text
        .split(|c: char| c.is_whitespace() || c == '|')
        .filter(|column| !column.is_empty());
    let is_job = columns
        .next()
        .is_some_and(|first| first.starts_with(|c: char| c.is_ascii_digit()) && !first.contains([':', '-']));
    let is_state = |column: &str| JOB_STATES.contains(&column) || column.starts_with("CANCELLED");
    let is_code = |column: &str| {
        let parts = column.split_once(':');
        parts.is_some_and(|(code, signal)| code.parse::<u16>().is_ok() && signal.parse::<u8>().is_ok())
    };
    is_job && text.split(|c: char| c.is_whitespace() || c == '|').any(is_state) && columns.any(is_code)
        || text.trim_start().starts_with("ExitCode=")
        || text.trim_start().starts_with("Reason=")
}

/// Returns true for an event of Kubernetes, `3m  Warning  Preempted  pod/train-3  ...`, or a field of `kubectl
/// describe`, `Reason:       OOMKilled`.
fn is_cluster_event(text: &str) -> bool {
    let mut columns = text.split_whitespace();
    let event = columns
        .by_ref()
        .take(2)
        .any(|column| matches!(column, "Normal" | "Warning"));
    let is_object = |column: &str| {
        let kind = column.split_once('/').map(|(kind, _)| kind);
        matches!(
            kind,
            Some("pod" | "node" | "job" | "pytorchjob" | "mpijob" | "replicaset" | "statefulset")
        ) || matches!(
            column,
            "kubelet" | "default-scheduler" | "node-controller" | "job-controller"
        ) || column.ends_with("-controller")
    };
    let field = text.trim_start().split_once(":  ").map(|(name, _)| name);
    event && columns.any(is_object) || field.is_some_and(|name| matches!(name, "Reason" | "Exit Code" | "State"))
}

/// Log of the daemons of a machine, in words.
pub(crate) const SYSTEM_LOG: &str = "the system log";

/// Returns the daemon that wrote a line of a kernel log or a system log; `None` for the kernel.
pub(crate) fn daemon(text: &str) -> Option<&str> {
    let tag = SyslogTag::parse(text)?;
    let is_process = tag.pid.is_some() && !TRAPS.iter().any(|words| tag.text.starts_with(words));
    let is_daemon = is_process || DAEMONS.contains(&tag.name.to_ascii_lowercase().as_str());
    is_daemon.then_some(tag.name)
}

/// Returns true if a source collects the output of several programs.
pub(crate) fn is_mixed(source: EvidenceSource) -> bool {
    matches!(
        source,
        EvidenceSource::JobLog | EvidenceSource::Launcher | EvidenceSource::Scheduler
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Option<&str>) {
        assert_eq!(writer(text, false), expect, "{text}");
    }

    #[test]
    fn the_form_of_a_line_names_its_writer() {
        check(
            "srun: error: c7: task 21: Exited with exit code 1",
            Some("the scheduler"),
        );
        check(
            "slurmstepd: error: *** JOB 9 ON c7 CANCELLED ***",
            Some("the scheduler"),
        );
        check("9|train|TIMEOUT|0:0|c7", Some("the scheduler"));
        check("9.batch      batch      CANCELLED     0:15 c7", Some("the scheduler"));
        check("Nodes c[7-9] not responding", Some("the scheduler"));
        check("requeue job JobId=9 due to failure of node c7", Some("the scheduler"));
        check("traceback : Signal 9 (SIGKILL) received by PID 7", Some("the launcher"));
        check(
            "[ERROR] [launch.py:325:sigkill_handler] exits with return code = -6",
            Some("the launcher"),
        );
        check("pdsh@head: c7: ssh exited with exit code 1", Some("the launcher"));
        check(
            "2m  Warning  Evicted  pod/train-1  The node was low on resource",
            Some("Kubernetes"),
        );
        check("Reason:       OOMKilled", Some("Kubernetes"));
        check("update_node: node c7 reason set to: broken", Some("the scheduler"));
        check("Node c7 rebooted unexpectedly", Some("the scheduler"));
        check("TERM_MEMLIMIT: job killed", Some("the scheduler"));
        check(
            "osm_spst_rcv_process: Switch 0x1 leaf port 3 changed state from ACTIVE to DOWN",
            Some("the subnet manager"),
        );
        check(
            "4 | 05/06/2026 | 10:10:12 | Fan FAN1 | Lower Critical going low | Asserted",
            Some("the event log of the machine's controller"),
        );
        for text in [
            "KeyError: 'a'",
            "time: 3 s",
            "12 FAILED tests",
            "step 100 loss 3.2",
            "State: ready",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_daemon_is_not_the_kernel() {
        for (text, expect) in [
            (
                "sshd[100]: error: kex_exchange_identification: Connection closed",
                Some("sshd"),
            ),
            ("root: drill begins", Some("root")),
            (
                "ipmievd: Power Supply sensor PSU2 Failure detected - Asserted",
                Some("ipmievd"),
            ),
            ("rasdaemon: mce_record: bank=7, uncorrected error", Some("rasdaemon")),
            ("mcelog: Hardware event. This is not a software error.", Some("mcelog")),
            ("multipathd[811]: mpatha: remaining active paths: 1", Some("multipathd")),
            (
                "NetworkManager[900]: <warn> device (eth0): link disconnected",
                Some("NetworkManager"),
            ),
            ("NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", None),
            ("python3[4242]: segfault at 0 ip 00007f error 4 in libc.so", None),
            ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s!", None),
            ("mce: [Hardware Error]: Machine check events logged", None),
            ("nfs: server 10.0.0.5 not responding, still trying", None),
            ("Out of memory: Killed process 7 (python)", None),
        ] {
            assert_eq!(daemon(text), expect, "{text}");
        }
    }
}
