//! Images that pass through a smaller window: what is stored, and what is not.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rankguard_checkpoint::arena::{FillError, PendingStream, SaveRequest, SaveResult, SlotState, StreamError};
use rankguard_checkpoint::format::{CheckpointId, Dtype, TensorBox};
use rankguard_checkpoint::store::WrittenShard;
use rankguard_checkpoint::store::disk::{self, CallFault, FaultSource, FileOperation};
use rankguard_checkpoint::{Arena, Store, StoreError};
use rankguard_model::{Generation, JobId, Rank, Step};
use rustix::io::Errno;
use serde_json::json;

const WINDOW: u64 = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(20);
const ONE: Generation = Generation(1);

type Tensors = Vec<(TensorBox, Vec<u8>)>;

fn job() -> JobId {
    JobId::from("train")
}

fn state(sizes: &[usize]) -> Tensors {
    let tensor = |(nth, size): (usize, &usize)| {
        let mut word = 0x9E37_79B9_7F4A_7C15_u64 ^ nth as u64;
        let mut byte = || {
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (word >> 56) as u8
        };
        let boxed = TensorBox::whole(format!("t{nth}"), Dtype::U8, vec![*size as u64]);
        (boxed, (0..*size).map(|_| byte()).collect())
    };
    sizes.iter().enumerate().map(tensor).collect()
}

fn lent(tensors: &Tensors) -> Vec<(TensorBox, &[u8])> {
    tensors.iter().map(|(boxed, data)| (boxed.clone(), &data[..])).collect()
}

fn window(most: u64) -> Arena {
    Arena::windowed("test", 64 << 20, most).unwrap()
}

/// Total number of bytes that the rank has filled.
fn filled(arena: &Arena) -> u64 {
    let mut word = [0; 8];
    let file = fs::File::from(arena.as_fd().try_clone_to_owned().unwrap());
    file.read_exact_at(&mut word, 4096 + 16).unwrap();
    u64::from_le_bytes(word)
}

fn begin(arena: &Arena, step: u64, tensors: &Tensors, threads: usize) -> Result<PendingStream, FillError> {
    let job = job();
    let of = SaveRequest {
        threads,
        ..SaveRequest::new(&job, Step(step), ONE, Rank(0), 1)
    };
    arena.begin_stream(0, &of, &lent(tensors), &json!({"step": step}))
}

