//! A checkpoint folder belongs to a run: a job goes on from what is there only where that is asked for, and nothing of another run
//! is touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::nodes::{Cluster, LIMIT, path};
use crate::support::{Ran, command, copy_folder, finish, rankguard, until};
use serde_json::Value;

/// Steps of the training: 6 epochs of 19.
const STEPS: u64 = 114;
const EPOCHS: &str = "--epochs=6";

/// Words of a submission of the training, and what is added to them.
fn words(cluster: &Cluster, store: &Path, name: &str, more: &[&str]) -> Vec<String> {
    let out = cluster.folder(&format!("out-{name}"));
    let first = ["run", "--name", name, "--controller", &cluster.address];
    let kept = ["--checkpoint-dir", path(store), "--checkpoint-every", "10"];
    let out = format!("--out={}", out.display());
    let program = [
        "--",
        env!("CARGO_BIN_EXE_rankguard"),
        "demo-rank",
        EPOCHS,
        "--step-ms-min=25",
        "--hidden=16",
        &out,
    ];
    let all = [&first[..], &kept, more, &program].concat();
    all.into_iter().map(ToOwned::to_owned).collect()
}

fn submit(cluster: &Cluster, store: &Path, name: &str, more: &[&str]) -> Ran {
    let words = words(cluster, store, name, more);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    finish(command(&words).spawn().expect("the program starts"), LIMIT)
}

/// The parameters that the job has written.
fn parameters(cluster: &Cluster, name: &str) -> Vec<u8> {
    let out = cluster.dir.path().join(format!("out-{name}"));
    fs::read(out.join(PARAMETERS_FILE)).unwrap_or_else(|problem| panic!("{}: {problem}", out.display()))
}

const PARAMETERS_FILE: &str = "parameters.bin";

/// The parameters of the same training that nothing disturbs.
fn undisturbed(cluster: &Cluster) -> Vec<u8> {
    let out = cluster.folder("out-undisturbed");
    let out_word = format!("--out={}", out.display());
    let words = ["demo-rank", EPOCHS, "--step-ms-min=0", "--hidden=16", &out_word];
    rankguard(&words).expect(0);
    fs::read(out.join(PARAMETERS_FILE)).expect("parameters")
}

/// Every file of a folder with its length and when it was written.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (u64, std::time::SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(tree(&path));
        } else {
            let found = entry.metadata().expect("readable");
            files.insert(path, (found.len(), found.modified().expect("a time")));
        }
    }
    files
}

fn job(cluster: &Cluster, name: &str) -> Value {
    let jobs = cluster.ask(&["status", "jobs", "--format", "json"]);
    let mut jobs = jobs.as_array().into_iter().flatten();
    let found = jobs.find(|job| job["spec"]["id"] == name).cloned();
    found.unwrap_or_default()
}

fn wait_committed(cluster: &Cluster, name: &str, step: u64) {
    until(&format!("a commit of step {step}"), LIMIT, || {
        let job = job(cluster, name);
        let newest = job["checkpoints"].as_array()?.last()?["step"].as_u64()?;
        (newest >= step).then_some(())
    });
}

fn cancel(cluster: &Cluster, name: &str) {
    let ran = rankguard(&["cancel", name, "--controller", &cluster.address]);
    assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.stderr);
    until("the job to end", LIMIT, || {
        (job(cluster, name)["state"] == "stopped").then_some(())
    });
}

/// A controller without the journal of the one before, with the agents of that one.
fn replace_controller(cluster: &mut Cluster) {
    let dir = cluster.dir.path().to_owned();
    cluster.controller.kill();
    fs::remove_dir_all(dir.join("controller")).expect("removed");
    cluster.controller = Cluster::controller(&dir, &cluster.address);
    until("the agents to join", LIMIT, || {
        let asked = rankguard(&["status", "nodes", "--controller", &cluster.address, "--format", "json"]);
        let nodes: Value = serde_json::from_str(&asked.stdout).ok()?;
        (nodes[0]["state"] == "healthy").then_some(())
    });
}

