//! Services, file systems and networks that jobs and machines share and that a log reports as failed: no program and no machine of
//! the job has the fault, so neither is blamed. What the same class reports of a request that is wrong (a name that does not exist, a
//! key that is refused) remains a fault of the job.

use std::collections::BTreeSet;

use rankguard_faults::classes;
use rankguard_model::{Entity, Rank};

use crate::first_rank::reporting_node;
use crate::{CauseCandidate, FailureScene, Signal};

/// Layer of resources that a machine could not set up for its adapter.
const MACHINE_LAYER: &str = "platform";

/// Service that is at fault by the report of a client.
struct SharedService {
    class: &'static str,
    /// Lower-case texts, one of which occurs in the report; none if each report of the class is about the service.
    words: &'static [&'static str],
    name: &'static str,
}

/// Answers of servers about themselves: HTTP 429 and 5xx, and the error codes of S3, Google Cloud Storage and Azure for them.
const SERVER_ERRORS: &[&str] = &[
    "slowdown",
    "slow down",
    "too many requests",
    "toomanyrequests",
    "internalerror",
    "internal server error",
    "serviceunavailable",
    "service unavailable",
    "serverbusy",
    "bad gateway",
    "gateway time",
    "requesttimeout",
    "429 client error",
    "500 server error",
    "502 server error",
    "503 server error",
    "504 server error",
    "reduce your request rate",
];

/// Reports about a key, a token or a login that a service does not accept (any more): error codes of the AWS, Google and Azure
/// clients, of registries and of model hubs. Lower case.
const CREDENTIAL_ERRORS: &[&str] = &[
    "expiredtoken",
    "token has expired",
    "token is expired",
    "token expired",
    "token included in the request is expired",
    "credentials have expired",
    "credentials expired",
    "requestexpired",
    "invalidaccesskeyid",
    "invalidclienttokenid",
    "unrecognizedclient",
    "signaturedoesnotmatch",
    "authorizationheadermalformed",
    "unable to locate credentials",
    "nocredentialserror",
    "defaultcredentialserror",
    "could not automatically determine credentials",
    "invalid_grant",
    "invalid credentials",
    "invalid user token",
    "invalid username or password",
    "authenticationfailed",
    "authentication required",
    "401 client error",
    "401 unauthorized",
    "key has expired",
    "api key",
];

/// Reports of a client that reached no server of an object store. Lower case.
const UNREACHED: &[&str] = &[
    "could not connect to the endpoint",
    "timeout on endpoint",
    "connection was closed before we received a valid response",
];

/// Credentials that a job presents.
const CREDENTIALS: &str = "the credentials of the job";

/// Services, by class. Classes that are missing here name a request of the job, or their own engine blames the part.
const SERVICES: [SharedService; 9] = [
    SharedService {
        class: classes::CONTROL_PLANE_ERROR,
        words: &[],
        name: "the control plane of the cluster",
    },
    // EAI_AGAIN, and lookups that the programs of Slurm make for themselves. A name that does not exist may be one of the job.
    SharedService {
        class: classes::DNS_FAILURE,
        words: &[
            "temporary failure in name resolution",
            "dns srv lookup failed",
            "resolve_ctls_from_dns_srv",
            "gai error: -3 ",
            "servfail",
        ],
        name: "the name service",
    },
    SharedService {
        class: classes::EXTERNAL_SERVICE_UNAVAILABLE,
        words: SERVER_ERRORS,
        name: "an external service",
    },
    SharedService {
        class: classes::K8S_IMAGE_PULL,
        words: SERVER_ERRORS,
        name: "the image registry",
    },
    SharedService {
        class: classes::OBJECT_STORAGE_ERROR,
        words: CREDENTIAL_ERRORS,
        name: CREDENTIALS,
    },
    SharedService {
        class: classes::OBJECT_STORAGE_ERROR,
        words: UNREACHED,
        name: "the connection to the object store",
    },
    SharedService {
        class: classes::OBJECT_STORAGE_ERROR,
        words: SERVER_ERRORS,
        name: "the object store",
    },
    SharedService {
        class: classes::PLATFORM_SERVICE_OUTAGE,
        words: &[],
        name: "a service of the platform",
    },
    SharedService {
        class: classes::PERMISSION_DENIED,
        words: CREDENTIAL_ERRORS,
        name: CREDENTIALS,
    },
];

