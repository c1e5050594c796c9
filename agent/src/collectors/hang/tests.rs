#![allow(clippy::unwrap_used)]

use std::fs;

use rankguard_model::{Classification, NodeId};

use super::*;
use crate::collectors::testing::{rank, run};

const FLOOR: Duration = Duration::from_secs(30);

struct Scene {
    folder: tempfile::TempDir,
    hangs: HangCollector,
    seen: ObservedRanks,
    start: Instant,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = NodeId::from("a");
        let intake = EvidenceIntake::new(node.clone());
        let roster = RankRoster::new(node);
        let hangs = HangCollector {
            proc_root: folder.path().to_owned(),
            stack_process: Vec::new(),
            interval: Duration::from_secs(1),
            floor: FLOOR,
            flight: FlightDumps::new(roster.clone(), intake.clone()),
            ras: ras::RasClient::new(intake.clone(), roster.clone(), StopFlag::default()),
            intake,
            roster,
            stop: StopFlag::default(),
        };
        for (number, pid) in [(0, 70), (1, 71)] {
            run(&hangs.roster, &rank(number), pid);
        }
        let scene = Self {
            folder,
            hangs,
            seen: ObservedRanks::default(),
            start: Instant::now(),
        };
        scene.process(70, 'S', "futex_wait_queue", 5);
        scene.process(71, 'S', "futex_wait_queue", 5);
        scene
    }

    fn process(&self, pid: u32, state: char, wchan: &str, switches: u64) {
        let own = self.folder.path().join(pid.to_string());
        fs::create_dir_all(own.join("task").join(pid.to_string())).unwrap();
        let stat = format!("{pid} (python3) {state} 1 {pid}\n");
        fs::write(own.join("stat"), &stat).unwrap();
        fs::write(own.join("task").join(pid.to_string()).join("stat"), &stat).unwrap();
        fs::write(own.join("wchan"), wchan).unwrap();
        let status = format!("Name:\tpython3\nState:\t{state} (x)\nvoluntary_ctxt_switches:\t{switches}\n");
        fs::write(own.join("status"), status).unwrap();
    }

    fn step(&self, number: u32, step: u64, at_s: u64) {
        let at = self.start + Duration::from_secs(at_s);
        self.hangs.roster.stepped_at(&rank(number), Step(step), at);
    }

    fn look(&mut self, at_s: u64) -> Vec<PendingEvidence> {
        let now = self.start + Duration::from_secs(at_s);
        self.hangs.look(&mut self.seen, now);
        let mut told = self.hangs.intake.drain();
        told.sort_by_key(|sighting| sighting.entity.clone());
        told
    }
}

/// Returns the evidence if it is a single line.
fn the_only_line(told: &[PendingEvidence]) -> (&String, &Vec<Classification>) {
    let [
        PendingEvidence {
            body: EvidenceBody::Line { text, .. },
            marks,
            ..
        },
    ] = told
    else {
        panic!("{told:?}")
    };
    (text, marks)
}

#[test]
fn a_rank_that_is_silent_beyond_its_baseline_is_told_once_with_where_it_stands() {
    let mut scene = Scene::new();
    for step in 0..20 {
        scene.step(0, step, step);
        scene.step(1, step, step);
    }
    assert_eq!(scene.look(45).len(), 0);
    // One rank continues; the other is stopped.
    scene.step(0, 20, 48);
    scene.process(71, 'T', "do_signal_stop", 5);
    let told = scene.look(50);
    assert_eq!(told.len(), 1, "{told:?}");
    let EvidenceBody::Line { text, context, .. } = &told[0].body else {
        panic!("{told:?}")
    };
    assert_eq!(
        text,
        "no step for 31.0 s after step 19; its steps take 1.000 s, and a silence of more than 30.0 s is reported. It is stopped \
         in do_signal_stop; its process is stopped by a signal (state T), SIGCONT lets it go on"
    );
    assert_eq!(context[0], "stopped in do_signal_stop");
    assert_eq!(told[0].entity.rank(), Some(rank(1).rank));
    let fields = &told[0].marks[0].fields;
    assert_eq!((fields["step"].as_str(), fields["silent_ms"].as_str()), ("19", "31000"));
    assert_eq!(scene.look(60).len(), 0);
    // It continued and is silent again: a new report.
    scene.step(1, 20, 61);
    assert_eq!(scene.look(62).len(), 0);
    assert_eq!(scene.look(200).len(), 2);
}

