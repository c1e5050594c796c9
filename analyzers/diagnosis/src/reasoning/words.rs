//! Names of writers and entities in the reasoning log, and the words that its sentences share.

use std::collections::BTreeSet;

use rankguard_model::{Entity, EvidenceSource, NodeId, Rank};

use crate::knowledge::ClassEntry;
use crate::{FailureScene, Signal, SignalMeaning, speaker};

/// Maximum length of quoted foreign text, characters.
pub(super) const QUOTE: usize = 200;

/// Words around the time of a consequence that is earlier than its cause by less than their order proves.
pub(super) const ABOUT_SAME_TIME: &str = "at about the same time (";
pub(super) const PROVES_NO_ORDER: &str = ", which proves no order)";

/// Initial capacity, bytes: enough for most sentences without quotes.
pub(super) const ROOM: usize = 160;

/// Writes the source of a sign. A log of a job, a launcher or a scheduler contains lines of the others as well.
pub(super) fn speaker(text: &mut String, scene: &FailureScene<'_>, sign: &Signal) {
    if speaker::is_mixed(sign.source)
        && let Some(writer) = speaker::writer(&sign.text, sign.entity.rank().is_some())
    {
        return text.push_str(writer);
    }
    let is_system_log = sign.source == EvidenceSource::KernelLog
        || speaker::is_mixed(sign.source) && matches!(sign.entity, Entity::Node { .. });
    if let Some(daemon) = speaker::daemon(&sign.text).filter(|_| is_system_log) {
        if scene.has_fault_ends {
            *text += &format!("{daemon} in ");
        }
        return beside(text, speaker::SYSTEM_LOG, " of node ", sign.node());
    }
    let (who, nameless) = match sign.source {
        EvidenceSource::KernelLog => return beside(text, "the kernel log", " of node ", sign.node()),
        EvidenceSource::Host => return beside(text, "the host monitor", " of node ", sign.node()),
        EvidenceSource::Gpu => return beside(text, "the GPU library", " of node ", sign.node()),
        EvidenceSource::Nic => return beside(text, "the network monitor", " of node ", sign.node()),
        // Sequence 0 is a comparison of the controller: of the steps of ranks, or of replicas in a checkpoint.
        EvidenceSource::Ranks if is_of_controller(scene, sign) => {
            return text.push_str("the controller's comparison of ranks");
        }
        EvidenceSource::Checkpoint if is_of_controller(scene, sign) => {
            return text.push_str("the controller's comparison of replicas");
        }
        EvidenceSource::Checkpoint => return beside(text, "the checkpoint service", " of node ", sign.node()),
        EvidenceSource::Launcher if !is_output(scene, sign) => return text.push_str("the launcher"),
        EvidenceSource::Scheduler if !is_output(scene, sign) => return text.push_str("the scheduler"),
        EvidenceSource::JobLog | EvidenceSource::Launcher | EvidenceSource::Scheduler => {
            ("the log of rank ", "the job's log")
        }
        EvidenceSource::Ranks => ("the agent of rank ", "the agent"),
        EvidenceSource::FlightRecorder => return text.push_str("the flight recorder of the job"),
        // Sequence 0 is a fact of the controller.
        EvidenceSource::Agent if sign.evidence.seq.0 > 0 => return beside(text, "the agent", " of node ", sign.node()),
        EvidenceSource::Agent if scene.distinguishes_ends() && is_about_steps(sign) => {
            return text.push_str("the controller's watch over ranks");
        }
        EvidenceSource::Agent => return text.push_str("the controller's watch over agents"),
    };
    // A rank in the text of a log is the subject of the line, not its writer.
    let rank = if speaker::is_mixed(sign.source) {
        sign.entity.rank()
    } else {
        sign.rank()
    };
    match rank {
        Some(rank) => *text += &format!("{who}{rank}"),
        None => text.push_str(nameless),
    }
}

fn is_about_steps(sign: &Signal) -> bool {
    sign.is_standing() || sign.what == SignalMeaning::Stalled
}

fn is_of_controller(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    scene.distinguishes_ends() && sign.evidence.seq.0 == 0
}

/// Returns true if a line in the log of a launcher or a scheduler is output of the program: a rank labels it, or its
/// class or wording is that of a program.
fn is_output(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    let class = sign.class().map(|class| ClassEntry::of(scene.catalogue, class));
    let is_collective = ["NCCL", "RCCL", "HCCL"].iter().any(|name| sign.text.contains(name));
    let is_program = class.is_some_and(|class| class.is_program());
    sign.entity.rank().is_some() || is_collective || is_program || names_exception(&sign.text)
}

/// Returns true for the message of a Python exception, also after the label of a host or a level: `n7: OSError: ...`.
fn names_exception(text: &str) -> bool {
    let is_exception = |word: &str| {
        let name = word.strip_suffix(':').unwrap_or_default();
        let name = name.rsplit('.').next().unwrap_or_default();
        let is_named = ["Error", "Exception"]
            .iter()
            .any(|ending| name.len() > ending.len() && name.ends_with(ending));
        is_named && name.starts_with(|c: char| c.is_ascii_uppercase())
    };
    text.split_whitespace().take(3).any(is_exception)
}

pub(super) fn subject(text: &mut String, entity: &Entity) {
    match entity {
        Entity::Rank { rank, node, .. } => beside(text, &format!("rank {rank}"), " on node ", Some(node)),
        Entity::Device { node, device } => beside(text, &device.to_string(), " of node ", Some(node)),
        Entity::Node { node } if node.as_str().is_empty() => text.push_str("the node that wrote the log"),
        Entity::Node { node } => beside(text, "", "node ", Some(node)),
        Entity::Job { .. } => text.push_str("the job"),
        Entity::Unknown => text.push_str("unknown"),
    }
}

/// Writes `what`, followed by the node after `word` if its name is known.
pub(super) fn beside(text: &mut String, what: &str, word: &str, node: Option<&NodeId>) {
    text.push_str(what);
    if let Some(node) = node.filter(|node| !node.as_str().is_empty()) {
        text.push_str(word);
        text.push_str(node.as_str());
    }
}

pub(super) fn names(ranks: &BTreeSet<Rank>) -> String {
    let list: Vec<_> = ranks.iter().map(ToString::to_string).collect();
    match list.as_slice() {
        [] => "a process".to_owned(),
        [one] => format!("rank {one}"),
        many => format!("ranks {}", many.join(", ")),
    }
}

pub(super) fn quote(text: &mut String, said: &str) {
    let line = said.split_once('\n').map_or(said, |(line, _)| line).trim();
    // A text of at most QUOTE bytes has at most QUOTE characters.
    let beyond = (line.len() > QUOTE).then(|| line.char_indices().nth(QUOTE)).flatten();
    match beyond {
        Some((end, _)) => text.extend([&line[..end], " ..."]),
        None => text.push_str(line),
    }
}

/// Capitalises the start of a sentence; times begin with ASCII letters and digits.
pub(super) fn capital(mut text: String) -> String {
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}
