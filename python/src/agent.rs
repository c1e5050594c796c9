//! The agent of the node, from Python.

use std::collections::VecDeque;
use std::sync::Mutex;

use pyo3::prelude::*;
use rankguard_model::Step;
use rankguard_rank::{RankClient, RankEnv};

use crate::entry::{Told, entries};
use crate::error::raise;
use crate::fork_guard::ForkGuard;
use crate::keeper::{self, Given, Outcome, lock};
use crate::signals::run_call;

/// Marks that wait while another thread saves; of more, the oldest are dropped and counted.
const MAX_MARKS: usize = 1024;

/// A rank's connection to the agent of its node. Calls may come from any thread; one at a time is served.
#[pyclass(frozen, module = "rankguard._rankguard")]
pub(crate) struct Agent {
    client: ForkGuard<RankClient>,
    marks: Mutex<Marks>,
}

#[derive(Debug, Default)]
struct Marks {
    waiting: VecDeque<(Step, Option<f64>, f64, Option<f64>)>,
    dropped: u64,
}

#[pymethods]
impl Agent {
    /// Connects to the agent that the environment names; `None` when it names none.
    #[staticmethod]
    fn connect(py: Python<'_>) -> PyResult<Option<Self>> {
        let env = RankEnv::from_env().map_err(|problem| raise(&problem))?;
        let client = run_call(py, "connect to the agent", || RankClient::connect(&env))?;
        Ok(client.map(|client| Self {
            client: ForkGuard::new(client),
            marks: Mutex::default(),
        }))
    }

    /// The rank and the ranks of its generation.
    fn place(&self, py: Python<'_>) -> PyResult<(u32, u32)> {
        self.client.call(py, "read the place", |client| {
            let (rank, world_size) = client.place();
            Ok((rank.0, world_size))
        })
    }

    /// Steps between checkpoints; 0 without checkpoints.
    fn checkpoint_every(&self, py: Python<'_>) -> PyResult<u64> {
        self.client
            .call(py, "read the checkpoint rule", |client| Ok(client.checkpoint_every()))
    }

    /// Whether the job was submitted without a checkpoint store: saves are skipped.
    fn without_store(&self, py: Python<'_>) -> PyResult<bool> {
        self.client
            .call(py, "read the checkpoint rule", |client| Ok(client.without_store()))
    }

    /// Whether to checkpoint at the end of this step.
    fn due(&self, py: Python<'_>, step: u64) -> PyResult<bool> {
        self.client
            .call(py, "read the checkpoint rule", |client| Ok(client.due(Step(step))))
    }

    /// What was saved and what was not, and step marks that nobody heard.
    fn counts(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        self.client.call(py, "count saves", |client| {
            let mut counts = keeper::counted(client.counts());
            counts.push(("failed", client.failed()));
            counts.push(("marks_dropped", client.marks_dropped() + lock(&self.marks).dropped));
            Ok(counts)
        })
    }

    /// Steps whose checkpoint became void since this was last asked, each with the reason. Never waits: while another thread
    /// saves, they are kept for the next call.
    fn take_failures(&self) -> Vec<(u64, String)> {
        let mut failures = Vec::new();
        self.client.try_use(|client| failures = client.take_failures());
        failures.into_iter().map(|(step, reason)| (step.0, reason)).collect()
    }

    /// The newest step whose checkpoint became void, with the reason.
    fn last_failure(&self, py: Python<'_>) -> PyResult<Option<(u64, String)>> {
        self.client.call(py, "read the last failure", |client| {
            Ok(client.last_failure().map(|(step, reason)| (step.0, reason.clone())))
        })
    }

    /// What a save does when no slot is free: `wait`, so many seconds at most, `replace-oldest` or `skip`.
    fn set_when_full(&self, py: Python<'_>, when_full: &str, wait_s: f64) -> PyResult<()> {
        let policy = keeper::policy(when_full, wait_s)?;
        self.client.call(py, "set the policy", |client| {
            client.set_policy(policy);
            Ok(())
        })
    }

    /// Fills the buffers from the checkpoint that this generation starts from; `None` for a fresh start.
    fn restore(&self, py: Python<'_>, wanted: Vec<Told>) -> PyResult<Option<Given>> {
        let mut wanted = entries(wanted)?;
        self.client.call(py, "restore", |client| {
            let restored = client.restore_into(&mut keeper::places(&mut wanted))?;
            Ok(restored.map(keeper::given))
        })
    }

    /// Tells that a step was completed. Never waits: while another thread saves, marks are kept for the next call.
    #[pyo3(signature = (step, loss, step_ms, own_ms))]
    fn step(&self, step: u64, loss: Option<f64>, step_ms: f64, own_ms: Option<f64>) -> PyResult<()> {
        self.client.check_owner("report a step")?;
        let mut marks = lock(&self.marks);
        if marks.waiting.len() == MAX_MARKS {
            marks.waiting.pop_front();
            marks.dropped += 1;
        }
        marks.waiting.push_back((Step(step), loss, step_ms, own_ms));
        self.client.try_use(|client| {
            for (step, loss, step_ms, own_ms) in marks.waiting.drain(..) {
                client.step_of(step, loss, step_ms, own_ms);
            }
        });
        Ok(())
    }

    /// Copies the tensors into the arena; they may be changed when it returns.
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
        self.client.call(py, "save a checkpoint", |client| {
            let saved = client.checkpoint_with(keeper::step(step), &keeper::borrowed(&tensors), &state, &notes)?;
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
        self.client.call(py, "begin a checkpoint", |client| {
            let begun = client.begin(keeper::step(step), parts, state, notes)?;
            Ok(begun.map(keeper::outcome))
        })
    }

    /// Waits for what is left of the copy that was begun; `None` when none was.
    fn finish(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        self.client.call(py, "finish a checkpoint", |client| {
            Ok(client.finish()?.map(keeper::outcome))
        })
    }

    /// Reports that all work of this rank is done. In a fork it does nothing.
    fn done(&self, py: Python<'_>) -> PyResult<()> {
        if self.client.is_fork() {
            return Ok(());
        }
        self.client.call(py, "report the end", RankClient::done)
    }

    /// Closes this process's end of the socket, in a fork.
    fn leave_to_parent(&self) {
        self.client.leave(RankClient::leave_to_parent);
    }
}
