//! All dumps side by side: groups with their members, and each rank's operations with what is known of their end.
//!
//! What a rank says of itself can be old: a watchdog that hangs sees no completion. So an operation also counts as done
//! when another member completed it, or a later one that nobody completes without all others (`proven`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dump::{Dump, Entry, State};
use crate::limits::Problems;
use crate::operation::{Lane, OpKind, Operation};

use super::numbering;

/// Index of a group in [`World::groups`].
pub(super) type GroupIndex = usize;

pub(super) struct Group {
    pub(super) id: Arc<str>,
    pub(super) description: Arc<str>,
    /// Ascending.
    pub(super) ranks: Arc<[u32]>,
    pub(super) members: BTreeMap<u32, Member>,
}

/// What is known of one member of one group.
#[derive(Debug, Clone, Default)]
pub(super) struct Member {
    /// Last collective called; `None` where nothing tells.
    pub(super) enqueued: Option<i64>,
    pub(super) started: Option<i64>,
    /// Last collective that the rank itself saw complete.
    pub(super) completed: Option<i64>,
    /// Last point-to-point operation called.
    pub(super) p2p_enqueued: Option<i64>,
    /// The rank's operations in this group, oldest first: places in [`RankView::ops`].
    pub(super) ops: Vec<usize>,
}

/// One operation of one rank; several entries that were launched as one are one operation.
#[derive(Debug, Clone)]
pub(super) struct Op {
    pub(super) group: GroupIndex,
    pub(super) lane: Lane,
    pub(super) seq: i64,
    pub(super) kind: OpKind,
    /// Place of its first entry in the dump.
    pub(super) entry: usize,
    /// Places of further entries of the same launch.
    pub(super) more: Vec<usize>,
    pub(super) state: State,
    /// Done whatever the rank itself says.
    pub(super) proven: bool,
    /// The rank recorded later operations that are over: it is not held up here.
    pub(super) overtaken: bool,
}

impl Op {
    pub(super) fn pending(&self) -> bool {
        self.state != State::Completed && !self.proven
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.entry).chain(self.more.iter().copied())
    }
}

pub(super) struct RankView<'d> {
    /// `None` for a rank that others name and that has no dump.
    pub(super) dump: Option<&'d Dump>,
    pub(super) ops: Vec<Op>,
    /// Operations that others prove done and the rank did not see end, with the last of them.
    pub(super) stale: usize,
}

impl RankView<'_> {
    pub(super) fn has_entries(&self) -> bool {
        self.dump.is_some_and(|dump| !dump.entries.is_empty())
    }
}

pub(super) struct World<'d> {
    pub(super) groups: Vec<Group>,
    pub(super) ranks: BTreeMap<u32, RankView<'d>>,
}

impl<'d> World<'d> {
    pub(super) fn build(dumps: &'d [Dump], expected_world: Option<u32>, problems: &mut Problems) -> World<'d> {
        let mut world = World {
            groups: Vec::new(),
            ranks: BTreeMap::new(),
        };
        for (index, dump) in dumps.iter().enumerate() {
            match dump.rank {
                None => problems.add(None, format!("dump {index}"), "of an unknown rank; left out"),
                Some(rank) => {
                    let view = RankView {
                        dump: Some(dump),
                        ops: Vec::new(),
                        stale: 0,
                    };
                    let newest = |view: &RankView<'_>| {
                        view.dump
                            .and_then(|d| d.entries.iter().map(|e| e.time_created_ns).max())
                    };
                    match world.ranks.get(&rank) {
                        None => drop(world.ranks.insert(rank, view)),
                        Some(other) => {
                            problems.add(Some(rank), "dump", "more than one of this rank; the newest is used");
                            if newest(&view) > newest(other) {
                                world.ranks.insert(rank, view);
                            }
                        }
                    }
                }
            }
        }
        let mut versions: Vec<&str> = world
            .ranks
            .values()
            .filter_map(|view| Some(&*view.dump?.version))
            .collect();
        versions.sort_unstable();
        versions.dedup();
        if versions.len() > 1 {
            problems.add(
                None,
                "version",
                format!("dumps of different versions: {}", versions.join(", ")),
            );
        }
        let by_key = world.name_groups(problems);
        // A wild number must not become a list of billions.
        for rank in 0..expected_world.unwrap_or(0).min(1 << 20) {
            world.add_absent(rank);
        }
        for index in 0..world.groups.len() {
            for rank in world.groups[index].ranks.clone().iter() {
                world.add_absent(*rank);
                world.groups[index].members.insert(*rank, Member::default());
            }
        }
        numbering::count(&mut world, &by_key, problems);
        world.prove();
        world.mark_overtaken();
        world
    }

    fn add_absent(&mut self, rank: u32) {
        self.ranks.entry(rank).or_insert(RankView {
            dump: None,
            ops: Vec::new(),
            stale: 0,
        });
    }

