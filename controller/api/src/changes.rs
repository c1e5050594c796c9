//! Change log: the newest changes of cases, jobs and nodes, in a ring that all watches read.
//!
//! A watch holds only its position, so that a client that does not read costs no memory. A position that has left the
//! ring is a gap, which the watch reports.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use rankguard_core::{DecisionState, Job, Node};
use rankguard_model::{Case, CaseId, JobId, NodeId, Timestamp};
use serde::Serialize;
use tokio::sync::watch;

use crate::documents::{ChangeDocument, UtcTime, word};

/// Changes that are retained.
const CHANGES_MAX: usize = 4_096;
/// Changes of nodes that one comparison records one by one. Beyond, one change names the list, so that a restart of a
/// large cluster does not push changes of cases out of the ring.
const NODES_MAX: usize = 100;

/// Fingerprint of every case, job and node, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StateFingerprint {
    cases: Vec<(CaseId, ItemState)>,
    jobs: Vec<(JobId, ItemState)>,
    nodes: Vec<(NodeId, ItemState)>,
}

/// State of a case, a job or a node for display, and the digest of everything in which a change is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ItemState {
    state: String,
    digest: u64,
}

/// Newest changes of cases, jobs and nodes, with their numbers.
#[derive(Debug)]
pub(crate) struct ChangeLog {
    /// Id of this start of the controller.
    start: u64,
    ring: Mutex<ChangeRing>,
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct ChangeRing {
    /// Number of the newest change, counted from 1; 0 before the first one.
    newest: u64,
    changes: VecDeque<Arc<ChangeDocument>>,
}

/// Position of a watch: the newest change that its client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChangePosition {
    /// Start of the controller that gave the number.
    pub(crate) start: u64,
    pub(crate) number: u64,
}

/// Next part of a watch.
#[derive(Debug)]
pub(crate) enum NextChange {
    /// Change with its number.
    Change(u64, Arc<ChangeDocument>),
    /// Changes before the newest one are not available.
    Gap {
        reason: &'static str,
        newest: ChangePosition,
    },
    /// No change is available yet.
    Wait,
}

impl StateFingerprint {
    pub(crate) fn of(state: &DecisionState) -> Self {
        let cases = state.cases().iter();
        let jobs = state.jobs().iter();
        let nodes = state.fleet().iter();
        Self {
            cases: cases.map(|(id, case)| (*id, case_state(case))).collect(),
            jobs: jobs.map(|(name, job)| (name.clone(), job_state(job))).collect(),
            nodes: nodes.map(|(name, node)| (name.clone(), node_state(node))).collect(),
        }
    }
}

fn case_state(case: &Case) -> ItemState {
    let verdict = &case.verdict;
    let lengths = [
        case.findings.len(),
        case.reasoning.len(),
        case.actions.len(),
        case.notes.len(),
    ];
    let digest = digest(&(
        (case.state as u8, case.closed_at, case.plan, case.generation),
        (&verdict.class, &verdict.blamed, verdict.confidence.to_bits()),
        (&case.outcome, &case.awaits_operator, lengths),
        case.recovery.as_ref().map(|choice| choice.at),
    ));
    ItemState {
        state: word(&case.state),
        digest,
    }
}

fn job_state(job: &Job) -> ItemState {
    let newest = job.checkpoints.committed.last();
    let newest = newest.map(|checkpoint| (checkpoint.generation, checkpoint.step));
    let state = word(&job.state());
    let plan = job.plan().map(|plan| plan.id);
    let digest = digest(&(&state, job.generation(), job.case(), plan, newest, job.ended_at()));
    ItemState { state, digest }
}

