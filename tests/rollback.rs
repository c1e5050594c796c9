//! State directories that are restored from a copy: evidence is delivered or named as lost (RG-4), and a generation number is
//! given once (RG-3).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use crate::support::cluster::{Cluster, LIMIT, text_of};
use crate::support::{copy_folder, logs, nodes, rankguard, until};
use rankguard_controller::journal;
use rankguard_model::{Evidence, EvidenceBody};

/// What an agent reports of a job's log that was there before it.
const FIRST_START: &str = "before the agent's first start";

/// A controller and an agent that follows a log.
struct Site {
    cluster: Cluster,
    log: PathBuf,
    words: Vec<String>,
}

impl Site {
    fn start() -> Self {
        let mut cluster = Cluster::controller_alone();
        let log = cluster.dir.path().join("job.out");
        fs::write(&log, "step 0 loss 3.0\n").expect("written");
        let words = vec!["--job-log".to_owned(), text_of(&log).to_owned()];
        cluster.start_agent(&[&words[0], &words[1]]);
        let site = Self { cluster, log, words };
        until("the log to be followed", LIMIT, || {
            let is_first =
                |body: &EvidenceBody| matches!(body, EvidenceBody::Gap { what, .. } if what.contains(FIRST_START));
            site.evidence().iter().any(|one| is_first(&one.body)).then_some(())
        });
        site
    }

    fn state_dir(&self, part: &str) -> PathBuf {
        self.cluster.dir.path().join(part)
    }

    /// Lines that were never written before, one for each word.
    fn write(&self, words: &[&str]) {
        let mut log = File::options().append(true).open(&self.log).expect("the log");
        for word in words {
            let line =
                format!("step 1 loss 2.0\nFileNotFoundError: [Errno 2] No such file or directory: '/data/{word}'\n");
            log.write_all(line.as_bytes()).expect("written");
        }
    }

    fn evidence(&self) -> Vec<Evidence> {
        let mut all = Vec::new();
        let read = journal::evidence(&self.state_dir("controller"), |one| {
            all.push(one.expect("a sound entry"));
            true
        });
        read.expect("a journal");
        all
    }

    /// How often each line is in the controller's journal.
    fn found(&self) -> BTreeMap<String, u32> {
        let mut found = BTreeMap::new();
        for one in self.evidence() {
            let EvidenceBody::Line { text, repeats, .. } = &one.body else {
                continue;
            };
            if let Some((_, rest)) = text.split_once("directory: '/data/") {
                *found.entry(rest.trim_end_matches('\'').to_owned()).or_default() += repeats;
            }
        }
        found
    }

    fn journalled(&self, words: &[&str]) {
        let what = format!("{words:?} in the journal");
        until(&what, LIMIT, || {
            let found = self.found();
            words.iter().all(|word| found.contains_key(*word)).then_some(())
        });
    }

    /// Everything that was recorded so far is acknowledged.
    fn settled(&self) {
        until("acknowledged evidence", LIMIT, || {
            let spool = &self.cluster.view()["spool"];
            (spool["acknowledged"] == spool["last"]).then_some(())
        });
    }

    fn kill_agent(&mut self) {
        self.cluster.agent.as_mut().expect("an agent").kill();
    }

    fn start_agent(&mut self) {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        self.cluster.start_agent(&words);
    }

    fn kill_controller(&mut self) {
        self.cluster.controller.as_mut().expect("a controller").kill();
    }

    fn start_controller(&mut self) {
        let address = self.cluster.address.clone();
        self.cluster.start_controller(&address);
    }

    fn copy(&self, part: &str) {
        copy_folder(&self.state_dir(part), &self.state_dir(&format!("{part}-copy")));
    }

    fn restore(&self, part: &str) {
        fs::remove_dir_all(self.state_dir(part)).expect("removed");
        copy_folder(&self.state_dir(&format!("{part}-copy")), &self.state_dir(part));
    }

    /// Numbers only grow, and each up to the newest is that of one piece of evidence or lies in a gap that names it.
    fn every_number_is_there_or_named(&self) {
        let mut newest = 0;
        for one in self.evidence() {
            let lost = match one.body {
                EvidenceBody::Gap { lost, .. } => lost.unwrap_or(1),
                _ => 1,
            };
            let seq = one.id.seq.0;
            assert!(
                seq == newest + 1 || seq == newest + lost,
                "{seq} after {newest}: {one:?}"
            );
            newest = seq;
        }
    }

