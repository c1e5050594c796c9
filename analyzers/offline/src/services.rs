//! Reports of system services, such as `sshd[100]: error: ...`, in the logs of a machine.
//!
//! The tag of a system log names the program that speaks, and a service speaks about itself. Its report concerns a job
//! only if it is about something that the job uses: a device, a file system, the end of the job's processes. Other
//! reports (a login that failed, a file or a server that the service itself did not find) have no meaning for the job.

use rankguard_diagnosis::is_own_error;
use rankguard_faults::line::SyslogTag;
use rankguard_faults::{Catalogue, classes};
use rankguard_model::{Classification, Role};

use crate::incident::ended_well;
use crate::stream::ReadStream;

/// Relation of a report to the job of a machine, closest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServiceRelation {
    /// About a device that the job uses or about the end of its processes, or not written by a service.
    Direct,
    /// About something that the job may use. It explains no error of the program itself, and no run that ended
    /// well failed of it.
    Possible,
    /// About the service only.
    None,
}

/// Services without a form that shows them.
const SERVICES: [&str; 63] = [
    "anacron",
    "apt",
    "arpwatch",
    "at",
    "audispd",
    "audit",
    "automount",
    "avahi",
    "ceph-fuse",
    "certbot",
    "cfengine",
    "chef-client",
    "cloud-init",
    "consul",
    "cron",
    "dhclient",
    "dhcpcd-run-hooks",
    "dnf",
    "dnsmasq",
    "dracut",
    "earlyoom",
    "filebeat",
    "fluent-bit",
    "freshclam",
    "fstrim",
    "fusermount",
    "fusermount3",
    "gcsfuse",
    "gdm",
    "goofys",
    "haproxy",
    "ibacm",
    "irqbalance",
    "juicefs",
    "login",
    "logrotate",
    "mcelog",
    "metricbeat",
    "mfsmount",
    "mmfs",
    "mount-s3",
    "needrestart",
    "nginx",
    "nv-hostengine",
    "opensm",
    "packagekit",
    "postfix",
    "prometheus",
    "promtail",
    "puppet",
    "rasdaemon",
    "run-parts",
    "s3fs",
    "salt-minion",
    "sendmail",
    "snap",
    "sssd_be",
    "su",
    "sudo",
    "telegraf",
    "unattended-upgrade",
    "xorg",
    "yum",
];

/// Parts of names of services.
const SERVICE_PARTS: [&str; 9] = [
    "-agent", "_agent", "daemon", "exporter", "helper", "-refresh", "manager", "-server", "systemd",
];

/// Beginnings of the names of services that start, watch and end jobs.
const SUPERVISORS: [&str; 9] = [
    "containerd",
    "cri-o",
    "crio",
    "dockerd",
    "k3s",
    "kube",
    "pbs_",
    "slurm",
    "systemd",
];

/// Parts of names of programs that are jobs or speak about one.
const PROGRAMS: [&str; 13] = [
    "accelerate",
    "ciod",
    "deepspeed",
    "finetun",
    "mpi",
    "orted",
    "prted",
    "python",
    "sbatch",
    "slurmstepd",
    "srun",
    "torch",
    "train",
];

/// Removes reports of services about what a job may use, if the run ended well or its program failed by itself: they
/// explain neither.
pub(crate) fn without_services(mut streams: Vec<ReadStream>) -> Vec<ReadStream> {
    let has_services = streams
        .iter()
        .flat_map(|stream| &stream.seen)
        .any(|seen| seen.is_of_service);
    let mut seen = streams.iter().flat_map(|stream| &stream.seen);
    let mut failed = || seen.any(|seen| !seen.is_of_service && seen.signs.iter().any(is_own_error));
    if has_services && (ended_well(&streams) || failed()) {
        for stream in &mut streams {
            stream.seen.retain(|seen| !seen.is_of_service);
        }
    }
    streams
}

