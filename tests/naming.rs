//! Naming failures from the command line: cases, dumps, timings, healthy runs, taxonomies, files of a person.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::rankguard;

/// A folder of data sets that is not part of the repository.
fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(name);
    if !path.exists() {
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: {} is not there\n", path.display()),
        );
        return None;
    }
    Some(path)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const CASES: &str = r#"{"id": "one", "sources": [{"kind": "rank-stderr", "rank": 3, "node": null, "lines": ["step 1 loss 0.3", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.2 GiB is free."]}], "label": "not read"}
{"id": "two", "sources": [{"kind": "rank-stderr", "rank": 0, "node": null, "lines": ["step 1 loss 0.3", "step 2 loss 0.2"]}]}
"#;

#[test]
fn classify_says_one_verdict_a_case_and_names_the_line_that_is_none() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("cases.jsonl");
    fs::write(&file, CASES).unwrap();
    let ran = rankguard(&["classify", "--format", "jsonl", text(&file)]).expect(0);
    let verdicts: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(verdicts.len(), 2);
    assert_eq!(verdicts[0]["class"], "cuda-oom");
    assert_eq!(verdicts[0]["layer"], "user-code");
    assert_eq!(verdicts[0]["key_lines"][0]["stream"], 0);
    assert_eq!(verdicts[0]["key_lines"][0]["index"], 1);
    assert_eq!(verdicts[0]["key_lines"][0]["role"], "root");
    assert_eq!(verdicts[0]["taxonomies"]["zhang-icse2020"][0], "gpu-out-of-memory");
    for taxonomy in ["gao-icse-seip2023", "jeon-atc2019", "hu-nsdi2024", "kokolis-hpca2025"] {
        assert!(verdicts[0]["taxonomies"][taxonomy].is_array(), "{taxonomy}");
    }
    assert_eq!(verdicts[1]["class"], "none");

    fs::write(&file, format!("{CASES}{{\"id\": 3}}\n[1,\n")).unwrap();
    let ran = rankguard(&["classify", text(&file)])
        .expect(2)
        .says(&["cases.jsonl:3:", "cases.jsonl:4:", "sources"]);
    assert_eq!(ran.stdout.lines().count(), 2, "what can be read is told");
    rankguard(&["classify", "--format", "table", text(&file)]).expect(64);
    rankguard(&["classify", "/no/such/cases.jsonl"])
        .expect(2)
        .says(&["/no/such/cases.jsonl"]);
}

#[test]
fn a_dump_that_would_run_a_program_is_refused_and_runs_nothing() {
    let root = tempfile::tempdir().unwrap();
    let proof = root.path().join("proof");
    // What pickle.dumps makes of an object whose __reduce__ is (os.system, ("touch ...",)).
    let evil = format!("cposix\nsystem\n(S'touch {}'\ntR.", text(&proof));
    fs::write(root.path().join("_dump_0"), evil).unwrap();
    rankguard(&["diagnose", "--flight-recorder", text(root.path())])
        .expect(2)
        .says(&["GLOBAL", "posix system", "byte 0"]);
    assert!(!proof.exists());
}

#[test]
fn dumps_of_real_hangs_are_told_as_their_authors_tell_them() {
    let Some(dumps) = shared("datasets/nccl-flight-recorder-dumps") else {
        return;
    };
    for (case, id, missing) in [("gpu_error_1st", "74", vec![12]), ("lock_gil_1st", "72", vec![9, 14])] {
        let ran = rankguard(&[
            "diagnose",
            "--flight-recorder",
            text(&dumps.join(case)),
            "--format",
            "json",
        ])
        .expect(1);
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        let root = &report["groups"][0];
        assert_eq!(root["id"], id);
        assert!(root["collective"].as_str().unwrap().contains("all_to_all"));
        assert_eq!(root["missing_ranks"], serde_json::json!(missing));
        let culprits: Vec<_> = report["culprits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["rank"])
            .collect();
        assert_eq!(serde_json::json!(culprits), serde_json::json!(missing));
    }
}

#[test]
fn timings_of_real_jobs_give_the_published_figures_and_their_cause() {
    let Some(traces) = shared("datasets/bytedance-straggler-traces") else {
        return;
    };
    for (job, observed, slowdown, cause) in [
        ("AR", 46.6492, 1.9730, "slow-worker"),
        ("ST", 2.21445, 1.1787, "slow-stage"),
    ] {
        let trace = traces.join(format!("trace-{job}.parquet"));
        let ran = rankguard(&["diagnose", "--timings", text(&trace), "--format", "json"]).expect(1);
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        let near = |value: &Value, wanted: f64| (value.as_f64().unwrap() - wanted).abs() < 5e-5 * wanted;
        assert!(near(&report["step_time_s"]["observed"], observed), "{job}");
        assert!(near(&report["slowdown"], slowdown), "{job}");
        assert_eq!(report["cause"], cause);
    }
}

#[test]
fn timings_of_which_no_row_can_be_used_are_a_failure() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("noise.csv");
    fs::write(&file, [0_u8, 1, 2, 255, 10, 7]).unwrap();
    rankguard(&["diagnose", "--timings", text(&file)])
        .expect(2)
        .says(&["noise.csv"]);
}

