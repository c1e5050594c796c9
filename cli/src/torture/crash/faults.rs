//! Disk faults: full disks, I/O errors, short and torn writes, failed syncs and renames.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use rankguard_checkpoint::store::disk::{self, Faults, Op, Strike};
use rustix::io::Errno;

use super::scene::{Scene, Way};
use super::{Row, Verdict, clear, rows};
use crate::torture::dice::Dice;
use crate::torture::subject::Subject;
use crate::torture::{TortureError, on_threads};

/// Kind of disk fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// ENOSPC from calls that allocate space.
    Full,
    /// EIO from any call.
    Eio,
    /// A write takes less than it was given and returns the shorter length.
    ShortWrite,
    /// A write takes a part and fails.
    TornWrite,
    /// A sync call fails.
    FailedSync,
    /// A rename fails, before or after it is done.
    FailedRename,
}

pub(super) const FAULTS: [Fault; 6] = [
    Fault::Full,
    Fault::Eio,
    Fault::ShortWrite,
    Fault::TornWrite,
    Fault::FailedSync,
    Fault::FailedRename,
];

impl Fault {
    fn name(self, way: Way) -> String {
        let fault = match self {
            Self::Full => "full",
            Self::Eio => "eio",
            Self::ShortWrite => "short-write",
            Self::TornWrite => "torn-write",
            Self::FailedSync => "failed-sync",
            Self::FailedRename => "failed-rename",
        };
        format!("disk-{}{fault}", way.word())
    }

    /// True if the operation can raise this fault.
    fn hits(self, op: Op) -> bool {
        match self {
            Self::Full => matches!(
                op,
                Op::Create | Op::Allocate | Op::Write | Op::MakeDir | Op::Rename | Op::Link
            ),
            Self::Eio => true,
            Self::ShortWrite | Self::TornWrite => op == Op::Write,
            Self::FailedSync => matches!(op, Op::Sync | Op::SyncDir),
            Self::FailedRename => matches!(op, Op::Rename | Op::Link),
        }
    }

    fn strike(self, dice: &mut Dice, op: Op, bytes: u64) -> Strike {
        let part = dice.below(bytes.max(1));
        match self {
            Self::Full if op == Op::Write => Strike::Part(part, Errno::NOSPC),
            Self::Full => Strike::Refuse(Errno::NOSPC),
            Self::ShortWrite => Strike::Short(part.max(1)),
            Self::TornWrite => Strike::Part(part, Errno::IO),
            Self::FailedRename if dice.coin() => Strike::After(Errno::IO),
            Self::Eio | Self::FailedSync | Self::FailedRename => Strike::Refuse(Errno::IO),
        }
    }
}

/// Planned fault for calls below one folder.
#[derive(Debug)]
struct Plan {
    fault: Fault,
    dice: Dice,
    /// Number of matching calls before the fault.
    before: u64,
    /// True if all later matching calls fail, too.
    lasting: bool,
    calls: u64,
    struck: u64,
}

/// Disk of all scenes of this process: calls are assigned to a scene by their folder.
#[derive(Default)]
struct Disk {
    plans: Mutex<BTreeMap<PathBuf, Plan>>,
}

impl Disk {
    fn of_this_process() -> Arc<Self> {
        static DISK: OnceLock<Arc<Disk>> = OnceLock::new();
        DISK.get_or_init(Arc::default).clone()
    }

    fn arm(&self, root: &Path, plan: Plan) {
        let mut plans = self.plans.lock().expect("nobody panics with the plans");
        plans.insert(root.to_owned(), plan);
    }

    fn disarm(&self, root: &Path) -> Option<Plan> {
        self.plans.lock().expect("nobody panics with the plans").remove(root)
    }
}

impl Faults for Disk {
    fn strike(&self, op: Op, path: &Path, bytes: u64) -> Option<Strike> {
        let mut plans = self.plans.lock().expect("nobody panics with the plans");
        let plan = plans
            .iter_mut()
            .find(|(root, _)| path.starts_with(root))
            .map(|(_, plan)| plan)?;
        if !plan.fault.hits(op) {
            return None;
        }
        plan.calls += 1;
        let due = plan.calls > plan.before && (plan.lasting || plan.struck == 0);
        if !due {
            return None;
        }
        plan.struck += 1;
        Some(plan.fault.strike(&mut plan.dice, op, bytes))
    }
}

pub(super) fn run(
    dir: &Path,
    way: Way,
    seed: u64,
    cases: u64,
    watch: &(dyn Fn(Option<String>) + Sync),
) -> Result<Vec<Row>, TortureError> {
    static INSTALLED: OnceLock<Arc<Disk>> = OnceLock::new();
    disk::install(&**INSTALLED.get_or_init(Disk::of_this_process));
    let jobs: Vec<(Fault, u64)> = FAULTS
        .iter()
        .flat_map(|fault| (0..cases.div_ceil(FAULTS.len() as u64)).map(move |case| (*fault, case)))
        .collect();
    let verdicts = on_threads(&jobs, |worker| {
        let root = dir.join(format!("disk-{worker}"));
        let mut scene = Scene::new(root.clone(), Subject::new(2, way.rows(120), seed), way)?;
        let usual = FAULTS.map(|fault| calls(&mut scene, &root, fault));
        Ok(move |(fault, case): &(Fault, u64)| {
            let name = fault.name(way);
            let mut dice = Dice::of(seed, &name, *case);
            let usual = FAULTS
                .iter()
                .zip(&usual)
                .find(|(of, _)| *of == fault)
                .map_or(1, |(_, usual)| *usual);
            let verdict = case_of(&mut scene, &root, *fault, usual, &mut dice)?;
            let said = verdict.faults.first();
            watch(said.map(|said| format!("{name} case {case}: {said}")));
            Ok((name, verdict))
        })
    })?;
    clear(dir, "disk-")?;
    Ok(rows(FAULTS.map(|fault| fault.name(way)), &verdicts))
}

/// Counts the calls of a save that the fault could hit, with a plan that never strikes.
fn calls(scene: &mut Scene, root: &Path, fault: Fault) -> u64 {
    let disk = Disk::of_this_process();
    disk.arm(
        root,
        Plan {
            fault,
            dice: Dice::of(0, "", 0),
            before: u64::MAX,
            lasting: false,
            calls: 0,
            struck: 0,
        },
    );
    let _ = scene.finish();
    scene.go_on();
    disk.disarm(root).map_or(1, |plan| plan.calls)
}

fn case_of(scene: &mut Scene, root: &Path, fault: Fault, usual: u64, dice: &mut Dice) -> Result<Verdict, TortureError> {
    scene.prepare()?;
    let disk = Disk::of_this_process();
    disk.arm(
        root,
        Plan {
            fault,
            before: dice.below(usual),
            lasting: dice.coin(),
            dice: dice.clone(),
            calls: 0,
            struck: 0,
        },
    );
    // An error is expected on a faulty disk; the state of the store afterwards is judged. The scene itself records an
    // acknowledged commit.
    let _ = scene.write_and_commit();
    let struck = disk.disarm(root).map_or(0, |plan| plan.struck);
    let mut verdict = Verdict {
        in_phase: struck > 0,
        ..Verdict::default()
    };
    scene.judge(&mut verdict)?;
    scene.recover(dice.coin(), &mut verdict);
    scene.judge_after(&mut verdict)?;
    Ok(verdict)
}
