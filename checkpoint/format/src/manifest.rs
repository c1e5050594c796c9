//! Manifest: the commit record of a checkpoint.

use rankguard_model::{Generation, JobId, Rank, RunId, SampleRange, ShardSeal, Step};
use serde::{Deserialize, Serialize};

use crate::envelope::{self, EnvelopeError};
use crate::{CheckpointId, Digest, DigestError, NameError, check_job};

const MAGIC: &str = "rankguard-manifest";

/// Maximum size of a manifest, bytes.
pub const MAX_MANIFEST_BYTES: usize = 64 << 20;

/// Maximum number of ranks of a job.
pub const MAX_WORLD_SIZE: u32 = 1 << 18;

/// Commit record that lists every shard of a checkpoint with the digest of its index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Job of the checkpoint.
    pub job: JobId,
    /// Step of the checkpoint.
    pub step: Step,
    /// Generation that wrote the checkpoint.
    pub generation: Generation,
    /// Run that wrote the checkpoint, if known to the writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Number of ranks of that generation; equals the number of shards.
    pub world_size: u32,
    /// Checkpoint that this one continues: the one committed before, or restored from.
    pub parent: Option<(Step, Generation)>,
    /// Interval of the sample stream of the job that this checkpoint covers, if the ranks report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<SampleRange>,
    /// Shards, sorted by rank.
    pub shards: Vec<ManifestShard>,
}

/// Entry of one shard in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestShard {
    /// Rank that wrote the shard.
    pub rank: Rank,
    /// Digest of the `.index` file.
    pub index: Digest,
    /// Image size, bytes. The `.shard` file is shorter if the shard borrows chunks from other files.
    pub bytes: u64,
    /// Name of the format of the rank state, with a version; empty if the rank gave none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schema: String,
}

/// Reason why a manifest is invalid or cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum ManifestError {
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("seal of rank {rank}: {problem}")]
    Seal { rank: Rank, problem: DigestError },
    #[error("a world of {world_size} ranks; it must have 1 to {MAX_WORLD_SIZE}")]
    WorldSize { world_size: u32 },
    #[error("shards must be one for each of {world_size} ranks, in order; place {place} holds {found:?}")]
    Shards {
        world_size: u32,
        place: usize,
        found: Option<Rank>,
    },
    #[error("sizes of its shards exceed 64 bits")]
    TooLarge,
    #[error("shard of rank {rank} is of step {step} in a world of {world_size}")]
    Foreign { rank: Rank, step: Step, world_size: u32 },
    #[error("rank {rank} says the samples are {found:?} where others say {stated:?}")]
    Ledger {
        rank: Rank,
        stated: SampleRange,
        found: SampleRange,
    },
    #[error("its parent {parent} is not older than itself")]
    Parent { parent: CheckpointId },
}

impl ManifestError {
    /// True if the file has another format version, which is not damage.
    pub fn is_of_other_version(&self) -> bool {
        matches!(self, Self::Envelope(EnvelopeError::Version { .. }))
    }
}

impl Manifest {
    /// Builds a manifest from the seals that agents reported durable, in any order. Refuses seals that do not form
    /// exactly one complete checkpoint.
    pub fn from_seals(
        job: &JobId,
        id: CheckpointId,
        parent: Option<CheckpointId>,
        seals: &[ShardSeal],
    ) -> Result<Self, ManifestError> {
        let world_size = seals.first().map_or(0, |seal| seal.world_size);
        let shard = |seal: &ShardSeal| {
            let rank = seal.rank;
            if seal.step != id.step || seal.world_size != world_size {
                return Err(ManifestError::Foreign {
                    rank,
                    step: seal.step,
                    world_size: seal.world_size,
                });
            }
            let index = seal
                .index
                .parse()
                .map_err(|problem| ManifestError::Seal { rank, problem })?;
            Ok(ManifestShard {
                rank,
                index,
                bytes: seal.bytes,
                schema: seal.schema.clone(),
            })
        };
        let mut shards = seals.iter().map(shard).collect::<Result<Vec<_>, _>>()?;
        shards.sort_by_key(|shard| shard.rank);
        let manifest = Self {
            job: job.clone(),
            step: id.step,
            generation: id.generation,
            run: None,
            world_size,
            parent: parent.map(|parent| (parent.step, parent.generation)),
            ledger: ledger(seals)?,
            shards,
        };
        manifest.check()?;
        Ok(manifest)
    }

    /// Returns the id of the checkpoint that this manifest commits.
    pub fn id(&self) -> CheckpointId {
        CheckpointId {
            step: self.step,
            generation: self.generation,
        }
    }