/// Returns the relation of a mark to a job. `text` is a message of a system log, with the tag of its program.
pub(crate) fn relation(text: &str, mark: &Classification) -> ServiceRelation {
    match writer(text) {
        TaggedWriter::Service(service) => relation_of(service, mark),
        // It may be a service or the job itself.
        TaggedWriter::Unknown(program) => relation_of(program, mark).min(ServiceRelation::Possible),
        TaggedWriter::Job => ServiceRelation::Direct,
    }
}

/// Returns true for a message of a system log that a service of the machine wrote.
pub(crate) fn is_service_line(text: &str) -> bool {
    SyslogTag::parse(text).is_some_and(|tag| is_service(tag.name) && (tag.pid.is_some() || !is_word(tag.name)))
}

/// Beginnings of the names of services that report on other machines.
const MANAGERS: [&str; 8] = [
    "gcs_server",
    "k3s",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "nomad",
    "pbs_server",
    "slurmctld",
];

/// Beginnings of the names of controllers: they report on other machines only, and their own host runs no process of a job.
/// slurmctld(8), kube-controller-manager(8), pbs_server(8); a kubelet reports on its own node.
const CONTROLLERS: [&str; 5] = [
    "gcs_server",
    "kube-controller-manager",
    "kube-scheduler",
    "pbs_server",
    "slurmctld",
];

/// Returns true for a line of a controller of nodes.
pub(crate) fn is_of_controller(text: &str) -> bool {
    SyslogTag::parse(text).is_some_and(|tag| CONTROLLERS.iter().any(|start| tag.name.starts_with(start)))
}

/// Returns true for a line of a service that reports on other machines.
pub(crate) fn is_of_manager(text: &str) -> bool {
    SyslogTag::parse(text).is_some_and(|tag| MANAGERS.iter().any(|start| tag.name.starts_with(start)))
}

/// Returns true for the name of a service without which a node runs no jobs: of its scheduler, its containers or its GPUs.
pub(crate) fn serves_jobs(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_supervisor = SUPERVISORS.iter().any(|start| lower.starts_with(start)) && !lower.starts_with("systemd");
    let is_of_gpus = ["nvidia-", "nv-", "habana", "rocm"]
        .iter()
        .any(|start| lower.starts_with(start));
    (is_supervisor || is_of_gpus) && !is_program(&lower)
}

/// Writer of a message in a system log.
#[derive(Debug, PartialEq, Eq)]
enum TaggedWriter<'a> {
    /// System service, or the unit that systemd names.
    Service(&'a str),
    /// Program that is not known to be a service or a job.
    Unknown(&'a str),
    /// Program of a job, or a message without a tag.
    Job,
}

fn relation_of(service: &str, mark: &Classification) -> ServiceRelation {
    // Noise may show that something was overcome.
    if mark.role == Role::Noise {
        return ServiceRelation::Direct;
    }
    let class = mark.class.as_str();
    let layer = Catalogue::builtin()
        .class(&mark.class)
        .map_or("", |known| known.layer.as_str());
    let lower = service.to_ascii_lowercase();
    let is_supervisor = SUPERVISORS.iter().any(|name| lower.starts_with(name));
    match class {
        classes::CONTAINER_OOM_KILL
        | classes::EXTERNAL_TERMINATION
        | classes::HOST_OOM_KILL
        | classes::MAINTENANCE
        | classes::NIC_FAULT
        | classes::NIC_LINK_DOWN
        | classes::NIC_LINK_FLAP
        | classes::PREEMPTED => ServiceRelation::Direct,
        classes::JOB_CANCELLED | classes::SLURM_NODE_FAIL | classes::SLURM_TIME_LIMIT if is_supervisor => {
            ServiceRelation::Direct
        }
        _ if layer == "hardware" => ServiceRelation::Direct,
        classes::DRIVER_VERSION_MISMATCH | classes::FABRIC_MANAGER_NOT_READY | classes::GPU_NOT_VISIBLE => {
            ServiceRelation::Possible
        }
        _ if layer == "storage" || is_supervisor => ServiceRelation::Possible,
        _ => ServiceRelation::None,
    }
}

/// Returns the writer of a message of a system log.
fn writer(text: &str) -> TaggedWriter<'_> {
    let Some(tag) = SyslogTag::parse(text) else {
        return TaggedWriter::Job;
    };
    if tag.name == "systemd" {
        let unit = tag.text.split([' ', ':']).next().unwrap_or_default();
        let name = ["service", "scope", "timer", "socket"]
            .iter()
            .find_map(|ending| unit.strip_suffix(ending)?.strip_suffix('.'));
        return match name {
            Some(name) if is_service(name) => TaggedWriter::Service(name),
            Some(_) => TaggedWriter::Job,
            None => TaggedWriter::Service(tag.name),
        };
    }
    let is_numbered = tag.pid.is_some();
    if is_service(tag.name) && (is_numbered || !is_word(tag.name)) {
        TaggedWriter::Service(tag.name)
    } else if is_numbered && !is_program(tag.name) {
        TaggedWriter::Unknown(tag.name)
    } else {
        TaggedWriter::Job
    }
}

