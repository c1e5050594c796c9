//! Cases with SIGKILL of a rank, an agent and a controller, in every phase of a save.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::scene::{CrashScene, SaveMode};
use super::stage::{BaselineRun, KillPoint, PHASES, PhaseResult, PhaseRun, SavePhase};
use super::{CrashRow, CrashVerdict, clear, rows};
use crate::torture::dice::SplitMix64;
use crate::torture::{TortureError, on_threads};

pub(super) fn run(
    program: &Path,
    dir: &Path,
    way: SaveMode,
    seed: u64,
    cases: u64,
    watch: &(dyn Fn(Option<String>) + Sync),
) -> Result<Vec<CrashRow>, TortureError> {
    let mut verdicts = Vec::new();
    for phase in PHASES {
        let name = phase.name(way);
        let numbers: Vec<u64> = (0..cases.div_ceil(PHASES.len() as u64)).collect();
        verdicts.extend(on_threads(&numbers, |worker| {
            let root = dir.join(format!("{name}-{worker}"));
            let mut stage = PhaseRun::new(program, phase, way, root, seed)?;
            let name = &name;
            Ok(move |case: &u64| {
                let verdict = stage.case(SplitMix64::of(seed, name, *case))?;
                let fault = verdict.faults.first();
                watch(fault.map(|fault| format!("{name} case {case}: {fault}")));
                Ok((name.clone(), verdict))
            })
        })?);
        clear(dir, &name)?;
    }
    Ok(rows(PHASES.map(|phase| phase.name(way)), &verdicts))
}

impl<'a> PhaseRun<'a> {
    fn new(program: &'a Path, phase: SavePhase, way: SaveMode, root: PathBuf, seed: u64) -> Result<Self, TortureError> {
        let usual = BaselineRun {
            took: Duration::ZERO,
            calls: 0,
        };
        let mut stage = Self {
            program,
            phase,
            scene: CrashScene::new(root, phase.subject(way, seed), way)?,
            usual,
        };
        // One run without a death, to measure the duration and the calls.
        let mut verdict = CrashVerdict::default();
        let PhaseResult { end, whole } = stage.play(KillPoint::default(), &mut verdict)?;
        if !end.well || !verdict.faults.is_empty() {
            let name = phase.name(way);
            let why = verdict.faults.join("; ");
            return Err(TortureError(format!("{name} fails undisturbed: {} {why}", end.status)));
        }
        (stage.usual.took, stage.usual.calls) = (end.took, end.calls);
        if whole.is_empty() {
            stage.scene.recover(false, &mut verdict)
        } else {
            stage.scene.commit_attempts(whole, &mut verdict)
        }
        Ok(stage)
    }

    fn case(&mut self, mut dice: SplitMix64) -> Result<CrashVerdict, TortureError> {
        // A rank makes no system calls that could be counted.
        let death = if !self.phase.kills_ranks() && dice.coin() {
            KillPoint {
                place: Some((dice.below(self.usual.calls), dice.below(1000))),
                delay: None,
            }
        } else {
            // Slightly beyond the usual end, so that the end itself is hit, too.
            let nanos = self.usual.took.as_nanos() as u64;
            KillPoint {
                place: None,
                delay: Some(Duration::from_nanos(dice.below(nanos + nanos / 8))),
            }
        };
        let before = self.scene.committed.last().copied();
        let mut verdict = CrashVerdict::default();
        let PhaseResult { end, whole } = self.play(death, &mut verdict)?;
        verdict.in_phase = end.began && !end.ended;
        if !end.well && !end.status.contains("signal: 9") {
            verdict.stuck = true;
            verdict
                .faults
                .push(format!("the victim failed by itself: {}", end.status));
        }
        let images_stay = self.scene.way == SaveMode::Whole;
        if images_stay && self.phase.kills_ranks() {
            self.judge_arenas(before, &end, &mut verdict)?;
        }
        if end.committed {
            self.scene.was_committed();
        }
        self.scene.judge(&mut verdict)?;
        // A dead rank requires a new generation, and so does a rank with a window that died with its agent; an agent
        // with images and a controller may return to the same generation.
        if whole.is_empty() {
            let restart = self.phase.kills_ranks() || !images_stay || dice.coin();
            self.scene.recover(restart, &mut verdict);
        } else {
            self.scene.commit_attempts(whole, &mut verdict);
            self.scene.saving.generation.0 += u64::from(!self.phase.kills_controllers());
        }
        self.scene.judge_after(&mut verdict)?;
        Ok(verdict)
    }

    /// Runs one save up to and including the victim's part.
    fn play(&mut self, death: KillPoint, verdict: &mut CrashVerdict) -> Result<PhaseResult, TortureError> {
        match self.scene.way {
            SaveMode::Window => self.play_window(death, verdict),
            SaveMode::Whole => Ok(PhaseResult {
                end: self.play_whole(death)?,
                whole: Vec::new(),
            }),
        }
    }
}
