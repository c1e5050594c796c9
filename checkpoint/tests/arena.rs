//! The arena from both sides, and with a hostile rank.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::guard;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use crate::common::{Dice, Job, SMALL, id, job};
use proptest::prelude::*;
use rankguard_checkpoint::arena::{Arena, ArenaError, ArenaShape, FillError, SealedImage, SlotState};
use rankguard_checkpoint::format::{CheckpointId, Dtype, ShardIndex, TensorBox};
use rankguard_checkpoint::{ImageSink, ImageSource};
use rankguard_model::Generation;
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::json;

fn shape(slots: u32, image_bytes: u64) -> ArenaShape {
    ArenaShape {
        slots,
        image_bytes,
        meta_bytes: 0,
    }
}

fn other_side(arena: &Arena) -> Arena {
    Arena::map(arena.as_fd().try_clone_to_owned().unwrap()).unwrap()
}

fn fill(arena: &Arena, slot: u32, of: Job, at: CheckpointId, rank: u32) -> Result<u64, FillError> {
    let tensors = of.tensors(rank, at.step.0);
    let borrowed: Vec<(TensorBox, &[u8])> = tensors
        .iter()
        .map(|(boxed, bytes)| (boxed.clone(), &bytes[..]))
        .collect();
    let name = job();
    let filled = arena.fill(
        slot,
        &of.image_of(&name, at, rank),
        &borrowed,
        &json!({"step": at.step, "rank": rank}),
    )?;
    Ok(filled.bytes)
}

/// Returns every chunk, verified.
fn chunks_of(sealed: &SealedImage<'_>) -> Vec<Vec<u8>> {
    (0..).map_while(|chunk| sealed.chunk(chunk).unwrap()).collect()
}

/// Returns every chunk of a plain image.
fn chunks_in(index: &ShardIndex, image: &[u8]) -> Vec<Vec<u8>> {
    let cut = |range: std::ops::Range<u64>| image[range.start as usize..range.end as usize].to_vec();
    index.chunking().ranges().map(cut).collect()
}

/// The agent that created the arena has exited; its file remains.
#[test]
fn a_new_agent_inherits_what_was_sealed_and_nothing_else() {
    let gone = Arena::create("test", 4, 8192).unwrap();
    for slot in 0..3 {
        fill(&gone, slot, SMALL, id(7 + u64::from(slot), 2), 1).unwrap();
    }
    assert!(gone.begin_write(1, Generation(2)).unwrap());
    gone.raise_fence(Generation(2));
    gone.begin_restore(3, Generation(2)).unwrap();
    let file = gone.as_fd().try_clone_to_owned().unwrap();
    drop(gone);

    for (slots, bytes) in [(3, 8192), (4, 1 << 20), (0, 8192)] {
        assert!(
            Arena::inherit(file.try_clone().unwrap(), shape(slots, bytes)).is_err(),
            "{slots} of {bytes}"
        );
    }
    let arena = Arena::inherit(file, shape(4, 8192)).unwrap();
    let states: Vec<SlotState> = (0..4).map(|slot| arena.slot(slot).unwrap().0).collect();
    let sealed = SlotState::Sealed;
    assert_eq!(states, [sealed, sealed, sealed, SlotState::Empty]);
    assert_eq!(arena.fence(), Generation(2));
    assert!(arena.sealed(1).unwrap().is_whole());
    // The sealing rank and agent are gone: the new agent may write the image, or release it.
    assert!(arena.begin_write(1, Generation(2)).unwrap());
}

