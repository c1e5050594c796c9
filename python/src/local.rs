//! Python class of a store in a directory, without an agent.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rankguard_model::{Generation, JobId, Rank, Step};
use rankguard_rank::{LocalOptions, LocalRank, RankEnv};

use crate::conversions::{self, RestoreTuple, SaveTuple};
use crate::entry::{TensorTuple, entries};
use crate::error::raise;
use crate::fork_guard::ForkGuard;
use crate::signals::run_call;

/// A rank that writes its own images to a store, without an agent. Calls may come from any thread; they are served one
/// at a time.
#[pyclass(frozen, module = "rankguard._rankguard")]
pub(crate) struct Local {
    rank: ForkGuard<LocalRank>,
}

#[pymethods]
impl Local {
    /// Opens the store in `dir`. A `job`, `rank` or `world_size` of `None` is taken from the environment that torchrun
    /// sets. If both `rank` and `world_size` are given, the environment is not read, and the default of `job` is
    /// `local`. A `generation` of `None` is the one after the newest in the store.
    ///
    /// `slots` is the number of images in memory, 1 to 3. `commit_within_s` is the longest wait of rank 0 for the
    /// shards of other ranks. `keep` is the number of newest checkpoints to retain; 0 for all.
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
            let rank = env.rank;
            let world = env.world_size;
            return Err(PyValueError::new_err(format!(
                "rank {rank} is outside a world of {world}"
            )));
        }
        let policy = conversions::policy(when_full, wait_s)?;
        let options = LocalOptions {
            slots,
            policy,
            commit_within: conversions::duration(commit_within_s)?,
            keep,
            generation: generation.map(Generation),
        };
        let rank = run_call(py, "open the store", || LocalRank::open(dir, &env, &options))?;
        Ok(Self {
            rank: ForkGuard::new(rank),
        })
    }

    /// Returns the rank and the number of ranks of its world.
    fn place(&self, py: Python<'_>) -> PyResult<(u32, u32)> {
        self.rank.call(py, "read the place", |rank| {
            let (rank, world_size) = rank.place();
            Ok((rank.0, world_size))
        })
    }

    /// Returns the generation that this run saves under.
    fn generation(&self, py: Python<'_>) -> PyResult<u64> {
        self.rank
            .call(py, "read the generation", |rank| Ok(rank.generation().0))
    }

    /// Returns step and generation of each committed checkpoint that no later attempt of the run supersedes, oldest
    /// first.
    fn committed(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64)>> {
        self.rank.call(py, "list checkpoints", |rank| {
            let ids = rank.committed()?;
            Ok(ids.into_iter().map(|id| (id.step.0, id.generation.0)).collect())
        })
    }

    /// Allocates the memory for images of this size in bytes now instead of in the first save.
    fn arm(&self, py: Python<'_>, image_bytes: u64) -> PyResult<()> {
        self.rank.call(py, "reserve memory", |rank| rank.arm(image_bytes))
    }

    /// Fills the buffers from the newest checkpoint, or from that of `step`; `None` if there is none. A damaged
    /// checkpoint is skipped only in a world of one rank.
    #[pyo3(signature = (wanted, step=None))]
    fn restore(&self, py: Python<'_>, wanted: Vec<TensorTuple>, step: Option<u64>) -> PyResult<Option<RestoreTuple>> {
        let mut wanted = entries(wanted)?;
        self.rank.call(py, "restore", |rank| {
            let restored = rank.restore_into(&mut conversions::places(&mut wanted), step.map(Step))?;
            Ok(restored.map(conversions::given))
        })
    }

    /// Copies the tensors into separate memory; they may be changed when it returns. A thread writes and commits.
    fn checkpoint(
        &self,
        py: Python<'_>,
        step: u64,
        tensors: Vec<TensorTuple>,
        state: &str,
        schema: &str,
    ) -> PyResult<SaveTuple> {
        let tensors = entries(tensors)?;
        let state = conversions::state(state)?;
        let notes = conversions::notes(&tensors, schema);
        self.rank.call(py, "save a checkpoint", |rank| {
            let saved = rank.checkpoint(
                conversions::step(step),
                &conversions::borrowed(&tensors),
                &state,
                &notes,
            )?;
            Ok(conversions::outcome(saved))
        })
    }

    /// Starts to copy while the training continues; the tensors must not change until `finish` returns. Returns the
    /// outcome if the save was skipped.
    fn begin(
        &self,
        py: Python<'_>,
        step: u64,
        tensors: Vec<TensorTuple>,
        state: &str,
        schema: &str,
    ) -> PyResult<Option<SaveTuple>> {
        let (state, (parts, notes)) = (conversions::state(state)?, conversions::parts(tensors, schema)?);
        self.rank.call(py, "begin a checkpoint", |rank| {
            Ok(rank
                .begin(conversions::step(step), parts, state, notes)?
                .map(conversions::outcome))
        })
    }

    /// Waits for the rest of a copy that was begun; `None` if none was begun.
    fn finish(&self, py: Python<'_>) -> PyResult<Option<SaveTuple>> {
        self.rank.call(py, "finish a checkpoint", |rank| {
            Ok(rank.finish()?.map(conversions::outcome))
        })
    }

    /// Waits, at most `seconds`, until every sealed image is durable and the newest is committed. Returns step and
    /// generation of the newest; `None` if none was sealed. Raises an error at the time limit or if an image could not
    /// be made durable.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<(u64, u64)>> {
        let limit = conversions::duration(seconds)?;
        self.rank.call(py, "wait for the commit", |rank| {
            Ok(rank.wait(limit)?.map(|id| (id.step.0, id.generation.0)))
        })
    }

    /// Returns true if this rank is not copying, writing, committing or removing anything.
    fn idle(&self, py: Python<'_>) -> PyResult<bool> {
        self.rank
            .call(py, "read the state of the writer", |rank| Ok(rank.is_idle()))
    }

    /// Returns the steps that could not be made durable since the last call, each with the reason; at most the newest
    /// 16.
    fn take_failures(&self, py: Python<'_>) -> PyResult<Vec<(u64, String)>> {
        self.rank.call(py, "list failures", |rank| {
            let failures = rank.take_failures().into_iter();
            Ok(failures.map(|(step, reason)| (step.0, reason)).collect())
        })
    }

    /// Returns the counts of saves (`sealed`, `skipped`, `waited`, `replaced`), and of images that could not be made
    /// durable (`failed`).
    fn counts(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        self.rank.call(py, "count saves", |rank| {
            let mut counts = conversions::counted(rank.counts());
            counts.push(("failed", rank.failed()));
            Ok(counts)
        })
    }

    /// Returns the newest step that could not be made durable, with the reason; `None` without one.
    fn last_failure(&self, py: Python<'_>) -> PyResult<Option<(u64, String)>> {
        self.rank.call(py, "read the last failure", |rank| {
            Ok(rank.last_failure().map(|(step, reason)| (step.0, reason)))
        })
    }

    /// Returns the jobs that have a folder in the store.
    fn jobs(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.rank.call(py, "list jobs", |rank| {
            let jobs = rank.jobs()?.into_iter();
            Ok(jobs.map(|job| job.to_string()).collect())
        })
    }

    /// Writes sealed images, waits for their commit and releases the memory; returns the steps that were not made
    /// durable, each with the reason. After a wait that failed or was interrupted, it waits for no other rank. Further
    /// calls, and calls in a fork, do nothing.
    fn close(&self, py: Python<'_>) -> PyResult<Vec<(u64, String)>> {
        let failures = run_call(py, "close the session", || {
            self.rank.take().map(LocalRank::close).transpose()
        })?;
        let failures = failures.unwrap_or_default().into_iter();
        Ok(failures.map(|(step, reason)| (step.0, reason)).collect())
    }

    /// Releases a fork's copy of the session; nothing is written. Does nothing in the process that opened it.
    fn leave_to_parent(&self) {
        self.rank.leave(LocalRank::leave_to_parent);
    }
}
