//! Life of a rank: rendezvous, restore, train, write results, report the end.

use std::io::{self, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use rankguard_checkpoint_format::TensorBox;
use rankguard_model::Step;
use rankguard_rank::{RankClient, RankEnv, SaveOutcome};

use crate::checkpointer::{CheckpointBackend, NoCheckpoints};
use crate::digits::DigitImages;
use crate::error::{FailureCause, RankLocation, TrainError};
use crate::ledger::{self, LedgerFile};
use crate::mesh::RankMesh;
use crate::output::{self, PARAMETERS_FILE, RunSummary, SUMMARY_FILE};
use crate::rendezvous;
use crate::settings::TrainingSettings;
use crate::shard::write_values;
use crate::train::RankTrainer;

/// Number of samples of the built-in data set.
pub const SAMPLES: u64 = 1797;

/// Additional deadline for the slowest rank's restore.
const RESTORE_GRACE: Duration = Duration::from_secs(120);

/// Place of a rank, as a value.
#[derive(Debug)]
pub struct RankSeat {
    /// Identity of this rank, and address of rank 0.
    pub env: RankEnv,
    /// Rank 0's listener if it is bound already; otherwise it binds `MASTER_ADDR:MASTER_PORT`.
    pub listener: Option<TcpListener>,
}

/// Runs this process as the rank that its environment defines, with its agent, if any.
pub fn run(settings: TrainingSettings) -> Result<RunSummary, TrainError> {
    let env = RankEnv::from_env().map_err(|error| TrainError {
        place: None,
        failure: error.into(),
    })?;
    let place = Some(Box::new(RankLocation::of(&env)));
    let out = &mut io::stdout();
    let client = RankClient::connect(&env).map_err(|error| TrainError {
        place,
        failure: error.into(),
    })?;
    let seat = RankSeat { env, listener: None };
    match client {
        Some(mut client) => {
            let mut summary = run_as(&settings, seat, &mut client, out)?;
            summary.marks_dropped = client.marks_dropped();
            Ok(summary)
        }
        None => run_as(&settings, seat, &mut NoCheckpoints, out),
    }
}

/// Runs a rank with all its environment as values. Progress messages go to `log`; errors of writing them are ignored.
pub fn run_as(
    settings: &TrainingSettings,
    seat: RankSeat,
    checkpointer: &mut dyn CheckpointBackend,
    log: &mut dyn Write,
) -> Result<RunSummary, TrainError> {
    let place = Some(Box::new(RankLocation::of(&seat.env)));
    live(settings, seat, checkpointer, log).map_err(|failure| TrainError { place, failure })
}

fn live(
    settings: &TrainingSettings,
    seat: RankSeat,
    checkpointer: &mut dyn CheckpointBackend,
    log: &mut dyn Write,
) -> Result<RunSummary, FailureCause> {
    let RankSeat { env, listener } = seat;
    let problems = settings.problems(env.world_size);
    if !problems.is_empty() {
        return Err(FailureCause::Settings { problems });
    }
    let digits = DigitImages::load()?;
    let mut mesh = rendezvous::join(&env, settings.identity(), listener, settings.deadline)?;
    let mut trainer = RankTrainer::new(settings, digits, env.rank.0 as usize, mesh.world_size());
    let boxes = trainer.boxes();
    if let Some(restored) = checkpointer.restore(&boxes)? {
        trainer.restore(restored)?;
    }
    // Other ranks may still be restoring.
    mesh.set_deadline(settings.deadline + RESTORE_GRACE);
    trainer.gather(&mut mesh)?;
    mesh.set_deadline(settings.deadline);
    let started_at = trainer.step;
    let _ = writeln!(
        log,
        "[rank{}] generation {} of {}, world size {}: step {started_at} of {}",
        env.rank,
        env.generation,
        env.job,
        env.world_size,
        trainer.schedule.total_steps()
    );
    let mut course = RunMeasurements {
        boxes,
        ..RunMeasurements::default()
    };
    while trainer.step < trainer.schedule.total_steps() {
        course.step(settings, &env, &mut trainer, &mut mesh, checkpointer, log)?;
    }
    finish(settings, &env, &mut trainer, &mut mesh, &course, started_at).inspect(|_| {
        // A lost agent must not make finished work fail.
        if let Err(error) = checkpointer.done() {
            let _ = writeln!(log, "[rank{}] could not tell the agent: {error}", env.rank);
        }
    })
}

/// Progress of this generation.
#[derive(Default)]
struct RunMeasurements {
    boxes: Vec<TensorBox>,
    step_ms: Vec<f64>,
    work_ms: Vec<f64>,
    sealed: u64,
    skipped: u64,
}

impl RunMeasurements {
    fn step(
        &mut self,
        settings: &TrainingSettings,
        env: &RankEnv,
        trainer: &mut RankTrainer<'_>,
        mesh: &mut RankMesh,
        checkpointer: &mut dyn CheckpointBackend,
        log: &mut dyn Write,
    ) -> Result<(), FailureCause> {
        let begun = Instant::now();
        let loss = trainer.advance(mesh)?;
        self.work_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        thread::sleep(Duration::from_millis(settings.step_ms_min).saturating_sub(begun.elapsed()));
        let step_ms = begun.elapsed().as_secs_f64() * 1e3;
        self.step_ms.push(step_ms);
        let step = trainer.step;
        checkpointer.step(Step(step), loss, step_ms);
        if checkpointer.due(Step(step)) {
            self.save(env, trainer, checkpointer, log);
        }
        if env.rank.0 == 0 && step.is_multiple_of(trainer.schedule.steps_per_epoch()) {
            let epoch = step / trainer.schedule.steps_per_epoch();
            let _ = writeln!(
                log,
                "[rank0] epoch {epoch} done: step {step}, loss {loss:.4}, {step_ms:.1} ms a step"
            );
        }
        Ok(())
    }

    /// Saves a checkpoint. A failed save costs a checkpoint, never the run.
    fn save(
        &mut self,
        env: &RankEnv,
        trainer: &RankTrainer<'_>,
        checkpointer: &mut dyn CheckpointBackend,
        log: &mut dyn Write,
    ) {
        let image = trainer.image();
        let mut rest = image.as_slice();
        let tensors: Vec<(TensorBox, &[u8])> = self
            .boxes
            .iter()
            .map(|part| {
                let bytes = part.bytes().expect("a box of this model fits") as usize;
                let (head, tail) = rest.split_at(bytes);
                rest = tail;
                (part.clone(), head)
            })
            .collect();
        let problem = match checkpointer.save(Step(trainer.step), &tensors, &trainer.state().to_value()) {
            Ok(saved) if saved.outcome == SaveOutcome::Sealed => {
                self.sealed += 1;
                return;
            }
            Ok(saved) if saved.outcome == SaveOutcome::SkippedNoStore => "the job has no checkpoint store".to_owned(),
            Ok(_) => "every slot of the arena is still in use".to_owned(),
            Err(error) => error.to_string(),
        };
        self.skipped += 1;
        let _ = writeln!(
            log,
            "[rank{}] no checkpoint of step {}: {problem}",
            env.rank, trainer.step
        );
    }
}

/// Writes the results. Ledgers come first: the summary is valid only with a complete set of them.
fn finish(
    settings: &TrainingSettings,
    env: &RankEnv,
    trainer: &mut RankTrainer<'_>,
    mesh: &mut RankMesh,
    course: &RunMeasurements,
    started_at: u64,
) -> Result<RunSummary, FailureCause> {
    let ledger = LedgerFile {
        generation: env.generation.0,
        rank: env.rank.0,
        world_size: env.world_size,
        ledger: trainer.ledger.clone(),
    };
    output::write_json(env, &settings.out, &ledger::file_name(env.rank.0), &ledger)?;
    let mut parameters = Vec::new();
    write_values(&trainer.parameters, &mut parameters);
    let outcome = trainer.evaluate()?;
    let summary = RunSummary {
        rank: env.rank.0,
        generation: env.generation.0,
        world_size: env.world_size,
        steps: trainer.step,
        epochs: settings.epochs,
        samples: trainer.schedule.samples as u64,
        started_at,
        loss: outcome.loss / trainer.schedule.samples as f64,
        accuracy: f64::from(outcome.correct) / trainer.schedule.samples as f64,
        parameters: blake3::hash(&parameters).to_hex().to_string(),
        step_ms: median(&course.step_ms),
        work_ms: median(&course.work_ms),
        sealed: course.sealed,
        skipped: course.skipped,
        marks_dropped: 0,
    };
    mesh.barrier()?;
    if env.rank.0 == 0 {
        output::write(env, &settings.out, PARAMETERS_FILE, &parameters)?;
        output::write_json(env, &settings.out, SUMMARY_FILE, &summary)?;
    }
    // No rank exits before the results are written: an exited rank looks lost to those that are not done.
    mesh.barrier()?;
    Ok(summary)
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}
