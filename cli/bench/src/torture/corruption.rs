//! Corruption matrix: every kind of damage at random places, judged with and without another tier.

use std::fs;
use std::path::{Path, PathBuf};

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::repair::{MirrorSource, repair};
use rankguard_checkpoint::store::VerifyDepth;
use rankguard_checkpoint::verify::verify;
use rankguard_checkpoint::{Store, StoreProblem};
use rankguard_model::with_causes;
use serde::Serialize;

pub use super::damage::DamageKind;
use super::damage::{DamageFolders, StoreDamage, StoreFiles, roll};
use super::dice::SplitMix64;
use super::subject::{LoadOutcome, TortureJob, id};
use super::{TortureError, on_threads};

/// Results of the cases of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CorruptionRow {
    /// Kind of damage, such as `bit-flip`; empty in the total.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Number of damaged stores.
    pub cases: u64,
    /// Without another tier: the damaged checkpoint was refused with its location, and the older one loaded.
    pub refused: u64,
    /// With another tier: every file was restored, byte for byte.
    pub repaired: u64,
    /// Loads that returned other bytes without an error.
    pub silent: u64,
}

impl CorruptionRow {
    pub fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        self.refused += other.refused;
        self.repaired += other.repaired;
        self.silent += other.silent;
    }

    /// True if every case passed.
    pub fn is_good(&self) -> bool {
        self.silent == 0 && self.refused == self.cases && self.repaired == self.cases
    }
}

/// The older checkpoint, and the one that is damaged: step and generation.
const OLDER: (u64, u64) = (10, 1);
const DAMAGED: (u64, u64) = (20, 1);

/// Three ranks, images of about a hundred KiB.
const WORLD: u32 = 3;
const ROWS: u64 = 190;

/// Shared state of all cases.
pub(crate) struct CorruptionBench {
    pub(crate) subject: TortureJob,
    /// Files of the store, and of the folders that supply foreign content.
    golden: StoreFiles,
    folders: DamageFolders,
    /// The other tier.
    mirror: Store,
}

/// Judgement of one case.
#[derive(Debug, Default)]
pub(crate) struct CorruptionVerdict {
    pub(crate) refused: bool,
    pub(crate) repaired: bool,
    pub(crate) silent: bool,
    /// Descriptions of violated expectations.
    pub(crate) faults: Vec<String>,
}

impl CorruptionBench {
    /// Creates the checkpoints below `dir`.
    pub(crate) fn new(dir: &Path, seed: u64) -> Result<Self, TortureError> {
        let subject = TortureJob::new(WORLD, ROWS, seed);
        let older = id(OLDER.0, OLDER.1);
        let damaged = id(DAMAGED.0, DAMAGED.1);
        let store = |name: &str| Store::open(dir.join(name)).map_err(TortureError::from);
        let mirror = store("mirror")?;
        subject.save(&mirror, older, None)?;
        subject.save(&mirror, damaged, Some(older))?;
        // Donors: the same step of another generation, and another attempt at the same checkpoint.
        let generation = store("generation")?;
        let twin = store("twin")?;
        let next = id(DAMAGED.0, DAMAGED.1 + 1);
        subject.save(&generation, older, None)?;
        subject.save(&generation, next, Some(older))?;
        let other = TortureJob::new(WORLD, ROWS, !seed);
        other.save(&twin, older, None)?;
        other.save(&twin, damaged, Some(older))?;

        let folder = |id: CheckpointId| format!("{}/{id}", subject.job);
        let mut golden = read_below(mirror.root())?;
        for (donor, from) in [("generation", &generation), ("twin", &twin)] {
            let files = read_below(from.root())?;
            golden.extend(
                files
                    .into_iter()
                    .map(|(path, bytes)| (format!("{donor}/{path}"), bytes)),
            );
        }
        let folders = DamageFolders {
            subject: folder(damaged),
            older: folder(older),
            generation: format!("generation/{}", folder(next)),
            twin: format!("twin/{}", folder(damaged)),
        };
        Ok(Self {
            subject,
            golden,
            folders,
            mirror,
        })
    }

    /// Iterates over the files of the store itself.
    fn own(&self) -> impl Iterator<Item = (&String, &Vec<u8>)> {
        let below = format!("{}/", self.subject.job);
        self.golden.iter().filter(move |(path, _)| path.starts_with(&below))
    }

