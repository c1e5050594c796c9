//! SIGKILL of a rank, an agent and a controller, in every phase of a save.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use std::os::fd::AsFd as _;

use rankguard_model::ShardSeal;

use super::hand::{BEGIN, COMMITTED, END, Errand, Part};
use super::scene::Scene;
use super::{Row, Verdict, rows};
use crate::torture::dice::Dice;
use crate::torture::subject::{Subject, id};
use crate::torture::{TortureError, on_threads};

/// A phase of a save, and who dies in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A rank copies.
    Fill,
    /// A rank describes and seals what it has copied.
    Seal,
    /// An agent writes an image.
    Shard,
    /// An agent writes an index.
    Index,
    /// A controller commits.
    Commit,
    /// A controller removes old checkpoints.
    Removal,
}

pub(super) const PHASES: [Phase; 6] = [
    Phase::Fill,
    Phase::Seal,
    Phase::Shard,
    Phase::Index,
    Phase::Commit,
    Phase::Removal,
];

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Fill => "kill-fill",
            Self::Seal => "kill-seal",
            Self::Shard => "kill-shard-write",
            Self::Index => "kill-index-write",
            Self::Commit => "kill-commit",
            Self::Removal => "kill-removal",
        }
    }

    /// In a seal the description is most of the work; everywhere else the image is.
    fn subject(self, seed: u64) -> Subject {
        match self {
            Self::Seal => Subject {
                state_bytes: 400 << 10,
                ..Subject::new(WORLD, 16, seed)
            },
            _ => Subject::new(WORLD, 300, seed),
        }
    }

    /// Whether the victim can count its own system calls. A fill makes none.
    fn has_places(self) -> bool {
        !matches!(self, Self::Fill | Self::Seal)
    }
}

const WORLD: u32 = 2;

/// What an undisturbed victim of a phase needs.
#[derive(Debug, Clone, Copy)]
struct Usual {
    took: Duration,
    calls: u64,
}

/// How a victim ended.
#[derive(Debug, Default)]
struct End {
    began: bool,
    ended: bool,
    committed: bool,
    seal: Option<ShardSeal>,
    calls: u64,
    took: Duration,
    status: String,
    well: bool,
}

/// A scene, and what plays in it.
struct Stage<'a> {
    program: &'a Path,
    phase: Phase,
    scene: Scene,
    usual: Usual,
}

pub(super) fn run(
    program: &Path,
    dir: &Path,
    seed: u64,
    cases: u64,
    watch: &(dyn Fn(Option<String>) + Sync),
) -> Result<Vec<Row>, TortureError> {
    let mut verdicts = Vec::new();
    for phase in PHASES {
        let numbers: Vec<u64> = (0..cases.div_ceil(PHASES.len() as u64)).collect();
        verdicts.extend(on_threads(&numbers, |worker| {
            let root = dir.join(format!("{}-{worker}", phase.name()));
            let mut stage = Stage::new(program, phase, root, seed)?;
            Ok(move |case: &u64| {
                let verdict = stage.case(Dice::of(seed, phase.name(), *case))?;
                let fault = verdict.faults.first();
                watch(fault.map(|fault| format!("{} case {case}: {fault}", phase.name())));
                Ok((phase.name(), verdict))
            })
        })?);
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(phase.name()))
            {
                fs::remove_dir_all(path)?;
            }
        }
    }
    Ok(rows(PHASES.map(Phase::name), &verdicts))
}

impl<'a> Stage<'a> {
    fn new(program: &'a Path, phase: Phase, root: PathBuf, seed: u64) -> Result<Self, TortureError> {
        let usual = Usual {
            took: Duration::ZERO,
            calls: 0,
        };
        let mut stage = Self {
            program,
            phase,
            scene: Scene::new(root, phase.subject(seed))?,
            usual,
        };
        // Once without a death, to know how long it takes.
        let end = stage.play(None, None)?;
        if !end.well {
            return Err(TortureError(format!(
                "{} fails undisturbed: {}",
                phase.name(),
                end.status
            )));
        }
        (stage.usual.took, stage.usual.calls) = (end.took, end.calls);
        stage.scene.recover(false, &mut Verdict::default());
        Ok(stage)
    }

    fn case(&mut self, mut dice: Dice) -> Result<Verdict, TortureError> {
        let place = self.phase.has_places() && dice.coin();
        let (death, delay) = if place {
            (Some((dice.below(self.usual.calls), dice.below(1000))), None)
        } else {
            // A little beyond the usual end, so that the end itself is hit too.
            let nanos = self.usual.took.as_nanos() as u64;
            (None, Some(Duration::from_nanos(dice.below(nanos + nanos / 8))))
        };
        let before = self.scene.committed.last().copied();
        let end = self.play(death, delay)?;
        let mut verdict = Verdict {
            in_phase: end.began && !end.ended,
            ..Verdict::default()
        };
        if !end.well && !end.status.contains("signal: 9") {
            verdict.stuck = true;
            verdict
                .faults
                .push(format!("the victim failed by itself: {}", end.status));
        }
        if matches!(self.phase, Phase::Fill | Phase::Seal) {
            self.look_into_arenas(before, &end, &mut verdict)?;
        }
        if end.committed {
            self.scene.was_committed();
        }
        self.scene.judge(&mut verdict)?;
        // A rank that is dead is a new generation; an agent or a controller may come back to the same one.
        let restart = matches!(self.phase, Phase::Fill | Phase::Seal) || dice.coin();
        self.scene.recover(restart, &mut verdict);
        self.scene.judge_after(&mut verdict)?;
        Ok(verdict)
    }

