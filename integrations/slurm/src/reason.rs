//! Texts of mirrors, and how they are recognised.
//!
//! A drain for a reason of Rankguard reads `rankguard: REASON (auto-resume)` in Slurm; a cordon for a drain of Slurm reads
//! `slurm drain: REASON (set by USER)` in Rankguard. A person who edits or extends a mirror in Slurm makes it a reason of
//! their own: the end mark is then missing, or no longer at the end.

use rankguard_scheduler_nodes::plain_text;

/// Start of the reason of a drain that mirrors a cordon.
const DRAIN_MARK: &str = "rankguard: ";
/// End of that reason: for people, and to recognise a text that was extended.
const DRAIN_END: &str = " (auto-resume)";
/// Start of the reason of a cordon that mirrors a drain.
const CORDON_MARK: &str = "slurm drain: ";

/// Longest text between the marks, characters. Slurm's accounting database has room for 255 in all.
const TEXT_MAX: usize = 180;
/// Longest name of a person in a mirror, characters.
const USER_MAX: usize = 32;

/// Returns the reason of a drain in Slurm for these reasons of a cordon.
pub fn drain_reason(reasons: &[&str]) -> String {
    let text = reasons.join(", ");
    format!("{DRAIN_MARK}{}{DRAIN_END}", plain_text(&text, TEXT_MAX))
}

/// Returns true if the reason of a drain in Slurm is a mirror that is unchanged.
pub fn is_mirrored_drain(reason: &str) -> bool {
    let text = reason
        .strip_prefix(DRAIN_MARK)
        .and_then(|rest| rest.strip_suffix(DRAIN_END));
    text.is_some_and(|text| !text.contains(DRAIN_END))
}

/// Returns the reason of a cordon for a drain in Slurm.
pub fn cordon_reason(reason: &str, user: Option<&str>) -> String {
    let text = plain_text(reason, TEXT_MAX);
    match user {
        Some(user) => format!("{CORDON_MARK}{text} (set by {})", plain_text(user, USER_MAX)),
        None => format!("{CORDON_MARK}{text}"),
    }
}

/// Returns true if the reason of a cordon is a mirror.
pub fn is_mirrored_cordon(reason: &str) -> bool {
    reason.starts_with(CORDON_MARK)
}
