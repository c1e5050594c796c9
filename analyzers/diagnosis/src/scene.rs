//! Scene: all signs of one failure, the immutable input of the engines.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use rankguard_faults::Catalogue;
use rankguard_model::{ClassId, Entity, Generation, JobId, NodeId, ProcessExit, Rank, Role, SharedValue, Timestamp};

use crate::Signal;
use crate::engine::{self, FailureFamily};
use crate::knowledge::ClassEntry;

/// Signs of one failure in order of time, and the placement of the job's ranks.
#[derive(Debug, Clone)]
pub struct FailureScene<'a> {
    /// Signs, earliest first. Signs of one stream retain its order; those without a time are placed where they were
    /// read.
    pub signs: &'a [SharedValue<Signal>],
    /// Affected job, if known.
    pub job: Option<&'a JobId>,
    /// Generation of the job.
    pub generation: Generation,
    /// Node of each rank.
    pub placements: &'a BTreeMap<Rank, NodeId>,
    pub catalogue: &'a Catalogue,
    /// False for drafts of older rules ([`crate::Diagnosis::set_cause_limits`]).
    pub(crate) has_cause_limits: bool,
    /// False for drafts of older rules ([`crate::Diagnosis::set_fault_limits`]).
    pub(crate) has_fault_limits: bool,
    /// False for drafts of older rules ([`crate::Diagnosis::set_fault_ends`]).
    pub(crate) has_fault_ends: bool,
    /// False for drafts of older rules ([`crate::Diagnosis::set_local_causes`]).
    has_local_causes: bool,
    /// True if agents report the end of each rank. Logs that are read later show the end of few.
    reports_ends: bool,
    /// What the run did in spite of the faults, if it is known.
    pub(crate) beside_run: Option<RunBeside>,
    /// True if it holds the signs of one failure beside another one.
    is_part: bool,
    /// Nodes that logs name, for logs that are read later.
    pub(crate) named_nodes: BTreeSet<NodeId>,
    /// Nodes with a log of their kernel or services, for logs that are read later.
    pub(crate) machine_nodes: BTreeSet<NodeId>,
    /// Ranks with logs of their own, for logs that are read later.
    pub(crate) rank_logs: BTreeMap<Rank, RankLog>,
    /// Start of the generation, if known: faults of machines before it are older than the failure.
    since: Option<Timestamp>,
    /// Properties of every sign that all engines use, computed on first use.
    seen: OnceCell<SceneIndex<'a>>,
    /// Indices of the signs without a mark, usually none.
    unmarked: OnceCell<Vec<usize>>,
}

/// Log of one rank that is read later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankLog {
    /// Node of the log.
    pub node: NodeId,
    /// True if it shows work.
    pub works: bool,
}

/// Course of a run beside faults of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunBeside {
    /// Its logs state that it ended well.
    EndedWell,
    /// Its logs show work long after the last fault.
    WorkedOn,
}