    fn gaps(&self, part: &str) -> Vec<String> {
        let what = |one: Evidence| match one.body {
            EvidenceBody::Gap { what, .. } => Some(what),
            _ => None,
        };
        let gaps = self.evidence().into_iter().filter_map(what);
        gaps.filter(|what| what.contains(part)).collect()
    }
}

/// The words that were found another number of times than once.
fn not_once(found: &BTreeMap<String, u32>, words: &[&str]) -> Vec<String> {
    let count = |word: &&str| found.get(*word).copied().unwrap_or_default();
    let wrong = words.iter().filter(|word| count(word) != 1);
    wrong.map(|word| format!("{word}: {}", count(word))).collect()
}

/// An agent's directory is restored; new evidence is recorded before or after it joins. The copy is made while the agent runs
/// or after it has ended.
fn restored_agent(before_join: bool, while_it_runs: bool) {
    let mut site = Site::start();
    site.write(&["aa", "ab", "ac"]);
    site.journalled(&["aa", "ab", "ac"]);
    site.settled();
    if while_it_runs {
        site.copy("agent");
    } else {
        site.kill_agent();
        site.copy("agent");
        site.start_agent();
    }
    site.write(&["ba", "bb", "bc", "bd"]);
    site.journalled(&["ba", "bb", "bc", "bd"]);
    site.kill_agent();
    if before_join {
        site.kill_controller();
    }
    site.restore("agent");
    site.start_agent();
    site.write(&["ca", "cb", "cc", "cd", "ce", "cf"]);
    if before_join {
        until("new evidence in the restored spool", LIMIT, || {
            (site.cluster.view()["spool"]["last"].as_u64()? > 12).then_some(())
        });
        site.start_controller();
    }
    site.journalled(&["ca", "cb", "cc", "cd", "ce", "cf"]);
    site.every_number_is_there_or_named();
    let found = site.found();
    let once = ["aa", "ab", "ac", "ca", "cb", "cc", "cd", "ce", "cf"];
    assert_eq!(not_once(&found, &once), Vec::<String>::new(), "{found:?}");
    // The readers of the copy stand where they stood when it was made: what the original delivered is read once more.
    assert!(
        ["ba", "bb", "bc", "bd"].iter().all(|word| found[*word] <= 2),
        "{found:?}"
    );
    assert_eq!(site.gaps("was restored from a copy").len(), 1, "{:?}", site.gaps(""));
}

#[test]
fn rg_4_a_restored_agent_with_evidence_before_its_join_loses_nothing() {
    restored_agent(true, false);
}

#[test]
fn rg_4_a_restored_agent_with_evidence_after_its_join_loses_nothing() {
    restored_agent(false, false);
}

#[test]
fn rg_4_a_copy_of_a_running_agent_is_recognised() {
    restored_agent(true, true);
}

/// A controller's journal is restored; new evidence is recorded before or after the agent joins.
fn restored_controller(before_join: bool) {
    let mut site = Site::start();
    site.write(&["aa", "ab", "ac"]);
    site.journalled(&["aa", "ab", "ac"]);
    site.settled();
    site.kill_controller();
    site.copy("controller");
    site.start_controller();
    site.write(&["ba", "bb", "bc", "bd"]);
    site.journalled(&["ba", "bb", "bc", "bd"]);
    site.settled();
    site.kill_controller();
    site.restore("controller");
    if before_join {
        let recorded = |site: &Site| site.cluster.view()["spool"]["last"].as_u64();
        let before = recorded(&site);
        site.write(&["ca", "cb"]);
        until("evidence without a controller", LIMIT, || {
            (recorded(&site) > before).then_some(())
        });
    }
    site.start_controller();
    if !before_join {
        site.write(&["ca", "cb"]);
    }
    site.journalled(&["ca", "cb"]);
    site.every_number_is_there_or_named();
    let found = site.found();
    assert_eq!(not_once(&found, &["aa", "ab", "ac", "ca", "cb"]), Vec::<String>::new());
    // The journal has lost these, and names their numbers.
    assert_eq!(
        site.gaps("it never arrived, or the journal is an older copy").len(),
        1,
        "{:?}",
        site.gaps("")
    );
    let said = logs(site.cluster.dir.path());
    assert_eq!(
        said.matches("the journal was restored from a copy").count(),
        1,
        "{said}"
    );
}

#[test]
fn rg_4_a_restored_controller_names_what_it_lost_before_the_join() {
    restored_controller(true);
}