/// Returns the state of a node. Ranks that are placed on it are changes of their job.
fn node_state(node: &Node) -> ItemState {
    let state = node.state();
    let cordon = node.cordon.as_ref();
    let fault = node.uncordoned_fault.as_ref();
    let digest = digest(&(
        (state as u8, node.is_usable(), node.lost_since, node.session_ended),
        (
            node.unjoined_since,
            node.joined_at,
            node.info.slots,
            &node.info.failure_domain,
        ),
        cordon.map(|cordon| (cordon.since, cordon.case, cordon.drains)),
        fault.map(|fault| fault.case),
        [node.fences.len(), node.links_down.len(), node.conditions.len()],
    ));
    ItemState {
        state: word(&state),
        digest,
    }
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl ChangeLog {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            start,
            ring: Mutex::default(),
            newest: watch::Sender::new(0),
        }
    }

    /// Records the differences between two states.
    pub(crate) fn record(&self, older: &StateFingerprint, newer: &StateFingerprint, at: Timestamp) {
        let cases = differences(&older.cases, &newer.cases);
        let cases = cases.map(|change| ("case", change.0.to_string(), change.1, change.2));
        let jobs = differences(&older.jobs, &newer.jobs);
        let jobs = jobs.map(|change| ("job", change.0.to_string(), change.1, change.2));
        let nodes: Vec<_> = differences(&older.nodes, &newer.nodes).take(NODES_MAX + 1).collect();
        let has_many = nodes.len() > NODES_MAX;
        let nodes = nodes.into_iter().filter(|_| !has_many);
        let nodes = nodes.map(|change| ("node", change.0.to_string(), change.1, change.2));
        let mut changes: Vec<ChangeDocument> = cases
            .chain(jobs)
            .chain(nodes)
            .map(|(kind, name, change, state)| ChangeDocument {
                kind: kind.to_owned(),
                path: format!("/api/v1/{kind}s/{}", crate::query::encode_path(&name)),
                name,
                change: change.to_owned(),
                state,
                at: UtcTime(at),
            })
            .collect();
        if has_many {
            changes.push(ChangeDocument {
                kind: "nodes".to_owned(),
                path: "/api/v1/nodes".to_owned(),
                name: String::new(),
                change: "changed".to_owned(),
                state: None,
                at: UtcTime(at),
            });
        }
        self.extend(changes);
    }

    fn extend(&self, changes: Vec<ChangeDocument>) {
        if changes.is_empty() {
            return;
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            if ring.changes.len() >= CHANGES_MAX {
                ring.changes.pop_front();
            }
            ring.changes.push_back(Arc::new(change));
            ring.newest += 1;
        }
        let newest = ring.newest;
        drop(ring);
        self.newest.send_replace(newest);
    }

    /// Returns a receiver that changes with the number of the newest change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns the position after the newest change.
    pub(crate) fn newest(&self) -> ChangePosition {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        self.position(ring.newest)
    }

    fn position(&self, number: u64) -> ChangePosition {
        ChangePosition {
            start: self.start,
            number,
        }
    }

    /// Returns what follows a position.
    pub(crate) fn next(&self, after: ChangePosition) -> NextChange {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let gap = |reason| NextChange::Gap {
            reason,
            newest: self.position(ring.newest),
        };
        if after.start != self.start {
            return gap("the controller has been started again since");
        }
        let missing = match ring.newest.checked_sub(after.number) {
            Some(0) => return NextChange::Wait,
            Some(missing) => missing,
            None => return gap("this controller has given no such id"),
        };
        let length = ring.changes.len();
        let place = usize::try_from(missing)
            .ok()
            .and_then(|missing| length.checked_sub(missing));
        match place.and_then(|place| ring.changes.get(place)) {
            Some(change) => NextChange::Change(after.number + 1, Arc::clone(change)),
            None => gap("the change after this id is no longer retained"),
        }
    }
}

/// Returns the differences between two sorted lists: key, kind of change, state.
fn differences<'a, K: Ord + std::fmt::Display>(
    older: &'a [(K, ItemState)],
    newer: &'a [(K, ItemState)],
) -> impl Iterator<Item = (&'a K, &'static str, Option<String>)> {
    let mut older = older.iter().peekable();
    let mut newer = newer.iter().peekable();
    std::iter::from_fn(move || {
        loop {
            let order = match (older.peek(), newer.peek()) {
                (None, None) => return None,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((before, _)), Some((after, _))) => before.cmp(after),
            };
            match order {
                std::cmp::Ordering::Less => return older.next().map(|(key, _)| (key, "removed", None)),
                std::cmp::Ordering::Greater => {
                    return newer.next().map(|(key, item)| (key, "added", Some(item.state.clone())));
                }
                std::cmp::Ordering::Equal => {
                    let before = older.next();
                    let after = newer.next();
                    if before.map(|(_, item)| item) != after.map(|(_, item)| item) {
                        return after.map(|(key, item)| (key, "changed", Some(item.state.clone())));
                    }
                }
            }
        }
    })
}

impl ChangePosition {
    /// Formats the id of a change for `Last-Event-ID`.
    pub(crate) fn id(self) -> String {
        format!("{:016x}-{}", self.start, self.number)
    }

