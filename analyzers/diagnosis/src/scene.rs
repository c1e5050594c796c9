//! Everything that was gathered for one failure: the immutable input of the engines.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use rankguard_faults::Catalogue;
use rankguard_model::{ClassId, Entity, Exit, Generation, JobId, NodeId, Rank, Role, Shared, Timestamp};

use crate::engine::{self, Family};
use crate::knowledge::Known;
use crate::{Sign, What};

/// The signs of one failure in order of time, and where the job's ranks ran.
#[derive(Debug, Clone)]
pub struct Scene<'a> {
    /// The signs, earliest first. Signs of one stream keep its order; those without a time stand where they were read.
    pub signs: &'a [Shared<Sign>],
    /// The job that suffered, where one is known.
    pub job: Option<&'a JobId>,
    /// Its generation.
    pub generation: Generation,
    /// The node of each rank.
    pub placements: &'a BTreeMap<Rank, NodeId>,
    /// What is known of failure classes.
    pub catalogue: &'a Catalogue,
    /// What every engine asks of every sign.
    seen: OnceCell<Seen<'a>>,
    /// Those that no signature knows: as a rule none.
    unmarked: OnceCell<Vec<usize>>,
}

impl<'a> Scene<'a> {
    /// Signs in order of time, and where the ranks of the job ran.
    pub fn new(
        signs: &'a [Shared<Sign>],
        job: Option<&'a JobId>,
        generation: Generation,
        placements: &'a BTreeMap<Rank, NodeId>,
        catalogue: &'a Catalogue,
    ) -> Self {
        Self {
            signs,
            job,
            generation,
            placements,
            catalogue,
            seen: OnceCell::new(),
            unmarked: OnceCell::new(),
        }
    }
}

/// How many signs before one are asked whether they are of its class.
const BESIDE: usize = 2;

/// What the signs of a scene are, seen in one look at all of them.
#[derive(Debug, Clone)]
struct Seen<'a> {
    each: Vec<SeenSign<'a>>,
    /// The engines that look at some of them, one bit each.
    families: u8,
}

#[derive(Debug, Clone)]
struct SeenSign<'a> {
    of: Option<OfClass<'a>>,
    rank: Option<Rank>,
}

/// What the catalogue has of a sign's class, and the engine that looks at it.
#[derive(Debug, Clone, Copy)]
struct OfClass<'a> {
    known: Known<'a>,
    family: Option<Family>,
}

impl<'a> OfClass<'a> {
    fn of(catalogue: &'a Catalogue, class: &'a ClassId) -> Self {
        let known = Known::of(catalogue, class);
        let family = engine::family(class.as_str(), known.layer());
        Self { known, family }
    }
}

impl<'a> Scene<'a> {
    /// Signs of a storm say the same few things, so what is known of a class is looked up once for those that stand together.
    fn look(&self) -> Seen<'a> {
        let mut seen = Seen {
            each: Vec::with_capacity(self.signs.len()),
            families: 0,
        };
        for sign in self.signs {
            let of = sign.class().map(|class| {
                let before = seen.each.iter().rev().take(BESIDE);
                let same = before.filter_map(|seen| seen.of).find(|of| of.known.is(class));
                same.unwrap_or_else(|| OfClass::of(self.catalogue, class))
            });
            seen.families |= of.and_then(|of| of.family).map_or(0, bit);
            let rank = sign.rank();
            seen.each.push(SeenSign { of, rank });
        }
        seen
    }

    fn seen(&self) -> &Seen<'a> {
        self.seen.get_or_init(|| self.look())
    }

    fn of_class(&self, index: usize) -> Option<&OfClass<'a>> {
        self.seen().each.get(index)?.of.as_ref()
    }
}

/// A family in a set of families.
fn bit(family: Family) -> u8 {
    1 << family as u8
}

