//! Nodes as `scontrol show node --oneliner` prints them.

use crate::reason::is_mirrored_drain;

/// Start of the reason that slurmctld gives a node of which the slurmd does not answer.
const SILENT_REASON: &str = "Not responding";
/// Marks that older versions of Slurm append to a state: not responding, powering, maintenance and others.
const STATE_MARKS: &[char] = &['*', '~', '#', '!', '%', '$', '@', '^', '-'];
/// Longest name of a node, as of agents, bytes.
const NAME_MAX: usize = 128;

/// Node of Slurm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmNode {
    /// Name in Slurm.
    pub name: String,
    /// Use of the node.
    pub availability: NodeAvailability,
}

/// Use that Slurm makes of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAvailability {
    /// Jobs may start on the node.
    Open,
    /// The node is down because its slurmd is silent, or is no machine yet. Silence proves no defect, and the node cannot
    /// get jobs.
    Silent,
    /// A person or slurmctld took the node out of use.
    Closed {
        /// Reason, one line.
        reason: String,
        /// User who set it.
        user: Option<String>,
    },
    /// The node is drained for a reason of Rankguard.
    Mirrored {
        /// Reason with its marks.
        reason: String,
        /// True if the node is down as well, which only a person ends.
        is_down: bool,
    },
}

/// Result of reading a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeListing {
    /// Nodes that were understood.
    pub nodes: Vec<SlurmNode>,
    /// Lines that were not understood, as sentences. Their nodes cause no action.
    pub problems: Vec<String>,
}

impl NodeListing {
    /// Reads the output of `scontrol show node --oneliner`. Lines that do not begin with a name are ignored.
    pub fn parse(text: &str) -> Self {
        let mut listing = Self::default();
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("NodeName=") else {
                continue;
            };
            let name = rest.split(' ').next().unwrap_or_default();
            match node(name, rest) {
                Ok(availability) => listing.nodes.push(SlurmNode {
                    name: name.to_owned(),
                    availability,
                }),
                Err(problem) => listing.problems.push(problem),
            }
        }
        listing
    }
}

/// Returns true if a name may be passed to `scontrol` as the name of one node: host lists and `ALL` mean several.
pub(crate) fn is_single_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    (1..=NAME_MAX).contains(&name.len())
        && !name.starts_with('-')
        && name.chars().all(is_plain)
        && !name.eq_ignore_ascii_case("all")
}

fn node(name: &str, line: &str) -> Result<NodeAvailability, String> {
    if !is_single_name(name) {
        return Err(format!("{name:?} is not the name of one node"));
    }
    // Fields before and after may contain text of the node or of people.
    let Some(state) = only_field(line, " State=")? else {
        return Err(format!("node {name}: the line has no state"));
    };
    let reason = only_field(line, " Reason=")?.map(NodeReason::parse);
    let states = state.split(' ').next().unwrap_or_default();
    let flags: Vec<&str> = states
        .split('+')
        .map(|flag| flag.trim_end_matches(STATE_MARKS))
        .collect();
    let has = |start: &str| flags.iter().any(|flag| flag.starts_with(start));
    let is_down = has("DOWN");
    let text = reason.as_ref().map_or("", |reason| reason.text);
    let is_mirrored = is_mirrored_drain(text) && reason.as_ref().is_some_and(|reason| reason.is_whole);
    let availability = if has("DRAIN") && is_mirrored && !has("FAIL") {
        NodeAvailability::Mirrored {
            reason: text.to_owned(),
            is_down,
        }
    } else if has("DRAIN") || has("FAIL") {
        closed(reason)
    } else if flags.first() == Some(&"FUTURE") || is_down && (text.starts_with(SILENT_REASON) || is_mirrored) {
        NodeAvailability::Silent
    } else if is_down {
        closed(reason)
    } else {
        NodeAvailability::Open
    };
    Ok(availability)
}

fn closed(reason: Option<NodeReason<'_>>) -> NodeAvailability {
    NodeAvailability::Closed {
        reason: reason.as_ref().map_or("", |reason| reason.text).to_owned(),
        user: reason.and_then(|reason| reason.user).map(str::to_owned),
    }
}

/// Returns the text behind the only occurrence of a field; several cannot be distinguished from text that contains
/// the field.
fn only_field<'l>(line: &'l str, field: &str) -> Result<Option<&'l str>, String> {
    let mut parts = line.splitn(3, field);
    let before = parts.next().unwrap_or_default();
    let after = parts.next();
    if parts.next().is_some() {
        let name = before.split(' ').next().unwrap_or_default();
        return Err(format!("node {name}: the text `{}` occurs twice", field.trim()));
    }
    Ok(after)
}

/// Reason with the user who set it: `fan broken [ada@2026-11-30T12:40:36]`.
struct NodeReason<'l> {
    text: &'l str,
    user: Option<&'l str>,
    /// True if nothing of the reason follows its first line.
    is_whole: bool,
}

impl<'l> NodeReason<'l> {
    fn parse(rest: &'l str) -> Self {
        let mut first = None;
        for (at, _) in rest.match_indices(" [") {
            let Some((stamp, behind)) = rest[at + 2..].split_once(']') else {
                break;
            };
            let Some(user) = stamp_user(stamp) else { continue };
            if behind.is_empty() || begins_field(behind) {
                return Self {
                    text: &rest[..at],
                    user: Some(user),
                    is_whole: true,
                };
            }
            first.get_or_insert((at, user));
        }
        match first {
            // The further lines of a reason stand behind the stamp.
            Some((at, user)) => Self {
                text: &rest[..at],
                user: Some(user),
                is_whole: false,
            },
            None => Self {
                text: rest.trim_end(),
                user: None,
                is_whole: false,
            },
        }
    }
}

/// Returns the user of a stamp `USER@2026-11-30T12:40:36`.
fn stamp_user(stamp: &str) -> Option<&str> {
    let (user, time) = stamp.rsplit_once('@')?;
    let pattern = "0000-00-00T00:00:00";
    let fits = |(letter, wanted): (char, char)| {
        if wanted == '0' {
            letter.is_ascii_digit()
        } else {
            letter == wanted
        }
    };
    let is_time = time.len() == pattern.len() && time.chars().zip(pattern.chars()).all(fits);
    (is_time && !user.is_empty()).then_some(user)
}

/// Returns true if a field of `scontrol` begins here: ` Comment=...`.
fn begins_field(text: &str) -> bool {
    let field = text.strip_prefix(' ').and_then(|text| text.split_once('='));
    field.is_some_and(|(name, _)| !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric()))
}
