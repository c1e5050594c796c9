//! From what triage observed to a sighting with its entity.

use rankguard_faults::Observation;
use rankguard_model::{Body, Entity, NodeId, RankRef, Source};

use crate::ranks::Roster;
use crate::sighting::Sighting;

/// Who wrote the lines.
#[derive(Debug, Clone)]
pub(crate) enum Writer {
    /// The kernel of this node.
    Kernel,
    /// One rank.
    Rank(RankRef),
    /// A file of which nothing is known but that it is a job's.
    Unknown,
}

/// The sighting for an observation. What the line is about decides the entity: its device; else the rank whose process
/// it names, so that an OOM kill lands on its victim; else its writer.
pub(crate) fn sighting(
    source: Source,
    writer: &Writer,
    observation: Observation,
    node: &NodeId,
    roster: &Roster,
) -> Sighting {
    let entity = entity(writer, &observation, node, roster);
    let Observation {
        text,
        context,
        repeats,
        marks,
        ..
    } = observation;
    Sighting::now(source, entity, Body::Line { text, context, repeats })
        .marked(marks)
        .urgent()
}

fn entity(writer: &Writer, observation: &Observation, node: &NodeId, roster: &Roster) -> Entity {
    let rank_entity = |rank: RankRef| Entity::Rank {
        job: rank.job,
        generation: rank.generation,
        rank: rank.rank,
        node: node.clone(),
    };
    if let Writer::Rank(rank) = writer {
        // A rank speaks about devices it merely suffers from; who said it is what is certain.
        return rank_entity(rank.clone());
    }
    if let Some(device) = &observation.device {
        return Entity::Device {
            node: node.clone(),
            device: device.clone(),
        };
    }
    let pid = observation
        .marks
        .iter()
        .find_map(|mark| mark.fields.get("pid")?.parse::<u32>().ok());
    let by_pid = || pid.and_then(|pid| roster.rank_of_pid(pid));
    let by_number = || match writer {
        Writer::Unknown => observation.rank.and_then(|rank| roster.newest_rank(rank)),
        _ => None,
    };
    match by_pid().or_else(by_number) {
        Some(rank) => rank_entity(rank),
        None => Entity::Node { node: node.clone() },
    }
}
