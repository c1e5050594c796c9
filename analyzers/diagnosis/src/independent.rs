//! Failures in logs that no path of cause and effect connects with the first cause.
//!
//! A kernel ends a process for the memory of its own node, a program raises an error for its own reason, and a link that
//! is down or a server that does not answer stops no device of another machine. Such failures are cases of their own, in
//! any order of time. A path is a shared file system, the network, or an order to all ranks: causes of these kinds explain
//! failures of other nodes, so nothing is independent of them. The rules hold for logs that are read later; live, the ends
//! of ranks decide ([`crate::own_fault`]).

use rankguard_faults::classes;
use rankguard_model::{DeviceKind, Entity, EvidenceSource, NodeId, Rank};

use crate::engine::FailureFamily;
use crate::first_rank::reporting_node;
use crate::knowledge::ClassEntry;
use crate::links::is_link_up;
use crate::own_exceptions::{LOST_PEER_CLASSES, is_about_others, is_own_error};
use crate::shared_services::reporting_rank;
use crate::storage::is_answered;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal, speaker};

/// Kind of a failure of one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalFailure {
    /// GPU, or a switch between GPUs.
    Gpu,
    /// Other hardware of a machine, or its kernel.
    Machine,
    /// Network adapter or its link.
    Adapter,
    /// Process that was ended for lack of memory.
    MemoryKill,
    /// File system without space.
    FullDisk,
    /// Error that a program raised for a reason of its own.
    OwnError,
    /// File system that does not answer.
    HungFileSystem,
    /// Other failure of one process. What it read may be shared, so it explains errors of other programs.
    Process,
}

impl LocalFailure {
    /// Returns the kind of a winner; none for causes that reach other nodes or all ranks.
    pub(crate) fn of_winner(scene: &FailureScene<'_>, winner: &CauseCandidate) -> Option<Self> {
        let first = &scene.signs[winner.first];
        let is_named = winner.strength >= CandidateStrength::Cause;
        let kind = Self::of(scene, first, winner.class.as_str()).filter(|_| is_named);
        let kind = kind.or_else(|| is_of_process(scene, winner).then_some(Self::Process));
        kind.filter(|_| winner.shared.is_none() || reporting_rank(scene, winner).is_some())
    }

    fn of(scene: &FailureScene<'_>, sign: &Signal, class: &str) -> Option<Self> {
        let id = class.into();
        let known = ClassEntry::of(scene.catalogue, &id);
        let is_of_gpu = matches!(
            &sign.entity,
            Entity::Device { device, .. } if matches!(device.kind, DeviceKind::Gpu | DeviceKind::Nvswitch)
        );
        match class {
            classes::HOST_OOM_KILL | classes::CONTAINER_OOM_KILL => Some(Self::MemoryKill),
            classes::DISK_FULL => Some(Self::FullDisk),
            classes::FILESYSTEM_HANG => is_of_machine(sign).then_some(Self::HungFileSystem),
            classes::NIC_FAULT | classes::NIC_LINK_DOWN => Some(Self::Adapter),
            _ if known.layer() == "hardware" && known.is_outright_fault() => {
                Some(if is_of_gpu { Self::Gpu } else { Self::Machine })
            }
            _ => (is_own_error(sign) || is_misuse(sign)).then_some(Self::OwnError),
        }
    }
}

/// Returns true for a failure that one rank names or in which one rank crashed, and that reports nothing of its peers.
fn is_of_process(scene: &FailureScene<'_>, winner: &CauseCandidate) -> bool {
    let family = scene.family(winner.first);
    let least = match family {
        Some(FailureFamily::Process) => CandidateStrength::Symptom,
        _ => CandidateStrength::Cause,
    };
    let is_family = matches!(family, Some(FailureFamily::Process | FailureFamily::Software));
    let has_rank = winner.root_rank.or_else(|| reporting_rank(scene, winner)).is_some();
    is_family && has_rank && winner.strength >= least
}

/// Returns true for a wrong call that a program raised: `TypeError`, `AttributeError` and the like.
fn is_misuse(sign: &Signal) -> bool {
    let is_class = sign
        .class()
        .is_some_and(|class| class.as_str() == classes::FRAMEWORK_API_MISUSE);
    is_class && sign.is_root_mark() && !is_about_others(sign)
}

