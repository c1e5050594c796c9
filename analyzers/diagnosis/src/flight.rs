//! Flight-recorder dumps of a job's ranks, joined into the failure to which they belong.
//!
//! A single dump is not informative: only together with those of the other ranks it shows which rank waits for which.
//! So the newest dump of each rank is held until the generation's failure is concluded; then all are compared once,
//! and the result becomes signs like any other.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_flight::{DumpLimits, RecorderDump};
use rankguard_model::{
    Classification, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, Generation, JobId, NodeId, Rank, Role,
    SharedValue, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{DraftScope, Signal, SignalMeaning};

/// Signature id of the signs from this module.
pub(crate) const SIGNATURE: &str = "flight-recorder";

/// Limits for reading one dump: an agent sends at most a small part of one.
const LIMITS: DumpLimits = DumpLimits {
    bytes: 1 << 20,
    values: 1 << 18,
    depth: 64,
    memo: 1 << 16,
    work: 8 << 20,
};

/// Minimum confidence of a blamed culprit; others are only mentioned in the report.
const CERTAIN: f64 = 0.5;

/// Factor on the comparison's confidence in a verdict: the missing rank is known, the reason is not.
const SHARE: f64 = 0.8;

/// Maximum number of culprits named in one case.
const NAMED: usize = 16;

/// Dumps by job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobDumps {
    jobs: BTreeMap<JobId, GenerationDumps>,
}

/// Dumps of one generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct GenerationDumps {
    generation: Generation,
    newest_at: Timestamp,
    ranks: BTreeMap<Rank, StoredDump>,
    /// Number of dumps for which there was no room.
    refused: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredDump {
    evidence: EvidenceId,
    at: Timestamp,
    node: NodeId,
    text: String,
    synthetic: bool,
}

impl GenerationDumps {
    /// Returns the total text of the dumps, bytes.
    fn bytes(&self) -> usize {
        self.ranks.values().map(|dumped| dumped.text.len()).sum()
    }
}

impl JobDumps {
    /// Takes in a dump and returns its scope; returns none for other evidence.
    pub(crate) fn take(&mut self, evidence: &Evidence, room: usize) -> Option<DraftScope> {
        let (
            EvidenceBody::FlightDump { dump, .. },
            Entity::Rank {
                job,
                generation,
                rank,
                node,
            },
        ) = (&evidence.body, &evidence.entity)
        else {
            return None;
        };
        let of_others = self.jobs.iter().filter(|(other, _)| *other != job);
        let others: usize = of_others.map(|(_, held)| held.bytes()).sum();
        let held = self.jobs.entry(job.clone()).or_default();
        if held.generation > *generation {
            return None;
        }
        if held.generation < *generation {
            *held = GenerationDumps {
                generation: *generation,
                ..GenerationDumps::default()
            };
        }
        held.newest_at = held.newest_at.max(evidence.at);
        let before = held.ranks.get(rank).map_or(0, |before| before.text.len());
        if others + held.bytes() - before + dump.len() > room {
            held.refused += 1;
        } else {
            let dumped = StoredDump {
                evidence: evidence.id.clone(),
                at: evidence.at,
                node: node.clone(),
                text: dump.clone(),
                synthetic: evidence.synthetic,
            };
            held.ranks.insert(*rank, dumped);
        }
        Some(DraftScope::Job {
            job: job.clone(),
            generation: *generation,
        })
    }

    /// Returns true if every rank of a generation has a dump.
    pub(crate) fn complete(&self, scope: &DraftScope, placements: &BTreeMap<Rank, NodeId>) -> bool {
        self.of(scope)
            .is_some_and(|held| !placements.is_empty() && placements.keys().all(|rank| held.ranks.contains_key(rank)))
    }

    /// Returns the result of comparing the dumps of a generation; empty if they name no culprit.
    pub(crate) fn signs(&self, scope: &DraftScope, placements: &BTreeMap<Rank, NodeId>) -> Vec<SharedValue<Signal>> {
        let (Some(held), DraftScope::Job { job, generation }) = (self.of(scope), scope) else {
            return Vec::new();
        };
        let read = |(rank, dumped): (&Rank, &StoredDump)| {
            let (dump, _) = RecorderDump::read_within(&LIMITS, Some(rank.0), dumped.text.as_bytes()).ok()?;
            let told = RankDump {
                evidence: dumped.evidence.clone(),
                at: Some(dumped.at),
                node: placements.get(rank).unwrap_or(&dumped.node).clone(),
                dump,
                synthetic: dumped.synthetic,
            };
            Some((*rank, told))
        };
        let dumps = held.ranks.iter().filter_map(read).collect();
        let world = u32::try_from(placements.len()).ok().filter(|ranks| *ranks > 0);
        let signs = flight_signals(job, *generation, &dumps, world, |rank| placements.get(&rank).cloned());
        signs.into_iter().map(SharedValue::from).collect()
    }