#[test]
fn rg_4_a_restored_controller_names_what_it_lost_after_the_join() {
    restored_controller(false);
}

/// Both are restored from copies of one moment: the readers read again what both have lost.
fn both_restored(before_join: bool) {
    let mut site = Site::start();
    site.write(&["aa", "ab", "ac"]);
    site.journalled(&["aa", "ab", "ac"]);
    site.settled();
    site.kill_controller();
    site.kill_agent();
    site.copy("controller");
    site.copy("agent");
    site.start_controller();
    site.start_agent();
    site.write(&["ba", "bb", "bc", "bd"]);
    site.journalled(&["ba", "bb", "bc", "bd"]);
    site.kill_controller();
    site.kill_agent();
    site.restore("controller");
    site.restore("agent");
    if !before_join {
        site.start_controller();
    }
    site.start_agent();
    site.write(&["ca", "cb"]);
    if before_join {
        until("evidence without a controller", LIMIT, || {
            let spool = site.cluster.view()["spool"].clone();
            (spool["last"].as_u64()? > spool["acknowledged"].as_u64()? + 4).then_some(())
        });
        site.start_controller();
    }
    site.journalled(&["ba", "bb", "bc", "bd", "ca", "cb"]);
    site.every_number_is_there_or_named();
    let all = ["aa", "ab", "ac", "ba", "bb", "bc", "bd", "ca", "cb"];
    assert_eq!(not_once(&site.found(), &all), Vec::<String>::new());
}

#[test]
fn rg_4_both_restored_from_one_moment_read_again_before_the_join() {
    both_restored(true);
}

#[test]
fn rg_4_both_restored_from_one_moment_read_again_after_the_join() {
    both_restored(false);
}

/// Processes of a job: each writes its generation and process id to a file, and sleeps.
struct Processes {
    file: PathBuf,
}

impl Processes {
    /// Starts the job with a word that distinguishes its command.
    fn submit(cluster: &Cluster, word: &str) -> Self {
        let file = cluster.dir.path().join("processes");
        let script = format!(
            "echo \"$RANKGUARD_GENERATION $$ {word}\" >> {}; exec sleep 300",
            file.display()
        );
        let words = ["run", "--detach", "--name", "train", "--", "sh", "-c", &script];
        rankguard(&cluster.args(&words)).expect(0);
        Self { file }
    }

    /// Generation, process id and word of each that ever ran.
    fn all(&self) -> Vec<(u64, u32, String)> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let parse = |line: &str| {
            let mut parts = line.split(' ');
            let generation = parts.next()?.parse().ok()?;
            let pid = parts.next()?.parse().ok()?;
            Some((generation, pid, parts.next()?.to_owned()))
        };
        text.lines().filter_map(parse).collect()
    }

    fn living(&self) -> Vec<(u64, u32, String)> {
        let lives = |pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
            state.is_some_and(|state| state != 'Z' && state != 'X')
        };
        self.all().into_iter().filter(|(_, pid, _)| lives(*pid)).collect()
    }

    /// Waits until one process lives, of this generation and word.
    fn settle_on(&self, generation: u64, word: &str) -> u32 {
        until(&format!("one process of generation {generation}"), LIMIT, || {
            let living = self.living();
            match &living[..] {
                [(found, pid, with)] if *found == generation && with == word => Some(*pid),
                _ => None,
            }
        })
    }

    fn every_generation_is_one_process(&self) {
        let all = self.all();
        let generations: BTreeSet<u64> = all.iter().map(|(generation, ..)| *generation).collect();
        assert_eq!(generations.len(), all.len(), "a generation was begun twice: {all:?}");
    }
}

fn generation(cluster: &Cluster) -> Option<u64> {
    let jobs = cluster.ask(&["status", "jobs", "--format", "json"]);
    jobs[0]["generation"].as_u64()
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a process id"), rustix::process::Signal::KILL).expect("it runs");
}

/// A job goes on in a later generation, and then the journal is restored that knows only the first.
#[test]
fn rg_3_a_restored_controller_gives_no_generation_twice() {
    let mut cluster = Cluster::start(1, &[]);
    let processes = Processes::submit(&cluster, "one");
    let first = processes.settle_on(1, "one");
    let state = cluster.dir.path().join("controller");
    let copy = cluster.dir.path().join("copy");
    cluster.controller.as_mut().expect("a controller").kill();
    copy_folder(&state, &copy);
    let address = cluster.address.clone();
    cluster.start_controller(&address);
    kill(first);
    processes.settle_on(2, "one");
    cluster.controller.as_mut().expect("a controller").kill();
    fs::remove_dir_all(&state).expect("removed");
    copy_folder(&copy, &state);
    cluster.start_controller(&address);
    let pid = processes.settle_on(3, "one");
    until("the controller to know the generation", LIMIT, || {
        (generation(&cluster) == Some(3)).then_some(())
    });
    processes.every_generation_is_one_process();
    let said = logs(cluster.dir.path());
    assert!(said.contains("the journal was restored from a copy"), "{said}");
    kill(pid);
    processes.settle_on(4, "one");
}

