//! Directories that PyTorch wrote, sound and damaged (RG-2, RG-11).

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use common::{contents, expected, fixture, imported, opened};
use rankguard_checkpoint::Store;
use rankguard_checkpoint_exchange::dcp::DcpMetadata;
use rankguard_checkpoint_exchange::{ExchangeError, open};
use serde_json::json;

/// A copy of a fixture that may be damaged.
fn copy(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    dir
}

fn refused(dir: &Path) -> ExchangeError {
    open(dir, &mut |_, _| ()).expect_err("damaged")
}

/// Replaces every `from` by `to`, of the same length, so that no offset changes.
fn replace(path: &Path, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(path).unwrap();
    let mut found = 0;
    for at in 0..bytes.len().saturating_sub(from.len()) {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
            found += 1;
        }
    }
    assert!(
        found > 0,
        "{:?} is not in {}",
        String::from_utf8_lossy(from),
        path.display()
    );
    fs::write(path, bytes).unwrap();
}

#[test]
fn tensors_of_two_ranks_are_the_same_on_any_number_of_ranks() {
    for ranks in [1, 2, 3, 8] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (done, checkpoint) = imported(&store, &fixture("two_ranks"), 5, ranks);
        assert_eq!((done.format, checkpoint.manifest.world_size), ("dcp", ranks));
        assert_eq!(contents(&store, &checkpoint), expected());
        assert!(
            rankguard_checkpoint::verify::verify(&store, &common::job(), None)
                .unwrap()
                .is_intact()
        );
    }
}