impl<'a> FailureScene<'a> {
    /// Creates a scene from signs in order of time and the placement of the job's ranks.
    pub fn new(
        signs: &'a [SharedValue<Signal>],
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
            has_cause_limits: true,
            has_fault_limits: true,
            has_fault_ends: true,
            has_local_causes: true,
            reports_ends: false,
            beside_run: None,
            is_part: false,
            named_nodes: BTreeSet::new(),
            machine_nodes: BTreeSet::new(),
            rank_logs: BTreeMap::new(),
            since: None,
            seen: OnceCell::new(),
            unmarked: OnceCell::new(),
        }
    }

    /// Returns the scene under other rules.
    #[must_use]
    pub(crate) fn with_limits(mut self, has_cause_limits: bool, has_fault_limits: bool, has_fault_ends: bool) -> Self {
        self.has_cause_limits = has_cause_limits;
        self.has_fault_limits = has_fault_limits;
        self.has_fault_ends = has_fault_ends;
        self
    }

    /// Returns the scene under rules with local causes, or without.
    #[must_use]
    pub(crate) fn with_local_causes(mut self, has_local_causes: bool) -> Self {
        self.has_local_causes = has_local_causes;
        self
    }

    /// Returns the scene of a generation that began at a known time.
    #[must_use]
    pub(crate) fn begun_at(mut self, since: Option<Timestamp>) -> Self {
        self.since = since;
        self
    }

    /// Returns the scene of logs that name nodes.
    #[must_use]
    pub fn naming(mut self, nodes: BTreeSet<NodeId>) -> Self {
        self.named_nodes = nodes;
        self
    }

    /// Returns the scene with logs of the machines of these nodes.
    #[must_use]
    pub fn with_machine_logs(mut self, nodes: BTreeSet<NodeId>) -> Self {
        self.machine_nodes = nodes;
        self
    }

    /// Returns the scene of logs of these ranks.
    #[must_use]
    pub fn with_rank_logs(mut self, ranks: BTreeMap<Rank, RankLog>) -> Self {
        self.rank_logs = ranks;
        self
    }

    /// Returns the scene of a cluster, where agents report the end of each rank.
    #[must_use]
    pub(crate) fn of_cluster(mut self) -> Self {
        self.reports_ends = true;
        self
    }

    /// Returns the scene of a part of the signs, under the same rules.
    pub(crate) fn with_signs<'s>(&'s self, signs: &'s [SharedValue<Signal>]) -> FailureScene<'s> {
        let mut part = FailureScene::new(signs, self.job, self.generation, self.placements, self.catalogue)
            .with_limits(self.has_cause_limits, self.has_fault_limits, self.has_fault_ends)
            .with_local_causes(self.has_local_causes)
            .begun_at(self.since);
        part.reports_ends = self.reports_ends;
        part.beside_run = self.beside_run;
        part.is_part = true;
        part.named_nodes.clone_from(&self.named_nodes);
        part.machine_nodes.clone_from(&self.machine_nodes);
        part.rank_logs.clone_from(&self.rank_logs);
        part
    }

    /// Returns true for logs that are read later, without agents.
    pub(crate) fn is_of_logs(&self) -> bool {
        !self.reports_ends
    }

    /// Returns true if the ends of ranks are distinguished by how and when they ended: agents report the end of each, and
    /// the rules are new enough ([`crate::Diagnosis::set_fault_ends`]).
    pub(crate) fn distinguishes_ends(&self) -> bool {
        self.reports_ends && self.has_fault_ends
    }

    /// Returns true if the reason of the first cause states whether another sign of it is earlier: in logs, and under rules that
    /// are new enough ([`crate::Diagnosis::set_local_causes`]).
    pub(crate) fn states_order(&self) -> bool {
        self.has_fault_ends && self.has_local_causes
    }

    /// Returns true if causes lie where their effects are: agents report the end of each rank, and the rules are new enough
    /// ([`crate::Diagnosis::set_local_causes`]).
    pub(crate) fn has_local_causes(&self) -> bool {
        self.distinguishes_ends() && self.has_local_causes
    }

    /// Returns the scene of faults of machines beside a run that ended well or worked on.
    #[must_use]
    pub fn beside_run(mut self, run: Option<RunBeside>) -> Self {
        self.beside_run = run;
        self
    }

    /// Returns true if the ranks are known and agents report the end of each.
    pub(crate) fn lists_ends(&self) -> bool {
        self.reports_ends && !self.placements.is_empty()
    }

    /// Returns true if a scene without ends of ranks shows that none had ended. Ranks may have ended of another failure.
    pub(crate) fn lists_all_ends(&self) -> bool {
        self.lists_ends() && !(self.is_part && self.has_fault_ends)
    }

    /// Returns true if a sign happened before the generation began.
    pub(crate) fn is_older(&self, sign: &Signal) -> bool {
        self.since.is_some_and(|since| sign.timed && sign.at < since)
    }
}

/// Number of preceding signs that are checked for the same class.
const BESIDE: usize = 2;

/// Properties of the signs, collected in one pass.
#[derive(Debug, Clone)]
struct SceneIndex<'a> {
    each: Vec<IndexedSignal<'a>>,
    /// Families that occur, one bit each.
    families: u8,
}