/// The stack of a stopped process may take as long as its deadline.
#[test]
fn a_silence_is_dated_before_the_stack_is_read() {
    let mut scene = Scene::new();
    for step in 0..20 {
        scene.step(1, step, step);
    }
    scene.process(71, 'T', "do_signal_stop", 5);
    let folder = tempfile::tempdir().expect("a folder");
    let read_at = folder.path().join("read-at");
    let command = [OsString::from("sh"), "-c".into(), "date +%s%N > \"$0\"".into()];
    scene.hangs.stack_process = command.into_iter().chain([read_at.clone().into()]).collect();
    let told = scene.look(50);
    assert_eq!(told.len(), 1, "{told:?}");
    let read_at: i64 = std::fs::read_to_string(read_at)
        .expect("written")
        .trim()
        .parse()
        .expect("a time");
    assert!(told[0].at.0 <= read_at, "{told:?} {read_at}");
}

#[test]
fn a_rank_that_has_said_that_it_is_done_may_be_silent() {
    let mut scene = Scene::new();
    for step in 0..20 {
        scene.step(0, step, step);
    }
    scene.hangs.roster.finished(&rank(0));
    assert_eq!(scene.look(4_000).len(), 0);
}

#[test]
fn a_rank_that_nothing_wakes_is_told_and_one_that_is_busy_with_a_disk_is_not() {
    let mut scene = Scene::new();
    scene.process(70, 'D', "nfs_wait_bit_killable", 5);
    let mut told = Vec::new();
    for second in 0..40 {
        scene.process(71, 'D', "folio_wait_bit", second);
        told.extend(scene.look(second));
    }
    assert_eq!(told.len(), 1, "{told:?}");
    let EvidenceBody::Line { text, context, .. } = &told[0].body else {
        panic!("{told:?}")
    };
    assert_eq!(
        text,
        "the rank is blocked in nfs_wait_bit_killable for 15 s, and no signal reaches it"
    );
    assert_eq!(context, &["thread 70 (python3)"]);
    assert_eq!(told[0].marks[0].class.as_str(), "hung-task");
}

#[test]
fn a_rank_that_waits_for_a_file_names_where_it_lies_and_is_told_when_it_is_woken() {
    let mut scene = Scene::new();
    let own = scene.folder.path().join("70");
    fs::write(own.join("mountinfo"), "2 1 7:0 / /scratch rw - ext4 /dev/loop0 rw\n").unwrap();
    fs::create_dir_all(own.join("fd")).unwrap();
    std::os::unix::fs::symlink("/scratch/step-9.pt", own.join("fd/5")).unwrap();
    let fsync = if cfg!(target_arch = "x86_64") { 74 } else { 82 };
    fs::write(own.join("syscall"), format!("{fsync} 0x5 0x0 0x0\n")).unwrap();
    scene.process(70, 'D', "jbd2_log_wait_commit", 5);
    let mut told = Vec::new();
    for second in 0..20 {
        told.extend(scene.look(second));
    }
    let (text, marks) = the_only_line(&told);
    assert_eq!(
        text,
        "the rank is blocked in fsync (jbd2_log_wait_commit) for 15 s, and no signal reaches it; it waits for \
         /scratch/step-9.pt on /scratch (/dev/loop0, ext4)"
    );
    let field = |name: &str| marks[0].fields.get(name);
    assert_eq!(
        (marks[0].class.as_str(), marks[0].role),
        ("filesystem-hang", rankguard_model::Role::Root)
    );
    assert_eq!(
        (field("wchan"), field("used_by")),
        (Some("jbd2_log_wait_commit"), Some("llm/0"))
    );
    assert!(scene.hangs.roster.views()[0].blocked.is_some());
    scene.process(70, 'S', "futex_wait_queue", 6);
    let told = scene.look(31);
    let (text, marks) = the_only_line(&told);
    assert_eq!(text, "the rank is no longer blocked, after 31 s");
    assert_eq!(
        (marks[0].signature.as_str(), marks[0].fields.get("mount")),
        ("ranks.woken", Some("/scratch"))
    );
    assert_eq!(scene.hangs.roster.views()[0].blocked, None);
}