#[test]
fn what_a_rank_seals_the_agent_reads() {
    let agent = Arena::create("test", 3, 4096).unwrap();
    let rank = other_side(&agent);
    assert_eq!(rank.geometry(), agent.geometry());
    fill(&rank, 1, SMALL, id(7, 2), 1).unwrap();

    assert_eq!(agent.slot(1).unwrap(), (SlotState::Sealed, Generation(2)));
    assert_eq!(agent.empty_slots(), [0, 2]);
    let sealed = agent.sealed(1).unwrap();
    let (index, image) = SMALL.sealed(id(7, 2), 1);
    assert_eq!(sealed.index(), &index);
    assert_eq!(chunks_of(&sealed), chunks_in(sealed.index(), &image));
    let mut whole = vec![0; image.len()];
    sealed.read_at(0, &mut whole).unwrap();
    assert_eq!(whole, image);
}

/// The description area has the maximum size of a description; memory is taken only for the used part.
#[test]
fn an_arena_takes_the_memory_of_its_images_and_of_what_describes_them() {
    const IMAGE: u64 = 64 << 20;
    let agent = Arena::create("test", 2, IMAGE).unwrap();
    let made = agent.held_bytes().unwrap();
    assert!(
        (2 * IMAGE..2 * IMAGE + (1 << 20)).contains(&made),
        "{made} bytes for two images of {IMAGE}"
    );
    let rank = other_side(&agent);
    assert_eq!(agent.held_bytes().unwrap(), made, "mapping it takes nothing more");
    fill(&rank, 0, SMALL, id(7, 2), 1).unwrap();
    assert_eq!(
        agent.held_bytes().unwrap(),
        made,
        "a usual description fits what is in place"
    );

    let name = job();
    let of = SMALL.image_of(&name, id(8, 2), 1);
    let state = json!({"words": "w".repeat(900 << 10)});
    rank.fill(1, &of, &[], &state).unwrap();
    assert_eq!(agent.sealed(1).unwrap().index().state, state);
    let grown = agent.held_bytes().unwrap() - made;
    assert!((512 << 10..1 << 20).contains(&grown), "a long one takes {grown} more");
}

/// A rank may punch holes into a sealed image: they read as zeros, which have another digest.
#[test]
fn holes_in_a_sealed_image_are_damage() {
    let agent = Arena::create("test", 1, 1 << 20).unwrap();
    let of = Job {
        world: 1,
        rows: 512,
        columns: 256,
        chunk_bytes: 1 << 16,
    };
    fill(&agent, 0, of, id(7, 2), 0).unwrap();
    assert!(agent.sealed(0).unwrap().is_whole());
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&agent, hole, agent.geometry().total() - (1 << 20), 8192).unwrap();
    let sealed = agent.sealed(0).unwrap();
    assert!(!sealed.is_whole());
    assert!(matches!(sealed.chunk(0), Err(ArenaError::Damaged { chunk: 0, .. })));
    // With a hole in the description there is no image at all.
    fallocate(&agent, hole, 8192, 4096).unwrap();
    assert!(matches!(agent.sealed(0), Err(ArenaError::Index { .. })));
}

#[test]
fn a_large_image_is_copied_by_several_threads_without_a_seam() {
    let large = Job {
        world: 1,
        rows: 10_007,
        columns: 1_009,
        chunk_bytes: 1 << 16,
    };
    let agent = Arena::create("test", 1, 11 << 20).unwrap();
    fill(&agent, 0, large, id(3, 1), 0).unwrap();
    let (index, image) = large.sealed(id(3, 1), 0);
    let sealed = agent.sealed(0).unwrap();
    assert!(sealed.index() == &index, "digests differ");
    let mut read = vec![0; image.len()];
    sealed.read_at(0, &mut read).unwrap();
    assert!(read == image, "bytes differ");
}

#[test]
fn a_smaller_image_leaves_nothing_of_a_larger_one() {
    let arena = Arena::create("test", 1, 4096).unwrap();
    let wide = Job { columns: 300, ..SMALL };
    fill(&arena, 0, wide, id(1, 1), 0).unwrap();
    arena.release(0).unwrap();
    fill(&arena, 0, SMALL, id(2, 1), 0).unwrap();
    let (index, image) = SMALL.sealed(id(2, 1), 0);
    let sealed = arena.sealed(0).unwrap();
    assert_eq!(sealed.index(), &index);
    let mut whole = vec![1; image.len()];
    sealed.read_at(0, &mut whole).unwrap();
    assert_eq!(whole, image, "the zeros between tensors too");
}