#[derive(Debug, Clone)]
struct IndexedSignal<'a> {
    of: Option<ClassLookup<'a>>,
    rank: Option<Rank>,
}

/// Catalogue entry and family of a sign's class.
#[derive(Debug, Clone, Copy)]
struct ClassLookup<'a> {
    known: ClassEntry<'a>,
    family: Option<FailureFamily>,
}

impl<'a> ClassLookup<'a> {
    fn of(catalogue: &'a Catalogue, class: &'a ClassId) -> Self {
        let known = ClassEntry::of(catalogue, class);
        let family = engine::family(class.as_str(), known.layer());
        Self { known, family }
    }
}

impl<'a> FailureScene<'a> {
    /// Collects the properties of all signs. A storm repeats few classes, so neighbours share one catalogue lookup.
    fn look(&self) -> SceneIndex<'a> {
        let mut seen = SceneIndex {
            each: Vec::with_capacity(self.signs.len()),
            families: 0,
        };
        for sign in self.signs {
            let of = sign.class().map(|class| {
                let before = seen.each.iter().rev().take(BESIDE);
                let same = before.filter_map(|seen| seen.of).find(|of| of.known.is(class));
                same.unwrap_or_else(|| ClassLookup::of(self.catalogue, class))
            });
            seen.families |= of.and_then(|of| of.family).map_or(0, bit);
            let rank = sign.rank();
            seen.each.push(IndexedSignal { of, rank });
        }
        seen
    }

    fn seen(&self) -> &SceneIndex<'a> {
        self.seen.get_or_init(|| self.look())
    }

    fn of_class(&self, index: usize) -> Option<&ClassLookup<'a>> {
        self.seen().each.get(index)?.of.as_ref()
    }
}

/// Returns the bit of a family in a set of families.
fn bit(family: FailureFamily) -> u8 {
    1 << family as u8
}

