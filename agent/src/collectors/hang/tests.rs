#![allow(clippy::unwrap_used)]

use std::fs;

use rankguard_model::NodeId;

use super::*;
use crate::collectors::testing::{rank, run};

const FLOOR: Duration = Duration::from_secs(30);

struct Scene {
    folder: tempfile::TempDir,
    hangs: Hangs,
    seen: Seen,
    start: Instant,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = NodeId::from("a");
        let (intake, roster) = (Intake::new(node.clone()), Roster::new(node));
        let hangs = Hangs {
            proc_root: folder.path().to_owned(),
            stack_process: Vec::new(),
            interval: Duration::from_secs(1),
            floor: FLOOR,
            flight: FlightDumps::new(roster.clone(), intake.clone()),
            ras: ras::Asker::new(intake.clone(), roster.clone(), Stop::default()),
            intake,
            roster,
            stop: Stop::default(),
        };
        for (number, pid) in [(0, 70), (1, 71)] {
            run(&hangs.roster, &rank(number), pid);
        }
        let scene = Self {
            folder,
            hangs,
            seen: Seen::default(),
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

    fn look(&mut self, at_s: u64) -> Vec<Sighting> {
        let now = self.start + Duration::from_secs(at_s);
        self.hangs.look(&mut self.seen, now);
        let mut told = self.hangs.intake.drain();
        told.sort_by_key(|sighting| sighting.entity.clone());
        told
    }
}

#[test]
fn a_rank_that_is_silent_beyond_its_baseline_is_told_once_with_where_it_stands() {
    let mut scene = Scene::new();
    for step in 0..20 {
        scene.step(0, step, step);
        scene.step(1, step, step);
    }
    assert_eq!(scene.look(45).len(), 0);
    // One goes on; the other stands, stopped.
    scene.step(0, 20, 48);
    scene.process(71, 'T', "do_signal_stop", 5);
    let told = scene.look(50);
    assert_eq!(told.len(), 1, "{told:?}");
    let Body::Line { text, context, .. } = &told[0].body else {
        panic!("{told:?}")
    };
    assert_eq!(
        text,
        "no step for 31 s after step 19; its steps take 1.000 s, and 30 s would not be strange. It is in stopped in \
         do_signal_stop"
    );
    assert_eq!(context[0], "stopped in do_signal_stop");
    assert_eq!(told[0].entity.rank(), Some(rank(1).rank));
    let fields = &told[0].marks[0].fields;
    assert_eq!((fields["step"].as_str(), fields["silent_ms"].as_str()), ("19", "31000"));
    assert_eq!(scene.look(60).len(), 0);
    // It went on and stands again: news.
    scene.step(1, 20, 61);
    assert_eq!(scene.look(62).len(), 0);
    assert_eq!(scene.look(200).len(), 2);
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
    let Body::Line { text, context, .. } = &told[0].body else {
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
fn children_that_stay_dead_are_told_once() {
    let mut scene = Scene::new();
    let child = |state: char| {
        let own = scene.folder.path().join("90");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("stat"), format!("90 (worker) {state} 70 70\n")).unwrap();
    };
    child('Z');
    fs::write(scene.folder.path().join("70/task/70/children"), "90 ").unwrap();
    let mut told = Vec::new();
    for second in 0..50 {
        told.extend(scene.look(second));
    }
    let bodies: Vec<_> = told.iter().map(|sighting| &sighting.body).collect();
    assert!(matches!(bodies[..], [Body::Sample { value: 1.0, .. }]), "{bodies:?}");
}

#[test]
fn every_class_that_is_marked_stands_in_the_catalogue() {
    for class in ["hang-no-error", "hung-task"] {
        let id = rankguard_model::ClassId::from(class);
        assert!(rankguard_faults::Catalogue::builtin().class(&id).is_some(), "{class}");
    }
}
