//! A store in a directory, without an agent, from Python.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rankguard_model::{Generation, JobId, Rank, Step};
use rankguard_rank::{LocalOptions, LocalRank, RankEnv};

use crate::entry::{Told, entries};
use crate::error::raise;
use crate::fork_guard::ForkGuard;
use crate::keeper::{self, Given, Outcome};
use crate::signals::run_call;

/// A rank that writes its own images. Calls may come from any thread; one at a time is served.
#[pyclass(frozen, module = "rankguard._rankguard")]
pub(crate) struct Local {
    rank: ForkGuard<LocalRank>,
}

#[pymethods]
impl Local {
    /// Opens the store in `dir`. What is `None` comes from the environment that torchrun sets, or from the store.
    #[new]
    #[pyo3(signature = (dir, *, job=None, rank=None, world_size=None, generation=None, slots=1, when_full="wait",
        wait_s=600.0, commit_within_s=600.0, keep=0))]
    #[allow(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn new(
        py: Python<'_>,
        dir: PathBuf,
        job: Option<String>,
        rank: Option<u32>,
        world_size: Option<u32>,
        generation: Option<u64>,
        slots: u32,
        when_full: &str,
        wait_s: f64,
        commit_within_s: f64,
        keep: u32,
    ) -> PyResult<Self> {
        let mut env = match (rank, world_size) {
            (Some(_), Some(_)) => RankEnv::from_vars(&Default::default()),
            _ => RankEnv::from_env(),
        }
        .map_err(|problem| raise(&problem))?;
        env.rank = rank.map_or(env.rank, Rank);
        env.world_size = world_size.unwrap_or(env.world_size);
        env.job = job.map_or(env.job, JobId::from);
        if env.rank.0 >= env.world_size {
            let (rank, world) = (env.rank, env.world_size);
            return Err(PyValueError::new_err(format!(
                "rank {rank} is outside a world of {world}"
            )));
        }
        let policy = keeper::policy(when_full, wait_s)?;
        let options = LocalOptions {
            slots,
            policy,
            commit_within: keeper::duration(commit_within_s)?,
            keep,
            generation: generation.map(Generation),
        };
        let rank = run_call(py, "open the store", || LocalRank::open(dir, &env, &options))?;
        Ok(Self {
            rank: ForkGuard::new(rank),
        })
    }

    /// The rank and the ranks of its world.
    fn place(&self, py: Python<'_>) -> PyResult<(u32, u32)> {
        self.rank.call(py, "read the place", |rank| {
            let (rank, world_size) = rank.place();
            Ok((rank.0, world_size))
        })
    }

    /// The generation that this run saves under.
    fn generation(&self, py: Python<'_>) -> PyResult<u64> {
        self.rank
            .call(py, "read the generation", |rank| Ok(rank.generation().0))
    }

    /// Step and generation of each committed checkpoint, oldest first.
    fn committed(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64)>> {
        self.rank.call(py, "list checkpoints", |rank| {
            let ids = rank.committed()?;
            Ok(ids.into_iter().map(|id| (id.step.0, id.generation.0)).collect())
        })
    }

    /// Makes the memory for images of this size now instead of in the first save.
    fn arm(&self, py: Python<'_>, image_bytes: u64) -> PyResult<()> {
        self.rank.call(py, "reserve memory", |rank| rank.arm(image_bytes))
    }

    /// Fills the buffers from the newest checkpoint, or that of `step`; `None` when there is none.
    #[pyo3(signature = (wanted, step=None))]
    fn restore(&self, py: Python<'_>, wanted: Vec<Told>, step: Option<u64>) -> PyResult<Option<Given>> {
        let mut wanted = entries(wanted)?;
        self.rank.call(py, "restore", |rank| {
            let restored = rank.restore_into(&mut keeper::places(&mut wanted), step.map(Step))?;
            Ok(restored.map(keeper::given))
        })
    }

    /// Copies the tensors into memory of its own; they may be changed when it returns. A thread writes and commits.
    fn checkpoint(
        &self,
        py: Python<'_>,
        step: u64,
        tensors: Vec<Told>,
        state: &str,
        schema: &str,
    ) -> PyResult<Outcome> {
        let (tensors, state) = (entries(tensors)?, keeper::state(state)?);
        let notes = keeper::notes(&tensors, schema);
        self.rank.call(py, "save a checkpoint", |rank| {
            let saved = rank.checkpoint(keeper::step(step), &keeper::borrowed(&tensors), &state, &notes)?;
            Ok(keeper::outcome(saved))
        })
    }

    /// Starts to copy beside the training; gives what became of it already when it was skipped.
    fn begin(
        &self,
        py: Python<'_>,
        step: u64,
        tensors: Vec<Told>,
        state: &str,
        schema: &str,
    ) -> PyResult<Option<Outcome>> {
        let (state, (parts, notes)) = (keeper::state(state)?, keeper::parts(tensors, schema)?);
        self.rank.call(py, "begin a checkpoint", |rank| {
            Ok(rank
                .begin(keeper::step(step), parts, state, notes)?
                .map(keeper::outcome))
        })
    }

    /// Waits for what is left of the copy that was begun; `None` when none was.
    fn finish(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        self.rank.call(py, "finish a checkpoint", |rank| {
            Ok(rank.finish()?.map(keeper::outcome))
        })
    }

    /// Waits until everything sealed is durable and committed; step and generation of the newest.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<(u64, u64)>> {
        let limit = keeper::duration(seconds)?;
        self.rank.call(py, "wait for the commit", |rank| {
            Ok(rank.wait(limit)?.map(|id| (id.step.0, id.generation.0)))
        })
    }

    /// Whether nothing is being copied, written, committed or cleared away by this rank.
    fn idle(&self, py: Python<'_>) -> PyResult<bool> {
        self.rank
            .call(py, "read the state of the writer", |rank| Ok(rank.is_idle()))
    }

    /// Steps that could not be made durable since this was last asked, each with the reason.
    fn take_failures(&self, py: Python<'_>) -> PyResult<Vec<(u64, String)>> {
        self.rank.call(py, "list failures", |rank| {
            let failures = rank.take_failures().into_iter();
            Ok(failures.map(|(step, reason)| (step.0, reason)).collect())
        })
    }

    /// What was saved and what was not.
    fn counts(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        self.rank.call(py, "count saves", |rank| {
            let mut counts = keeper::counted(rank.counts());
            counts.push(("failed", rank.failed()));
            Ok(counts)
        })
    }

    /// The newest step that could not be made durable, with the reason.
    fn last_failure(&self, py: Python<'_>) -> PyResult<Option<(u64, String)>> {
        self.rank.call(py, "read the last failure", |rank| {
            Ok(rank.last_failure().map(|(step, reason)| (step.0, reason)))
        })
    }

    /// Jobs that have a folder in the store.
    fn jobs(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.rank.call(py, "list jobs", |rank| {
            let jobs = rank.jobs()?.into_iter();
            Ok(jobs.map(|job| job.to_string()).collect())
        })
    }

    /// Writes what is sealed, waits for its commit and gives the memory back; steps that were not committed, each with the
    /// reason. After a wait that failed or was interrupted it waits for no other rank. May be called twice; in a fork it does
    /// nothing.
    fn close(&self, py: Python<'_>) -> PyResult<Vec<(u64, String)>> {
        let failures = run_call(py, "close the session", || {
            self.rank.take().map(LocalRank::close).transpose()
        })?;
        let failures = failures.unwrap_or_default().into_iter();
        Ok(failures.map(|(step, reason)| (step.0, reason)).collect())
    }

    /// Leaves the session to the parent, in a fork.
    fn leave_to_parent(&self) {
        self.rank.leave(LocalRank::leave_to_parent);
    }
}