/// Agent side on a thread of its own; it begins when the slot is being filled.
fn take(arena: &Arena, store: &Store, gone: &AtomicBool) -> Result<WrittenShard, StoreError> {
    let gone = || gone.load(Ordering::SeqCst);
    let image = arena.streamed(0, ONE, &gone).unwrap();
    store.write_streamed(&image)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn folder(store: &Store, step: u64) -> std::path::PathBuf {
    let id = CheckpointId {
        step: Step(step),
        generation: ONE,
    };
    store.dir(&job(), id).unwrap()
}

/// Saves through the window; returns the results of both sides.
fn save(
    arena: &Arena,
    store: &Store,
    tensors: &Tensors,
    threads: usize,
) -> (Result<SaveResult, FillError>, WrittenShard) {
    let streaming = begin(arena, 10, tensors, threads).unwrap();
    let alive = AtomicBool::new(false);
    thread::scope(|scope| {
        let agent = scope.spawn(|| take(arena, store, &alive).unwrap());
        let filled = arena.stream(streaming, &lent(tensors), PATIENCE);
        (filled, agent.join().unwrap())
    })
}

/// Writes the files of the same state from a whole image.
fn of_a_whole_image(store: &Store, tensors: &Tensors) {
    let arena = Arena::create("whole", 1, 64 << 20).unwrap();
    let job = job();
    let of = SaveRequest::new(&job, Step(10), ONE, Rank(0), 1);
    arena.fill(0, &of, &lent(tensors), &json!({"step": 10})).unwrap();
    let image = arena.sealed(0).unwrap();
    store.write_shard(image.index(), &image).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_comes_through_a_window_is_to_the_byte_what_comes_out_of_a_whole_image(
        sizes in prop::collection::vec(prop_oneof![0_usize..200, 0_usize..700_000], 0..12),
        most in WINDOW..(6 << 20), threads in 1_usize..4,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let tensors = state(&sizes);
        let stores = ["through", "whole"].map(|name| Store::open(dir.path().join(name)).unwrap());
        let arena = window(most);
        // The second image finds the bytes of the first in the window.
        for round in 0..2 {
            let (filled, written) = save(&arena, &stores[0], &tensors, threads);
            prop_assert_eq!(filled.unwrap().bytes, written.index.image_bytes, "round {}", round);
            prop_assert_eq!(arena.slot(0).unwrap().0, SlotState::Empty);
        }
        of_a_whole_image(&stores[1], &tensors);
        let [through, whole] = stores.map(|store| folder(&store, 10));
        prop_assert_eq!(names(&through), names(&whole));
        for name in names(&whole) {
            prop_assert!(fs::read(through.join(&name)).unwrap() == fs::read(whole.join(&name)).unwrap(), "{}", name);
        }
    }

    /// The rank dies after any number of bytes: the agent side ends at once, and leaves neither a shard nor a temporary
    /// file.
    #[test]
    fn rg_1_of_a_rank_that_dies_while_its_image_passes_nothing_is_left(stop in 0_u64..2_000_000) {
        let dir = tempfile::tempdir().unwrap();
        let tensors = state(&[900_000, 3, 1_200_000]);
        let store = Store::open(dir.path()).unwrap();
        let arena = window(WINDOW);
        let streaming = begin(&arena, 10, &tensors, 1).unwrap();
        let gone = AtomicBool::new(false);
        let is_gone = || gone.load(Ordering::SeqCst);
        let image = arena.streamed(0, ONE, &is_gone).unwrap();
        thread::scope(|scope| {
            let agent = scope.spawn(|| {
                let image = image;
                store.write_streamed(&image)
            });
            // The memory of a killed process remains; here it is a thread, so its seal is undone from outside.
            let rank = scope.spawn(|| arena.stream(streaming, &lent(&tensors), PATIENCE));
            while filled(&arena) < stop && !rank.is_finished() {
                thread::yield_now();
            }
            let killed = !rank.is_finished();
            arena.release(0).unwrap();
            gone.store(true, Ordering::SeqCst);
            let rank = rank.join().unwrap();
            let agent = agent.join().unwrap();
            prop_assert_eq!(rank.is_ok(), agent.is_ok() || !killed);
            if agent.is_err() {
                prop_assert_eq!(names(&folder(&store, 10)), Vec::<String>::new());
            }
            Ok(())
        })?;
        // The window is usable for the next image.
        let (filled, _) = save(&arena, &store, &tensors, 2);
        prop_assert!(filled.is_ok());
    }
}

#[test]
fn a_window_that_is_smaller_than_its_image_makes_the_rank_wait_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let arena = window(WINDOW);
    let tensors = state(&[3_000_000]);
    let streaming = begin(&arena, 10, &tensors, 1).unwrap();
    let held = AtomicU64::new(0);
    let filled = thread::scope(|scope| {
        let agent = scope.spawn(|| {
            // Nothing is taken before the window is full, so that the rank must wait.
            let until = Instant::now() + PATIENCE;
            while filled(&arena) < WINDOW {
                assert!(Instant::now() < until, "the rank does not fill its window");
                thread::yield_now();
            }
            held.store(arena.held_bytes().unwrap(), Ordering::SeqCst);
            take(&arena, &store, &AtomicBool::new(false)).unwrap()
        });
        let filled = arena.stream(streaming, &lent(&tensors), PATIENCE).unwrap();
        agent.join().unwrap();
        filled
    });
    // The duration depends on scheduling; twelve windows pass through one.
    assert!(filled.waited > Duration::ZERO, "{filled:?}");
    let held = held.into_inner();
    assert!(held < 2 * WINDOW + (512 << 10), "{held} bytes are held for 3,000,000");
}

#[test]
fn a_store_that_takes_nothing_makes_the_attempt_void_and_does_not_disturb_the_rank() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    fs::write(dir.path().join("train"), "in the way").unwrap();
    let arena = window(WINDOW);
    let tensors = state(&[3_000_000]);
    let streaming = begin(&arena, 10, &tensors, 2).unwrap();
    thread::scope(|scope| {
        let agent = scope.spawn(|| take(&arena, &store, &AtomicBool::new(false)));
        assert!(arena.stream(streaming, &lent(&tensors), PATIENCE).is_ok());
        let refused = agent.join().unwrap().unwrap_err();
        assert!(!refused.is_of_image(), "{refused}");
    });
    assert_eq!(arena.slot(0).unwrap().0, SlotState::Empty);
}

/// Disk that fails after the first window has passed, while all threads wait for it.
struct FailsLate;

impl FaultSource for FailsLate {
    fn fault_for(&self, op: FileOperation, path: &Path, _: u64) -> Option<CallFault> {
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let ours = op == FileOperation::Write && path.components().any(|part| part.as_os_str() == "fails-late");
        if !ours || WRITES.fetch_add(1, Ordering::SeqCst) < 4 {
            return None;
        }
        // Long enough that the window is full, and all of it digested.
        thread::sleep(Duration::from_millis(100));
        Some(CallFault::Refuse(Errno::IO))
    }
}

