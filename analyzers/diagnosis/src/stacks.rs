//! Stacks of waiting ranks, merged into one tree: common frames are shown once, and deviating ranks are named.
//!
//! After STAT (Arnold et al., IPDPS 2007): ranks at the same location form a class, and in a job that hangs the small
//! class holds the cause. Absent: native frames, more than one thread a rank.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::Rank;

/// Maximum number of lines in a tree.
const LINES: usize = 200;
/// Maximum number of frames used of one stack, from the outermost.
const DEPTH: usize = 128;

/// Parts of the names of functions in which a rank waits for others.
const WAITS: [&str; 16] = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "irecv",
    "isend",
    "nccl",
    "recv",
    "reduce_scatter",
    "rendezvous",
    "synchronize",
    "wait_tensor",
];

/// Merged stacks of a job's ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergedStacks {
    /// Tree with a line for each frame, outermost first, indented where ranks diverge: `ranks 0-6,8: ...`.
    pub tree: Vec<String>,
    /// Ranks at another location than the others, with a description. Empty if all are at one location, or if it is
    /// unknown which rank is waited for.
    pub odd: BTreeMap<Rank, String>,
}

/// Merges stacks, each with its outermost frame first. Ranks with an empty stack are ignored.
pub fn merge(stacks: &BTreeMap<Rank, Vec<String>>) -> MergedStacks {
    let known: BTreeMap<Rank, &[String]> = stacks
        .iter()
        .filter(|(_, frames)| !frames.is_empty())
        .map(|(rank, frames)| (*rank, &frames[..frames.len().min(DEPTH)]))
        .collect();
    let mut tree = Vec::new();
    // Equal prefixes are adjacent in this order, so that every branch is a contiguous range of it.
    let mut order: Vec<Rank> = known.keys().copied().collect();
    order.sort_by(|one, other| known[one].cmp(known[other]).then(one.cmp(other)));
    grow(&known, &order, 0, 0, &mut tree);
    MergedStacks { tree, odd: odd(&known) }
}

/// Writes the frames at `depth` of ranks with the same frames so far.
fn grow(known: &BTreeMap<Rank, &[String]>, ranks: &[Rank], depth: usize, indent: usize, tree: &mut Vec<String>) {
    let mut rest = ranks;
    while let Some(first) = rest.first() {
        let frame = known[first].get(depth);
        let same = rest.iter().take_while(|rank| known[rank].get(depth) == frame).count();
        let (branch, after) = rest.split_at(same);
        rest = after;
        let Some(frame) = frame else { continue };
        if tree.len() == LINES {
            return;
        }
        tree.push(format!("{}: {}{frame}", told(branch), "  ".repeat(indent)));
        let parts = branch
            .iter()
            .any(|rank| known[rank].get(depth + 1) != known[first].get(depth + 1));
        grow(known, branch, depth + 1, indent + usize::from(parts), tree);
    }
}

/// Formats `rank 3`, `ranks 0-2,7`.
fn told(ranks: &[Rank]) -> String {
    let mut numbers: Vec<u32> = ranks.iter().map(|rank| rank.0).collect();
    numbers.sort_unstable();
    let mut stretches: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match stretches.last_mut() {
            Some((_, last)) if number == last.saturating_add(1) => *last = number,
            _ => stretches.push((number, number)),
        }
    }
    let words: Vec<String> = stretches
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", words.join(","))
}

fn odd(known: &BTreeMap<Rank, &[String]>) -> BTreeMap<Rank, String> {
    let mut classes: BTreeMap<&[String], BTreeSet<Rank>> = BTreeMap::new();
    for (rank, frames) in known {
        classes.entry(frames).or_default().insert(*rank);
    }
    if classes.len() < 2 {
        return BTreeMap::new();
    }
    let total = known.len();
    let elsewhere = |rank: &Rank, what: &str| (*rank, format!("{}, {what}", standing_at(known[rank], "stands")));
    // Two ranks have no majority; one of them may still wait for the other, which its function name shows.
    let waits: BTreeSet<Rank> = known.keys().copied().filter(|rank| waits(known[rank])).collect();
    if !waits.is_empty() && waits.len() < total && waits.len() * 2 >= total {
        let what = format!("while {} of {total} wait for others", waits.len());
        return known
            .keys()
            .filter(|rank| !waits.contains(rank))
            .map(|rank| elsewhere(rank, &what))
            .collect();
    }
    let Some((place, most)) = classes.iter().max_by_key(|(_, ranks)| ranks.len()) else {
        return BTreeMap::new();
    };
    if most.len() * 2 <= total {
        return BTreeMap::new();
    }
    let what = format!("while {} of {total} {}", most.len(), standing_at(place, "stand"));
    known
        .keys()
        .filter(|rank| !most.contains(rank))
        .map(|rank| elsewhere(rank, &what))
        .collect()
}

