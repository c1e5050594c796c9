//! Checkpoints in the formats of others, from the command line.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::rankguard;

fn fixture(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.join("checkpoint/exchange/tests/fixtures")
        .join(name)
        .display()
        .to_string()
}

/// A safetensors file of one tensor `w` of floats.
fn file(dir: &Path, name: &str, values: &[f32]) -> String {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let header = json!({"w": {"dtype": "F32", "shape": [values.len()], "data_offsets": [0, data.len()]}}).to_string();
    let path = dir.join(name);
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
    fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

struct Case {
    dir: tempfile::TempDir,
    store: String,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store").display().to_string();
        Self { dir, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn import(&self, from: &str, step: &str, ranks: &str, code: i32) -> Value {
        let of = [
            "--dir",
            &self.store,
            "--job",
            "demo",
            "--step",
            step,
            "--ranks",
            ranks,
            "--format",
            "json",
        ];
        let ran = rankguard(&[&["checkpoint", "import", from], of.as_slice()].concat()).expect(code);
        serde_json::from_str(&ran.stdout).unwrap()
    }
}

#[test]
fn a_directory_of_pytorch_is_imported_shown_verified_and_exported() {
    let case = Case::new();
    let done = case.import(&fixture("two_ranks"), "7", "3", 1);
    assert_eq!(
        (&done["format"], &done["tensors"], &done["ranks"]),
        (&json!("dcp"), &json!(13), &json!(3))
    );
    let named: Vec<&str> = done["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["entry"].as_str().unwrap())
        .collect();
    assert_eq!(named, ["trainer.loss_is_nan", "trainer.opaque", "trainer.raw"]);

    rankguard(&["checkpoint", "verify", "--dir", &case.store])
        .expect(0)
        .says(&["1 intact, 0 problems"]);
    let shown = rankguard(&["checkpoint", "show", "7", "--dir", &case.store, "--format", "json"]).expect(0);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["world_size"], 3);
    assert_eq!(shown["tensors"].as_array().unwrap().len(), 13);
    assert_eq!(shown["ranks"][0]["state"]["trainer.schedule.warmup"], json!([10, 20]));
    let lines = |list: &str| {
        let ran = rankguard(&[
            "checkpoint",
            "show",
            "7-g1",
            "--dir",
            &case.store,
            "--list",
            list,
            "--format",
            "csv",
        ]);
        ran.expect(0).says(&["13 tensors", "on 3 ranks"]).stdout.lines().count()
    };
    assert_eq!((lines("tensors"), lines("ranks"), lines("origins")), (14, 4, 4));

    let out = case.path("out");
    let path = out.display().to_string();
    let export = [
        "checkpoint",
        "export",
        "7",
        "--dir",
        &case.store,
        "--out",
        &path,
        "--file-bytes",
        "300",
    ];
    let ran = rankguard(&export).expect(0).says(&["13 tensors"]);
    let files: Vec<&str> = ran.stdout.lines().collect();
    assert!(
        files.len() > 1 && files.iter().all(|file| Path::new(file).is_file()),
        "{files:?}"
    );
    assert!(out.join("model.safetensors.index.json").is_file());
    rankguard(&export).expect(2).says(&["already there"]);

    // Back again, on another number of ranks: not a bit differs.
    case.import(&path, "8", "2", 0);
    rankguard(&["checkpoint", "diff", "7", "8", "--dir", &case.store, "--values"])
        .expect(0)
        .says(&["13 tensors equal, 0 different; ", " non-tensor states"]);
}

#[test]
fn a_difference_is_told_with_its_size() {
    let case = Case::new();
    case.import(
        &file(case.dir.path(), "a.safetensors", &[1.0, 2.0, 3.0, 4.0]),
        "1",
        "2",
        0,
    );
    case.import(
        &file(case.dir.path(), "b.safetensors", &[1.0, 2.0, 3.5, 4.0]),
        "2",
        "2",
        0,
    );
    let diff = |args: &[&str]| {
        let all = [
            &["checkpoint", "diff", "1", "2", "--dir", &case.store, "--format", "json"],
            args,
        ]
        .concat();
        serde_json::from_str::<Value>(&rankguard(&all).expect(1).stdout).unwrap()
    };
    let found = &diff(&[])["differences"][0];
    assert_eq!(
        (&found["change"], &found["chunks"], &found["changed_chunks"]),
        (&json!("changed"), &json!(2), &json!(1))
    );
    assert_eq!(found["max_abs"], Value::Null);
    let found = &diff(&["--values"])["differences"][0];
    assert_eq!(
        (&found["max_abs"], &found["changed_elements"]),
        (&json!(0.5), &json!(1))
    );
    rankguard(&["checkpoint", "diff", "1", "1", "--dir", &case.store]).expect(0);
    let table = rankguard(&["checkpoint", "diff", "1", "2", "--dir", &case.store])
        .expect(1)
        .says(&["0 tensors equal, 1 different; no non-tensor states"])
        .stdout;
    assert!(table.contains("F32 4") && table.contains("changed"), "{table}");
    rankguard(&["checkpoint", "diff", "1", "1", "--dir", &case.store])
        .expect(0)
        .says(&["1 tensor equal, 0 different"]);
}

/// RG-11: nothing is executed; RG-2: what is damaged is not imported; and each says what to do.
#[test]
fn what_cannot_be_imported_is_a_failure_with_its_place() {
    let case = Case::new();
    let import = |from: &str, more: &[&str]| {
        let of = ["--dir", &case.store, "--job", "demo", "--step", "1", "--ranks", "2"];
        rankguard(&[&["checkpoint", "import", from], of.as_slice(), more].concat())
    };
    import("/does/not/exist", &[]).expect(2).says(&["/does/not/exist"]);
    let empty = case.path("empty");
    fs::create_dir(&empty).unwrap();
    import(empty.to_str().unwrap(), &[])
        .expect(2)
        .says(&["neither a .safetensors file"]);
    fs::write(empty.join(".metadata"), b"cposix\nsystem\n(Vtouch owned\ntR.").unwrap();
    import(empty.to_str().unwrap(), &[])
        .expect(2)
        .says(&[".metadata", "no DCP metadata"]);
    let torn = file(case.dir.path(), "torn.safetensors", &[1.0; 64]);
    let bytes = fs::read(&torn).unwrap();
    fs::write(&torn, &bytes[..bytes.len() - 9]).unwrap();
    import(&torn, &[])
        .expect(2)
        .says(&["torn.safetensors", "its tensors end at byte 256 of 247"]);
    let sound = file(case.dir.path(), "a.safetensors", &[1.0]);
    import(&sound, &["--job", "../up"]).expect(64);
    import(&sound, &["--ranks", "0"]).expect(64);
    assert!(!Path::new(&case.store).join("demo").exists(), "nothing was written");
    import(&sound, &[]).expect(0);
    // The same content again changes nothing; other content is refused.
    let again = import(&sound, &[]).expect(0);
    let again = again.says(&["already imported with the same content, nothing was written"]);
    assert_eq!(again.stdout, "", "a table without a row has no heading");
    let changed = file(case.dir.path(), "b.safetensors", &[2.0]);
    import(&changed, &[]).expect(2).says(&["nothing is overwritten"]);
    rankguard(&["checkpoint", "verify", "--dir", &case.store])
        .expect(0)
        .says(&["1 intact, 0 problems"]);
    rankguard(&["checkpoint", "show", "2", "--dir", &case.store])
        .expect(2)
        .says(&["no committed checkpoint of step 2"]);
    rankguard(&["checkpoint", "show", "x", "--dir", &case.store])
        .expect(64)
        .says(&["STEP-gGENERATION"]);
    let other = [
        "checkpoint",
        "import",
        &sound,
        "--dir",
        &case.store,
        "--job",
        "other",
        "--step",
        "1",
        "--ranks",
        "1",
    ];
    rankguard(&other).expect(0);
    rankguard(&["checkpoint", "show", "1", "--dir", &case.store])
        .expect(64)
        .says(&["demo, other", "--job"]);
}
