//! Notes about the ranks of a generation that neither end nor restart it: losses that are NaN or infinite, programs that a
//! command started again, errors that were printed before an exit with code 0.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{ClassId, Rank, Step, Timestamp};
use serde::{Deserialize, Serialize};

/// Maximum ranks that a text names.
const NAMED_MAX: usize = 8;

/// Notes about the ranks of one generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankNotes {
    /// Ranks of which the newest loss is not finite.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    losses: BTreeMap<Rank, NonFiniteLoss>,
    /// Ranks with a program that was started again and refused, with the agent's text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    refused: BTreeMap<Rank, String>,
    /// Newest error that a rank printed after its newest step.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    errors: BTreeMap<Rank, PrintedError>,
    /// Ranks that reported that their work is done.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    finished: BTreeSet<Rank>,
}

/// Loss that is NaN or infinite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct NonFiniteLoss {
    /// First step with such a loss.
    since: Step,
    /// `nan`, `inf` or `-inf`.
    loss: String,
}

/// Error that a rank printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PrintedError {
    class: ClassId,
    at: Timestamp,
}

impl RankNotes {
    /// Returns true if there are no notes.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Records the first step of a rank with a loss that is not finite.
    pub(crate) fn loss_failed(&mut self, rank: Rank, since: Step, loss: &str) {
        let loss = loss.to_owned();
        self.losses.entry(rank).or_insert(NonFiniteLoss { since, loss });
    }

    /// Records that the agent refused a further process of a rank.
    pub(crate) fn process_refused(&mut self, rank: Rank, text: &str) {
        self.refused.insert(rank, text.to_owned());
    }

    /// Records an error that a rank printed before the end of its work.
    pub(crate) fn error_printed(&mut self, rank: Rank, class: &ClassId, at: Timestamp) {
        if !self.finished.contains(&rank) {
            let class = class.clone();
            self.errors.entry(rank).or_insert(PrintedError { class, at });
        }
    }

    /// Records a step: the rank went on after the errors before it. Returns true if the loss is finite again.
    pub(crate) fn stepped(&mut self, rank: Rank, step: Step, has_finite_loss: bool, at: Timestamp) -> bool {
        if self.errors.get(&rank).is_some_and(|error| error.at < at) {
            self.errors.remove(&rank);
        }
        let failed = self.losses.get(&rank);
        let recovers = has_finite_loss && failed.is_some_and(|failed| failed.since < step);
        recovers && self.losses.remove(&rank).is_some()
    }

    /// Records that a rank has done its work.
    pub(crate) fn finished(&mut self, rank: Rank) {
        self.errors.remove(&rank);
        self.finished.insert(rank);
    }

    /// Returns true if the newest loss of a rank is not finite.
    pub(crate) fn has_failed_loss(&self) -> bool {
        !self.losses.is_empty()
    }

    /// Returns the first step with a loss that is not finite.
    pub(crate) fn loss_failed_since(&self) -> Option<Step> {
        self.losses.values().map(|failed| failed.since).min()
    }

    /// Returns the losses that are not finite, in words: `loss nan since step 25 (rank 0)`.
    pub(crate) fn loss_text(&self) -> Option<String> {
        let first = self.losses.values().min_by_key(|failed| failed.since)?;
        let ranks = named_ranks(self.losses.keys().copied().collect());
        Some(format!("loss {} since step {} ({ranks})", first.loss, first.since))
    }

    /// Returns the refusals of programs that were started again, one text a rank.
    pub(crate) fn refused_texts(&self) -> impl Iterator<Item = &String> {
        self.refused.values().take(NAMED_MAX)
    }

    /// Returns the errors of the ranks that ended with code 0 without the report that their work is done; `None` if there
    /// are none.
    pub(crate) fn unreported_failure(
        &self,
        has_completed: impl Fn(Rank) -> bool,
        newest: Option<Step>,
    ) -> Option<String> {
        let mut by_class: BTreeMap<&ClassId, Vec<Rank>> = BTreeMap::new();
        for (rank, error) in self.errors.iter().filter(|(rank, _)| has_completed(**rank)) {
            by_class.entry(&error.class).or_default().push(*rank);
        }
        let mut classes: Vec<(&ClassId, Vec<Rank>)> = by_class.into_iter().collect();
        classes.sort_by_key(|(_, ranks)| ranks.first().copied());
        if classes.is_empty() {
            return None;
        }
        let errors = classes
            .into_iter()
            .map(|(class, ranks)| format!("{} printed {class}", named_ranks(ranks)));
        let errors = errors.collect::<Vec<_>>().join(", ");
        let newest = newest.map_or_else(String::new, |step| format!("; the newest step is {step}"));
        Some(format!(
            "{errors} before the exit with code 0, without a report that the work was done{newest}"
        ))
    }
}

/// Formats a list of ranks: `rank 0`, `ranks 0, 1`.
fn named_ranks(ranks: Vec<Rank>) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let named: Vec<String> = ranks.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = ranks.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{noun} {}{more}", named.join(", "))
}