/// A new controller with the agents of an earlier one: a name that those know starts above what they were ordered.
#[test]
fn rg_3_a_new_controller_starts_a_known_job_above_its_generations() {
    let mut cluster = Cluster::start(1, &[]);
    let processes = Processes::submit(&cluster, "one");
    let first = processes.settle_on(1, "one");
    kill(first);
    processes.settle_on(2, "one");
    cluster.controller.as_mut().expect("a controller").kill();
    fs::remove_dir_all(cluster.dir.path().join("controller")).expect("removed");
    let address = cluster.address.clone();
    cluster.start_controller(&address);
    until("the agent to join", LIMIT, || {
        let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
        (nodes[0]["state"] == "healthy").then_some(())
    });
    // The ranks of the other journal run on, and their name is in use, until an operator ends them.
    let job = cluster.ask(&["status", "jobs", "--format", "json"])[0].clone();
    assert!(job["state"] == "running" && job["generation"] == 2, "{job:#}");
    let cancelled = rankguard(&cluster.args(&["cancel", "train"]));
    assert!(matches!(cancelled.code, Some(0 | 1)), "{}", cancelled.stderr);
    let processes = Processes::submit(&cluster, "two");
    processes.settle_on(3, "two");
    processes.every_generation_is_one_process();
    let cases = cluster.ask(&["cases", "--format", "json"]);
    assert_eq!(cases.as_array().map(Vec::len), Some(0), "{cases:#}");
    let said = logs(cluster.dir.path());
    assert!(said.contains("was with a controller of another journal"), "{said}");
}

/// The restored controller plans before the agent joins, and gives a number that the agent's ranks carry: those are not taken
/// for the new ones.
#[test]
fn rg_3_ranks_of_a_lost_plan_are_not_taken_for_those_of_a_new_one() {
    let mut cluster = Cluster::start(1, &[]);
    let state = cluster.dir.path().join("controller");
    let copy = cluster.dir.path().join("copy");
    cluster.controller.as_mut().expect("a controller").kill();
    copy_folder(&state, &copy);
    let address = cluster.address.clone();
    cluster.start_controller(&address);
    until("the agent to join", LIMIT, || {
        (cluster.view()["uplink"]["connected"] == true).then_some(())
    });
    let processes = Processes::submit(&cluster, "one");
    processes.settle_on(1, "one");
    let agent = cluster.agent.as_ref().expect("an agent");
    agent.signal(rustix::process::Signal::STOP);
    cluster.controller.as_mut().expect("a controller").kill();
    fs::remove_dir_all(&state).expect("removed");
    copy_folder(&copy, &state);
    cluster.start_controller(&address);
    let processes = Processes::submit(&cluster, "two");
    // Nothing is placed on a node that has not joined, so the number of the lost plan is known before the first plan.
    until("the job", LIMIT, || (generation(&cluster) == Some(0)).then_some(()));
    cluster
        .agent
        .as_ref()
        .expect("an agent")
        .signal(rustix::process::Signal::CONT);
    processes.settle_on(2, "two");
    processes.every_generation_is_one_process();
}

