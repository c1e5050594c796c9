//! Conversion of plain values to a [`RecorderDump`]: missing or odd fields become problems, the rest is used.

mod entry;
mod intern;
mod stack;

use std::sync::Arc;

use crate::dump::{GroupConfig, GroupStatus, RecorderDump};
use crate::json;
use crate::limits::{DumpLimits, DumpProblem, DumpProblems, ReadError};
use rankguard_pickle::{ObjectPolicy, PickleTree, ValueId};

use intern::ValueInterner;

/// Maximum length of a name, bytes.
const NAME_BYTES: usize = 512;

impl RecorderDump {
    /// Reads one dump, pickle or JSON, depending on its first byte. `rank` is the rank in the file's name; without it
    /// the dump's own `rank` field is used, or the only rank that all its groups have in common.
    ///
    /// The problems list odd fields; an error means that nothing could be used. A truncated pickle gives the values
    /// before the truncation.
    pub fn read(rank: Option<u32>, bytes: &[u8]) -> Result<(RecorderDump, Vec<DumpProblem>), ReadError> {
        RecorderDump::read_within(&DumpLimits::default(), rank, bytes)
    }

    /// Reads one dump as [`RecorderDump::read`] does, with other limits.
    pub fn read_within(
        limits: &DumpLimits,
        rank: Option<u32>,
        bytes: &[u8],
    ) -> Result<(RecorderDump, Vec<DumpProblem>), ReadError> {
        let most = limits.bytes.min(u32::MAX as usize / 4);
        if bytes.len() > most {
            return Err(ReadError::TooLarge {
                bytes: bytes.len(),
                limit: most,
            });
        }
        let mut problems = DumpProblems::default();
        let body = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let first = body
            .iter()
            .find(|byte| !byte.is_ascii_whitespace())
            .ok_or(ReadError::Empty)?;
        let tree = if matches!(first, b'{' | b'[') {
            json::read(body, limits)?
        } else {
            let read = rankguard_pickle::read(bytes, &limits.of_pickle(), ObjectPolicy::Refuse)?;
            if let Some(offset) = read.cut {
                problems.add(
                    rank,
                    format!("byte {offset}"),
                    "the dump breaks off here; what stands before it is used",
                );
            }
            if read.trailing > 0 {
                problems.add(
                    rank,
                    "end",
                    format!("{} bytes after the end of the pickle", read.trailing),
                );
            }
            read.tree
        };
        let mut extractor = DumpExtractor {
            tree: &tree,
            rank,
            problems,
            interner: ValueInterner::default(),
            work: limits.work,
        };
        let dump = extractor.dump()?;
        let problems = extractor.problems.into_vec(dump.rank);
        Ok((dump, problems))
    }
}

struct DumpExtractor<'t, 'a> {
    tree: &'t PickleTree<'a>,
    rank: Option<u32>,
    problems: DumpProblems,
    interner: ValueInterner,
    /// Remaining units of work; see [`DumpLimits::work`].
    work: u64,
}

impl DumpExtractor<'_, '_> {
    fn dump(&mut self) -> Result<RecorderDump, ReadError> {
        let tree = self.tree;
        let fields = tree.pairs(tree.root).ok_or(ReadError::NotADump {
            what: "the outermost value is no dictionary",
        })?;
        let mut dump = RecorderDump {
            rank: self.rank,
            version: Arc::from(""),
            library_version: None,
            groups: Vec::new(),
            status: Default::default(),
            entries: Vec::new(),
        };
        let mut config = None;
        let mut status = None;
        let mut entries = None;
        let mut named = None;
        for (key, value) in fields.take(1024) {
            match tree.bytes(key).unwrap_or_default() {
                b"version" => dump.version = self.name(value).unwrap_or_else(|| dump.version.clone()),
                b"nccl_version" | b"comm_lib_version" | b"xccl_version" => dump.library_version = self.name(value),
                b"pg_config" => config = Some(value),
                b"pg_status" => status = Some(value),
                b"entries" => entries = Some(value),
                b"rank" => named = tree.integer(value).and_then(|rank| u32::try_from(rank).ok()),
                _ => {}
            }
        }
        if config.is_none() && entries.is_none() && status.is_none() {
            return Err(ReadError::NotADump {
                what: "neither `entries` nor `pg_config` nor `pg_status`",
            });
        }
        self.rank = self.rank.or(named);
        match dump.version_numbers() {
            _ if dump.version.is_empty() => self.odd("version", "missing"),
            (2, 0..=10) => {}
            _ => {
                let what = format!("version {} is not one of 2.0 to 2.10; read as the newest", dump.version);
                self.odd("version", what);
            }
        }
        if let Some(config) = config {
            dump.groups = self.groups(config);
        } else {
            self.odd("pg_config", "missing: members of groups are concluded from entries");
        }
        if self.rank.is_none() {
            self.rank = common_rank(&dump.groups);
        }
        if let Some(status) = status {
            self.status(status, &mut dump);
        }
        match entries {
            Some(entries) => dump.entries = self.entries(entries),
            // The JSON form omits the field if the list is empty.
            None => self.odd("entries", "missing: taken as empty"),
        }
        dump.rank = self.rank;
        if dump.rank.is_none() {
            self.odd("rank", "neither the file's name nor the dump tells the rank");
        }
        Ok(dump)
    }