impl Scene<'_> {
    /// Which engine the sign of this index belongs to.
    pub(crate) fn family(&self, index: usize) -> Option<Family> {
        self.of_class(index)?.family
    }

    /// Whether any sign belongs to an engine.
    pub(crate) fn has(&self, family: Family) -> bool {
        self.seen().families & bit(family) != 0
    }

    /// The rank that the sign of this index is about ([`Sign::rank`]).
    pub(crate) fn rank(&self, index: usize) -> Option<Rank> {
        self.seen().each.get(index)?.rank
    }

    /// What is known of the class of the sign of this index, where it has one.
    pub(crate) fn known(&self, index: usize) -> Option<Known<'_>> {
        Some(self.of_class(index)?.known)
    }

    /// The first sign of a signature.
    pub(crate) fn first_of(&self, signature: &str) -> Option<&Sign> {
        self.marks()
            .map(|(_, sign)| sign)
            .find(|sign| sign.is_signed(signature))
    }

    /// All signs with their index.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, &Sign)> {
        self.signs.iter().map(|sign| &**sign).enumerate()
    }

    /// Signs that no signature knows: ends of processes and what the caller knows.
    pub(crate) fn unmarked(&self) -> impl Iterator<Item = (usize, &Sign)> {
        let unmarked = self.unmarked.get_or_init(|| {
            let unmarked = self.each().filter(|(_, sign)| sign.mark().is_none());
            unmarked.map(|(index, _)| index).collect()
        });
        unmarked.iter().map(|index| (*index, &*self.signs[*index]))
    }

    /// Signs that a signature knows, with their index.
    pub fn marks(&self) -> impl Iterator<Item = (usize, &Sign)> {
        self.each().filter(|(_, sign)| sign.mark().is_some())
    }

    /// Signs that may have started the failure.
    pub fn roots(&self) -> impl Iterator<Item = (usize, &Sign)> {
        self.marks().filter(|(_, sign)| sign.is_root_mark())
    }

    /// Ranks that ended other than well: index, sign, process id, how.
    pub fn exits(&self) -> impl Iterator<Item = (usize, &Sign, u32, Exit)> {
        self.unmarked()
            .filter_map(|(index, sign)| sign.exit().map(|(pid, exit)| (index, sign, pid, exit)))
    }

    /// Nodes that stopped speaking.
    pub fn silent(&self) -> impl Iterator<Item = (usize, &Sign)> {
        self.unmarked().filter(|(_, sign)| sign.what == What::Silent)
    }

    /// The first moment that may be compared with others.
    pub fn first_at(&self) -> Option<Timestamp> {
        self.signs.iter().filter(|sign| sign.timed).map(|sign| sign.at).min()
    }

    /// Ranks placed on a node.
    pub fn ranks_on(&self, node: &NodeId) -> BTreeSet<Rank> {
        self.placements
            .iter()
            .filter(|(_, at)| *at == node)
            .map(|(rank, _)| *rank)
            .collect()
    }

    /// The job as an entity.
    pub fn job_entity(&self) -> Entity {
        self.job.map_or(Entity::Unknown, |job| Entity::Job { job: job.clone() })
    }

    /// A rank of the job as an entity, where its node is known.
    pub fn rank_entity(&self, rank: Rank, seen_on: Option<&NodeId>) -> Entity {
        match (self.job, self.placements.get(&rank).or(seen_on)) {
            (Some(job), Some(node)) => Entity::Rank {
                job: job.clone(),
                generation: self.generation,
                rank,
                node: node.clone(),
            },
            _ => self.job_entity(),
        }
    }

    /// Whether any sign of the scene plays this role by its signature.
    pub fn has_role(&self, role: Role) -> bool {
        self.marks()
            .any(|(_, sign)| sign.mark().is_some_and(|mark| mark.role == role))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rankguard_model::{EvidenceId, Fields, Mark, Sequence, Source};

    use super::*;

    const CLASSES: [&str; 7] = [
        "gpu-ecc-uncorrectable",
        "host-oom-kill",
        "nccl-timeout",
        "slurm-node-fail",
        "segfault",
        "key-error",
        "nobody-knows-this",
    ];
    const FAMILIES: [Family; 6] = [
        Family::Gpu,
        Family::Host,
        Family::Fabric,
        Family::Scheduler,
        Family::Process,
        Family::Software,
    ];

    fn sign(kind: usize, rank: Option<u32>) -> Shared<Sign> {
        let node = NodeId::from("n1");
        let mut fields = Fields::new();
        if let Some(rank) = rank {
            fields.insert("rank", rank.to_string());
        }
        // Of the last kind is what no signature knows.
        let what = CLASSES.get(kind).map_or(What::Silent, |class| {
            What::Mark(Mark {
                class: ClassId::from(*class),
                role: Role::Root,
                confidence: 0.9,
                signature: "s".into(),
                fields,
            })
        });
        Shared::from(Sign {
            evidence: EvidenceId {
                node: node.clone(),
                seq: Sequence(1),
            },
            at: Timestamp::from_millis(0),
            timed: true,
            source: Source::JobLog,
            entity: Entity::Node { node },
            what,
            text: "it failed".to_owned(),
            synthetic: false,
        })
    }

    proptest! {
        /// One look at all signs sees what each of them says by itself.
        #[test]
        fn a_look_sees_what_each_sign_says(kinds in prop::collection::vec((0..=CLASSES.len(), prop::option::of(0_u32..9)), 0..20)) {
            let signs: Vec<Shared<Sign>> = kinds.iter().map(|(kind, rank)| sign(*kind, *rank)).collect();
            let (placements, catalogue) = (BTreeMap::new(), Catalogue::builtin());
            let scene = Scene::new(&signs, None, Generation(1), &placements, catalogue);
            let family = |sign: &Sign| sign.class().and_then(|class| OfClass::of(catalogue, class).family);
            for (index, sign) in signs.iter().enumerate() {
                prop_assert_eq!(scene.rank(index), sign.rank());
                prop_assert_eq!(scene.family(index), family(sign));
            }
            for wanted in FAMILIES {
                prop_assert_eq!(scene.has(wanted), signs.iter().any(|sign| family(sign) == Some(wanted)));
            }
            let unmarked: Vec<usize> = (0..signs.len()).filter(|index| signs[*index].mark().is_none()).collect();
            prop_assert_eq!(scene.unmarked().map(|(index, _)| index).collect::<Vec<_>>(), unmarked);
        }
    }
}