#[test]
fn a_thread_and_a_worker_that_nothing_wakes_are_told_though_the_rank_itself_only_waits() {
    let mut scene = Scene::new();
    scene.process(80, 'S', "do_wait", 1);
    scene.process(90, 'D', "nfs_wait_bit_killable", 3);
    fs::write(scene.folder.path().join("70/task/70/children"), "80 ").unwrap();
    fs::write(scene.folder.path().join("80/task/80/children"), "90 ").unwrap();
    let thread = scene.folder.path().join("71/task/75");
    fs::create_dir_all(&thread).unwrap();
    fs::write(thread.join("stat"), "75 (pin_memory) D 1 71\n").unwrap();
    fs::write(thread.join("status"), "State:\tD (x)\nvoluntary_ctxt_switches:\t9\n").unwrap();
    let mut told = Vec::new();
    for second in 0..60 {
        told.extend(scene.look(second));
    }
    let texts: Vec<&str> = told
        .iter()
        .map(|sighting| match &sighting.body {
            EvidenceBody::Line { text, .. } => text.as_str(),
            _ => "",
        })
        .collect();
    assert_eq!(
        texts,
        [
            "the rank's child process 90 (python3) is blocked in nfs_wait_bit_killable for 20 s, and no signal reaches it",
            "the rank's thread 75 (pin_memory) is blocked for 20 s, and no signal reaches it",
        ]
    );
}

/// Creates a child of rank 0 with the status that `wait` would return.
fn child(scene: &Scene, pid: u32, name: &str, state: char, status: i32) {
    let own = scene.folder.path().join(pid.to_string());
    fs::create_dir_all(&own).unwrap();
    let between = "0 ".repeat(47);
    fs::write(
        own.join("stat"),
        format!("{pid} ({name}) {state} 70 {between}{status}\n"),
    )
    .unwrap();
    let list = scene.folder.path().join("70/task/70/children");
    let before = fs::read_to_string(&list).unwrap_or_default();
    fs::write(list, format!("{before}{pid} ")).unwrap();
}

fn looks(scene: &mut Scene, from: u64, to: u64) -> Vec<String> {
    let told = (from..to).flat_map(|second| scene.look(second)).collect::<Vec<_>>();
    let lines = told.iter().map(crate::collectors::testing::told);
    // Activity is tested in its own module.
    lines
        .filter(|line| !line.contains("| the rank has reported no step"))
        .collect()
}

#[test]
fn children_that_stay_dead_are_a_finding_once_and_again_when_they_grow() {
    let mut scene = Scene::new();
    child(&scene, 90, "pt_data_worker", 'Z', 9);
    let first = looks(&mut scene, 0, 50);
    let dead = "of the rank's children have ended and it does not wait for them";
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(
        first[0].ends_with(&format!(
            "| dataloader-worker-crash | 1 {dead}: process 90 (pt_data_worker), signal 9 (exit code 137)"
        )),
        "{first:?}"
    );
    assert_eq!(scene.hangs.roster.views()[0].dead_children, 1);
    child(&scene, 91, "sh", 'Z', 256);
    let grown = looks(&mut scene, 50, 80);
    assert!(
        grown.len() == 1
            && grown[0].contains(&format!("2 {dead}"))
            && grown[0].ends_with("process 91 (sh), exit code 1"),
        "{grown:?}"
    );
    fs::write(scene.folder.path().join("70/task/70/children"), "").unwrap();
    let gone = looks(&mut scene, 80, 110);
    assert!(gone.len() == 1 && gone[0].contains("value: 0.0"), "{gone:?}");
    assert_eq!(scene.hangs.roster.views()[0].dead_children, 0);
}

#[test]
fn a_child_that_ended_well_is_a_figure_and_many_of_them_are_a_finding() {
    let mut scene = Scene::new();
    child(&scene, 90, "sh", 'Z', 0);
    let told = looks(&mut scene, 0, 30);
    assert!(told.len() == 1 && told[0].contains("| - |"), "{told:?}");
    for pid in 100..140 {
        child(&scene, pid, "sh", 'Z', 0);
    }
    let told = looks(&mut scene, 30, 60);
    assert!(
        told.len() == 1 && told[0].contains("| resource-contention | 41 of"),
        "{told:?}"
    );
}

#[test]
fn every_class_that_is_marked_stands_in_the_catalogue() {
    for class in [
        "dataloader-worker-crash",
        "filesystem-hang",
        "hang-no-error",
        "hung-task",
        "resource-contention",
        "subprocess-failed",
    ] {
        let id = rankguard_model::ClassId::from(class);
        assert!(rankguard_faults::Catalogue::builtin().class(&id).is_some(), "{class}");
    }
}
