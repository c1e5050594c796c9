//! Limits of the ranks' processes: use of the open-file limit, and the locked-memory limit on nodes with RDMA.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rankguard_model::RankRef;

/// Part of the open-file limit above which a rank is reported.
const NEAR: f64 = 0.9;
/// Part below which the report is cleared.
const FINE: f64 = 0.8;

/// Finding about one rank.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum LimitReport {
    /// Open files and their limit; `near` is true if the rank came near its limit, false if it cleared.
    Files { open: u64, limit: u64, near: bool },
    /// Finite locked-memory limit, bytes, on a node with RDMA adapters. Reported once a rank.
    Pinned { bytes: u64 },
}

/// Findings already reported.
#[derive(Debug, Default)]
pub(super) struct LimitFindings {
    near: BTreeMap<RankRef, bool>,
    pinned: BTreeSet<RankRef>,
}

impl LimitFindings {
    /// Checks the processes of ranks and returns new findings.
    pub(super) fn look(
        &mut self,
        proc_root: &Path,
        ranks: &[(RankRef, u32)],
        rdma: bool,
    ) -> Vec<(RankRef, LimitReport)> {
        let here = |rank: &RankRef| ranks.iter().any(|(known, _)| known == rank);
        self.near.retain(|rank, _| here(rank));
        self.pinned.retain(here);
        let mut told = Vec::new();
        for (rank, pid) in ranks {
            let folder = proc_root.join(pid.to_string());
            let text = fs::read_to_string(folder.join("limits")).unwrap_or_default();
            if let Some(limit) = soft(&text, "Max open files")
                && let Some(open) = files(&folder)
            {
                let part = open as f64 / limit.max(1) as f64;
                let before = self.near.get(rank).copied().unwrap_or(false);
                let near = part > NEAR || before && part >= FINE;
                if near != before {
                    told.push((rank.clone(), LimitReport::Files { open, limit, near }));
                }
                self.near.insert(rank.clone(), near);
            }
            if rdma
                && let Some(bytes) = soft(&text, "Max locked memory")
                && self.pinned.insert(rank.clone())
            {
                told.push((rank.clone(), LimitReport::Pinned { bytes }));
            }
        }
        told
    }
}

/// Parses the soft limit of this name; none if it is absent or not a number (unlimited).
fn soft(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// Counts the open files of a process. Since Linux 6.2 the size of the folder is the count; before, its entries are
/// counted.
fn files(folder: &Path) -> Option<u64> {
    let path = folder.join("fd");
    let size = fs::metadata(&path).ok()?.len();
    if size > 0 && path.starts_with("/proc") {
        return Some(size);
    }
    Some(fs::read_dir(path).ok()?.flatten().count() as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::collectors::testing::rank;

    fn limits(root: &Path, pid: u32, open: u64, files: &str, locked: &str) {
        let folder = root.join(pid.to_string());
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("fd")).unwrap();
        for number in 0..open {
            fs::write(folder.join("fd").join(number.to_string()), "").unwrap();
        }
        let text = format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max locked memory         {locked}              {locked}              bytes     \n\
             Max open files            {files}                 524288               files     \n"
        );
        fs::write(folder.join("limits"), text).unwrap();
    }

    #[test]
    fn a_rank_near_its_open_files_is_told_once_and_so_is_its_relief() {
        let root = tempfile::tempdir().unwrap();
        let ranks = [(rank(0), 70)];
        let mut known = LimitFindings::default();
        let mut at = |open: u64| {
            limits(root.path(), 70, open, "100", "unlimited");
            known.look(root.path(), &ranks, true)
        };
        let told = |open, near| {
            let limit = 100;
            vec![(rank(0), LimitReport::Files { open, limit, near })]
        };
        assert_eq!(at(90), []);
        assert_eq!(at(91), told(91, true));
        assert_eq!((at(99), at(85)), (vec![], vec![]));
        assert_eq!(at(70), told(70, false));
    }

    #[test]
    fn memory_that_may_not_be_pinned_is_told_once_where_rdma_wants_it() {
        let root = tempfile::tempdir().unwrap();
        limits(root.path(), 70, 1, "unlimited", "8388608");
        let ranks = [(rank(0), 70)];
        let mut known = LimitFindings::default();
        assert_eq!(known.look(root.path(), &ranks, false), []);
        let wanted = vec![(rank(0), LimitReport::Pinned { bytes: 8_388_608 })];
        assert_eq!(known.look(root.path(), &ranks, true), wanted);
        assert_eq!(known.look(root.path(), &ranks, true), []);
    }

    #[test]
    fn processes_that_vanish_and_garbage_are_not_known() {
        let root = tempfile::tempdir().unwrap();
        let mut known = LimitFindings::default();
        assert_eq!(known.look(root.path(), &[(rank(0), 71)], true), []);
        limits(root.path(), 71, 3, "-1", "garbage");
        assert_eq!(known.look(root.path(), &[(rank(0), 71)], true), []);
    }

    #[test]
    fn the_open_files_of_this_process_are_counted_by_the_kernel() {
        let own = Path::new("/proc").join(std::process::id().to_string());
        assert!(files(&own).is_some_and(|open| open > 0));
    }
}
