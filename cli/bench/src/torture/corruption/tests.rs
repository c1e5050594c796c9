//! Tests of the judge on undetected damage.

use super::*;

fn bench() -> (tempfile::TempDir, CorruptionBench, Store) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let bench = CorruptionBench::new(dir.path(), 7).expect("checkpoints");
    let store = bench.copy(dir.path().join("copy")).expect("a copy");
    (dir, bench, store)
}

fn judged(change: impl FnOnce(&CorruptionBench, &mut StoreDamage)) -> CorruptionVerdict {
    let (_dir, bench, store) = bench();
    let mut damage = StoreDamage::default();
    change(&bench, &mut damage);
    bench.judge(&store, &damage).expect("judged")
}

/// A complete checkpoint of the same name with other bytes cannot be distinguished by any digest in the store, and must
/// be counted as silent.
#[test]
fn a_checkpoint_that_was_replaced_whole_is_counted_as_silent() {
    let verdict = judged(|bench, damage| {
        for name in ["older", "subject"] {
            let folder = if name == "older" {
                &bench.folders.older
            } else {
                &bench.folders.subject
            };
            let twin = format!("twin/{folder}/");
            let files = bench
                .golden
                .iter()
                .filter_map(|(path, bytes)| Some((path.strip_prefix(&twin)?, bytes)));
            damage
                .files
                .extend(files.map(|(file, bytes)| (format!("{folder}/{file}"), Some(bytes.clone()))));
        }
    });
    assert!(verdict.silent && !verdict.refused, "{:?}", verdict.faults);
}

/// Damage that the engine does not detect is not counted as refused.
#[test]
fn damage_that_does_not_show_is_not_counted_as_refused() {
    let verdict = judged(|bench, damage| {
        let path = format!("{}/rank-00000.index", bench.folders.subject);
        let same = bench.golden[&path].clone();
        damage.files.insert(path, Some(same));
    });
    assert!(
        !verdict.refused && !verdict.repaired && !verdict.silent,
        "{:?}",
        verdict.faults
    );
}

#[test]
fn rg_8_the_same_seed_does_the_same_damage() {
    let (_dir, bench, _) = bench();
    for kind in DamageKind::ALL {
        let roll = |case| {
            roll(
                kind,
                &mut SplitMix64::of(3, kind.name(), case),
                &bench.golden,
                &bench.folders,
            )
            .files
        };
        assert_eq!(roll(1), roll(1));
        assert!(
            (2..6).any(|case| roll(case) != roll(1)),
            "{} is always the same",
            kind.name()
        );
    }
}
