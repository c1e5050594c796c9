//! Memory use of saving and loading does not grow, and ends with the arena. A test binary of its own: it counts the
//! pages of the process.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::{id, job};
use rankguard_checkpoint::arena::SaveRequest;
use rankguard_checkpoint::format::{Dtype, Manifest, TensorBox};
use rankguard_checkpoint::restore::assemble;
use rankguard_checkpoint::{Arena, Store};
use rankguard_model::{Rank, Step};
use serde_json::Value;

const BYTES: usize = 24 << 20;

/// Memory of this process that is not backed by files, in bytes: private pages, and its part of shared ones.
fn held() -> (u64, u64) {
    let text = fs::read_to_string("/proc/self/smaps_rollup").expect("the kernel tells what a process holds");
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
        kib.expect("a number of KiB") << 10
    };
    (of("Pss_Anon:"), of("Pss_Shmem:"))
}

#[test]
fn fifty_saves_and_loads_take_what_the_second_took_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let name = job();
    let boxed = TensorBox::whole("w", Dtype::U8, vec![BYTES as u64]);
    let mut tensor = vec![1_u8; BYTES];
    let mut loaded = vec![0_u8; BYTES];
    let (_, shared_before) = held();
    let arena = Arena::create("memory", 1, BYTES as u64).unwrap();
    let mut after_two = (0, 0);
    for step in 1..=50 {
        tensor.fill(step as u8);
        let of = SaveRequest::new(&name, Step(step), id(step, 1).generation, Rank(0), 1);
        arena
            .fill(0, &of, &[(boxed.clone(), &tensor[..])], &Value::Null)
            .unwrap();
        let image = arena.sealed(0).unwrap();
        let written = store.write_shard(image.index(), &image).unwrap();
        let manifest = Manifest::from_seals(&name, id(step, 1), None, &[written.seal]).unwrap();
        store.commit(&manifest).unwrap();
        arena.release(0).unwrap();
        let found = store.load(&name, id(step, 1)).unwrap();
        let wanted = [boxed.clone()];
        assemble(&found.manifest, &found.indexes, &wanted, &[&store], &mut loaded).unwrap();
        assert!(loaded == tensor, "step {step}");
        store.remove(&name, id(step, 1)).unwrap();
        if step == 2 {
            after_two = held();
        }
    }
    let after_fifty = held();
    // A leaked buffer in each of 48 loads would add 4 MiB each time.
    assert!(
        after_fifty.0 <= after_two.0 + (4 << 20) && after_fifty.1 <= after_two.1,
        "{after_two:?} bytes after two saves, {after_fifty:?} after fifty"
    );
    drop(arena);
    let (_, shared_after) = held();
    assert_eq!(shared_after, shared_before, "the arena's pages are gone");
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("memfd:"), "an arena is still mapped:\n{maps}");
}