    /// Returns the total size of all images, bytes.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.saturating_add(shard.bytes))
    }

    /// Returns the content of a `MANIFEST` file.
    pub fn to_bytes(&self) -> Vec<u8> {
        envelope::seal(MAGIC, self)
    }

    /// Parses and validates a `MANIFEST` file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ManifestError> {
        let manifest: Self = envelope::open(MAGIC, MAX_MANIFEST_BYTES, bytes)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Validates the manifest: exactly one shard per rank, in order, and a parent that is older.
    pub fn check(&self) -> Result<(), ManifestError> {
        check_job(&self.job)?;
        let world_size = self.world_size;
        if !(1..=MAX_WORLD_SIZE).contains(&world_size) {
            return Err(ManifestError::WorldSize { world_size });
        }
        for place in 0..self.shards.len().max(world_size as usize) {
            let found = self.shards.get(place).map(|shard| shard.rank);
            if found.is_none_or(|rank| rank.0 as usize != place) || place >= world_size as usize {
                return Err(ManifestError::Shards {
                    world_size,
                    place,
                    found,
                });
            }
        }
        let sum = self
            .shards
            .iter()
            .try_fold(0u64, |sum, shard| sum.checked_add(shard.bytes));
        sum.ok_or(ManifestError::TooLarge)?;
        if let Some((step, generation)) = self.parent {
            let parent = CheckpointId { step, generation };
            if parent >= self.id() {
                return Err(ManifestError::Parent { parent });
            }
        }
        Ok(())
    }
}

/// Returns the sample interval that the ranks report; an error if they disagree.
fn ledger(seals: &[ShardSeal]) -> Result<Option<SampleRange>, ManifestError> {
    let mut stated: Option<SampleRange> = None;
    for seal in seals {
        match (stated, seal.ledger) {
            (Some(stated), Some(found)) if stated != found => {
                let rank = seal.rank;
                return Err(ManifestError::Ledger { rank, stated, found });
            }
            (None, found) => stated = found,
            _ => {}
        }
    }
    Ok(stated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: CheckpointId = CheckpointId {
        step: Step(40),
        generation: Generation(3),
    };

    fn seal(rank: u32) -> ShardSeal {
        ShardSeal {
            rank: Rank(rank),
            step: ID.step,
            world_size: 2,
            index: Digest::of(&[rank as u8]).to_string(),
            bytes: 100,
            ledger: Some(SampleRange { first: 0, end: 512 }),
            schema: "counters/1".to_owned(),
        }
    }

    fn build(seals: &[ShardSeal]) -> Result<Manifest, ManifestError> {
        Manifest::from_seals(&JobId::from("demo"), ID, None, seals)
    }

    #[test]
    fn seals_in_any_order_make_one_manifest() {
        let manifest = build(&[seal(1), seal(0)]).expect("whole");
        assert_eq!(Some(&manifest), build(&[seal(0), seal(1)]).as_ref().ok());
        assert_eq!(manifest.bytes(), 200);
        assert_eq!(Manifest::from_bytes(&manifest.to_bytes()), Ok(manifest));
    }

    #[test]
    fn rg_1_a_set_with_a_hole_a_double_or_a_stranger_is_no_checkpoint() {
        assert!(matches!(build(&[]), Err(ManifestError::WorldSize { .. })));
        assert!(matches!(build(&[seal(1)]), Err(ManifestError::Shards { place: 0, .. })));
        assert!(matches!(build(&[seal(0)]), Err(ManifestError::Shards { place: 1, .. })));
        assert!(matches!(build(&[seal(0), seal(0)]), Err(ManifestError::Shards { .. })));
        assert!(matches!(
            build(&[seal(0), seal(1), seal(2)]),
            Err(ManifestError::Shards { .. })
        ));
        let mut other_step = seal(1);
        let mut other_world = seal(1);
        let mut no_digest = seal(1);
        other_step.step = Step(39);
        other_world.world_size = 3;
        no_digest.index = "x".to_owned();
        assert!(matches!(
            build(&[seal(0), other_step]),
            Err(ManifestError::Foreign { .. })
        ));
        assert!(matches!(
            build(&[seal(0), other_world]),
            Err(ManifestError::Foreign { .. })
        ));
        assert!(matches!(build(&[seal(0), no_digest]), Err(ManifestError::Seal { .. })));
    }

    #[test]
    fn ranks_that_count_other_samples_make_no_checkpoint() {
        let mut silent = seal(0);
        let mut other = seal(1);
        silent.ledger = None;
        let manifest = build(&[silent, seal(1)]).expect("whole");
        assert_eq!(manifest.ledger, Some(SampleRange { first: 0, end: 512 }));
        assert_eq!(manifest.shards[1].schema, "counters/1");
        other.ledger = Some(SampleRange { first: 0, end: 513 });
        assert!(matches!(build(&[seal(0), other]), Err(ManifestError::Ledger { .. })));
    }

    #[test]
    fn a_parent_is_older() {
        let seals = [seal(0), seal(1)];
        let with = |parent| Manifest::from_seals(&JobId::from("demo"), ID, Some(parent), &seals);
        assert!(matches!(with(ID), Err(ManifestError::Parent { .. })));
        let older_generation = CheckpointId {
            step: Step(90),
            generation: Generation(2),
        };
        assert!(with(older_generation).is_ok());
    }

    #[test]
    fn rg_2_every_flipped_bit_of_a_manifest_is_noticed() {
        let whole = build(&[seal(0), seal(1)]).expect("whole").to_bytes();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::from_bytes(&damaged).is_err(), "bit {bit} flipped unnoticed");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Manifest::from_bytes(&bytes);
        }
    }
}