/// All that knew of the second generation is restored, and what it has written stands in the store: its number is not used
/// again.
#[test]
fn rg_3_a_generation_that_wrote_to_the_store_is_not_begun_again() {
    let mut cluster = nodes::Cluster::start(1);
    let dir = cluster.dir.path().to_owned();
    let commit_of = |cluster: &nodes::Cluster, generation: u64| {
        until(&format!("a commit of generation {generation}"), nodes::LIMIT, || {
            let job = cluster.job();
            nodes::newest(&job, |view| view["generation"] == generation).map(drop)
        });
    };
    let parts = ["controller", "n1"];
    let kill = |cluster: &mut nodes::Cluster| {
        cluster.controller.kill();
        cluster.agents.clear();
    };
    let start = |cluster: &mut nodes::Cluster| {
        cluster.controller = nodes::Cluster::controller(&dir, &cluster.address);
        cluster.agents.push(nodes::Cluster::agent(&dir, &cluster.address, "n1"));
        until("the controller to answer", nodes::LIMIT, || {
            let asked = rankguard(&["status", "jobs", "--controller", &cluster.address]);
            (asked.code == Some(0)).then_some(())
        });
    };
    cluster.train("1", "20", &[]);
    commit_of(&cluster, 1);
    kill(&mut cluster);
    for part in parts {
        copy_folder(&dir.join(part), &dir.join(format!("{part}-copy")));
    }
    start(&mut cluster);
    commit_of(&cluster, 2);
    kill(&mut cluster);
    for part in parts {
        fs::remove_dir_all(dir.join(part)).expect("removed");
        copy_folder(&dir.join(format!("{part}-copy")), &dir.join(part));
    }
    start(&mut cluster);
    commit_of(&cluster, 3);
    assert_eq!(cluster.job()["generation"], 3);
    assert_eq!(cluster.job()["void_shards"], 0);
}

/// A journal is restored that lacks the newest commits and the newest generation of a job on two nodes: the job starts again
/// when both have joined, and from the newest commit of its store.
#[test]
fn rg_1_a_restored_controller_goes_on_from_the_newest_commit_of_the_store() {
    let mut cluster = nodes::Cluster::start(2);
    let dir = cluster.dir.path().to_owned();
    let state = dir.join("controller");
    let step_of = |view: &serde_json::Value| view["step"].as_u64();
    // The controller may still be starting.
    let job_of = |cluster: &nodes::Cluster| {
        let ran = rankguard(&["status", "jobs", "--format", "json", "--controller", &cluster.address]);
        let jobs: serde_json::Value = serde_json::from_str(&ran.stdout).ok()?;
        Some(jobs[0].clone())
    };
    let commit_after = |cluster: &nodes::Cluster, after: Option<u64>| {
        until("a later commit", nodes::LIMIT, || {
            nodes::newest(&job_of(cluster)?, |view| step_of(view) > after).and_then(step_of)
        })
    };
    let commit_of = |cluster: &nodes::Cluster, generation: u64| {
        until(&format!("a commit of generation {generation}"), nodes::LIMIT, || {
            nodes::newest(&job_of(cluster)?, |view| view["generation"] == generation).map(drop)
        });
    };
    let restart = |cluster: &mut nodes::Cluster| {
        cluster.controller = nodes::Cluster::controller(&dir, &cluster.address);
    };
    let store = cluster.train("2", "20", &[]);
    let before = commit_after(&cluster, None);
    cluster.controller.kill();
    copy_folder(&state, &dir.join("copy"));
    restart(&mut cluster);
    commit_after(&cluster, Some(before + 20));
    // The ranks of generation 2 start from a commit that the copy lacks.
    let agent = cluster.agents.pop();
    drop(agent);
    cluster.agents.push(nodes::Cluster::agent(&dir, &cluster.address, "n2"));
    commit_of(&cluster, 2);
    cluster.controller.kill();
    let committed = fs::read_dir(store.join("train")).expect("the job's folder").flatten();
    let committed = committed.filter(|folder| folder.path().join("MANIFEST").exists());
    let newest = committed.filter_map(|folder| folder.file_name().to_str()?.get(..12)?.parse::<u64>().ok());
    let newest = newest.max().expect("commits");
    fs::remove_dir_all(&state).expect("removed");
    copy_folder(&dir.join("copy"), &state);
    restart(&mut cluster);
    commit_of(&cluster, 3);
    let job = cluster.job();
    assert_eq!(job["generation"], 3, "one restart suffices: {job:#}");
    let said = fs::read_to_string(dir.join("controller.log")).unwrap_or_default();
    let wanted = format!("which this journal lacks; the newest is of step {newest}");
    assert!(said.contains(&wanted), "{wanted}: {said}");
    let history = cluster.ask(&["status", "jobs", "--history", "--format", "json"]);
    let points = history[0]["progress"].as_array().into_iter().flatten();
    let steps = points.filter(|point| point["generation"] == 3).filter_map(step_of);
    assert_eq!(steps.min(), Some(newest + 1), "{before} {history:#}");
    let shown = rankguard(&["status", "--controller", &cluster.address]).expect(0);
    assert!(
        shown
            .stderr
            .contains("warning: the history has a gap: the journal was restored from a copy"),
        "{}",
        shown.stderr
    );
    cluster.cancel();
}