#[test]
fn what_a_healthy_run_does_not_say_is_evidence() {
    let root = tempfile::tempdir().unwrap();
    let lines = |extra: &str| {
        let steps: String = (0..200).map(|step| format!("step {step} of 200 done\n")).collect();
        format!("{steps}{extra}")
    };
    fs::write(root.path().join("good.log"), lines("")).unwrap();
    fs::write(
        root.path().join("bad.log"),
        lines("lane 7 lost sync with the frobnicator after 13 ms\n"),
    )
    .unwrap();
    let good = root.path().join("good.log");
    let bad = root.path().join("bad.log");
    let ran = rankguard(&["diagnose", "--healthy", text(&good), "--format", "json", text(&bad)]).expect(0);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let novelty = &report["novelties"][0];
    assert_eq!(novelty["kind"], "new");
    assert_eq!(novelty["line"], 201);
    assert!(novelty["id"].as_str().unwrap().starts_with("tpl-"));
}

#[test]
fn taxonomies_are_listed_shown_and_crossed() {
    let ran = rankguard(&["taxonomy", "ls", "--format", "jsonl"]).expect(0);
    assert_eq!(ran.stdout.lines().count(), 20);
    let ran = rankguard(&["taxonomy", "show", "zhang-icse2020"]).expect(0);
    assert!(ran.stdout.contains("10.1145/3377811.3380362"), "the citation");
    let ran = rankguard(&["taxonomy", "crosswalk", "--class", "cuda-oom", "--format", "csv"]).expect(0);
    assert!(ran.stdout.contains("zhang-icse2020") && ran.stdout.contains("gpu-out-of-memory"));
    rankguard(&["taxonomy", "show", "zhang-icse202"])
        .expect(64)
        .says(&["zhang-icse2020"]);
}

#[test]
fn a_class_and_a_signature_of_a_person_are_taken_and_their_mistakes_are_all_told() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("own.toml");
    fs::write(
        &file,
        "[[class]]\nid = \"frobnicator-lost\"\nlayer = \"hardware\"\ndefinition = \"The frobnicator is gone.\"\nadvice = \"Look for it.\"\naction = \"replace-node\"\n",
    )
    .unwrap();
    let ran = rankguard(&["explain", "--catalogue", text(&file), "frobnicator-lost"]).expect(0);
    assert!(ran.stdout.contains("The frobnicator is gone."));
    fs::write(
        &file,
        "[[class]]\nid = \"x\"\nlayer = \"hardwear\"\ndefinition = \"d\"\nadvice = \"a\"\naction = \"replace-nod\"\n",
    )
    .unwrap();
    rankguard(&["explain", "--catalogue", text(&file), "x"])
        .expect(64)
        .says(&["own.toml:3: layer", "own.toml:6: action", "hardware", "replace-node"]);
}

#[test]
fn logs_are_read_by_the_signatures_of_a_person_too() {
    let root = tempfile::tempdir().unwrap();
    let own = root.path().join("own.toml");
    let log = root.path().join("job.log");
    let cases = root.path().join("cases.jsonl");
    let class = "[[class]]\nid = \"frobnicator-lost\"\nlayer = \"hardware\"\ndefinition = \"The frobnicator is gone.\"\nadvice = \"Look for it.\"\naction = \"replace-node\"\n";
    let signature = "[[signature]]\nid = \"frob\"\nliterals = [\"frobnicator vanished\"]\npattern = 'frobnicator vanished'\nclass = \"frobnicator-lost\"\nconfidence = 0.9\nsource = \"https://example.org\"\nexample = \"frobnicator vanished\"\n";
    let line = "lane 7: frobnicator vanished";
    fs::write(&own, format!("{class}\n{signature}")).unwrap();
    fs::write(&log, format!("step 1 loss 2.1\n{line}\n")).unwrap();
    fs::write(
        &cases,
        format!("{{\"id\": \"a\", \"sources\": [{{\"kind\": \"kmsg\", \"lines\": [\"{line}\"]}}]}}\n"),
    )
    .unwrap();
    rankguard(&["diagnose", text(&log)]).expect(0);
    let found = rankguard(&["diagnose", "--catalogue", text(&own), text(&log)]).expect(1);
    assert!(found.stdout.contains("frobnicator-lost (hardware)"), "{}", found.stdout);
    let class = |more: &[&str]| {
        let words = [&["classify"], more, &[text(&cases)]].concat();
        let verdict: Value = serde_json::from_str(&rankguard(&words).expect(0).stdout).unwrap();
        verdict["class"].as_str().unwrap().to_owned()
    };
    assert_eq!(class(&[]), "none");
    assert_eq!(class(&["--catalogue", text(&own)]), "frobnicator-lost");
    rankguard(&["diagnose", "--catalogue", text(&own), "--timings", "x.csv"]).expect(64);
}