#[test]
fn a_disk_that_fails_while_the_digests_wait_for_more_does_not_hold_the_rank_up() {
    disk::install(&FailsLate);
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("fails-late")).unwrap();
    let arena = window(WINDOW);
    let tensors = state(&[3_000_000]);
    let streaming = begin(&arena, 10, &tensors, 1).unwrap();
    thread::scope(|scope| {
        let agent = scope.spawn(|| take(&arena, &store, &AtomicBool::new(false)));
        let passed = arena.stream(streaming, &lent(&tensors), PATIENCE);
        assert!(
            passed.is_ok(),
            "the rank waited for an agent that was not reading: {passed:?}"
        );
        let refused = agent.join().unwrap().unwrap_err();
        assert!(!refused.is_of_image(), "{refused}");
    });
    assert_eq!(arena.slot(0).unwrap().0, SlotState::Empty);
}

#[test]
fn a_window_that_nobody_takes_from_is_given_up_and_stays_taken_until_its_reader_lets_go() {
    let arena = window(WINDOW);
    let tensors = state(&[3_000_000]);
    let streaming = begin(&arena, 10, &tensors, 2).unwrap();
    let stuck = arena
        .stream(streaming, &lent(&tensors), Duration::from_millis(30))
        .unwrap_err();
    assert!(matches!(stuck, FillError::Stuck { slot: 0, .. }), "{stuck}");
    assert_eq!(arena.slot(0).unwrap(), (SlotState::Writing, ONE));
    assert!(arena.slot_to_fill(Some(0)).is_none() && arena.slot_to_replace(None).is_none());
    assert!(begin(&arena, 20, &tensors, 2).is_err());
}

#[test]
fn rg_3_a_generation_that_is_fenced_off_while_its_image_passes_ends_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let arena = window(WINDOW);
    let tensors = state(&[3_000_000]);
    let streaming = begin(&arena, 10, &tensors, 2).unwrap();
    arena.raise_fence(Generation(2));
    thread::scope(|scope| {
        let agent = scope.spawn(|| take(&arena, &store, &AtomicBool::new(false)));
        let stale = arena.stream(streaming, &lent(&tensors), PATIENCE).unwrap_err();
        assert!(
            matches!(stale, FillError::TakenBack { .. } | FillError::Fenced { .. }),
            "{stale}"
        );
        let refused = agent.join().unwrap().unwrap_err();
        let fenced = matches!(
            &refused,
            StoreError::ImageBroken {
                problem: StreamError::Fenced { .. } | StreamError::GivenUp { .. },
                ..
            }
        );
        assert!(fenced, "{refused}");
    });
    assert_eq!(names(&folder(&store, 10)), Vec::<String>::new());
    assert_eq!(arena.slot(0).unwrap().0, SlotState::Empty);
}

#[test]
fn rg_2_bytes_that_change_between_the_copy_and_the_write_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let arena = window(1 << 20);
    let tensors = state(&[200_000]);
    let streaming = begin(&arena, 10, &tensors, 1).unwrap();
    thread::scope(|scope| {
        let rank = scope.spawn(|| arena.stream(streaming, &lent(&tensors), PATIENCE));
        let file = fs::File::from(arena.as_fd().try_clone_to_owned().unwrap());
        let until = Instant::now() + PATIENCE;
        let mut word = [0; 8];
        while u64::from_le_bytes(word) < 200_000 {
            assert!(
                Instant::now() < until,
                "it fills without a reader as long as there is room"
            );
            file.read_exact_at(&mut word, 4096 + 16).unwrap();
        }
        let image = 2 * 4096 + arena.geometry().meta_bytes;
        let mut byte = [0; 1];
        file.read_exact_at(&mut byte, image + 100_000).unwrap();
        file.write_all_at(&[byte[0] ^ 1], image + 100_000).unwrap();
        let refused = take(&arena, &store, &AtomicBool::new(false)).unwrap_err();
        assert!(
            matches!(refused, StoreError::ImageDamaged { chunk: 1, .. }),
            "{refused}"
        );
        assert!(rank.join().unwrap().is_ok());
    });
    assert_eq!(names(&folder(&store, 10)), Vec::<String>::new());
}

#[test]
fn no_image_is_held_so_none_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let arena = window(WINDOW);
    let tensors = state(&[1000]);
    assert!(save(&arena, &store, &tensors, 1).0.is_ok());
    assert!(arena.sealed_images().is_empty());
    let job = job();
    let data = lent(&tensors);
    let of = SaveRequest::new(&job, Step(20), ONE, Rank(0), 1);
    let refused = arena.fill(0, &of, &data, &json!({})).unwrap_err();
    assert!(refused.to_string().contains("never holds one"), "{refused}");
    let small = Arena::windowed("test", 1 << 30, 4096).unwrap_err().to_string();
    assert!(small.contains("give it 262144 bytes or more"), "{small}");
}