fn ls(store: &Path, job: &str) -> Vec<Value> {
    let ran = rankguard(&[
        "checkpoint",
        "ls",
        "--dir",
        path(store),
        "--job",
        job,
        "--format",
        "json",
    ])
    .expect(0);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

#[test]
fn a_new_controller_leaves_the_checkpoints_of_another_run_alone_and_resumes_them_by_name() {
    let mut cluster = Cluster::start(1);
    let store = cluster.folder("store");
    submit(&cluster, &store, "train", &["--detach", "--keep", "1"]).expect(0);
    wait_committed(&cluster, "train", 40);
    cancel(&cluster, "train");
    let run = job(&cluster, "train")["run"].as_str().expect("a run").to_owned();
    replace_controller(&mut cluster);
    let before = tree(&store);
    let refused = submit(&cluster, &store, "train", &["--keep", "1"]);
    let refused = refused.expect(2);
    refused.says(&[&run, "newest step", "--resume-from train", "--name", "--checkpoint-dir"]);
    assert_eq!(tree(&store), before, "nothing was changed");
    assert_eq!(job(&cluster, "train"), Value::Null);
    let resumed = submit(&cluster, &store, "train", &["--keep", "1", "--resume-from", "train"]).expect(0);
    resumed.says(&["job train resumes from train step", &run]);
    let view = job(&cluster, "train");
    assert_eq!(view["run"], run.as_str());
    assert!(
        view["generation"].as_u64() > Some(1) && view["resumed_from"]["step"].as_u64() >= Some(40),
        "{view:#}"
    );
    assert_eq!(view["void_shards"], 0);
    assert_eq!(parameters(&cluster, "train"), undisturbed(&cluster));
    let cases = cluster.ask(&["cases", "--format", "json"]);
    assert_eq!(cases.as_array().map(Vec::len), Some(0), "{cases:#}");
}

#[test]
fn a_job_that_was_interrupted_goes_on_as_another_attempt_and_an_active_one_does_not() {
    let cluster = Cluster::start(1);
    let store = cluster.folder("store");
    let words = words(&cluster, &store, "train", &[]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let following = command(&words).spawn().expect("the program starts");
    wait_committed(&cluster, "train", 20);
    submit(&cluster, &store, "train", &["--resume-from", "train"])
        .expect(2)
        .says(&["cannot resume job train: it is active"]);
    let pid = rustix::process::Pid::from_child(&following);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert_ne!(finish(following, LIMIT).code, Some(0));
    let run = job(&cluster, "train")["run"].clone();
    submit(&cluster, &store, "train", &[])
        .expect(2)
        .says(&["--resume-from train"]);
    submit(&cluster, &store, "train", &["--resume-from", "train:9999"])
        .expect(2)
        .says(&["it has no such checkpoint", "the newest of steps"]);
    submit(&cluster, &store, "train", &["--resume-from", "train"]).expect(0);
    let view = job(&cluster, "train");
    assert_eq!((&view["run"], view["state"].as_str()), (&run, Some("finished")));
    assert_eq!(parameters(&cluster, "train"), undisturbed(&cluster));
    // Finished, and once more from its last checkpoint: there is nothing left to do.
    submit(&cluster, &store, "train", &["--resume-from", "train"]).expect(0);
    assert!(job(&cluster, "train")["generation"].as_u64() > view["generation"].as_u64());
}

#[test]
fn a_rollback_supersedes_later_steps_and_trains_them_anew() {
    let cluster = Cluster::start(1);
    let store = cluster.folder("store");
    submit(&cluster, &store, "train", &["--keep", "20"]).expect(0);
    let states = |state: &str| -> Vec<u64> {
        let folders = ls(&store, "train").into_iter();
        let of_state = folders.filter(|folder| folder["state"] == state);
        of_state.filter_map(|folder| folder["step"].as_u64()).collect()
    };
    let all = states("committed");
    assert!(all.contains(&50) && all.contains(&100), "{all:?}");
    for (step, later) in [(50, 60), (30, 40)] {
        let source = format!("train:{step}");
        let words = ["--detach", "--keep", "20", "--resume-from", &source];
        submit(&cluster, &store, "train", &words).expect(0);
        assert!(states("superseded").contains(&later) || states("committed").contains(&later));
        until("a step of the new attempt", LIMIT, || {
            (job(&cluster, "train")["step"].as_u64()? > step).then_some(())
        });
        cancel(&cluster, "train");
        assert_eq!(job(&cluster, "train")["resumed_from"]["step"], step);
    }
    submit(
        &cluster,
        &store,
        "train",
        &["--keep", "20", "--resume-from", "train:20"],
    )
    .expect(0);
    assert_eq!(parameters(&cluster, "train"), undisturbed(&cluster));
    assert_eq!(
        states("superseded"),
        Vec::<u64>::new(),
        "a newer commit has replaced them"
    );
    let newest = job(&cluster, "train")["generation"].as_u64();
    let of_newest = ls(&store, "train")
        .iter()
        .filter(|folder| folder["generation"].as_u64() == newest)
        .count();
    assert!(of_newest as u64 >= (STEPS - 20) / 10, "{of_newest}");
}

#[test]
fn a_checkpoint_of_another_job_path_or_copy_starts_a_run_of_its_own() {
    let cluster = Cluster::start(1);
    let store = cluster.folder("store");
    let mirror = cluster.folder("mirror");
    let url = format!("file://{}", mirror.display());
    submit(&cluster, &store, "base", &["--keep", "20", "--checkpoint-mirror", &url]).expect(0);
    let expect = parameters(&cluster, "base");
    assert_eq!(expect, undisturbed(&cluster));
    let base = job(&cluster, "base")["run"].clone();
    let before = tree(&store.join("base"));
    submit(&cluster, &store, "tune", &["--keep", "1", "--resume-from", "base:50"])
        .expect(0)
        .says(&["job tune resumes from base step 50 (run "]);
    assert_eq!(parameters(&cluster, "tune"), expect);
    assert_ne!(job(&cluster, "tune")["run"], base);
    // A copied store has the same run; a path into it is another folder.
    let copied = cluster.folder("copied");
    copy_folder(&store, &copied);
    let by_path = format!("{}:70", copied.join("base").display());
    submit(&cluster, &store, "path", &["--resume-from", &by_path]).expect(0);
    assert_eq!(parameters(&cluster, "path"), expect);
    let after: Vec<_> = tree(&store.join("base")).into_keys().collect();
    assert_eq!(
        after,
        before.into_keys().collect::<Vec<_>>(),
        "the source is left alone"
    );
    // The mirror in a new store, under the run's own name and by a controller that knows the name.
    let restored = cluster.folder("restored");
    until("the mirror to have step 100", LIMIT, || {
        let found = rankguard(&["checkpoint", "ls", "--dir", &url, "--format", "json"]);
        let found: Vec<Value> = serde_json::from_str(&found.stdout).ok()?;
        found.iter().any(|folder| folder["step"] == 100).then_some(())
    });
    let by_url = format!("{url}:100");
    submit(&cluster, &restored, "base", &["--resume-from", &by_url]).expect(0);
    assert_eq!(job(&cluster, "base")["run"], base);
    assert_eq!(parameters(&cluster, "base"), expect);
    for store in [&store, &restored] {
        rankguard(&["checkpoint", "verify", "--dir", path(store)]).expect(0);
    }
}

#[test]
fn an_import_is_a_start_only_where_it_is_named() {
    let cluster = Cluster::start(1);
    let store = cluster.folder("store");
    submit(&cluster, &store, "base", &["--keep", "20"]).expect(0);
    let exported = cluster.dir.path().join("exported");
    let words = [
        "checkpoint",
        "export",
        "--dir",
        path(&store),
        "--job",
        "base",
        "50",
        "--out",
    ];
    rankguard(&[&words[..], &[path(&exported)]].concat()).expect(0);
    let import = |job: &str| {
        let words = [
            "checkpoint",
            "import",
            path(&exported),
            "--dir",
            path(&store),
            "--job",
            job,
        ];
        rankguard(&[&words[..], &["--step", "1000", "--ranks", "1"]].concat())
    };
    import("base").expect(2).says(&["cannot import into the folder of run"]);
    assert_eq!(import("x").code, Some(0));
    let before = tree(&store.join("x"));
    submit(&cluster, &store, "x", &["--keep", "1"])
        .expect(2)
        .says(&["without the record of a run, newest step 1000"]);
    assert_eq!(tree(&store.join("x")), before);
    submit(
        &cluster,
        &store,
        "x",
        &["--keep", "1", "--detach", "--resume-from", "x"],
    )
    .expect(0);
    let view = job(&cluster, "x");
    assert_eq!(view["resumed_from"]["step"], 1000);
    assert!(view["run"].is_string());
    cancel(&cluster, "x");
    assert!(
        store.join("x/000000001000-g1/MANIFEST").exists(),
        "it is the only start"
    );
}

#[test]
fn rg_5_a_job_of_a_lost_journal_is_followed_to_its_end() {
    let mut cluster = Cluster::start(1);
    let store = cluster.folder("store");
    let mut words = words(&cluster, &store, "train", &["--detach"]);
    for word in words.iter_mut().filter(|word| word.starts_with("--step-ms-min")) {
        "--step-ms-min=150".clone_into(word);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    rankguard(&words).expect(0);
    wait_committed(&cluster, "train", 10);
    replace_controller_of_running(&mut cluster);
    let step = || job(&cluster, "train")["step"].as_u64();
    let first = until("a step after the new controller's start", LIMIT, step);
    until("the steps to go on", LIMIT, || step().filter(|step| *step > first + 5));
    let ended = until("the end to be reported", LIMIT, || {
        let job = job(&cluster, "train");
        (job["state"] == "finished").then_some(job)
    });
    let reason = ended["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("1 rank ended with exit code 0"), "{ended:#}");
    assert_eq!(ended["step"].as_u64(), Some(STEPS), "{ended:#}");
}

/// Replaces the controller and its journal while the agent has ranks, so that its node is not free.
fn replace_controller_of_running(cluster: &mut Cluster) {
    let dir = cluster.dir.path().to_owned();
    cluster.controller.kill();
    fs::remove_dir_all(dir.join("controller")).expect("removed");
    cluster.controller = Cluster::controller(&dir, &cluster.address);
    until("the job to be shown", LIMIT, || {
        let words = ["status", "jobs", "--controller", &cluster.address, "--format", "json"];
        let jobs: Value = serde_json::from_str(&rankguard(&words).stdout).ok()?;
        (jobs[0]["spec"]["id"] == "train").then_some(())
    });
}

#[test]
fn a_resumption_reports_the_newer_checkpoints_that_it_passes_over() {
    let cluster = Cluster::start(1);
    let store = cluster.folder("store");
    submit(&cluster, &store, "train", &["--keep", "20"]).expect(0);
    // The newest lacks its shard, the one before is damaged, and one was never committed.
    let folder = |step: u64| store.join("train").join(format!("{step:012}-g1"));
    fs::remove_file(folder(110).join("MANIFEST")).expect("it is committed");
    fs::write(folder(100).join("rank-00000.index"), "damaged").expect("written");
    let ran = submit(&cluster, &store, "train", &["--resume-from", "train"]).expect(0);
    let ran = ran.says(&[
        "job train resumes from train step 90",
        "warning: job train passed over step 110 of generation 1: not committed",
        "warning: job train passed over step 100 of generation 1: ",
    ]);
    assert!(!ran.stderr.contains("passed over step 80"), "{}", ran.stderr);
    let passed_over = job(&cluster, "train")["passed_over"].clone();
    assert_eq!(passed_over.as_array().map(Vec::len), Some(2), "{passed_over:#}");
    rankguard(&["status", "--all", "--controller", &cluster.address])
        .expect(0)
        .says(&["job train passed over step 110 of generation 1"]);
}

#[test]
fn a_job_without_a_usable_checkpoint_ends_with_the_verdict_about_it() {
    let mut cluster = Cluster::start(1);
    let store = cluster.folder("store");
    submit(&cluster, &store, "train", &["--keep", "1"]).expect(0);
    // A new agent has no image in memory.
    cluster.agents.clear();
    let agent = Cluster::agent(cluster.dir.path(), &cluster.address, "n1");
    cluster.agents.push(agent);
    for (file, _) in tree(&store.join("train")) {
        if file.extension().is_some_and(|ending| ending == "shard") {
            let mut bytes = fs::read(&file).expect("a shard");
            bytes.iter_mut().step_by(64).for_each(|byte| *byte ^= 1);
            fs::write(&file, bytes).expect("written");
        }
    }
    let ran = submit(&cluster, &store, "train", &["--resume-from", "train"]).expect(3);
    ran.says(&[
        "job train was stopped: none of its committed checkpoints can be used",
        "verdict: checkpoint-corrupt",
    ]);
    let cases = cluster.ask(&["cases", "--format", "json"]);
    let case = cases.as_array().and_then(|cases| cases.first()).expect("a case");
    let outcome = case["outcome"].as_str().unwrap_or_default();
    assert!(outcome.starts_with("the job was stopped: none of its"), "{case:#}");
}

/// Ends an agent and the images in its memory, and starts another one in its place.
fn replace_agent(cluster: &mut Cluster) {
    cluster.agents.clear();
    let agent = Cluster::agent_of(2, "test.toml", cluster.dir.path(), &cluster.address, "n1");
    cluster.agents.push(agent);
    until("the agent to join", LIMIT, || {
        let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
        (nodes[0]["state"] == "healthy").then_some(())
    });
}

/// A job whose newest checkpoint lost a shard, or has wrong bytes in one, goes on from it where parity covers that, and
/// from an older one where it does not.
#[test]
fn a_job_restores_a_damaged_checkpoint_through_its_parity() {
    let mut cluster = Cluster::start_of(1, 2, "");
    let store = cluster.folder("store");
    let two = ["--ranks-per-node", "2", "--keep", "20"];
    submit(&cluster, &store, "train", &two).expect(0);
    let trained = parameters(&cluster, "train");
    let resume = [&two[..], &["--resume-from", "train"]].concat();
    let protect = [
        "checkpoint",
        "parity",
        "--dir",
        path(&store),
        "--group-size",
        "2",
        "--parity",
        "1",
    ];
    rankguard(&protect).expect(0);
    let shard = |folder: &str, rank: u32| store.join("train").join(folder).join(format!("rank-{rank:05}.shard"));
    let newest = "000000000110-g1";
    replace_agent(&mut cluster);
    fs::remove_file(shard(newest, 1)).expect("a shard");
    let ran = submit(&cluster, &store, "train", &resume).expect(0);
    let ran = ran.says(&["job train resumes from train step 110"]);
    assert!(!ran.stderr.contains("passed over"), "{}", ran.stderr);
    assert_eq!(parameters(&cluster, "train"), trained);
    let cases = cluster.ask(&["cases", "--format", "json"]);
    assert_eq!(cases.as_array().map(Vec::len), Some(0), "{cases:#}");
    // Wrong bytes in the other shard as well are more than one parity rebuilds.
    replace_agent(&mut cluster);
    let mut bytes = fs::read(shard(newest, 0)).expect("a shard");
    bytes.iter_mut().step_by(64).for_each(|byte| *byte ^= 1);
    fs::write(shard(newest, 0), bytes).expect("written");
    let ran = submit(
        &cluster,
        &store,
        "train",
        &[&two[..], &["--resume-from", "train:110"]].concat(),
    )
    .expect(0);
    assert_eq!(parameters(&cluster, "train"), trained, "{}", ran.stderr);
    let job = job(&cluster, "train");
    assert!(
        job["generation"].as_u64() > Some(3),
        "another generation from an older step: {job:#}"
    );
}

/// Two controllers claim one folder at one time: one has it, the other is refused, and each checkpoint is of the one.
#[test]
fn of_two_controllers_that_claim_a_folder_one_has_it() {
    let clusters = [Cluster::start(1), Cluster::start(1)];
    let store = clusters[0].folder("store");
    let children: Vec<_> = clusters
        .iter()
        .map(|cluster| {
            let words = words(cluster, &store, "train", &["--detach"]);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            command(&words).spawn().expect("the program starts")
        })
        .collect();
    let mut codes: Vec<_> = children.into_iter().map(|child| finish(child, LIMIT).code).collect();
    let winner = codes.iter().position(|code| *code == Some(0)).expect("one has it");
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(2)]);
    wait_committed(&clusters[winner], "train", 20);
    cancel(&clusters[winner], "train");
    let run = job(&clusters[winner], "train")["run"].clone();
    assert!(
        ls(&store, "train")
            .iter()
            .all(|folder| folder["state"] != "committed" || folder["run"] == run)
    );
}

/// The controller is killed after its job has claimed the folder and before anything is committed there.
#[test]
fn a_claim_without_a_commit_is_resumed_by_name() {
    let mut cluster = Cluster::start(1);
    let store = cluster.folder("store");
    submit(&cluster, &store, "train", &["--detach"]).expect(0);
    assert!(store.join("train/RUN").exists() && store.join("train/ATTEMPT-g1").exists());
    replace_controller(&mut cluster);
    submit(&cluster, &store, "train", &[])
        .expect(2)
        .says(&["--resume-from train"]);
    submit(&cluster, &store, "train", &["--resume-from", "train"]).expect(0);
    assert_eq!(parameters(&cluster, "train"), undisturbed(&cluster));
}