/// States of a process, as agents describe them in front of its place in the kernel.
const STATES: [&str; 5] = ["blocked", "dead", "running", "sleeping", "stopped"];

/// Describes where ranks stand: in a function, or in a state of the kernel. `verb` is a form of "to stand".
fn standing_at(frames: &[String], verb: &str) -> String {
    let place = innermost(frames);
    let is_state = |state: &str| {
        let rest = place.strip_prefix(state);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" in "))
    };
    if STATES.into_iter().any(is_state) {
        let be = if verb == "stands" { "is" } else { "are" };
        format!("{be} {place}")
    } else {
        format!("{verb} in {place}")
    }
}

/// Returns the two innermost frames: the last one is often the kernel's, which shows the kind of wait but not its
/// reason.
fn innermost(frames: &[String]) -> String {
    frames[frames.len().saturating_sub(2)..].join(" > ")
}

fn waits(frames: &[String]) -> bool {
    frames.iter().any(|frame| {
        // Matches the function, not its file: `recv (transport.py:88)`.
        let function = frame.split(" (").next().unwrap_or(frame).to_ascii_lowercase();
        WAITS.iter().any(|word| function.contains(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(all: &[(u32, &str)]) -> BTreeMap<Rank, Vec<String>> {
        let frames = |text: &str| {
            text.split(" > ")
                .filter(|it| !it.is_empty())
                .map(str::to_owned)
                .collect()
        };
        all.iter().map(|(rank, text)| (Rank(*rank), frames(text))).collect()
    }

    #[test]
    fn what_all_do_is_told_once_and_who_does_something_else_is_named() {
        let merged = merge(&stacks(&[
            (0, "main > train > all_reduce (dist.py:7)"),
            (1, "main > train > all_reduce (dist.py:7)"),
            (2, "main > train > load_batch > read (data.py:3)"),
            (3, "main > train > all_reduce (dist.py:7)"),
        ]));
        let wanted = [
            "ranks 0-3: main",
            "ranks 0-3: train",
            "ranks 0-1,3:   all_reduce (dist.py:7)",
            "rank 2:   load_batch",
            "rank 2:   read (data.py:3)",
        ];
        assert_eq!(merged.tree, wanted);
        let why = "stands in load_batch > read (data.py:3), while 3 of 4 wait for others".to_owned();
        assert_eq!(merged.odd, BTreeMap::from([(Rank(2), why)]));
    }

    #[test]
    fn of_two_the_one_that_does_not_wait_is_odd() {
        let merged = merge(&stacks(&[(0, "main > barrier (x.py:1)"), (1, "main > save (y.py:2)")]));
        assert_eq!(merged.odd.keys().collect::<Vec<_>>(), [&Rank(1)]);
    }

    #[test]
    fn a_state_of_the_kernel_is_no_place() {
        let merged = merge(&stacks(&[
            (0, "sleeping in ppoll (do_poll)"),
            (1, "stopped in futex (do_signal_stop)"),
            (2, "sleeping in ppoll (do_poll)"),
        ]));
        let why = "is stopped in futex (do_signal_stop), while 2 of 3 are sleeping in ppoll (do_poll)".to_owned();
        assert_eq!(merged.odd, BTreeMap::from([(Rank(1), why)]));
    }

    #[test]
    fn the_majority_decides_where_no_name_tells_of_waiting() {
        let merged = merge(&stacks(&[(0, "S futex"), (1, "S futex"), (2, "T stopped"), (3, "")]));
        let why = "stands in T stopped, while 2 of 3 stand in S futex".to_owned();
        assert_eq!(merged.odd, BTreeMap::from([(Rank(2), why)]));
    }

    #[test]
    fn nobody_is_odd_where_all_stand_alike_where_nobody_does_and_where_nothing_is_known() {
        for all in [
            &[(0, "a > wait"), (1, "a > wait")][..],
            &[(0, "a > b"), (1, "a > c")],
            &[(0, "a > b"), (1, "a > c"), (2, "a > d")],
            &[(0, ""), (1, "")],
            &[],
        ] {
            assert_eq!(merge(&stacks(all)).odd, BTreeMap::new(), "{all:?}");
        }
    }

    #[test]
    fn deep_and_many_stacks_stay_within_bounds() {
        let deep: Vec<String> = (0..10_000).map(|depth| format!("f{depth}")).collect();
        let all = (0..2_000).map(|rank| {
            let mut own = deep.clone();
            own[0] = format!("start {}", rank % 7);
            (Rank(rank), own)
        });
        let merged = merge(&all.collect());
        assert_eq!(merged.tree.len(), LINES);
    }
}