    /// Removes dumps that are older than the window.
    pub(crate) fn forget(&mut self, now: Timestamp, window: Duration) {
        if self.jobs.is_empty() {
            return;
        }
        self.jobs.retain(|_, held| now.since(held.newest_at) <= window);
    }

    fn of(&self, scope: &DraftScope) -> Option<&GenerationDumps> {
        let DraftScope::Job { job, generation } = scope else {
            return None;
        };
        self.jobs.get(job).filter(|held| held.generation == *generation)
    }
}

/// Dump of one rank with its origin.
#[derive(Debug, Clone)]
pub struct RankDump {
    /// Evidence that contains the dump, or represents it.
    pub evidence: EvidenceId,
    /// Time of writing, if comparable with other streams.
    pub at: Option<Timestamp>,
    /// Node of the rank.
    pub node: NodeId,
    pub dump: RecorderDump,
    /// True if it is synthetic.
    pub synthetic: bool,
}

/// Returns the result of comparing the dumps of one generation as signs: a rank for which others wait and that waits
/// for none, or ranks that call different collectives. `world` is the number of ranks, if known, and `placed` returns
/// the node of a rank without a dump. Empty if the dumps name no culprit.
pub fn flight_signals(
    job: &JobId,
    generation: Generation,
    dumps: &BTreeMap<Rank, RankDump>,
    world: Option<u32>,
    placed: impl Fn(Rank) -> Option<NodeId>,
) -> Vec<Signal> {
    let read: Vec<RecorderDump> = dumps.values().map(|told| told.dump.clone()).collect();
    let report = rankguard_flight::analyze(&read, world);
    // A rank without a dump is reported with the evidence of the lowest waiting rank.
    let waiting = report.waiting_ranks.iter().find_map(|rank| dumps.get(&Rank(*rank)));
    let Some(speaker) = waiting.or_else(|| dumps.values().next()) else {
        return Vec::new();
    };
    let sign = |rank: Option<Rank>, class: &str, certainty: f64, text: String| {
        let told = rank.and_then(|rank| dumps.get(&rank)).unwrap_or(speaker);
        let entity = match rank {
            None => Entity::Job { job: job.clone() },
            Some(rank) => Entity::Rank {
                job: job.clone(),
                generation,
                rank,
                node: dumps
                    .get(&rank)
                    .map(|told| told.node.clone())
                    .or_else(|| placed(rank))
                    .unwrap_or_else(|| NodeId::from("")),
            },
        };
        let mark = Classification {
            class: class.into(),
            role: Role::Root,
            confidence: SHARE * certainty,
            signature: SIGNATURE.into(),
            fields: rank
                .map(|rank| ("rank".to_owned(), rank.to_string()))
                .into_iter()
                .collect(),
        };
        Signal {
            evidence: told.evidence.clone(),
            at: told.at.unwrap_or_default(),
            timed: told.at.is_some(),
            source: EvidenceSource::FlightRecorder,
            entity,
            what: SignalMeaning::Mark(mark),
            text,
            synthetic: told.synthetic,
        }
    };
    let minority = |rank: u32| {
        let mismatches = report.groups.iter().flat_map(|group| &group.mismatches);
        let sides = mismatches.flat_map(|mismatch| mismatch.sides.iter().skip(1));
        sides.flat_map(|side| &side.ranks).any(|odd| *odd == rank)
    };
    let culprits = report.culprits.iter().filter(|culprit| culprit.confidence >= CERTAIN);
    let named: Vec<Signal> = culprits
        .take(NAMED)
        .map(|culprit| {
            let class = if minority(culprit.rank) {
                classes::COLLECTIVE_MISMATCH
            } else {
                classes::HANG_STALLED_RANKS
            };
            let text = culprit.because.first().cloned().unwrap_or_default();
            sign(Some(Rank(culprit.rank)), class, culprit.confidence, text)
        })
        .collect();
    if !named.is_empty() {
        return named;
    }
    // Each rank of the cycle waits for another: they call their collectives in different orders.
    let circle = report.cycles.first();
    circle
        .map(|first| {
            sign(
                None,
                classes::COLLECTIVE_MISMATCH,
                first.confidence,
                first.because.join("; "),
            )
        })
        .into_iter()
        .collect()
}