    /// Groups by name and members: a split can give several groups the same name. Gives the group that a rank means by a
    /// name.
    fn name_groups(&mut self, problems: &mut Problems) -> BTreeMap<(u32, Arc<str>), GroupIndex> {
        let mut indexes: BTreeMap<(Arc<str>, Arc<[u32]>), GroupIndex> = BTreeMap::new();
        let mut meant = BTreeMap::new();
        let mut nameless: BTreeMap<Arc<str>, Vec<u32>> = BTreeMap::new();
        for (rank, view) in &self.ranks {
            let Some(dump) = view.dump else { continue };
            for config in &dump.groups {
                let key = (config.id.clone(), config.ranks.clone());
                let index = *indexes.entry(key).or_insert_with(|| {
                    self.groups.push(Group {
                        id: config.id.clone(),
                        description: config.description.clone(),
                        ranks: config.ranks.clone(),
                        members: BTreeMap::new(),
                    });
                    self.groups.len() - 1
                });
                meant.insert((*rank, config.id.clone()), index);
            }
        }
        for (rank, view) in &self.ranks {
            let mut last: Option<&Arc<str>> = None;
            for entry in view.dump.iter().flat_map(|dump| &dump.entries) {
                if last.is_some_and(|id| Arc::ptr_eq(id, &entry.group)) {
                    continue;
                }
                last = Some(&entry.group);
                let key = (*rank, entry.group.clone());
                if meant.contains_key(&key) {
                    continue;
                }
                let others = indexes.range((entry.group.clone(), Arc::from([]))..);
                let named = others.take_while(|((id, _), _)| *id == entry.group);
                let mine = named
                    .filter(|((_, ranks), _)| ranks.binary_search(rank).is_ok())
                    .map(|(_, index)| *index);
                match mine.min() {
                    Some(index) => drop(meant.insert(key, index)),
                    None => {
                        let ranks = nameless.entry(entry.group.clone()).or_default();
                        if ranks.last() != Some(rank) {
                            ranks.push(*rank);
                        }
                    }
                }
            }
        }
        for (id, ranks) in nameless {
            problems.add(
                None,
                format!("pg_config[{id}]"),
                "missing: members are those that recorded something in it",
            );
            let index = self.groups.len();
            for rank in &ranks {
                meant.insert((*rank, id.clone()), index);
            }
            let of_group = |entry: &&Entry| entry.group == id;
            let first = self
                .ranks
                .get(&ranks[0])
                .and_then(|view| view.dump?.entries.iter().find(of_group));
            let description = first.map_or_else(|| Arc::from(""), |entry| entry.description.clone());
            self.groups.push(Group {
                id,
                description,
                ranks: Arc::from(ranks),
                members: BTreeMap::new(),
            });
        }
        meant
    }

    /// Marks what other members prove done.
    fn prove(&mut self) {
        for group in &self.groups {
            // The furthest completion and the furthest of another rank: nobody proves its own.
            let mut furthest: [Option<(i64, u32)>; 2] = [None, None];
            for (rank, member) in &group.members {
                let seen = member.completed.map(|seq| (seq, *rank));
                if seen > furthest[0] {
                    furthest = [seen, furthest[0]];
                } else if seen > furthest[1] {
                    furthest[1] = seen;
                }
            }
            for (rank, member) in &group.members {
                let other = furthest.iter().flatten().find(|(_, by)| by != rank);
                let (Some((until, _)), Some(view)) = (other, self.ranks.get_mut(rank)) else {
                    continue;
                };
                let ops = &mut view.ops;
                let within = |op: &Op| op.lane == Lane::Collective && op.seq <= *until;
                let last = member
                    .ops
                    .iter()
                    .rposition(|at| within(&ops[*at]) && ops[*at].kind.proves_all());
                for at in member.ops.iter().take(last.map_or(0, |last| last + 1)) {
                    let op = &mut ops[*at];
                    if op.lane == Lane::Collective && op.state != State::Completed {
                        op.proven = true;
                        view.stale += 1;
                    }
                }
            }
        }
    }

    /// Marks pending operations that later ones overtook. On a rank that did not see its operations end, what stands
    /// before the last proven one counts as done too, though nobody can prove it: sends and receives, and collectives of a
    /// group that has nobody but such ranks. A collective that is known to lack a member
    /// cannot be done.
    fn mark_overtaken(&mut self) {
        let least = |group: &Group| group.members.values().filter_map(|member| member.enqueued).min();
        let reached: Vec<Option<i64>> = self.groups.iter().map(least).collect();
        for view in self.ranks.values_mut() {
            let Some(dump) = view.dump else { continue };
            let (mut over, mut proven) = (false, false);
            // A gap in the record is an operation that was over and left out.
            let mut next_id = dump.entries.last().map_or(0, |entry| entry.record_id + 1);
            for op in view.ops.iter_mut().rev() {
                let last = op.more.last().copied().unwrap_or(op.entry);
                over |= dump.entries[last].record_id + 1 < next_id;
                if op.pending() {
                    op.overtaken = over;
                    let complete = op.lane == Lane::PointToPoint || reached[op.group].is_none_or(|seq| seq >= op.seq);
                    op.proven = proven && complete;
                } else {
                    over = true;
                    proven |= op.proven;
                }
                next_id = dump.entries[op.entry].record_id;
            }
        }
    }

    pub(super) fn entry(&self, rank: u32, op: &Op) -> Option<&'d Entry> {
        self.ranks.get(&rank)?.dump?.entries.get(op.entry)
    }

    /// `nccl:all_to_all`; a launch of several is named after its first.
    pub(super) fn op_name(&self, rank: u32, op: &Op) -> String {
        let name = self.entry(rank, op).map_or("", |entry| &entry.profiling_name);
        match op.more.len() {
            0 => name.to_owned(),
            more => format!("{name} and {more} more in one launch"),
        }
    }

    pub(super) fn group_name(&self, group: GroupIndex) -> String {
        let group = &self.groups[group];
        crate::words::group_name(&group.id, &group.description)
    }
}

/// The kind of an entry.
pub(super) fn kind(entry: &Entry) -> OpKind {
    Operation::parse(&entry.profiling_name).kind
}