/// Classes of a part that a rank only reports: its message is about a file system, a service or credentials, which other ranks use
/// as well.
const REPORTED: [&str; 6] = [
    classes::DISK_FULL,
    classes::DNS_FAILURE,
    classes::EXTERNAL_SERVICE_UNAVAILABLE,
    classes::OBJECT_STORAGE_ERROR,
    classes::PERMISSION_DENIED,
    classes::STORAGE_IO_ERROR,
];

/// Texts of errors of a file system: EIO, EREMOTEIO, EUCLEAN, ESTALE, ENOTCONN. Lower case.
const FILE_SYSTEM_ERRORS: [&str; 8] = [
    "input/output error",
    "remote i/o error",
    "structure needs cleaning",
    "stale file handle",
    "stale nfs file handle",
    "errno 116",
    "errno = 116",
    "transport endpoint is not connected",
];

/// Texts of a file system without room (ENOSPC). A quota (EDQUOT) is of the user or the job.
const FULL: [&str; 3] = ["no space left", "errno 28", "enospc"];

/// Blames the shared service, file system or network that reports of clients are about.
pub(crate) fn blame(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.is_of_logs() {
        return;
    }
    for candidate in &mut *ranking {
        let is_service = candidate.class.as_str() == classes::SCHEDULER_MISCONFIGURED;
        if is_service && candidate.blamed == Entity::Unknown && candidate.shared.is_none() {
            candidate.shared = Some(match reporting_node(&scene.signs[candidate.first]) {
                Some(node) => format!("the scheduler on node {node}"),
                None => "the scheduler".to_owned(),
            });
        }
    }
    let is_of_job = |candidate: &CauseCandidate| {
        let is_unplaced = candidate.blamed == scene.job_entity() && candidate.root_rank.is_none();
        is_unplaced && candidate.shared.is_none()
    };
    for candidate in ranking
        .iter_mut()
        .filter(|other| is_of_job(other) || is_only_reported(other))
    {
        if let Some(name) = shared_part(scene, candidate) {
            candidate.notes.extend(reporter(candidate));
            candidate.shared = Some(name);
            candidate.blamed = Entity::Unknown;
            candidate.root_rank = None;
        }
    }
}

/// Returns true if a rank, or the job for one of its ranks, is blamed for a part that it only reports.
fn is_only_reported(candidate: &CauseCandidate) -> bool {
    let is_placed = matches!(candidate.blamed, Entity::Rank { .. } | Entity::Job { .. });
    is_placed && candidate.shared.is_none() && REPORTED.contains(&candidate.class.as_str())
}