    /// Parses an id.
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let (start, number) = id.split_once('-')?;
        let is_hexadecimal = start.len() == 16 && start.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_decimal = number.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self {
            start: u64::from_str_radix(start, 16).ok().filter(|_| is_hexadecimal)?,
            number: number.parse().ok().filter(|_| is_decimal)?,
        })
    }
}

/// Formats an event of a watch.
pub(crate) fn event_text(name: &str, position: ChangePosition, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("id: {}\nevent: {name}\ndata: {data}\n\n", position.id())
}

#[cfg(test)]
impl ChangeLog {
    /// Records changes of made-up cases.
    pub(crate) fn add_for_test(&self, count: u64) {
        self.extend((0..count).map(tests::change).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn change(number: u64) -> ChangeDocument {
        ChangeDocument {
            kind: "case".to_owned(),
            name: number.to_string(),
            change: "added".to_owned(),
            state: None,
            at: UtcTime(Timestamp(0)),
            path: String::new(),
        }
    }

    /// RG-9: 100,000 changes take the memory of 4,096, and a position before them is a gap.
    #[test]
    fn the_ring_is_bounded_and_an_old_position_is_a_gap() {
        let log = ChangeLog::new(7);
        let begin = log.newest();
        for number in 0..100_000 {
            log.extend(vec![change(number)]);
        }
        let length = log.ring.lock().expect("no panic").changes.len();
        assert_eq!(length, CHANGES_MAX);
        let NextChange::Gap { newest, .. } = log.next(begin) else {
            panic!("no gap");
        };
        assert!(matches!(log.next(newest), NextChange::Wait));
        let oldest = log.position(100_000 - CHANGES_MAX as u64);
        assert!(matches!(log.next(oldest), NextChange::Change(_, change) if change.name == "95904"));
        let before = log.position(oldest.number - 1);
        assert!(matches!(log.next(before), NextChange::Gap { .. }));
    }

    #[test]
    fn positions_of_another_start_and_of_the_future_are_gaps() {
        let log = ChangeLog::new(7);
        log.extend(vec![change(1)]);
        for (start, number) in [(8, 1), (7, 2), (7, u64::MAX)] {
            assert!(matches!(
                log.next(ChangePosition { start, number }),
                NextChange::Gap { .. }
            ));
        }
    }

    #[test]
    fn ids_come_back_and_others_are_refused() {
        let position = ChangePosition { start: 0xab, number: 9 };
        assert_eq!(ChangePosition::parse(&position.id()), Some(position));
        for id in [
            "",
            "-",
            "ab-9",
            "00000000000000ab",
            "00000000000000ab-",
            "00000000000000ab-+9",
            "+0000000000000ab-9",
        ] {
            assert_eq!(ChangePosition::parse(id), None, "{id}");
        }
    }

    /// A few changed nodes are changes of their own, many are one change of the list.
    #[test]
    fn changes_of_many_nodes_are_one_change_of_the_list() {
        let fingerprint = |count: usize, digest| StateFingerprint {
            nodes: (0..count)
                .map(|number| {
                    let state = "healthy".to_owned();
                    (NodeId::from(format!("n{number:05}")), ItemState { state, digest })
                })
                .collect(),
            ..StateFingerprint::default()
        };
        for (count, kind, changes) in [(NODES_MAX, "node", NODES_MAX as u64), (10_000, "nodes", 1)] {
            let log = ChangeLog::new(7);
            let begin = log.newest();
            log.record(&fingerprint(count, 1), &fingerprint(count, 2), Timestamp(0));
            assert_eq!(log.newest().number, changes);
            let NextChange::Change(_, change) = log.next(begin) else {
                panic!("no change");
            };
            assert_eq!((change.kind.as_str(), change.change.as_str()), (kind, "changed"));
            assert_eq!(change.path == "/api/v1/nodes", kind == "nodes");
        }
    }

    #[test]
    fn differences_name_what_was_added_changed_and_removed() {
        let item = |digest| ItemState {
            state: "open".to_owned(),
            digest,
        };
        let older = [(1, item(1)), (2, item(1)), (4, item(1))];
        let newer = [(2, item(2)), (3, item(1)), (4, item(1))];
        let found: Vec<_> = differences(&older, &newer)
            .map(|(key, change, _)| (*key, change))
            .collect();
        assert_eq!(found, [(1, "removed"), (2, "changed"), (3, "added")]);
    }
}