    /// Writes a complete private copy of the store.
    pub(crate) fn copy(&self, root: PathBuf) -> Result<Store, TortureError> {
        for (path, bytes) in self.own() {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap_or(&root))?;
            fs::write(path, bytes)?;
        }
        Ok(Store::at(root))
    }

    /// Restores every file. Returns the paths of those that differed.
    fn reset(&self, store: &Store) -> Result<Vec<String>, TortureError> {
        let found = read_below(store.root())?;
        let mut differing = Vec::new();
        for (path, bytes) in self.own() {
            if found.get(path) != Some(bytes) {
                differing.push(path.clone());
                let target = store.root().join(path);
                fs::create_dir_all(target.parent().unwrap_or(store.root()))?;
                fs::write(target, bytes)?;
            }
        }
        for path in found.keys().filter(|path| !self.golden.contains_key(*path)) {
            differing.push(path.clone());
            fs::remove_file(store.root().join(path))?;
        }
        Ok(differing)
    }

    /// Applies a damage to an intact store and judges the engine's reaction; restores the store afterwards.
    pub(crate) fn judge(&self, store: &Store, damage: &StoreDamage) -> Result<CorruptionVerdict, TortureError> {
        for (path, bytes) in &damage.files {
            let target = store.root().join(path);
            match bytes {
                Some(bytes) => fs::write(target, bytes)?,
                None => fs::remove_file(target)?,
            }
        }
        let mut verdict = CorruptionVerdict::default();
        self.judge_without_mirror(store, damage, &mut verdict)?;
        self.with_mirror(store, damage, &mut verdict)?;
        Ok(verdict)
    }

    /// Judges the store without another tier.
    fn judge_without_mirror(
        &self,
        store: &Store,
        damage: &StoreDamage,
        verdict: &mut CorruptionVerdict,
    ) -> Result<(), TortureError> {
        let job = &self.subject.job;
        let report = verify(store, job, None)?;
        let mut noticed = false;
        // A verification reports the location of the damage.
        let places: Vec<DamageLocation> = damage.files.keys().map(|path| DamageLocation::of(path)).collect();
        let told_of = |text: &str| places.iter().any(|place| place.is_named_in(text));
        if !report
            .problems
            .iter()
            .map(StoreProblem::to_string)
            .any(|text| told_of(&text))
            && report.torn.is_empty()
        {
            verdict.fault(format!("verify finds nothing: {:?}", report.problems));
        }
        // Each checkpoint by its id, as a controller orders it.
        let subject = id(DAMAGED.0, DAMAGED.1);
        for id in [subject, id(OLDER.0, OLDER.1)] {
            let loaded = match store.load(job, id) {
                Err(problem) => LoadOutcome::Refused(with_causes(&problem)),
                Ok(checkpoint) => self.subject.load(&checkpoint, &[store]),
            };
            let hit = damage.files.keys().any(|path| path.contains(&id.to_string()));
            match loaded {
                // Bytes between tensors belong to no tensor: a load never reads them, but a verification of the whole
                // store reports them.
                LoadOutcome::Right if hit && !report.is_intact() => noticed = true,
                LoadOutcome::Right if hit => verdict.fault(format!("{id} is damaged and loads as if it were whole")),
                LoadOutcome::Right => {}
                LoadOutcome::Wrong(place) => {
                    verdict.silent = true;
                    verdict.fault(format!("{id} loads with other bytes: {place}"));
                }
                LoadOutcome::Refused(text) => {
                    noticed = true;
                    let borrows = id == subject;
                    if !hit && !borrows {
                        verdict.fault(format!("{id} is whole and was refused: {text}"));
                    }
                    if !told_of(&text) {
                        verdict.fault(format!("refused without the place: {text}"));
                    }
                }
            }
        }
        // The newest checkpoint, as a restart selects it.
        let newest = store.newest(job, VerifyDepth::Bytes)?;
        match newest
            .checkpoint
            .map(|checkpoint| (checkpoint.id(), self.subject.load(&checkpoint, &[store])))
        {
            None if damage
                .files
                .keys()
                .all(|path| path.contains(&id(DAMAGED.0, DAMAGED.1).to_string())) =>
            {
                verdict.fault("the older checkpoint is whole and was not found".to_owned());
            }
            None | Some((_, LoadOutcome::Right)) => {}
            Some((id, LoadOutcome::Refused(text))) => {
                verdict.fault(format!("{id} was called whole and is not: {text}"))
            }
            Some((id, LoadOutcome::Wrong(place))) => {
                verdict.silent = true;
                verdict.fault(format!("{id} was called whole and has other bytes: {place}"));
            }
        }
        verdict.refused = noticed && verdict.faults.is_empty();
        Ok(())
    }

    /// Judges the store with another tier.
    fn with_mirror(
        &self,
        store: &Store,
        damage: &StoreDamage,
        verdict: &mut CorruptionVerdict,
    ) -> Result<(), TortureError> {
        let job = &self.subject.job;
        // A checkpoint that loads by its id is loaded through both tiers: good bytes come from the other one.
        if let Ok(checkpoint) = store.load(job, id(DAMAGED.0, DAMAGED.1)) {
            match self.subject.load(&checkpoint, &[store, &self.mirror]) {
                LoadOutcome::Right => {}
                LoadOutcome::Refused(text) => verdict.fault(format!("another tier has it and the load fails: {text}")),
                LoadOutcome::Wrong(place) => {
                    verdict.silent = true;
                    verdict.fault(format!("other bytes with another tier: {place}"));
                }
            }
        }
        let mirrors: [&dyn MirrorSource; 1] = [&self.mirror];
        let done = repair(store, &mirrors, job, None)?;
        let touched: Vec<String> = done
            .mended
            .iter()
            .map(|mended| mended.file.display().to_string())
            .collect();
        for file in &touched {
            if !damage.files.keys().any(|path| file.ends_with(path.as_str())) {
                verdict.fault(format!("{file} was whole and was written to"));
            }
        }
        let differing = self.reset(store)?;
        if !differing.is_empty() {
            verdict.fault(format!("not repaired: {}; left: {:?}", differing.join(", "), done.left));
        }
        verdict.repaired = differing.is_empty() && done.left.is_empty() && !touched.is_empty();
        Ok(())
    }
}