/// Returns true for an exception of a program or about its data that was raised before the first cause: a failure of another
/// rank cannot be its reason.
fn is_raised_before(scene: &FailureScene<'_>, index: usize, first: &Signal) -> bool {
    let sign = &scene.signs[index];
    let is_program = scene
        .known(index)
        .is_some_and(|known| matches!(known.layer(), "user-code" | "user-data"));
    let is_before = sign.timed && first.timed && sign.at < first.at;
    is_program
        && is_before
        && sign.field("exception").is_some()
        && sign.entity.rank().is_some()
        && !is_about_others(sign)
}

fn is_of_machine(sign: &Signal) -> bool {
    matches!(sign.source, EvidenceSource::KernelLog | EvidenceSource::Host)
}

/// Location of a failure, as far as logs name it.
#[derive(Debug, Clone, Copy)]
struct FailurePlace<'a> {
    node: Option<&'a NodeId>,
    rank: Option<Rank>,
}

impl<'a> FailurePlace<'a> {
    fn new(scene: &'a FailureScene<'_>, node: Option<&'a NodeId>, rank: Option<Rank>) -> Self {
        let is_named = |node: &&NodeId| !node.as_str().is_empty();
        let placed = || scene.placements.get(&rank?);
        let node = node.filter(is_named).or_else(placed).filter(is_named);
        Self { node, rank }
    }

    fn of_winner(scene: &'a FailureScene<'_>, winner: &'a CauseCandidate) -> Self {
        let first = &scene.signs[winner.first];
        let node = winner.blamed.node().or(first.node());
        Self::new(scene, node, winner.root_rank.or(first.entity.rank()))
    }

    fn of_sign(scene: &'a FailureScene<'_>, sign: &'a Signal) -> Self {
        Self::new(scene, sign.node(), sign.entity.rank())
    }

    fn is_other_node(&self, other: &Self) -> bool {
        matches!((self.node, other.node), (Some(one), Some(other)) if one != other)
    }

    fn is_same_node(&self, other: &Self) -> bool {
        self.node.is_some() && self.node == other.node
    }

    fn is_other_rank(&self, other: &Self) -> bool {
        matches!((self.rank, other.rank), (Some(one), Some(other)) if one != other)
    }
}

/// Returns true if the sign at an index reports a failure that the winner cannot have caused, and that cannot have caused
/// the winner.
pub(crate) fn is_independent(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let sign = &scene.signs[index];
    let first = &scene.signs[winner.first];
    let is_candidate = scene.is_of_logs() && index != winner.first && !winner.support.contains(index);
    if !is_candidate || sign.evidence == first.evidence || !sign.is_root_mark() {
        return false;
    }
    let Some(cause) = LocalFailure::of_winner(scene, winner) else {
        return false;
    };
    let class = sign.class().map_or("", |class| class.as_str());
    let failure = LocalFailure::of(scene, sign, class);
    let failure = failure.or_else(|| is_raised_before(scene, index, first).then_some(LocalFailure::OwnError));
    let Some(failure) = failure else {
        return false;
    };
    let pair = FailurePair {
        scene,
        index,
        cause,
        first,
        place: FailurePlace::of_winner(scene, winner),
        own: FailurePlace::of_sign(scene, sign),
    };
    match failure {
        LocalFailure::MemoryKill => pair.is_own_kill(),
        LocalFailure::FullDisk => pair.is_own_full_disk(),
        LocalFailure::OwnError => {
            let is_same = class == winner.class.as_str() || sign.class() == first.class();
            !is_same && pair.is_apart()
        }
        LocalFailure::HungFileSystem => pair.is_own_hang(),
        LocalFailure::Adapter => pair.is_own_link(),
        // Faults of hardware are decided by their devices.
        LocalFailure::Gpu | LocalFailure::Machine | LocalFailure::Process => false,
    }
}

/// First cause and another failure.
struct FailurePair<'a, 's> {
    scene: &'a FailureScene<'s>,
    /// Number of the sign of the other failure.
    index: usize,
    cause: LocalFailure,
    /// Sign of the first cause.
    first: &'a Signal,
    /// Location of the first cause.
    place: FailurePlace<'a>,
    /// Location of the other failure.
    own: FailurePlace<'a>,
}