#[test]
fn rg_1_a_sealed_slot_is_not_overwritten() {
    let arena = Arena::create("test", 1, 4096).unwrap();
    fill(&arena, 0, SMALL, id(1, 1), 0).unwrap();
    let error = fill(&arena, 0, SMALL, id(2, 1), 0).unwrap_err();
    assert!(matches!(
        error,
        FillError::Arena(ArenaError::State {
            is: SlotState::Sealed,
            ..
        })
    ));
    assert_eq!(arena.sealed(0).unwrap().index().step.0, 1);
}

#[test]
fn rg_3_a_fenced_generation_cannot_seal() {
    let agent = Arena::create("test", 2, 4096).unwrap();
    let rank = other_side(&agent);
    agent.raise_fence(Generation(3));
    agent.raise_fence(Generation(2));
    assert_eq!(rank.fence(), Generation(3), "a fence never sinks");
    assert!(matches!(
        fill(&rank, 0, SMALL, id(5, 2), 0),
        Err(FillError::Fenced { .. })
    ));
    assert_eq!(agent.slot(0).unwrap().0, SlotState::Empty);
    fill(&rank, 0, SMALL, id(5, 3), 0).unwrap();
}

#[test]
fn rg_3_a_slot_that_is_taken_back_during_a_fill_is_never_sealed() {
    let large = Job {
        world: 1,
        rows: 4_000,
        columns: 4_000,
        chunk_bytes: 1 << 16,
    };
    let agent = Arena::create("test", 1, 17 << 20).unwrap();
    let rank = other_side(&agent);
    // The agent must act while the rank copies; on a busy machine it may be too late and tries again.
    for attempt in 0..50 {
        agent.release(0).unwrap();
        let error = std::thread::scope(|scope| {
            let filling = scope.spawn(|| fill(&rank, 0, large, id(attempt, 1), 0));
            while !filling.is_finished() && agent.slot(0).unwrap().0 != SlotState::Filling {
                std::hint::spin_loop();
            }
            agent.release(0).unwrap();
            filling.join().unwrap().err()
        });
        if let Some(error) = error {
            assert!(matches!(error, FillError::TakenBack { slot: 0 }), "{error}");
            assert_eq!(agent.slot(0).unwrap().0, SlotState::Empty);
            return;
        }
    }
    panic!("in 50 attempts the agent never came while the rank was copying");
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_the_slot_empty() {
    let arena = Arena::create("test", 1, 4096).unwrap();
    let wide = Job { columns: 4000, ..SMALL };
    assert!(matches!(
        fill(&arena, 0, wide, id(1, 1), 0),
        Err(FillError::Image { .. })
    ));
    let name = job();
    let boxed = TensorBox::whole("b", Dtype::F32, vec![2]);
    let of = SMALL.image_of(&name, id(1, 1), 0);
    let short = arena
        .fill(0, &of, &[(boxed.clone(), &[0; 7])], &json!(null))
        .unwrap_err();
    assert_eq!(short.to_string(), "tensor b: 7 bytes given where its shape needs 8");
    let long_state = json!("x".repeat(2 << 20));
    let long = arena.fill(0, &of, &[(boxed, &[0; 8])], &long_state).unwrap_err();
    assert!(matches!(long, FillError::Meta { .. }), "{long}");
    assert_eq!(arena.slot(0).unwrap().0, SlotState::Empty);
    assert!(matches!(arena.slot(1), Err(ArenaError::NoSlot { slot: 1, slots: 1 })));
}

#[test]
fn a_restored_image_goes_to_the_rank_and_the_slot_comes_back() {
    let agent = Arena::create("test", 2, 4096).unwrap();
    let rank = other_side(&agent);
    let mut restored = agent.begin_restore(0, Generation(4)).unwrap();
    assert_eq!(restored.capacity(), 4096);
    let first = 3..6;
    let second = 6..10;
    for (place, bytes) in restored.split(&[first, second]).into_iter().zip(["wei", "ghts"]) {
        place.fill(bytes.as_bytes());
    }
    assert!(agent.begin_restore(0, Generation(4)).is_err());
    assert_eq!(rank.slot(0).unwrap(), (SlotState::Restored, Generation(4)));
    let mut bytes = [0; 7];
    rank.read_image(0, 3, &mut bytes).unwrap();
    assert_eq!(&bytes, b"weights");
    rank.release(0).unwrap();
    assert_eq!(agent.empty_slots(), [0, 1]);
}

#[test]
fn rg_2_a_bit_that_changes_after_the_seal_is_noticed() {
    let agent = Arena::create("test", 1, 4096).unwrap();
    fill(&agent, 0, SMALL, id(1, 1), 0).unwrap();
    let scribbler = File::from(agent.as_fd().try_clone_to_owned().unwrap());
    let image_at = agent.geometry().total() - agent.geometry().image_bytes;
    let mut byte = [0];
    scribbler.read_exact_at(&mut byte, image_at + 100).unwrap();
    scribbler.write_all_at(&[byte[0] ^ 1], image_at + 100).unwrap();
    let sealed = agent.sealed(0).unwrap();
    assert!(sealed.chunk(0).is_ok());
    assert!(matches!(sealed.chunk(1), Err(ArenaError::Damaged { chunk: 1, .. })));
}

#[test]
fn neither_side_can_shrink_it_under_the_other() {
    let arena = Arena::create("test", 1, 4096).unwrap();
    let file = File::from(arena.as_fd().try_clone_to_owned().unwrap());
    assert!(file.set_len(0).is_err());
    assert!(file.set_len(1 << 30).is_err());
}

#[test]
fn what_is_no_arena_is_refused() {
    let temp = tempfile::tempfile().unwrap();
    assert!(matches!(
        Arena::map(OwnedFd::from(temp)),
        Err(ArenaError::NotOne { .. })
    ));
    let unsealed = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    assert!(matches!(Arena::map(unsealed), Err(ArenaError::NotOne { .. })));
}

#[test]
fn a_forged_slot_is_refused_by_what_is_wrong_with_it() {
    let arena = Arena::create("test", 1, 4096).unwrap();
    let file = File::from(arena.as_fd().try_clone_to_owned().unwrap());
    let header = 4096;
    let meta = 8192;
    // A slot sealed by generation 1 with a valid description of any image.
    let forge = |index: &ShardIndex| {
        let text = index.to_bytes();
        file.write_all_at(&text, meta).unwrap();
        file.write_all_at(&(text.len() as u64).to_le_bytes(), header + 8)
            .unwrap();
        file.write_all_at(&(1_u64 << 8 | 2).to_le_bytes(), header).unwrap();
    };
    forge(&SMALL.sealed(id(1, 1), 0).0);
    assert!(arena.sealed(0).is_ok(), "the forgery itself works");
    forge(&SMALL.sealed(id(1, 2), 0).0);
    assert!(matches!(arena.sealed(0), Err(ArenaError::Generation { .. })));
    let wide = Job { columns: 4000, ..SMALL };
    forge(&wide.sealed(id(1, 1), 0).0);
    assert!(matches!(
        arena.sealed(0),
        Err(ArenaError::ImageLength { capacity: 4096, .. })
    ));
    for length in [arena.geometry().meta_bytes + 1, u64::MAX] {
        forge(&SMALL.sealed(id(1, 1), 0).0);
        file.write_all_at(&length.to_le_bytes(), header + 8).unwrap();
        assert!(
            matches!(arena.sealed(0), Err(ArenaError::MetaLength { .. })),
            "{length}"
        );
    }
}

/// Overwrites every header and description word and the first bytes of both areas with any values.
fn scribble(arena: &Arena, dice: &mut Dice, garbage: &[u8]) {
    let file = File::from(arena.as_fd().try_clone_to_owned().unwrap());
    let total = arena.geometry().total();
    let places = [0, 4096, 4096 + 8, 8192, 8192 + dice.roll(2000), dice.roll(total - 512)];
    let at = places[dice.roll(places.len() as u64) as usize];
    file.write_all_at(garbage, at).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The agent trusts nothing: for anything that a rank writes, reading gives an error or a self-consistent image.
    #[test]
    fn a_rank_that_scribbles_over_everything_cannot_make_the_agent_panic(
        seed: u64,
        garbage in proptest::collection::vec(prop_oneof![Just(0u8), Just(2), Just(0xff), any::<u8>()], 1..512),
    ) {
        let arena = Arena::create("test", 2, 4096).unwrap();
        fill(&arena, 0, SMALL, id(1, 1), 0).unwrap();
        let mut dice = Dice(seed);
        for _ in 0..4 {
            scribble(&arena, &mut dice, &garbage);
            for slot in 0..2 {
                let _ = arena.slot(slot);
                if let Ok(sealed) = arena.sealed(slot) {
                    prop_assert_eq!(sealed.index(), &SMALL.sealed(id(1, 1), 0).0);
                    let _ = (sealed.chunk(0), sealed.chunk(1), sealed.chunk(u32::MAX));
                }
            }
            let _ = (arena.empty_slots(), arena.sealed_images().len(), arena.fence());
        }
    }
}

const FILLER: &str = "RANKGUARD_TEST_ARENA";

/// Not a test of its own: the rank process of the next test.
#[test]
fn filler_child() {
    let Ok(path) = std::env::var(FILLER) else { return };
    let file = File::options().read(true).write(true).open(path).unwrap();
    let arena = Arena::map(OwnedFd::from(file)).unwrap();
    for step in 1.. {
        let slot = 1 + step as u32 % 2;
        arena.release(slot).unwrap();
        fill(&arena, slot, CHILD, id(step, 1), 0).unwrap();
    }
}

const CHILD: Job = Job {
    world: 1,
    rows: 1000,
    columns: 900,
    chunk_bytes: 1 << 16,
};

#[test]
fn rg_1_a_rank_killed_at_any_moment_of_a_fill_leaves_whole_images_or_none() {
    let arena = Arena::create("test", 3, 1 << 20).unwrap();
    fill(&arena, 0, CHILD, id(0, 1), 0).unwrap();
    let path = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        std::os::fd::AsRawFd::as_raw_fd(&arena.as_fd())
    );
    let mut dice = Dice(11);
    let mut unsealed = 0;
    for _ in 0..12 {
        for slot in 1..3 {
            arena.release(slot).unwrap();
        }
        let mut child = guard::guarded(&mut Command::new(std::env::current_exe().unwrap()))
            .args(["arena::filler_child", "--exact", "--quiet"])
            .env(FILLER, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while arena.empty_slots() == [1, 2] {
            assert!(std::time::Instant::now() < deadline, "the child never filled a slot");
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_micros(dice.roll(20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        for slot in 1..3 {
            match arena.sealed(slot) {
                Ok(sealed) => {
                    let chunks = chunks_of(&sealed);
                    let (_, image) = CHILD.sealed(id(sealed.index().step.0, 1), 0);
                    assert!(
                        chunks == chunks_in(sealed.index(), &image),
                        "slot {slot} is sealed and not what step {} made",
                        sealed.index().step
                    );
                }
                Err(ArenaError::State { .. }) => unsealed += 1,
                Err(other) => panic!("slot {slot}: {other}"),
            }
        }
        assert_eq!(
            arena.sealed(0).unwrap().index().step.0,
            0,
            "the older image is untouched"
        );
    }
    eprintln!("12 kills: {unsealed} of 24 slots were caught unsealed");
}
