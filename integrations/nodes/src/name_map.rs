//! Which node of a scheduler is which node of Rankguard.

use std::collections::{BTreeMap, BTreeSet};

/// Mistake in a file of names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameMapError {
    /// A line has another form.
    #[error("line {line}: write two names, of the scheduler and of Rankguard: `n07 gpu-07.example`")]
    Form {
        /// Number of the line, from 1.
        line: usize,
    },
    /// A name stands twice.
    #[error("line {line}: {name} has another line before")]
    Twice {
        /// Number of the line, from 1.
        line: usize,
        /// Name that stands twice.
        name: String,
    },
}

/// Names of nodes that differ. Other names match if they are equal, or if one is the first label of the other
/// (`gpu-07` and `gpu-07.example`) and no third name competes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameMap {
    /// Name in Rankguard by name in the scheduler.
    given: BTreeMap<String, String>,
}

/// Result of a comparison of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamePairs {
    /// Name in Rankguard by name in the scheduler.
    pub known: BTreeMap<String, String>,
    /// Nodes that only the scheduler has.
    pub only_scheduler: Vec<String>,
    /// Nodes that only Rankguard has.
    pub only_rankguard: Vec<String>,
}

impl NameMap {
    /// Reads a file of names: one pair a line, comments after `#`.
    ///
    /// # Errors
    /// A line has another form, or a name stands twice.
    pub fn parse(text: &str) -> Result<Self, NameMapError> {
        let mut map = Self::default();
        let mut targets = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let (scheduler, rankguard) = match words[..] {
                [] => continue,
                [scheduler, rankguard] => (scheduler, rankguard),
                _ => return Err(NameMapError::Form { line: number }),
            };
            let twice = |name: &str| NameMapError::Twice {
                line: number,
                name: name.to_owned(),
            };
            if map.given.insert(scheduler.to_owned(), rankguard.to_owned()).is_some() {
                return Err(twice(scheduler));
            }
            if !targets.insert(rankguard.to_owned()) {
                return Err(twice(rankguard));
            }
        }
        Ok(map)
    }

    /// Pairs the names of both sides; each is in at most one pair.
    pub fn pair<'n>(
        &self,
        scheduler: impl IntoIterator<Item = &'n str>,
        rankguard: impl IntoIterator<Item = &'n str>,
    ) -> NamePairs {
        let mut scheduler: BTreeSet<&str> = scheduler.into_iter().collect();
        let mut rankguard: BTreeSet<&str> = rankguard.into_iter().collect();
        let mut known = BTreeMap::new();
        for (one, other) in &self.given {
            if scheduler.contains(one.as_str()) && rankguard.contains(other.as_str()) {
                scheduler.remove(one.as_str());
                rankguard.remove(other.as_str());
                known.insert(one.clone(), other.clone());
            }
        }
        let equal: Vec<&str> = scheduler.intersection(&rankguard).copied().collect();
        for name in equal {
            scheduler.remove(name);
            rankguard.remove(name);
            known.insert(name.to_owned(), name.to_owned());
        }
        let (by_scheduler, by_rankguard) = (by_label(&scheduler), by_label(&rankguard));
        for (label, names) in by_scheduler {
            if let ([one], Some([other])) = (&names[..], by_rankguard.get(label).map(Vec::as_slice))
                // Two full names of different domains are two machines.
                && (*one == label || *other == label)
            {
                scheduler.remove(one);
                rankguard.remove(other);
                known.insert((*one).to_owned(), (*other).to_owned());
            }
        }
        let texts = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
        NamePairs {
            known,
            only_scheduler: texts(scheduler),
            only_rankguard: texts(rankguard),
        }
    }
}

fn by_label<'n>(names: &BTreeSet<&'n str>) -> BTreeMap<&'n str, Vec<&'n str>> {
    let mut labels: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in names {
        let label = name.split('.').next().unwrap_or_default();
        labels.entry(label).or_default().push(name);
    }
    labels
}
