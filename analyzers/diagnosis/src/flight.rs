//! Flight-recorder dumps of a job's ranks, joined into the failure that they belong to.
//!
//! A dump says nothing alone: only beside those of the other ranks it tells who waits for whom. So dumps are held, newest of
//! each rank, until their generation's failure is concluded; then they are compared once, and what the comparison says
//! becomes signs like any other.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_flight::{Dump, Limits};
use rankguard_model::{
    Body, Entity, Evidence, EvidenceId, Generation, JobId, Mark, NodeId, Rank, Role, Shared, Source, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{Scope, Sign, What};

/// The signature that signs of this module carry.
pub(crate) const SIGNATURE: &str = "flight-recorder";

/// What one dump may cost its reader: an agent sends at most a small part of one.
const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    values: 1 << 18,
    depth: 64,
    memo: 1 << 16,
    work: 8 << 20,
};

/// A culprit less certain than this is mentioned by the report and blamed by nobody.
const CERTAIN: f64 = 0.5;

/// How much of the comparison's certainty a verdict takes: who did not come is known, why is not.
const SHARE: f64 = 0.8;

/// Culprits named in one case.
const NAMED: usize = 16;

/// Dumps by job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Dumps {
    jobs: BTreeMap<JobId, Held>,
}

/// The dumps of one generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Held {
    generation: Generation,
    newest_at: Timestamp,
    ranks: BTreeMap<Rank, Dumped>,
    /// Dumps for which there was no room.
    refused: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Dumped {
    evidence: EvidenceId,
    at: Timestamp,
    node: NodeId,
    text: String,
    synthetic: bool,
}

impl Held {
    /// Text of the dumps, and what each takes besides.
    fn bytes(&self) -> usize {
        self.ranks.values().map(|dumped| dumped.text.len()).sum()
    }
}

impl Dumps {
    /// Takes a dump in; other evidence is not looked at. Gives the scope it belongs to.
    pub(crate) fn take(&mut self, evidence: &Evidence, room: usize) -> Option<Scope> {
        let (
            Body::FlightDump { dump, .. },
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
            *held = Held {
                generation: *generation,
                ..Held::default()
            };
        }
        held.newest_at = held.newest_at.max(evidence.at);
        let before = held.ranks.get(rank).map_or(0, |before| before.text.len());
        if others + held.bytes() - before + dump.len() > room {
            held.refused += 1;
        } else {
            let dumped = Dumped {
                evidence: evidence.id.clone(),
                at: evidence.at,
                node: node.clone(),
                text: dump.clone(),
                synthetic: evidence.synthetic,
            };
            held.ranks.insert(*rank, dumped);
        }
        Some(Scope::Job {
            job: job.clone(),
            generation: *generation,
        })
    }

    /// Whether every rank of a generation has a dump here.
    pub(crate) fn complete(&self, scope: &Scope, placements: &BTreeMap<Rank, NodeId>) -> bool {
        self.of(scope)
            .is_some_and(|held| !placements.is_empty() && placements.keys().all(|rank| held.ranks.contains_key(rank)))
    }

    /// What the dumps of a generation say together; empty where they name nobody.
    pub(crate) fn signs(&self, scope: &Scope, placements: &BTreeMap<Rank, NodeId>) -> Vec<Shared<Sign>> {
        let (Some(held), Scope::Job { job, generation }) = (self.of(scope), scope) else {
            return Vec::new();
        };
        let read = |(rank, dumped): (&Rank, &Dumped)| {
            let (dump, _) = Dump::read_within(&LIMITS, Some(rank.0), dumped.text.as_bytes()).ok()?;
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
        let signs = flight_signs(job, *generation, &dumps, world, |rank| placements.get(&rank).cloned());
        signs.into_iter().map(Shared::from).collect()
    }

    /// Lets go of the dumps of a concluded failure, and of those that nothing came of.
    pub(crate) fn forget(&mut self, now: Timestamp, window: Duration) {
        if self.jobs.is_empty() {
            return;
        }
        self.jobs.retain(|_, held| now.since(held.newest_at) <= window);
    }

    fn of(&self, scope: &Scope) -> Option<&Held> {
        let Scope::Job { job, generation } = scope else {
            return None;
        };
        self.jobs.get(job).filter(|held| held.generation == *generation)
    }
}

/// One rank's dump and where it came from.
#[derive(Debug, Clone)]
pub struct RankDump {
    /// The evidence that it is, or stands for.
    pub evidence: EvidenceId,
    /// When it was written, where that may be compared with other streams.
    pub at: Option<Timestamp>,
    /// Where the rank ran.
    pub node: NodeId,
    /// The dump.
    pub dump: Dump,
    /// It was made up.
    pub synthetic: bool,
}

/// What the dumps of one generation's ranks say together, as signs: a rank that others wait for and that waits for nobody, or
/// ranks that call different collectives. `world` is the number of ranks, where it is known, and `placed` says where a rank
/// ran that has no dump. Empty where the dumps name nobody.
pub fn flight_signs(
    job: &JobId,
    generation: Generation,
    dumps: &BTreeMap<Rank, RankDump>,
    world: Option<u32>,
    placed: impl Fn(Rank) -> Option<NodeId>,
) -> Vec<Sign> {
    let read: Vec<Dump> = dumps.values().map(|told| told.dump.clone()).collect();
    let report = rankguard_flight::analyze(&read, world);
    // A rank without a dump is told of by the lowest that waits.
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
        let mark = Mark {
            class: class.into(),
            role: Role::Root,
            confidence: SHARE * certainty,
            signature: SIGNATURE.into(),
            fields: rank
                .map(|rank| ("rank".to_owned(), rank.to_string()))
                .into_iter()
                .collect(),
        };
        Sign {
            evidence: told.evidence.clone(),
            at: told.at.unwrap_or_default(),
            timed: told.at.is_some(),
            source: Source::FlightRecorder,
            entity,
            what: What::Mark(mark),
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
    let named: Vec<Sign> = culprits
        .take(NAMED)
        .map(|culprit| {
            let class = if minority(culprit.rank) {
                "collective-mismatch"
            } else {
                "hang-stalled-ranks"
            };
            let text = culprit.because.first().cloned().unwrap_or_default();
            sign(Some(Rank(culprit.rank)), class, culprit.confidence, text)
        })
        .collect();
    if !named.is_empty() {
        return named;
    }
    // Each waits for another of the circle: they call their collectives in different orders.
    let circle = report.cycles.first();
    circle
        .map(|first| sign(None, "collective-mismatch", first.confidence, first.because.join("; ")))
        .into_iter()
        .collect()
}
