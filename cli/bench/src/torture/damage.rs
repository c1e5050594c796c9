//! Kinds of damage to the files of a checkpoint.

use std::collections::BTreeMap;

use super::dice::SplitMix64;

/// Content of a store: bytes by path below its root.
pub(crate) type StoreFiles = BTreeMap<String, Vec<u8>>;

/// Kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamageKind {
    /// A bit of one file is flipped.
    BitFlip,
    /// 4 KiB of zeros in an image.
    Zeroed4Kib,
    /// A file is truncated.
    Truncation,
    /// A file keeps its length, but one half is zero.
    ZeroHalf,
    /// The files of two ranks are exchanged.
    SwappedShards,
    /// Half of an image, or some of its chunks, are of another step.
    MixedSteps,
    /// The manifest is that of another step, another generation or another attempt; with or without its indexes.
    StaleManifest,
    /// A file, or a chunk's range in a file, is missing.
    Missing,
    /// An index is partly overwritten, or is an intact one of another rank or step.
    IndexDamage,
    /// A file of an older checkpoint, from which this one borrows unchanged chunks, is damaged.
    OriginDamage,
}

impl DamageKind {
    /// All kinds of damage.
    pub const ALL: [Self; 10] = [
        Self::BitFlip,
        Self::Zeroed4Kib,
        Self::Truncation,
        Self::ZeroHalf,
        Self::SwappedShards,
        Self::MixedSteps,
        Self::StaleManifest,
        Self::Missing,
        Self::IndexDamage,
        Self::OriginDamage,
    ];

    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::BitFlip => "bit-flip",
            Self::Zeroed4Kib => "zeroed-4-kib",
            Self::Truncation => "truncation",
            Self::ZeroHalf => "zero-half",
            Self::SwappedShards => "swapped-shards",
            Self::MixedSteps => "half-a-half-b",
            Self::StaleManifest => "stale-manifest",
            Self::Missing => "missing",
            Self::IndexDamage => "index-damage",
            Self::OriginDamage => "origin-damage",
        }
    }
}

/// Folders that damage chooses from. All have files of the same names.
#[derive(Debug, Clone)]
pub(crate) struct DamageFolders {
    /// The damaged checkpoint.
    pub(crate) subject: String,
    /// The previous checkpoint.
    pub(crate) older: String,
    /// A checkpoint of the same step and another generation.
    pub(crate) generation: String,
    /// A checkpoint of the same step and generation, of another attempt: what two controllers that both consider
    /// themselves leader would write. It is in a store of its own.
    pub(crate) twin: String,
}

/// A damage: files with other content, or missing files.
#[derive(Debug, Default)]
pub(crate) struct StoreDamage {
    /// New content by path; `None` for a missing file.
    pub(crate) files: BTreeMap<String, Option<Vec<u8>>>,
    /// Description for messages.
    pub(crate) what: String,
}

const MANIFEST: &str = "MANIFEST";

/// Draws a damage of this kind that changes at least one file. `golden` contains the files of all the folders.
pub(crate) fn roll(
    kind: DamageKind,
    dice: &mut SplitMix64,
    golden: &StoreFiles,
    folders: &DamageFolders,
) -> StoreDamage {
    loop {
        let mut damage = roll_once(kind, dice, golden, folders);
        damage.files.retain(|path, bytes| golden.get(path) != bytes.as_ref());
        if !damage.files.is_empty() {
            return damage;
        }
    }
}

