//! Cases with SIGKILL of a rank, an agent and a controller, in every phase of a save.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::scene::{Scene, Way};
use super::stage::{Death, PHASES, Passed, Phase, Stage, Usual};
use super::{Row, Verdict, clear, rows};
use crate::torture::dice::Dice;
use crate::torture::{TortureError, on_threads};

pub(super) fn run(
    program: &Path,
    dir: &Path,
    way: Way,
    seed: u64,
    cases: u64,
    watch: &(dyn Fn(Option<String>) + Sync),
) -> Result<Vec<Row>, TortureError> {
    let mut verdicts = Vec::new();
    for phase in PHASES {
        let name = phase.name(way);
        let numbers: Vec<u64> = (0..cases.div_ceil(PHASES.len() as u64)).collect();
        verdicts.extend(on_threads(&numbers, |worker| {
            let root = dir.join(format!("{name}-{worker}"));
            let mut stage = Stage::new(program, phase, way, root, seed)?;
            let name = &name;
            Ok(move |case: &u64| {
                let verdict = stage.case(Dice::of(seed, name, *case))?;
                let fault = verdict.faults.first();
                watch(fault.map(|fault| format!("{name} case {case}: {fault}")));
                Ok((name.clone(), verdict))
            })
        })?);
        clear(dir, &name)?;
    }
    Ok(rows(PHASES.map(|phase| phase.name(way)), &verdicts))
}

impl<'a> Stage<'a> {
    fn new(program: &'a Path, phase: Phase, way: Way, root: PathBuf, seed: u64) -> Result<Self, TortureError> {
        let usual = Usual {
            took: Duration::ZERO,
            calls: 0,
        };
        let mut stage = Self {
            program,
            phase,
            scene: Scene::new(root, phase.subject(way, seed), way)?,
            usual,
        };
        // One run without a death, to measure the duration and the calls.
        let mut verdict = Verdict::default();
        let Passed { end, whole } = stage.play(Death::default(), &mut verdict)?;
        if !end.well || !verdict.faults.is_empty() {
            let (name, why) = (phase.name(way), verdict.faults.join("; "));
            return Err(TortureError(format!("{name} fails undisturbed: {} {why}", end.status)));
        }
        (stage.usual.took, stage.usual.calls) = (end.took, end.calls);
        match whole.is_empty() {
            true => stage.scene.recover(false, &mut verdict),
            false => stage.scene.adopt(whole, &mut verdict),
        }
        Ok(stage)
    }

    fn case(&mut self, mut dice: Dice) -> Result<Verdict, TortureError> {
        // A rank makes no system calls that could be counted.
        let death = if !self.phase.kills_ranks() && dice.coin() {
            Death {
                place: Some((dice.below(self.usual.calls), dice.below(1000))),
                delay: None,
            }
        } else {
            // Slightly beyond the usual end, so that the end itself is hit, too.
            let nanos = self.usual.took.as_nanos() as u64;
            Death {
                place: None,
                delay: Some(Duration::from_nanos(dice.below(nanos + nanos / 8))),
            }
        };
        let before = self.scene.committed.last().copied();
        let mut verdict = Verdict::default();
        let Passed { end, whole } = self.play(death, &mut verdict)?;
        verdict.in_phase = end.began && !end.ended;
        if !end.well && !end.status.contains("signal: 9") {
            verdict.stuck = true;
            verdict
                .faults
                .push(format!("the victim failed by itself: {}", end.status));
        }
        let images_stay = self.scene.way == Way::Whole;
        if images_stay && self.phase.kills_ranks() {
            self.look_into_arenas(before, &end, &mut verdict)?;
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
            self.scene.adopt(whole, &mut verdict);
            self.scene.saving.generation.0 += u64::from(!self.phase.kills_controllers());
        }
        self.scene.judge_after(&mut verdict)?;
        Ok(verdict)
    }

    /// Runs one save up to and including the victim's part.
    fn play(&mut self, death: Death, verdict: &mut Verdict) -> Result<Passed, TortureError> {
        match self.scene.way {
            Way::Window => self.play_window(death, verdict),
            Way::Whole => Ok(Passed {
                end: self.play_whole(death)?,
                whole: Vec::new(),
            }),
        }
    }
}