impl FailureScene<'_> {
    /// Returns the family of the sign at an index.
    pub(crate) fn family(&self, index: usize) -> Option<FailureFamily> {
        self.of_class(index)?.family
    }

    /// Returns true if any sign belongs to a family.
    pub(crate) fn has(&self, family: FailureFamily) -> bool {
        self.seen().families & bit(family) != 0
    }

    /// Returns the rank of the sign at an index ([`Signal::rank`]).
    pub(crate) fn rank(&self, index: usize) -> Option<Rank> {
        self.seen().each.get(index)?.rank
    }

    /// Returns the catalogue entry of the sign at an index, if it has a class.
    pub(crate) fn known(&self, index: usize) -> Option<ClassEntry<'_>> {
        Some(self.of_class(index)?.known)
    }

    /// Returns the first sign of a signature.
    pub(crate) fn first_of(&self, signature: &str) -> Option<&Signal> {
        self.marks()
            .map(|(_, sign)| sign)
            .find(|sign| sign.is_signed(signature))
    }

    /// Returns all signs with their index.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, &Signal)> {
        self.signs.iter().map(|sign| &**sign).enumerate()
    }

    /// Returns the signs without a mark: exits and facts of the caller.
    pub(crate) fn unmarked(&self) -> impl Iterator<Item = (usize, &Signal)> {
        let unmarked = self.unmarked.get_or_init(|| {
            let unmarked = self.each().filter(|(_, sign)| sign.mark().is_none());
            unmarked.map(|(index, _)| index).collect()
        });
        unmarked.iter().map(|index| (*index, &*self.signs[*index]))
    }

    /// Returns the signs with a mark, with their index.
    pub fn marks(&self) -> impl Iterator<Item = (usize, &Signal)> {
        self.each().filter(|(_, sign)| sign.mark().is_some())
    }

    /// Returns the signs that may have started the failure.
    pub fn roots(&self) -> impl Iterator<Item = (usize, &Signal)> {
        self.marks().filter(|(_, sign)| sign.is_root_mark())
    }

    /// Returns the ranks that failed: index, sign, process id, exit.
    pub fn exits(&self) -> impl Iterator<Item = (usize, &Signal, u32, ProcessExit)> {
        self.unmarked()
            .filter_map(|(index, sign)| sign.exit().map(|(pid, exit)| (index, sign, pid, exit)))
    }

    /// Returns the silences of nodes and of their agents.
    pub fn silent(&self) -> impl Iterator<Item = (usize, &Signal)> {
        self.unmarked().filter(|(_, sign)| sign.what.is_silence())
    }

    /// Returns the first comparable time.
    pub fn first_at(&self) -> Option<Timestamp> {
        self.signs.iter().filter(|sign| sign.timed).map(|sign| sign.at).min()
    }

    /// Returns the ranks placed on a node.
    pub fn ranks_on(&self, node: &NodeId) -> BTreeSet<Rank> {
        self.placements
            .iter()
            .filter(|(_, at)| *at == node)
            .map(|(rank, _)| *rank)
            .collect()
    }

    /// Returns the job as an entity.
    pub fn job_entity(&self) -> Entity {
        self.job.map_or(Entity::Unknown, |job| Entity::Job { job: job.clone() })
    }

    /// Returns a rank of the job as an entity, or the job if its node is unknown.
    pub fn rank_entity(&self, rank: Rank, seen_on: Option<&NodeId>) -> Entity {
        // Logs that are read later place ranks on nodes without a name.
        let is_named = |node: &&NodeId| !node.as_str().is_empty();
        let placed = self.placements.get(&rank);
        let node = placed.filter(is_named).or(seen_on.filter(is_named));
        match (self.job, node.or(placed).or(seen_on)) {
            (Some(job), Some(node)) => Entity::Rank {
                job: job.clone(),
                generation: self.generation,
                rank,
                node: node.clone(),
            },
            _ => self.job_entity(),
        }
    }

    /// Returns true if any mark of the scene has this role.
    pub fn has_role(&self, role: Role) -> bool {
        self.marks()
            .any(|(_, sign)| sign.mark().is_some_and(|mark| mark.role == role))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rankguard_model::{Classification, EvidenceId, EvidenceSource, FieldValues, Sequence};

    use super::*;
    use crate::SignalMeaning;

    const CLASSES: [&str; 7] = [
        "gpu-ecc-uncorrectable",
        "host-oom-kill",
        "nccl-timeout",
        "slurm-node-fail",
        "segfault",
        "key-error",
        "nobody-knows-this",
    ];
    const FAMILIES: [FailureFamily; 6] = [
        FailureFamily::Gpu,
        FailureFamily::Host,
        FailureFamily::Fabric,
        FailureFamily::Scheduler,
        FailureFamily::Process,
        FailureFamily::Software,
    ];

    fn sign(kind: usize, rank: Option<u32>) -> SharedValue<Signal> {
        let node = NodeId::from("n1");
        let mut fields = FieldValues::new();
        if let Some(rank) = rank {
            fields.insert("rank", rank.to_string());
        }
        // The last kind has no mark.
        let what = CLASSES.get(kind).map_or(SignalMeaning::Silent, |class| {
            SignalMeaning::Mark(Classification {
                class: ClassId::from(*class),
                role: Role::Root,
                confidence: 0.9,
                signature: "s".into(),
                fields,
            })
        });
        SharedValue::from(Signal {
            evidence: EvidenceId {
                node: node.clone(),
                seq: Sequence(1),
            },
            at: Timestamp::from_millis(0),
            timed: true,
            source: EvidenceSource::JobLog,
            entity: Entity::Node { node },
            what,
            text: "it failed".to_owned(),
            synthetic: false,
        })
    }

    proptest! {
        /// Checks that the single pass gives the same properties as each sign alone.
        #[test]
        fn a_look_sees_what_each_sign_says(kinds in prop::collection::vec((0..=CLASSES.len(), prop::option::of(0_u32..9)), 0..20)) {
            let signs: Vec<SharedValue<Signal>> = kinds.iter().map(|(kind, rank)| sign(*kind, *rank)).collect();
            let placements = BTreeMap::new();
            let catalogue = Catalogue::builtin();
            let scene = FailureScene::new(&signs, None, Generation(1), &placements, catalogue);
            let family = |sign: &Signal| sign.class().and_then(|class| ClassLookup::of(catalogue, class).family);
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
