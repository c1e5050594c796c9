//! Parity over whole checkpoints: up to `parity` lost files are restored, one more is reported, damage counts as
//! loss.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::common::{Job, id, job};
use proptest::prelude::*;
use rankguard_checkpoint::format::{ChunkOrigin, Digest};
use rankguard_checkpoint::source::ChunkSource;
use rankguard_checkpoint::{Checkpoint, ImageSource, Store};
use rankguard_checkpoint_tiers::parity::{
    DegradedGroup, OriginalFile, ParityError, ParitySource, ProtectionReport, encode, protect, prune,
};
use rankguard_model::Rank;
use tempfile::TempDir;

/// Seven ranks of unequal sizes.
const SEVEN: Job = Job {
    world: 7,
    rows: 25,
    columns: 700,
    chunk_bytes: 256,
};

struct Place {
    _folder: TempDir,
    store: Store,
    parity: PathBuf,
    checkpoint: Checkpoint,
}

fn place(group_size: usize, parity: usize) -> (Place, ProtectionReport) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store")).unwrap();
    SEVEN.save(&store, id(10, 1), None).unwrap();
    let root = folder.path().join("parity");
    let done = protect(&store, &job(), id(10, 1), &root, group_size, parity).unwrap();
    let checkpoint = store.load(&job(), id(10, 1)).unwrap();
    let place = Place {
        _folder: folder,
        store,
        parity: root,
        checkpoint,
    };
    (place, done)
}

impl Place {
    fn shard(&self, rank: u32) -> PathBuf {
        self.store.shard_path(&job(), id(10, 1), Rank(rank)).unwrap()
    }

    fn parity_file(&self, name: &str) -> PathBuf {
        self.parity.join("demo/000000000010-g1").join(name)
    }

