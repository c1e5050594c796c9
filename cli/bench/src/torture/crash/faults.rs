//! Disk faults: full disks, I/O errors, short and torn writes, failed syncs and renames.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use rankguard_checkpoint::store::disk::{self, CallFault, FaultSource, FileOperation};
use rustix::io::Errno;

use super::scene::{CrashScene, SaveMode};
use super::{CrashRow, CrashVerdict, clear, rows};
use crate::torture::dice::SplitMix64;
use crate::torture::subject::TortureJob;
use crate::torture::{TortureError, on_threads};

/// Kind of disk fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskFault {
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

pub(super) const FAULTS: [DiskFault; 6] = [
    DiskFault::Full,
    DiskFault::Eio,
    DiskFault::ShortWrite,
    DiskFault::TornWrite,
    DiskFault::FailedSync,
    DiskFault::FailedRename,
];

impl DiskFault {
    fn name(self, way: SaveMode) -> String {
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
    fn hits(self, op: FileOperation) -> bool {
        match self {
            Self::Full => matches!(
                op,
                FileOperation::Create
                    | FileOperation::Allocate
                    | FileOperation::Write
                    | FileOperation::MakeDir
                    | FileOperation::Rename
                    | FileOperation::Link
            ),
            Self::Eio => true,
            Self::ShortWrite | Self::TornWrite => op == FileOperation::Write,
            Self::FailedSync => matches!(op, FileOperation::Sync | FileOperation::SyncDir),
            Self::FailedRename => matches!(op, FileOperation::Rename | FileOperation::Link),
        }
    }

    fn strike(self, dice: &mut SplitMix64, op: FileOperation, bytes: u64) -> CallFault {
        let part = dice.below(bytes.max(1));
        match self {
            Self::Full if op == FileOperation::Write => CallFault::Part(part, Errno::NOSPC),
            Self::Full => CallFault::Refuse(Errno::NOSPC),
            Self::ShortWrite => CallFault::Short(part.max(1)),
            Self::TornWrite => CallFault::Part(part, Errno::IO),
            Self::FailedRename if dice.coin() => CallFault::After(Errno::IO),
            Self::Eio | Self::FailedSync | Self::FailedRename => CallFault::Refuse(Errno::IO),
        }
    }
}

/// Planned fault for calls below one folder.
#[derive(Debug)]
struct FaultPlan {
    fault: DiskFault,
    dice: SplitMix64,
    /// Number of matching calls before the fault.
    before: u64,
    /// True if all later matching calls fail, too.
    lasting: bool,
    calls: u64,
    struck: u64,
}

/// Disk of all scenes of this process: calls are assigned to a scene by their folder.
#[derive(Default)]
struct FaultyDisk {
    plans: Mutex<BTreeMap<PathBuf, FaultPlan>>,
}

impl FaultyDisk {
    fn of_this_process() -> Arc<Self> {
        static DISK: OnceLock<Arc<FaultyDisk>> = OnceLock::new();
        DISK.get_or_init(Arc::default).clone()
    }

    fn arm(&self, root: &Path, plan: FaultPlan) {
        let mut plans = self.plans.lock().expect("nobody panics with the plans");
        plans.insert(root.to_owned(), plan);
    }

    fn disarm(&self, root: &Path) -> Option<FaultPlan> {
        self.plans.lock().expect("nobody panics with the plans").remove(root)
    }
}

impl FaultSource for FaultyDisk {
    fn fault_for(&self, op: FileOperation, path: &Path, bytes: u64) -> Option<CallFault> {
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
    way: SaveMode,
    seed: u64,
    cases: u64,
    watch: &(dyn Fn(Option<String>) + Sync),
) -> Result<Vec<CrashRow>, TortureError> {
    static INSTALLED: OnceLock<Arc<FaultyDisk>> = OnceLock::new();
    disk::install(&**INSTALLED.get_or_init(FaultyDisk::of_this_process));
    let jobs: Vec<(DiskFault, u64)> = FAULTS
        .iter()
        .flat_map(|fault| (0..cases.div_ceil(FAULTS.len() as u64)).map(move |case| (*fault, case)))
        .collect();
    let verdicts = on_threads(&jobs, |worker| {
        let root = dir.join(format!("disk-{worker}"));
        let mut scene = CrashScene::new(root.clone(), TortureJob::new(2, way.rows(120), seed), way)?;
        let usual = FAULTS.map(|fault| calls(&mut scene, &root, fault));
        Ok(move |(fault, case): &(DiskFault, u64)| {
            let name = fault.name(way);
            let mut dice = SplitMix64::of(seed, &name, *case);
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
fn calls(scene: &mut CrashScene, root: &Path, fault: DiskFault) -> u64 {
    let disk = FaultyDisk::of_this_process();
    disk.arm(
        root,
        FaultPlan {
            fault,
            dice: SplitMix64::of(0, "", 0),
            before: u64::MAX,
            lasting: false,
            calls: 0,
            struck: 0,
        },
    );
    let _ = scene.finish();
    scene.advance_step();
    disk.disarm(root).map_or(1, |plan| plan.calls)
}

fn case_of(
    scene: &mut CrashScene,
    root: &Path,
    fault: DiskFault,
    usual: u64,
    dice: &mut SplitMix64,
) -> Result<CrashVerdict, TortureError> {
    scene.prepare()?;
    let disk = FaultyDisk::of_this_process();
    disk.arm(
        root,
        FaultPlan {
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
    let mut verdict = CrashVerdict {
        in_phase: struck > 0,
        ..CrashVerdict::default()
    };
    scene.judge(&mut verdict)?;
    scene.recover(dice.coin(), &mut verdict);
    scene.judge_after(&mut verdict)?;
    Ok(verdict)
}