fn roll_once(kind: DamageKind, dice: &mut SplitMix64, golden: &StoreFiles, folders: &DamageFolders) -> StoreDamage {
    let names = |suffix: &str| -> Vec<String> {
        let inside = golden.keys().filter_map(|path| path.strip_prefix(&folders.subject));
        let names = inside.map(|name| name.trim_start_matches('/').to_owned());
        names.filter(|name| name.ends_with(suffix)).collect()
    };
    let all = names("");
    let shards = names(".shard");
    let indexes = names(".index");
    let at = |folder: &str, name: &str| format!("{folder}/{name}");
    let subject = |name: &str| at(&folders.subject, name);
    let bytes = |path: &str| golden[path].clone();
    let mut damage = StoreDamage::default();
    match kind {
        DamageKind::BitFlip => {
            let path = subject(dice.pick(&all).as_str());
            damage.change(&path, bytes(&path), "a bit is flipped", |bytes| flip(dice, bytes));
        }
        DamageKind::Zeroed4Kib => {
            let path = subject(dice.pick(&shards).as_str());
            damage.change(&path, bytes(&path), "4 KiB are zero", |bytes| {
                let from = dice.below(bytes.len() as u64) as usize;
                let from = if dice.coin() { from / 4096 * 4096 } else { from };
                let to = (from + 4096).min(bytes.len());
                bytes[from..to].fill(0);
            });
        }
        DamageKind::Truncation => {
            let path = subject(dice.pick(&all).as_str());
            damage.change(&path, bytes(&path), "ends early", |bytes| {
                let end = if dice.below(8) == 0 {
                    0
                } else {
                    dice.below(bytes.len() as u64)
                };
                bytes.truncate(end as usize);
            });
        }
        DamageKind::ZeroHalf => {
            let path = subject(dice.pick(&all).as_str());
            damage.change(&path, bytes(&path), "one half is zero", |bytes| {
                let half = bytes.len() / 2;
                if dice.coin() {
                    bytes[half..].fill(0);
                } else {
                    bytes[..half].fill(0);
                }
            });
        }
        DamageKind::SwappedShards => {
            let one = dice.below(shards.len() as u64) as usize;
            let other = (one + 1 + dice.below(shards.len() as u64 - 1) as usize) % shards.len();
            for names in [&shards, &indexes].into_iter().take(1 + dice.below(2) as usize) {
                let one = subject(&names[one]);
                let other = subject(&names[other]);
                damage.put(&one, bytes(&other), "swapped with another rank's");
                damage.put(&other, bytes(&one), "swapped with another rank's");
            }
        }
        DamageKind::MixedSteps => {
            let name = dice.pick(&shards);
            let donors = [folders.older.as_str(), folders.twin.as_str()];
            let donor = *dice.pick(&donors);
            let other = bytes(&at(donor, name));
            damage.change(
                &subject(name),
                bytes(&subject(name)),
                "is partly of another step",
                |bytes| {
                    mix_in(dice, bytes, &other);
                },
            );
        }
        DamageKind::StaleManifest => stale(dice, &mut damage, golden, folders, &indexes, &shards),
        DamageKind::Missing if dice.coin() => {
            let path = subject(dice.pick(&all).as_str());
            damage.what = format!("{path} is missing");
            damage.files.insert(path, None);
        }
        DamageKind::Missing => {
            let path = subject(dice.pick(&shards).as_str());
            damage.change(&path, bytes(&path), "a chunk is a hole", |bytes| {
                let chunk = 8192;
                let at = dice.below(bytes.len().div_ceil(chunk) as u64) as usize * chunk;
                let to = (at + chunk).min(bytes.len());
                bytes[at..to].fill(0);
            });
        }
        DamageKind::IndexDamage => {
            let name = dice.pick(&indexes);
            match dice.below(3) {
                0 => damage.change(&subject(name), bytes(&subject(name)), "is scribbled over", |bytes| {
                    for _ in 0..=dice.below(16) {
                        let at = dice.below(bytes.len() as u64) as usize;
                        bytes[at] = dice.word() as u8;
                    }
                }),
                1 => damage.put(
                    &subject(name),
                    bytes(&subject(dice.pick(&indexes).as_str())),
                    "is another rank's",
                ),
                _ => {
                    let donors = [&folders.older, &folders.generation, &folders.twin];
                    let folder = *dice.pick(&donors);
                    damage.put(&subject(name), bytes(&at(folder, name)), "is of another checkpoint");
                }
            }
        }
        DamageKind::OriginDamage => {
            let path = at(&folders.older, dice.pick(&shards).as_str());
            damage.change(&path, bytes(&path), "the older file is damaged", |bytes| {
                match dice.below(3) {
                    0 => flip(dice, bytes),
                    1 => bytes.fill(0),
                    _ => bytes.truncate(dice.below(bytes.len() as u64) as usize),
                }
            });
        }
    }
    damage
}

fn stale(
    dice: &mut SplitMix64,
    damage: &mut StoreDamage,
    golden: &StoreFiles,
    folders: &DamageFolders,
    indexes: &[String],
    shards: &[String],
) {
    let (folder, whose) = *dice.pick(&[
        (&folders.older, "of another step"),
        (&folders.generation, "of another generation"),
        (&folders.twin, "of another attempt"),
    ]);
    let mut names = vec![MANIFEST.to_owned()];
    match dice.below(3) {
        0 => {}
        1 => names.push(dice.pick(indexes).clone()),
        _ => {
            // All files but one: a complete set would be another intact checkpoint, which nothing in the store could
            // detect.
            names.extend(indexes.iter().chain(shards).cloned());
            if std::ptr::eq(folder, &folders.twin) {
                let kept = dice.pick(indexes).clone();
                names.retain(|name| *name != kept);
            }
        }
    }
    for name in names {
        damage.put(
            &format!("{}/{name}", folders.subject),
            golden[&format!("{folder}/{name}")].clone(),
            whose,
        );
    }
}

fn flip(dice: &mut SplitMix64, bytes: &mut [u8]) {
    let bit = dice.below(bytes.len() as u64 * 8) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
}

fn mix_in(dice: &mut SplitMix64, bytes: &mut [u8], other: &[u8]) {
    let shorter = bytes.len().min(other.len());
    let half = shorter / 2;
    match dice.below(3) {
        0 => bytes[..half].copy_from_slice(&other[..half]),
        1 => bytes[half..shorter].copy_from_slice(&other[half..shorter]),
        _ => {
            for from in (0..shorter).step_by(4096).filter(|_| dice.coin()) {
                let to = (from + 4096).min(shorter);
                bytes[from..to].copy_from_slice(&other[from..to]);
            }
        }
    }
}

impl StoreDamage {
    fn change(&mut self, path: &str, mut bytes: Vec<u8>, what: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut bytes);
        self.put(path, bytes, what);
    }

    fn put(&mut self, path: &str, bytes: Vec<u8>, what: &str) {
        if self.what.is_empty() {
            self.what = format!("{path} {what}");
        }
        self.files.insert(path.to_owned(), Some(bytes));
    }
}
