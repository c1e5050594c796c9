//! Builds a [`CombinedDumps`] from dumps: ranks, process groups, and the calls of each rank.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dump::{DumpEntry, RecorderDump};
use crate::limits::DumpProblems;

use super::combined::{CombinedDumps, GroupIndex, GroupView, MemberView, RankView};
use super::numbering;

impl<'d> CombinedDumps<'d> {
    /// Combines the dumps of many ranks. Dumps without a rank are left out, and of several of one rank the newest is
    /// used; both are reported as problems. Ranks below `expected_world`, and members of groups, are added without a
    /// dump if they have none.
    pub(super) fn build(
        dumps: &'d [RecorderDump],
        expected_world: Option<u32>,
        problems: &mut DumpProblems,
    ) -> CombinedDumps<'d> {
        let mut world = CombinedDumps {
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
        // At most 2^20 ranks are added, so that an absurd world size does not exhaust memory.
        for rank in 0..expected_world.unwrap_or(0).min(1 << 20) {
            world.add_absent(rank);
        }
        for index in 0..world.groups.len() {
            for rank in world.groups[index].ranks.clone().iter() {
                world.add_absent(*rank);
                world.groups[index].members.insert(*rank, MemberView::default());
            }
        }
        numbering::count(&mut world, &by_key, problems);
        world.prove();
        world.mark_overtaken();
        world
    }

    /// Adds a rank without a dump, unless it is known already.
    fn add_absent(&mut self, rank: u32) {
        self.ranks.entry(rank).or_insert(RankView {
            dump: None,
            ops: Vec::new(),
            stale: 0,
        });
    }

    /// Collects the groups, identified by name and members, because a split can give several groups the same name. A
    /// group that only entries name consists of the ranks with such entries, and is reported as a problem. Returns the
    /// group to which each rank refers by a name.
    fn name_groups(&mut self, problems: &mut DumpProblems) -> BTreeMap<(u32, Arc<str>), GroupIndex> {
        let mut indexes: BTreeMap<(Arc<str>, Arc<[u32]>), GroupIndex> = BTreeMap::new();
        let mut meant = BTreeMap::new();
        let mut nameless: BTreeMap<Arc<str>, Vec<u32>> = BTreeMap::new();
        for (rank, view) in &self.ranks {
            let Some(dump) = view.dump else { continue };
            for config in &dump.groups {
                let key = (config.id.clone(), config.ranks.clone());
                let index = *indexes.entry(key).or_insert_with(|| {
                    self.groups.push(GroupView {
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
            let of_group = |entry: &&DumpEntry| entry.group == id;
            let first = self
                .ranks
                .get(&ranks[0])
                .and_then(|view| view.dump?.entries.iter().find(of_group));
            let description = first.map_or_else(|| Arc::from(""), |entry| entry.description.clone());
            self.groups.push(GroupView {
                id,
                description,
                ranks: Arc::from(ranks),
                members: BTreeMap::new(),
            });
        }
        meant
    }
}