    /// One save up to the victim's part, and that part.
    fn play(&mut self, death: Option<(u64, u64)>, delay: Option<Duration>) -> Result<End, TortureError> {
        let (scene, phase) = (&self.scene, self.phase);
        let victim = (scene.saving.step.0 / super::scene::INTERVAL % u64::from(WORLD)) as u32;
        let ranks_die = matches!(phase, Phase::Fill | Phase::Seal);
        for rank in (0..WORLD).filter(|rank| !ranks_die || *rank != victim) {
            scene.fill(rank)?;
        }
        let agents_die = matches!(phase, Phase::Shard | Phase::Index);
        let mut seals = Vec::new();
        if !ranks_die {
            for rank in (0..WORLD).filter(|rank| !agents_die || *rank != victim) {
                seals.push(scene.persist(rank)?);
            }
        }
        let store = scene.store.root().to_owned();
        let slot = scene.slot();
        let write = |ending: &str| Part::Write {
            store: store.clone(),
            parent: scene.parent(),
            slot,
            ending: ending.to_owned(),
        };
        let commit = |removing| Part::Commit {
            store: store.clone(),
            parent: scene.parent(),
            seals: seals.clone(),
            removing,
        };
        let part = match phase {
            Phase::Fill | Phase::Seal => {
                scene.arenas[victim as usize].release(slot)?;
                Part::Fill { rank: victim, slot }
            }
            Phase::Shard => write(".shard"),
            Phase::Index => write(".index"),
            Phase::Commit => commit(false),
            Phase::Removal => commit(true),
        };
        let errand = Errand {
            subject: scene.subject.clone(),
            id: scene.saving,
            part,
            death,
        };
        let arena = match phase {
            Phase::Commit | Phase::Removal => Stdio::null(),
            _ => Stdio::from(scene.arenas[victim as usize].as_fd().try_clone_to_owned()?),
        };
        let text = serde_json::to_string(&errand).map_err(TortureError::new)?;
        let child = Command::new(self.program)
            .args(["checkpoint", "torture-hand", &text])
            .stdin(arena)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        watch(child, delay)
    }

    /// A rank died: what it had sealed before is what it was, and what it was filling is whole or not there.
    fn look_into_arenas(
        &self,
        before: Option<rankguard_checkpoint::format::CheckpointId>,
        end: &End,
        verdict: &mut Verdict,
    ) -> Result<(), TortureError> {
        let scene = &self.scene;
        let slot = scene.slot();
        for rank in 0..WORLD {
            if scene.image_is_right(rank, slot, scene.saving)? == Some(false) {
                verdict.wrong_bytes += 1;
                verdict
                    .faults
                    .push(format!("rank {rank} left a sealed image of other bytes"));
            }
            let kept =
                before.map(|before| scene.image_is_right(rank, 1 - slot, id(before.step.0, before.generation.0)));
            if let Some(kept) = kept
                && kept? != Some(true)
            {
                verdict.wrong_bytes += 1;
                verdict
                    .faults
                    .push(format!("the image that rank {rank} had sealed before is gone"));
            }
        }
        let victim = (scene.saving.step.0 / super::scene::INTERVAL % u64::from(WORLD)) as u32;
        if end.ended && scene.image_is_right(victim, slot, scene.saving)?.is_none() {
            verdict.lost_commits += 1;
            verdict
                .faults
                .push("a rank said that it sealed, and there is no image".to_owned());
        }
        Ok(())
    }
}

/// Waits for a victim's end; kills it `delay` after it began.
fn watch(mut child: Child, delay: Option<Duration>) -> Result<End, TortureError> {
    let stdout = child.stdout.take();
    let lines = stdout.map(BufReader::new);
    let mut end = End::default();
    let read = read(&mut child, lines, delay, &mut end);
    if read.is_err() {
        // It must not outlive us, whatever went wrong with reading.
        let _ = child.kill();
    }
    let output = child.wait_with_output()?;
    read?;
    end.well = output.status.success();
    end.status = format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    Ok(end)
}

fn read(
    child: &mut Child,
    lines: Option<BufReader<ChildStdout>>,
    delay: Option<Duration>,
    end: &mut End,
) -> Result<(), TortureError> {
    let Some(mut lines) = lines else { return Ok(()) };
    let mut started = Instant::now();
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        match line.trim() {
            BEGIN => {
                (end.began, started) = (true, Instant::now());
                if let Some(delay) = delay {
                    wait(started, delay);
                    child.kill()?;
                }
            }
            END => (end.ended, end.took) = (true, started.elapsed()),
            COMMITTED => end.committed = true,
            seal if seal.starts_with('{') => end.seal = serde_json::from_str(seal).ok(),
            calls => end.calls = calls.parse().unwrap_or(end.calls),
        }
        line.clear();
    }
    Ok(())
}

/// A moment is nothing to be awaited: it is chosen. Sleeping is too coarse for the last of it.
fn wait(started: Instant, delay: Duration) {
    let coarse = delay.saturating_sub(Duration::from_micros(200));
    if coarse > Duration::from_micros(200) {
        std::thread::sleep(coarse);
    }
    while started.elapsed() < delay {
        std::hint::spin_loop();
    }
}
