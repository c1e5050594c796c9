//! Evidence from a RAS answer: text, and the ranks of the job that the others seem to wait for.

use std::collections::BTreeMap;

use super::answer::{DifferenceKind, RankDifference, RasReport};

/// Most troubles that the text names; the rest follows in the context lines.
const NAMED: usize = 3;
/// Most context lines.
const LINES: usize = 64;
/// Most suspected ranks; with more, none is suspected.
const SUSPECTS: usize = 8;
/// Error that a rank has because of another one.
const OF_ANOTHER: &str = "Remote process error";

/// Text and suspects of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RasFinding {
    pub(super) text: String,
    pub(super) lines: Vec<String>,
    /// Suspected ranks of the job, each with the text that follows its name.
    pub(super) suspects: BTreeMap<u32, String>,
}

/// Formats an answer. `world` is the number of ranks of the job: only in a communicator of that size are the rank
/// numbers those of the job.
pub(super) fn ras_finding(answer: &RasReport, world: u32) -> RasFinding {
    let all: Vec<String> = answer.troubles.iter().map(sentence).collect();
    let named = all.iter().take(NAMED);
    let further = (all.len() + answer.further).saturating_sub(NAMED);
    let mut text = named.cloned().collect::<Vec<_>>().join("; ");
    if all.is_empty() {
        text.push_str("all processes answer, and all ranks have launched the same operations");
    }
    if further > 0 {
        text = format!("{text}; and {further} more");
    }
    let version = if answer.version.is_empty() {
        "of unknown version"
    } else {
        &answer.version
    };
    RasFinding {
        text: format!("NCCL {version} says: {text}"),
        lines: all.into_iter().take(LINES).collect(),
        suspects: suspects(answer, world),
    }
}

/// Returns the ranks that do not answer, have failed, or are behind; not those that only suffer from it or are ahead.
fn suspects(answer: &RasReport, world: u32) -> BTreeMap<u32, String> {
    let mut suspects = BTreeMap::new();
    for trouble in &answer.troubles {
        let blamed = match &trouble.what {
            DifferenceKind::Dead | DifferenceKind::Silent | DifferenceKind::Status { .. } => true,
            DifferenceKind::Launched { launched, most, .. } => launched < most,
            DifferenceKind::Error(error) => error != OF_ANOTHER,
        };
        if let Some(member) = trouble
            .member
            .as_ref()
            .filter(|member| blamed && member.size == world && world > 1)
        {
            suspects.entry(member.rank).or_insert_with(|| words(&trouble.what));
        }
    }
    if suspects.len() > SUSPECTS {
        BTreeMap::new()
    } else {
        suspects
    }
}

fn sentence(trouble: &RankDifference) -> String {
    let words = words(&trouble.what);
    match (&trouble.member, trouble.place.as_str()) {
        (None, place) => format!("{place} {words}"),
        (Some(member), place) => {
            let of = format!(
                "rank {} of {} in communicator {}",
                member.rank, member.size, member.communicator
            );
            let place = if place.is_empty() {
                String::new()
            } else {
                format!(" ({place})")
            };
            format!("{of}{place} {words}")
        }
    }
}

/// Formats the difference as text that follows the name of the rank or process.
fn words(what: &DifferenceKind) -> String {
    match what {
        DifferenceKind::Dead => "is given up by NCCL's RAS network".to_owned(),
        DifferenceKind::Silent => "does not answer NCCL's RAS network".to_owned(),
        DifferenceKind::Launched {
            operation,
            launched,
            most,
        } => {
            format!("has launched {launched} {operation} operations, most ranks {most}")
        }
        DifferenceKind::Status { status, most } => format!("has a communicator in state {status}, most ranks {most}"),
        DifferenceKind::Error(error) => format!("was told of an error by NCCL: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::ras::answer::CommunicatorRank;

    fn trouble(rank: u32, size: u32, what: DifferenceKind) -> RankDifference {
        let member = Some(CommunicatorRank {
            rank,
            communicator: "c0".to_owned(),
            size,
        });
        RankDifference {
            member,
            place: format!("process {rank} on a, GPU 0"),
            what,
        }
    }

    fn launched(launched: u64, most: u64) -> DifferenceKind {
        DifferenceKind::Launched {
            operation: "AllReduce".to_owned(),
            launched,
            most,
        }
    }

    #[test]
    fn who_is_behind_or_dead_is_suspected_and_who_is_ahead_or_suffers_is_not() {
        let answer = RasReport {
            version: "2.28.3".to_owned(),
            troubles: vec![
                trouble(3, 8, launched(41, 42)),
                trouble(4, 8, launched(43, 42)),
                trouble(5, 8, DifferenceKind::Error(OF_ANOTHER.to_owned())),
                trouble(6, 8, DifferenceKind::Dead),
                // In a communicator of only some ranks the numbers are not those of the job.
                trouble(0, 4, DifferenceKind::Silent),
            ],
            further: 2,
            whole: true,
        };
        let told = ras_finding(&answer, 8);
        assert_eq!(
            told.suspects,
            BTreeMap::from([
                (3, "has launched 41 AllReduce operations, most ranks 42".to_owned()),
                (6, "is given up by NCCL's RAS network".to_owned()),
            ])
        );
        assert!(
            told.text.starts_with(
                "NCCL 2.28.3 says: rank 3 of 8 in communicator c0 (process 3 on a, GPU 0) has launched 41 AllReduce"
            ) && told.text.ends_with("; and 4 more"),
            "{}",
            told.text
        );
        assert_eq!(told.lines.len(), 5);
    }

    #[test]
    fn nothing_is_told_of_a_job_in_which_nobody_differs_and_nobody_is_suspected_where_all_do() {
        let fine = ras_finding(
            &RasReport {
                version: "2.24.3".to_owned(),
                ..RasReport::default()
            },
            8,
        );
        assert_eq!(
            fine.text,
            "NCCL 2.24.3 says: all processes answer, and all ranks have launched the same operations"
        );
        let many = (0..100)
            .map(|rank| trouble(rank, 100, DifferenceKind::Silent))
            .collect();
        let told = ras_finding(
            &RasReport {
                troubles: many,
                ..RasReport::default()
            },
            100,
        );
        assert_eq!((told.suspects.len(), told.lines.len()), (0, LINES));
    }
}