    fn groups(&mut self, config: ValueId) -> Vec<GroupConfig> {
        let tree = self.tree;
        let Some(pairs) = tree.pairs(config) else {
            self.odd("pg_config", "no dictionary");
            return Vec::new();
        };
        let mut groups = Vec::new();
        for (key, value) in pairs {
            if !self.spend(8) {
                break;
            }
            let Some(id) = self.name(key) else { continue };
            let place = format!("pg_config[{id}]");
            let Some(fields) = tree.pairs(value) else {
                self.odd(place, "no dictionary");
                continue;
            };
            let mut description = None;
            let mut ranks = None;
            for (field, content) in fields.take(64) {
                match tree.bytes(field).unwrap_or_default() {
                    b"desc" => description = self.name(content),
                    b"ranks" => ranks = self.ranks(content),
                    _ => {}
                }
            }
            let Some(ranks) = ranks else {
                self.odd(place, "no list of ranks");
                continue;
            };
            if self.rank.is_some_and(|rank| ranks.binary_search(&rank).is_err()) {
                self.odd(place, "the rank of this dump is not a member");
                continue;
            }
            groups.push(GroupConfig {
                id,
                description: description.unwrap_or_else(|| Arc::from("")),
                ranks,
            });
        }
        groups
    }

    /// Parses `"[0, 2]"`, as the recorder writes ranks, or a list.
    fn ranks(&mut self, id: ValueId) -> Option<Arc<[u32]>> {
        let tree = self.tree;
        let mut ranks: Vec<u32> = if let Some(items) = tree.items(id) {
            if !self.spend(items.len() as u64) {
                return None;
            }
            items
                .iter()
                .filter_map(|item| u32::try_from(tree.integer(*item)?).ok())
                .collect()
        } else {
            let text = tree.bytes(id)?;
            if !self.spend(text.len() as u64) {
                return None;
            }
            let numbers = text
                .split(|byte| !byte.is_ascii_digit())
                .filter(|digits| !digits.is_empty());
            numbers
                .filter_map(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
                .collect()
        };
        ranks.sort_unstable();
        ranks.dedup();
        // Each member costs the analysis far more than its two bytes of text.
        let affordable = self.spend(16 * ranks.len() as u64);
        (affordable && !ranks.is_empty()).then(|| Arc::from(ranks))
    }

    fn status(&mut self, status: ValueId, dump: &mut RecorderDump) {
        let tree = self.tree;
        let Some(pairs) = tree.pairs(status) else {
            self.odd("pg_status", "no dictionary");
            return;
        };
        for (key, value) in pairs {
            if !self.spend(8) {
                break;
            }
            let (Some(pg_id), Some(fields)) = (tree.integer(key), tree.pairs(value)) else {
                self.odd("pg_status", "a status without a number, or that is no dictionary");
                continue;
            };
            let mut found = GroupStatus::default();
            for (field, content) in fields.take(64) {
                match tree.bytes(field).unwrap_or_default() {
                    b"last_enqueued_collective" => found.last_enqueued = tree.integer(content),
                    b"last_started_collective" => found.last_started = tree.integer(content),
                    b"last_completed_collective" => found.last_completed = tree.integer(content),
                    _ => {}
                }
            }
            dump.status.insert(pg_id, found);
        }
    }

    fn name(&mut self, id: ValueId) -> Option<Arc<str>> {
        if !self.spend(1) {
            return None;
        }
        if let Some(known) = self.interner.known_text(id) {
            return Some(known);
        }
        let tree = self.tree;
        if let Some(text) = tree.text(id, NAME_BYTES) {
            return Some(self.interner.text_at(id, &text));
        }
        tree.integer(id).map(|number| self.interner.text(&number.to_string()))
    }

    fn odd(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.problems.add(self.rank, place, what);
    }

    /// Returns true if enough work is left; the first refusal becomes a problem.
    fn spend(&mut self, units: u64) -> bool {
        match self.work.checked_sub(units) {
            Some(left) => {
                self.work = left;
                true
            }
            None => {
                if self.work > 0 {
                    self.odd("dump", "too much to look at; the rest is left out");
                }
                self.work = 0;
                false
            }
        }
    }
}

/// Returns the only rank that all groups share: a rank is a member of all groups that it knows.
fn common_rank(groups: &[GroupConfig]) -> Option<u32> {
    let (first, rest) = groups.split_first()?;
    let mut common = first
        .ranks
        .iter()
        .filter(|rank| rest.iter().all(|g| g.ranks.binary_search(rank).is_ok()));
    let only = common.next()?;
    common.next().is_none().then_some(*only)
}