    /// Loads everything from disk and parity; returns the number of repairs.
    fn load(&self) -> Result<usize, String> {
        let (parity, problems) = ParitySource::open(&self.store, &self.checkpoint, &self.parity).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        let sources: [&dyn ChunkSource; 2] = [&self.store, &parity];
        let (bytes, report) = SEVEN
            .load(&self.checkpoint, &sources)
            .map_err(|problem| problem.to_string())?;
        assert!(bytes == SEVEN.expected(10), "never wrong bytes");
        Ok(report.repairs.len())
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 16;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn lost_shards_come_back_up_to_the_parity_and_one_more_says_so() {
    for (group_size, parity) in [(7, 1), (7, 2), (4, 2), (3, 1)] {
        let (place, done) = place(group_size, parity);
        let groups = 7usize.div_ceil(group_size);
        assert_eq!((done.groups as usize, done.already), (groups, 0));
        assert_eq!(place.load(), Ok(0));
        // Members of the first group are every `groups`th rank.
        for lost in 0..parity {
            std::fs::remove_file(place.shard((lost * groups) as u32)).unwrap();
        }
        assert!(place.load().unwrap() > 0);
        std::fs::remove_file(place.shard((parity * groups) as u32)).unwrap();
        let said = place.load().expect_err("one more than the parity");
        assert!(
            said.contains("are lost or damaged there") && said.contains("tensor weight"),
            "{said}"
        );
    }
}

#[test]
fn lost_parity_and_scattered_damage_count_stripe_by_stripe() {
    let (place, _) = place(7, 2);
    std::fs::remove_file(place.parity_file("group-00000.parity-0")).unwrap();
    std::fs::remove_file(place.shard(3)).unwrap();
    assert!(place.load().unwrap() > 0, "one parity is left for one shard");
    // The digests exclude this one from the stripe, so no wrong data results.
    flip(&place.shard(5), 100);
    let said = place.load().expect_err("two lost, one parity");
    assert!(said.contains("ranks 3, 5"), "{said}");
    flip(&place.shard(5), 100);
    assert!(place.load().unwrap() > 0);
}

#[test]
fn damage_is_not_protected_and_descriptors_are_believed_only_whole() {
    let (place, done) = place(4, 1);
    let again = protect(&place.store, &job(), id(10, 1), &place.parity, 4, 1).unwrap();
    assert_eq!(again.already, done.groups, "may be repeated");
    let error = protect(&place.store, &job(), id(10, 1), &place.parity, 4, 2).expect_err("another shape");
    assert!(matches!(error, ParityError::Conflict { .. }), "{error}");

    flip(&place.shard(2), 0);
    let elsewhere = place.parity.with_file_name("elsewhere");
    let error = protect(&place.store, &job(), id(10, 1), &elsewhere, 4, 1).expect_err("a shard is damaged");
    assert!(
        matches!(error, ParityError::Damaged { file, at: 0 } if file.rank == Rank(2)),
        "{error}"
    );
    flip(&place.shard(2), 0);

    flip(&place.parity_file("group-00001.group"), 200);
    let (_, problems) = ParitySource::open(&place.store, &place.checkpoint, &place.parity).unwrap();
    assert!(
        matches!(problems.as_slice(), [ParityError::Descriptor { .. }]),
        "{problems:?}"
    );
}

#[test]
fn parity_of_checkpoints_that_are_gone_is_pruned() {
    let (place, _) = place(4, 1);
    assert_eq!(prune(&place.store, &job(), &place.parity).unwrap(), 0);
    place.store.remove(&job(), id(10, 1)).unwrap();
    assert_eq!(prune(&place.store, &job(), &place.parity).unwrap(), 1);
    assert!(!place.parity.join("demo/000000000010-g1").exists());
}

/// Memory that outlives the group that reads it.
struct Owned(Vec<u8>);

impl ImageSource for Owned {
    fn read_at(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.as_slice().read_at(at, out)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Members of any lengths, zero included; any `parity` of all files lost; any range of any member is restored
    /// exactly.
    #[test]
    fn any_range_of_any_member_comes_back(
        lengths in proptest::collection::vec(0usize..700, 1..9),
        parity in 1usize..4,
        lost in proptest::collection::vec(any::<u32>(), 12),
        from in 0.0f64..1.0,
        to in 0.0f64..1.0,
        seed: u8,
    ) {
        let contents: Vec<Vec<u8>> = lengths
            .iter()
            .enumerate()
            .map(|(nth, &length)| (0..length).map(|at| (at * 7 + nth * 31) as u8 ^ seed).collect())
            .collect();
        let views: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let originals: Vec<OriginalFile<'_>> = views
            .iter()
            .enumerate()
            .map(|(nth, view)| OriginalFile {
                file: ChunkOrigin::new(id(1, 1), Rank(nth as u32)),
                bytes: view.len() as u64,
                index: Digest::of(b"index"),
                content: view,
            })
            .collect();
        let files = Mutex::new(vec![Vec::new(); parity]);
        let descriptor = encode(&job(), &originals, parity, 64, |nth, bytes| {
            files.lock().unwrap()[nth].extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        let files = files.into_inner().unwrap();
        prop_assert!(files.iter().all(|file| file.len() as u64 == descriptor.parity_bytes()));
        let mut order: Vec<usize> = (0..lengths.len() + parity).collect();
        order.sort_by_key(|&place| (lost[place % lost.len()], place));
        let gone = &order[..parity];
        let open = |place: usize, bytes: &Vec<u8>| {
            let there = !gone.contains(&place);
            there.then(|| Box::new(Owned(bytes.clone())) as Box<dyn ImageSource + Send + Sync>)
        };
        let members = contents.iter().enumerate().map(|(nth, bytes)| open(nth, bytes)).collect();
        let parities = files.iter().enumerate().map(|(nth, bytes)| open(contents.len() + nth, bytes)).collect();
        let group = DegradedGroup::new(descriptor, members, parities);
        for (member, content) in contents.iter().enumerate() {
            let a = (from * content.len() as f64) as usize;
            let b = (to * content.len() as f64) as usize;
            let (a, b) = (a.min(b), a.max(b));
            let mut out = vec![0xAA; b - a];
            let read = group.read(member, a as u64, &mut out);
            if gone.contains(&member) {
                read.unwrap();
                prop_assert_eq!(&out, &content[a..b]);
            } else if read.is_ok() {
                // The member is restored from the others too, which uses a parity that may be needed elsewhere.
                prop_assert_eq!(&out, &content[a..b]);
            }
            prop_assert!(group.read(member, content.len() as u64, &mut [0]).is_err(), "past the end");
        }
    }
}