impl FailurePair<'_, '_> {
    fn sign(&self) -> &Signal {
        &self.scene.signs[self.index]
    }

    fn is_on_other_node(&self) -> bool {
        self.own.is_other_node(&self.place)
    }

    /// Returns true for a kill on another node. Beside an error of a program the node need not be known: an error that ends
    /// a program takes no memory, unless the program writes its state on the way.
    fn is_own_kill(&self) -> bool {
        let is_known = self.own.node.is_some();
        let is_error = matches!(self.cause, LocalFailure::OwnError | LocalFailure::Process);
        let is_beside_error = is_error && is_known && !self.own.is_same_node(&self.place);
        // A GPU takes no memory of its machine.
        let is_beside_gpu = self.cause == LocalFailure::Gpu && is_known;
        (self.is_on_other_node() || is_beside_error || is_beside_gpu)
            && !hangs_there(self.scene, &self.own)
            && is_of_job(self.scene, self.sign())
    }

    /// Returns true for a full disk of another node or rank than that of a cause that writes nothing.
    fn is_own_full_disk(&self) -> bool {
        let is_dry = matches!(
            self.cause,
            LocalFailure::Gpu
                | LocalFailure::Machine
                | LocalFailure::Adapter
                | LocalFailure::MemoryKill
                | LocalFailure::OwnError
        );
        let is_other_rank = self.cause == LocalFailure::OwnError
            && self.own.is_other_rank(&self.place)
            && !self.own.is_same_node(&self.place);
        is_dry && (self.is_on_other_node() || is_other_rank)
    }

    /// Returns true for an error that a program raised on another node, or another rank beside the error of a rank, if its
    /// writer had lost no peer before. Values that another rank did not send are missing.
    fn is_apart(&self) -> bool {
        let sign = self.sign();
        let class = sign.class().map_or("", |class| class.as_str());
        let is_memory = class == classes::CUDA_OOM;
        let is_plain =
            class != classes::PYTHON_NONE_DEREFERENCE && !sign.text.contains("NoneType") && !is_about_others(sign);
        let is_path = match self.cause {
            // An error that came before is no consequence.
            _ if self.is_earlier() => false,
            LocalFailure::HungFileSystem | LocalFailure::FullDisk | LocalFailure::Process => !is_memory,
            _ => false,
        };
        let is_of_ranks = matches!(
            self.cause,
            LocalFailure::OwnError | LocalFailure::FullDisk | LocalFailure::Process
        );
        let is_elsewhere = self.is_on_other_node() || is_of_ranks && self.own.is_other_rank(&self.place);
        is_plain && !is_path && is_elsewhere && !has_lost_peer_before(self.scene, self.index)
    }

    fn is_earlier(&self) -> bool {
        let sign = self.sign();
        sign.timed && self.first.timed && sign.at < self.first.at
    }

    /// Returns true for a server that never answered: no GPU reaches it, and no failure of another node, unless that node
    /// is the server.
    fn is_own_hang(&self) -> bool {
        // One line may have several marks, not all of which name the server.
        let evidence = &self.sign().evidence;
        let same = self.scene.marks().filter(|(_, other)| other.evidence == *evidence);
        let mut servers = same.filter_map(|(_, other)| other.field("server"));
        let node = self.place.node;
        let is_server = node.is_some_and(|node| servers.any(|server| names_host(server, node)));
        let is_without_path = match self.cause {
            LocalFailure::Gpu => true,
            LocalFailure::Machine | LocalFailure::MemoryKill | LocalFailure::OwnError => self.is_on_other_node(),
            LocalFailure::FullDisk | LocalFailure::Adapter | LocalFailure::HungFileSystem | LocalFailure::Process => {
                false
            }
        };
        is_without_path && !is_server && !is_answered(self.scene, self.sign())
    }

    /// Returns true for a link that never came up again, on another node than that of a cause without a path to it.
    fn is_own_link(&self) -> bool {
        let sign = self.sign();
        let is_up = self
            .scene
            .signs
            .iter()
            .any(|other| is_link_up(other) && other.entity == sign.entity && other.at >= sign.at);
        let is_without_path = match self.cause {
            LocalFailure::OwnError => true,
            LocalFailure::Gpu | LocalFailure::MemoryKill | LocalFailure::FullDisk | LocalFailure::Process => {
                self.is_on_other_node()
            }
            LocalFailure::Machine | LocalFailure::Adapter | LocalFailure::HungFileSystem => false,
        };
        is_without_path && self.own.node.is_some() && !is_up
    }
}