#[test]
fn plain_values_are_kept_and_others_are_named() {
    let foreign = opened(&fixture("two_ranks"));
    let wanted = json!({
        "trainer.epoch": 3,
        "trainer.loss": 0.1,
        "trainer.name": "café",
        "trainer.done": false,
        "trainer.nothing": null,
        "trainer.betas": [0.9, 0.999],
        "trainer.shape": [2, 3],
        "trainer.schedule.warmup": [10, 20],
        "trainer.schedule.kind": "cosine",
        "trainer.by_number.0": "a",
        "trainer.by_number.1": "b",
    });
    assert_eq!(foreign.states, [wanted]);
    let problems: Vec<(&str, &str)> = foreign
        .problems
        .iter()
        .map(|problem| (problem.entry.as_str(), problem.what.as_str()))
        .collect();
    let has = |name: &str, word: &str| {
        problems
            .iter()
            .any(|(entry, what)| *entry == name && what.contains(word))
    };
    assert!(has("trainer.loss_is_nan", "NaN"), "{problems:?}");
    assert!(has("trainer.opaque", "Opaque"), "{problems:?}");
    assert!(has("trainer.raw", "bytes"), "{problems:?}");
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn chunks_and_places_are_read_as_written() {
    let metadata = DcpMetadata::parse(&fs::read(fixture("two_ranks/.metadata")).unwrap()).unwrap();
    assert_eq!(metadata.odd, []);
    let odd = &metadata.tensors["model.odd_rows"];
    let offsets: Vec<&[u64]> = odd.chunks.iter().map(|chunk| chunk.offsets.as_slice()).collect();
    assert_eq!(offsets, [[0, 0], [4, 0]]);
    let columns = &metadata.tensors["model.columns"];
    assert_eq!(columns.chunks[1].sizes, [10, 3]);
    let place = &metadata.places[&("model.rows".to_owned(), Some(vec![5, 0]))];
    assert_eq!(place.file, "__1_0.distcp");
}

#[test]
fn what_was_saved_without_checksums_is_imported_and_said() {
    assert_eq!(opened(&fixture("one_rank")).problems, []);
    let foreign = opened(&fixture("no_crc"));
    assert_eq!(foreign.problems.len(), 1);
    assert!(
        foreign.problems[0]
            .what
            .contains("1 items were saved without checksums")
    );
}

#[test]
fn older_tables_are_read_and_compressed_items_are_named() {
    let [new, old] = ["one_rank", "old_table"].map(|name| opened(&fixture(name)));
    assert_eq!((old.problems.len(), old.tensors().count()), (0, 1));
    assert!(new.tensors().eq(old.tensors()));
    let compressed = opened(&fixture("compressed"));
    assert_eq!(compressed.tensors().count(), 0);
    assert!(
        compressed.problems[0].what.contains("compressed"),
        "{:?}",
        compressed.problems
    );
}

/// PyTorch loads all of these without an error.
#[test]
fn rg_2_every_flipped_bit_of_a_tensor_is_noticed() {
    let bytes = fs::read(fixture("one_rank/__0_0.distcp")).unwrap();
    let data: Vec<u8> = [0f32, 1.0, 2.0, 3.0]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let at = bytes.windows(16).position(|part| part == data).unwrap();
    for bit in 0..128 {
        let dir = copy("one_rank");
        let mut damaged = bytes.clone();
        damaged[at + bit / 8] ^= 1 << (bit % 8);
        fs::write(dir.path().join("__0_0.distcp"), damaged).unwrap();
        let error = refused(dir.path());
        assert!(matches!(error, ExchangeError::Damaged { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains("__0_0.distcp: w: damaged: record data/0 has CRC-32"),
            "{error}"
        );
    }
}

#[test]
fn no_flipped_byte_gives_other_tensors_or_a_panic() {
    let sound: Vec<_> = {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (_, checkpoint) = imported(&store, &fixture("one_rank"), 1, 1);
        vec![contents(&store, &checkpoint)]
    };
    for file in ["__0_0.distcp", ".metadata"] {
        let whole = fs::read(fixture("one_rank").join(file)).unwrap();
        let dir = copy("one_rank");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x41;
            fs::write(dir.path().join(file), damaged).unwrap();
            let Ok(foreign) = open(dir.path(), &mut |_, _| ()) else {
                continue;
            };
            // Testing each position would only be slow.
            if at % 32 != 0 {
                continue;
            }
            // A tensor that is still readable is unchanged, under its name or another: `.metadata` has no checksum.
            let out = tempfile::tempdir().unwrap();
            let store = Store::open(out.path()).unwrap();
            let of = rankguard_checkpoint_exchange::ImportTarget {
                job: &common::job(),
                id: common::id(1),
                ranks: 1,
            };
            if rankguard_checkpoint_exchange::import(&store, &foreign, &of, &mut |_, _| ()).is_ok() {
                let checkpoint = store.load(of.job, of.id).unwrap();
                let found: Vec<_> = contents(&store, &checkpoint).into_values().collect();
                let wanted: Vec<_> = sound[0].values().cloned().collect();
                assert_eq!(found, wanted, "byte {at} of {file}");
            }
        }
    }
}

#[test]
fn files_cut_short_and_missing_are_named() {
    let dir = copy("two_ranks");
    let path = dir.path().join("__1_0.distcp");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let error = refused(dir.path()).to_string();
    assert!(error.contains("__1_0.distcp") && error.contains("cut short"), "{error}");
    fs::remove_file(&path).unwrap();
    assert!(refused(dir.path()).to_string().contains("cannot open"));
    let dir = copy("one_rank");
    let metadata = fs::read(dir.path().join(".metadata")).unwrap();
    fs::write(dir.path().join(".metadata"), &metadata[..metadata.len() - 3]).unwrap();
    assert!(matches!(refused(dir.path()), ExchangeError::Pickle { .. }));
}

#[test]
fn rg_11_a_path_out_of_the_folder_is_refused() {
    for name in [b"../0_0.distc", b"/etc/passwdx"] {
        let dir = copy("one_rank");
        replace(&dir.path().join(".metadata"), b"__0_0.distcp", name);
        let error = refused(dir.path()).to_string();
        assert!(error.contains("outside of its folder"), "{error}");
    }
}

/// The classic hostile pickle: it would run a command when Python loads it.
#[test]
fn rg_11_nothing_in_a_pickle_is_run() {
    let dir = copy("one_rank");
    let witness = dir.path().join("owned");
    let command = format!("touch {}", witness.display());
    let attack = format!("cposix\nsystem\n(V{command}\ntR.");
    fs::write(dir.path().join(".metadata"), &attack).unwrap();
    assert!(refused(dir.path()).to_string().contains("no Metadata"));
    assert!(!witness.exists());
    // The same class name from another module is not accepted as PyTorch's.
    let dir = copy("one_rank");
    replace(
        &dir.path().join(".metadata"),
        b"torch.distributed.checkpoint.metadata",
        b"evil..distributed.checkpoint.metadata",
    );
    assert!(refused(dir.path()).to_string().contains("no Metadata"));
}

#[test]
fn a_tensor_of_another_type_than_the_table_says_is_refused() {
    let dir = copy("one_rank");
    replace(&dir.path().join(".metadata"), b"float32", b"float64");
    let error = refused(dir.path()).to_string();
    assert!(error.contains("F32") && error.contains("F64"), "{error}");
    let dir = copy("one_rank");
    replace(&dir.path().join(".metadata"), b"float32", b"quint9x");
    let foreign = opened(dir.path());
    assert!(foreign.problems[0].what.contains("quint9x"));
    assert_eq!(foreign.tensors().count(), 0);
}