/// Returns the only rank that reports the part that a candidate blames; none if several do, or if no rank does. What one rank
/// reports need not concern others.
pub(crate) fn reporting_rank(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> Option<Rank> {
    if candidate.blamed != Entity::Unknown || !REPORTED.contains(&candidate.class.as_str()) {
        return None;
    }
    let rank = scene.signs[candidate.first].entity.rank()?;
    let mut support = candidate.support.iter().map(|index| &scene.signs[index]);
    support.all(|sign| sign.entity.rank() == Some(rank)).then_some(rank)
}

/// Returns a sentence about the rank that reports a shared part.
fn reporter(candidate: &CauseCandidate) -> Option<String> {
    let rank = candidate.blamed.rank().or(candidate.root_rank)?;
    Some(match candidate.blamed.node().filter(|node| !node.as_str().is_empty()) {
        Some(node) => format!("Rank {rank} on node {node} reports it and is not to blame."),
        None => format!("Rank {rank} reports it and is not to blame."),
    })
}

fn shared_part(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> Option<String> {
    let first = &scene.signs[candidate.first];
    let class = candidate.class.as_str();
    let texts = [
        Some(first.text.as_str()),
        first.field("message"),
        first.field("reported"),
    ];
    let text: String = texts
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
        .to_ascii_lowercase();
    let has_any = |words: &[&str]| words.iter().any(|words| text.contains(words));
    let is_full = class == classes::DISK_FULL && has_any(&FULL) && !text.contains("quota");
    if is_full || class == classes::STORAGE_IO_ERROR && has_any(&FILE_SYSTEM_ERRORS) {
        let support = candidate.support.iter().map(|index| &*scene.signs[index]);
        let paths: BTreeSet<&str> = support.filter_map(|sign| quoted_path(&sign.text)).collect();
        return Some(match common_path(&paths) {
            Some(path) => format!("the file system of {path}"),
            None => "a file system that the log does not name".to_owned(),
        });
    }
    if class == classes::IB_RDMA_ERROR && candidate.layer.as_deref() != Some(MACHINE_LAYER) {
        return Some(network(scene, candidate));
    }
    let is_stated =
        |service: &&SharedService| service.class == class && (service.words.is_empty() || has_any(service.words));
    SERVICES.iter().find(is_stated).map(|service| service.name.to_owned())
}

/// Returns the words for the network between the machine that reports an error and the peer that it names, if there is one of
/// each.
fn network(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> String {
    let support = || candidate.support.iter().map(|index| &*scene.signs[index]);
    let hosts: BTreeSet<&str> = support().filter_map(reporting_node).collect();
    let peers: BTreeSet<&str> = support().filter_map(completion_peer).collect();
    let only = |names: &BTreeSet<&str>| {
        names
            .first()
            .filter(|_| names.len() == 1)
            .map(|name| (*name).to_owned())
    };
    match (only(&hosts), only(&peers)) {
        (Some(host), Some(peer)) => format!("the network between node {host} and peer {peer}"),
        (None, Some(peer)) if hosts.is_empty() => format!("the network to peer {peer}"),
        (Some(host), None) if peers.is_empty() => format!("the network of node {host}"),
        _ => "the network between the machines".to_owned(),
    }
}

/// Returns the peer that a message of NCCL about a completion names: `Got completion from peer 10.0.0.7<36315> with status=12`.
fn completion_peer(sign: &Signal) -> Option<&str> {
    let (_, rest) = sign.text.split_once("ompletion from peer ")?;
    let end = rest
        .find(|c: char| c == '<' || c == '%' || c.is_whitespace())
        .unwrap_or(rest.len());
    Some(&rest[..end]).filter(|peer| !peer.is_empty())
}

/// Returns the only path, or the folder that all paths lie in; none if that is only the root.
fn common_path<'p>(paths: &BTreeSet<&'p str>) -> Option<&'p str> {
    let first = *paths.first()?;
    // Of sorted texts, the first and the last differ earliest.
    let last = *paths.last()?;
    let same = first.bytes().zip(last.bytes()).take_while(|(one, other)| one == other);
    let same = same.count();
    if same == first.len() && same == last.len() {
        return Some(first);
    }
    let folder = first.as_bytes()[..same].iter().rposition(|byte| *byte == b'/')?;
    (folder > 0).then(|| &first[..folder])
}

/// Returns the absolute path that an error quotes: `OSError: [Errno 116] Stale file handle: '/data/a.pt'`.
fn quoted_path(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(": '/").or_else(|| text.split_once(": \"/"))?;
    let end = rest.find(['\'', '"'])?;
    let start = text.len() - rest.len() - 1;
    Some(&text[start..start + end + 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_folder_name_it() {
        for (paths, expect) in [
            (vec!["/mnt/a/1.pt"], Some("/mnt/a/1.pt")),
            (vec!["/mnt/a/1.pt", "/mnt/a/2.pt", "/mnt/a/b/3.pt"], Some("/mnt/a")),
            (vec!["/mnt/a", "/mnt/ab"], Some("/mnt")),
            (vec!["/data/a", "/home/a"], None),
            (vec![], None),
        ] {
            let all: BTreeSet<&str> = paths.iter().copied().collect();
            assert_eq!(common_path(&all), expect, "{paths:?}");
        }
    }

    #[test]
    fn an_error_quotes_its_path() {
        for (text, expect) in [
            (
                "OSError: [Errno 116] Stale file handle: '/home/a/last.pt'",
                Some("/home/a/last.pt"),
            ),
            ("OSError: [Errno 5] Input/output error: \"/data/x\"", Some("/data/x")),
            ("OSError: [Errno 116] Stale file handle: xxx", None),
            ("OSError: [Errno 116] Stale file handle: '/cut", None),
        ] {
            assert_eq!(quoted_path(text), expect, "{text}");
        }
    }
}