/// Returns true for a tag without a process id that may be a word of a message, such as `failed: `.
fn is_word(tag: &str) -> bool {
    let is_capital = tag.starts_with(|c: char| c.is_ascii_uppercase());
    let lower = tag.to_ascii_lowercase();
    let is_listed = SERVICES.contains(&lower.as_str())
        || lower.starts_with("nvidia-")
        || lower == "munged"
        || SERVICE_PARTS.iter().any(|part| lower.contains(part));
    let endings = ["ad", "and", "ed", "end", "id", "ind", "ld", "ound"];
    !is_listed && (is_capital || endings.iter().any(|ending| lower.ends_with(ending)))
}

/// Returns true for the name of a program that is a job or speaks about one.
fn is_program(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PROGRAMS.iter().any(|part| name.contains(part))
}

/// Returns true for the name of a system service. Names that show nothing may be of a job.
fn is_service(name: &str) -> bool {
    let name = name.trim_matches(['(', ')']).to_ascii_lowercase();
    let first = name.split('/').next().unwrap_or_default();
    let first = first.split('@').next().unwrap_or_default();
    let has_form = first.len() > 2 && first.ends_with('d') || SERVICE_PARTS.iter().any(|part| first.contains(part));
    let is_nvidia = first.starts_with("nvidia-") || first.starts_with("nv-") || first.starts_with("rpc.");
    let is_kube = SUPERVISORS.iter().any(|start| first.starts_with(start));
    !is_program(first) && (has_form || is_nvidia || is_kube || SERVICES.contains(&first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_name_services_programs_and_units() {
        let lines = [
            ("sshd[100]: error: kex", TaggedWriter::Service("sshd")),
            (
                "nvidia-persistenced: Failed",
                TaggedWriter::Service("nvidia-persistenced"),
            ),
            ("CRON[8]: (root) MAIL", TaggedWriter::Service("CRON")),
            (
                "NetworkManager[77]: <warn> dns",
                TaggedWriter::Service("NetworkManager"),
            ),
            ("postfix/smtp[9]: connect to mx", TaggedWriter::Service("postfix/smtp")),
            ("snmpd: connection refused", TaggedWriter::Service("snmpd")),
            (
                "systemd[1]: snmpd.service: Main process exited",
                TaggedWriter::Service("snmpd"),
            ),
            (
                "systemd[1]: Dependency failed for /data.",
                TaggedWriter::Service("systemd"),
            ),
            (
                "systemd[1]: pretrain-llm.service: Main process exited",
                TaggedWriter::Job,
            ),
            ("python3[33]: KeyError: 'a'", TaggedWriter::Job),
            ("slurmstepd[3]: error: Detected 1 oom_kill event", TaggedWriter::Job),
            ("llama[12]: KeyError: 'a'", TaggedWriter::Unknown("llama")),
            ("KeyError: 'a'", TaggedWriter::Job),
            ("Failed: connection refused", TaggedWriter::Job),
            ("thread: connection refused", TaggedWriter::Job),
            ("no tag here", TaggedWriter::Job),
        ];
        for (text, expected) in lines {
            assert_eq!(writer(text), expected, "{text}");
        }
    }
}