impl CorruptionVerdict {
    fn fault(&mut self, what: String) {
        self.faults.push(what);
    }
}

/// Forms in which a message may refer to a damaged file.
struct DamageLocation {
    file: String,
    rank: Option<String>,
    is_manifest: bool,
    folder: String,
}

impl DamageLocation {
    fn of(path: &str) -> Self {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let digits = name.strip_prefix("rank-").and_then(|rest| rest.split('.').next());
        let rank = digits.and_then(|digits| digits.parse::<u32>().ok());
        Self {
            file: path.to_owned(),
            rank: rank.map(|rank| format!("rank {rank}")),
            is_manifest: rank.is_none(),
            folder: folder.to_owned(),
        }
    }

    /// True if the text contains the file; or its rank, as a restore refers to an image; or, for a manifest, a file of
    /// its folder: if a manifest and an index contradict each other, it is unknown which of them is stale.
    fn is_named_in(&self, text: &str) -> bool {
        let rank = |rank: &String| text.contains(&format!("{rank},")) || text.contains(&format!("{rank})"));
        text.contains(&self.file)
            || self.rank.as_ref().is_some_and(rank)
            || self.is_manifest && text.contains(&self.folder)
    }
}

/// Runs `cases` cases of each of `kinds`; calls `watch` for each finished case, with its fault if there is one.
pub fn run(
    dir: &Path,
    seed: u64,
    cases: u64,
    kinds: &[DamageKind],
    watch: &(dyn Fn(Option<String>) + Sync),
) -> Result<Vec<CorruptionRow>, TortureError> {
    let bench = CorruptionBench::new(dir, seed)?;
    let jobs: Vec<(DamageKind, u64)> = kinds
        .iter()
        .flat_map(|kind| (0..cases).map(move |case| (*kind, case)))
        .collect();
    let rows = on_threads(&jobs, |worker| {
        let store = bench.copy(dir.join(format!("copy-{worker}")))?;
        let bench = &bench;
        Ok(move |(kind, case): &(DamageKind, u64)| {
            let mut dice = SplitMix64::of(seed, kind.name(), *case);
            let damage = roll(*kind, &mut dice, &bench.golden, &bench.folders);
            let verdict = bench.judge(&store, &damage)?;
            let fault = verdict.faults.first();
            watch(fault.map(|fault| format!("{} case {case}: {}: {fault}", kind.name(), damage.what)));
            Ok((*kind, verdict))
        })
    })?;
    let row = |kind: &DamageKind| {
        let mut row = CorruptionRow {
            kind: kind.name().to_owned(),
            ..CorruptionRow::default()
        };
        for (_, verdict) in rows.iter().filter(|(of, _)| of == kind) {
            row.cases += 1;
            row.refused += u64::from(verdict.refused);
            row.repaired += u64::from(verdict.repaired);
            row.silent += u64::from(verdict.silent);
        }
        row
    };
    Ok(kinds.iter().map(row).collect())
}

/// Reads every file below `root`, by its relative path.
pub(crate) fn read_below(root: &Path) -> Result<StoreFiles, TortureError> {
    let mut files = StoreFiles::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                files.insert(name, fs::read(&path)?);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