/// Returns true if a log of a job reports the end of a process that a machine names: `failed (exitcode: -9) ... (pid: 20)`. The
/// first process of every container has the number 1.
pub fn reports_process(sign: &Signal, pid: u32, node: Option<&NodeId>) -> bool {
    let node = node.map(NodeId::as_str).filter(|node| !node.is_empty());
    let is_there = match (reporting_node(sign), node) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    speaker::is_mixed(sign.source) && pid > 1 && sign.pid() == Some(pid) && is_there
}

/// Returns true if a sign of a log of a job reports the end of a process that another kill than the winner ended, which is a
/// failure of its own.
pub(crate) fn follows_own_kill(scene: &FailureScene<'_>, winner: &CauseCandidate, sign: &Signal) -> bool {
    if !scene.is_of_logs() || !speaker::is_mixed(sign.source) {
        return false;
    }
    let is_kill = |sign: &Signal| sign.class().is_some_and(|class| class.as_str().ends_with("oom-kill"));
    let first = &scene.signs[winner.first];
    // Of several meanings of a line, one holds the number of the process.
    let mut of_line = scene.marks().filter(|(_, other)| other.evidence == sign.evidence);
    let Some((_, report)) = of_line.find(|(_, other)| other.pid().is_some()) else {
        return false;
    };
    if first
        .pid()
        .is_some_and(|pid| reports_process(report, pid, first.node()))
    {
        return false;
    }
    let mut kills = scene
        .roots()
        .filter(|(_, kill)| is_kill(kill) && kill.source == EvidenceSource::KernelLog);
    kills.any(|(index, kill)| {
        let is_its_end = kill.pid().is_some_and(|pid| reports_process(report, pid, kill.node()));
        is_its_end && is_independent(scene, winner, index)
    })
}

/// Returns true if a file system of a node does not answer: programs that cannot write fill the memory.
fn hangs_there(scene: &FailureScene<'_>, own: &FailurePlace<'_>) -> bool {
    scene.roots().any(|(_, sign)| {
        let is_hang = sign
            .class()
            .is_some_and(|class| class.as_str() == classes::FILESYSTEM_HANG);
        is_hang && sign.node() == own.node
    })
}

/// Returns true if a kill may be one of a process of the job: the memory of the whole node was used up, or a log other
/// than the kernel's reports a kill there. A control group at its limit may be of any service.
fn is_of_job(scene: &FailureScene<'_>, kill: &Signal) -> bool {
    let is_kill = |sign: &Signal| sign.class().is_some_and(|class| class.as_str().ends_with("oom-kill"));
    let is_limit = kill.source == EvidenceSource::KernelLog
        && (kill.field("constraint") == Some("CONSTRAINT_MEMCG")
            || kill.text.contains("Memory cgroup out of memory")
            || kill
                .class()
                .is_some_and(|class| class.as_str() == classes::CONTAINER_OOM_KILL));
    let is_reported = || {
        let mut marks = scene.marks();
        marks.any(|(_, other)| is_kill(other) && speaker::is_mixed(other.source) && other.node() == kill.node())
    };
    !is_limit || is_reported()
}

/// Returns true if the writer of a sign reported a lost connection, or a wait in vain, before it.
fn has_lost_peer_before(scene: &FailureScene<'_>, index: usize) -> bool {
    let sign = &scene.signs[index];
    let is_same_writer = |other: &Signal| match (sign.entity.rank(), other.entity.rank()) {
        (Some(one), Some(other)) => one == other,
        (None, None) => sign.evidence.node == other.evidence.node,
        _ => false,
    };
    let is_loss = |at: usize, other: &Signal| {
        let class = other.class().map_or("", |class| class.as_str());
        scene.family(at) == Some(FailureFamily::Fabric) || LOST_PEER_CLASSES.contains(&class)
    };
    let mut before = scene.marks().take_while(|(at, _)| *at < index);
    before.any(|(at, other)| is_same_writer(other) && is_loss(at, other))
}

fn names_host(server: &str, node: &NodeId) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or(name).to_ascii_lowercase();
    short(server) == short(node.as_str())
}
