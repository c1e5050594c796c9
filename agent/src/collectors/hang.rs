//! Ranks that make no more steps, by their own baseline; then their stacks.
//!
//! A rank that is silent for longer than its own steps allow is told once a step, with where it stands. Whether its job hangs
//! is for the controller to say, which sees all nodes. Between steps two things are watched besides: a rank that nothing can
//! wake (uninterruptible sleep without a single switch), and children that have ended and that it does not wait for.
//! Absent: ranks that report no steps, and the time before the first few steps.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rankguard_model::{Body, RankRef, Role, Source, Step};

use super::{Stop, mark, sample};
use crate::intake::Intake;
use crate::ranks::{Roster, Silence};
use crate::sighting::Sighting;
use crate::stacks::{self, Stack, Standing};

/// Under which signature a silent rank is told; the controller knows it by this name.
const SIGNATURE: &str = "ranks.stalled";
/// Stacks that are taken at one time.
const AT_ONCE: usize = 4;
/// How long a rank is blocked before it is told: well below the kernel's own limit for hung tasks, 120 s.
const BLOCKED: Duration = Duration::from_secs(15);
/// Looks from one search for dead children to the next, which reads a file for each child.
const CHILDREN_EVERY: u64 = 10;

/// Everything the collector needs.
#[derive(Debug)]
pub(crate) struct Hangs {
    pub(crate) proc_root: PathBuf,
    /// The program that reads Python stacks; none are read when empty.
    pub(crate) stack_process: Vec<OsString>,
    pub(crate) interval: Duration,
    /// Least silence that is strange.
    pub(crate) floor: Duration,
    pub(crate) intake: Intake,
    pub(crate) roster: Roster,
    pub(crate) stop: Stop,
}

/// What was seen and told of each rank.
#[derive(Debug, Default)]
struct Seen {
    /// The step after which a rank's silence was told.
    told: BTreeMap<RankRef, Step>,
    blocked: BTreeMap<RankRef, Sleep>,
    /// Dead children at the last search, and whether they were told.
    dead: BTreeMap<RankRef, (usize, bool)>,
    looks: u64,
}

/// A rank in uninterruptible sleep.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sleep {
    since: Instant,
    /// Switches it has made; any further one shows that it was woken.
    switches: u64,
    told: bool,
}

impl Hangs {
    /// Until asked to stop.
    pub(crate) fn run(self) {
        let mut seen = Seen::default();
        while !self.stop.wait(self.interval) {
            self.look(&mut seen, Instant::now());
        }
    }

    fn look(&self, seen: &mut Seen, now: Instant) {
        seen.looks += 1;
        let running = self.roster.paces(self.floor, now);
        let here = |rank: &RankRef| running.iter().any(|(known, ..)| known == rank);
        seen.told.retain(|rank, _| here(rank));
        seen.blocked.retain(|rank, _| here(rank));
        seen.dead.retain(|rank, _| here(rank));
        let mut strange = Vec::new();
        for (rank, pid, silence) in &running {
            self.sleepers(seen, rank, *pid, now);
            if seen.looks.is_multiple_of(CHILDREN_EVERY) {
                self.children(seen, rank, *pid);
            }
            let Some(silence) = silence.filter(Silence::is_strange) else {
                continue;
            };
            if seen.told.get(rank) != Some(&silence.step) {
                seen.told.insert(rank.clone(), silence.step);
                strange.push((rank, *pid, silence));
            }
        }
        for some in strange.chunks(AT_ONCE) {
            let (proc_root, words) = (self.proc_root.as_path(), self.stack_process.as_slice());
            std::thread::scope(|scope| {
                for (rank, pid, silence) in some {
                    scope.spawn(move || self.tell(rank, *silence, stacks::look(proc_root, *pid, words)));
                }
            });
        }
    }

    fn tell(&self, rank: &RankRef, silence: Silence, stack: Option<Stack>) {
        // A rank that has ended meanwhile tells by its exit.
        let Some(stack) = stack else { return };
        let text = format!(
            "no step for {:.0} s after step {}; its steps take {:.3} s, and {:.0} s would not be strange. It is in {}",
            silence.lasts.as_secs_f64(),
            silence.step,
            silence.median.as_secs_f64(),
            silence.limit.as_secs_f64(),
            stack.place
        );
        let mut stalled = mark("hang-no-error", Role::Confirmation, 0.6, SIGNATURE);
        let fields = [
            ("step", silence.step.to_string()),
            ("silent_ms", silence.lasts.as_millis().to_string()),
            ("limit_ms", silence.limit.as_millis().to_string()),
            ("place", stack.place),
            ("state", stack.standing.state.to_string()),
        ];
        stalled
            .fields
            .extend(fields.map(|(name, value)| (name.to_owned(), value)));
        let body = Body::Line {
            text,
            context: stack.lines,
            repeats: 1,
        };
        let entity = self.roster.entity(rank);
        self.intake
            .push(Sighting::now(Source::Ranks, entity, body).marked(vec![stalled]));
    }

    /// Tells of a rank that nothing has woken for a while.
    fn sleepers(&self, seen: &mut Seen, rank: &RankRef, pid: u32, now: Instant) {
        let Some(switches) = blocked(&self.proc_root, pid) else {
            seen.blocked.remove(rank);
            return;
        };
        let fresh = Sleep {
            since: now,
            switches,
            told: false,
        };
        let sleep = seen.blocked.entry(rank.clone()).or_insert(fresh);
        if sleep.switches != switches {
            *sleep = fresh;
        }
        let lasts = now.saturating_duration_since(sleep.since);
        if lasts < BLOCKED || std::mem::replace(&mut sleep.told, true) {
            return;
        }
        let Some(standing) = Standing::of(&self.proc_root, pid) else {
            return;
        };
        let body = Body::Line {
            text: format!(
                "the rank is {standing} for {} s, and no signal reaches it",
                lasts.as_secs()
            ),
            context: standing.blocked.iter().map(ToString::to_string).collect(),
            repeats: 1,
        };
        let says = mark("hung-task", Role::Confirmation, 0.6, "ranks.blocked");
        let entity = self.roster.entity(rank);
        self.intake
            .push(Sighting::now(Source::Ranks, entity, body).marked(vec![says]));
    }

    /// Tells of children that were dead at two searches. Helpers that come and go are waited for in between.
    fn children(&self, seen: &mut Seen, rank: &RankRef, pid: u32) {
        let dead = Standing::of(&self.proc_root, pid).map_or(0, |standing| standing.zombies);
        let (before, told) = seen.dead.entry(rank.clone()).or_default();
        let lasting = dead.min(*before);
        *before = dead;
        if lasting == 0 {
            *told = false;
        } else if !std::mem::replace(told, true) {
            let entity = self.roster.entity(rank);
            self.intake.push(sample(
                Source::Ranks,
                entity,
                "ranks.dead_children",
                lasting as f64,
                "count",
            ));
        }
    }
}

/// How often a process in uninterruptible sleep has gone to sleep; nothing when it is in another state.
fn blocked(proc_root: &Path, pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(proc_root.join(pid.to_string()).join("status")).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    field("State:").filter(|state| state.starts_with('D'))?;
    field("voluntary_ctxt_switches:")?.parse().ok()
}

#[cfg(test)]
mod tests {
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
            let hangs = Hangs {
                proc_root: folder.path().to_owned(),
                stack_process: Vec::new(),
                interval: Duration::from_secs(1),
                floor: FLOOR,
                intake: Intake::new(node.clone()),
                roster: Roster::new(node),
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
}
