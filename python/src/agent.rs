//! Python class of the session with the node's agent.

use std::collections::VecDeque;
use std::sync::Mutex;

use pyo3::prelude::*;
use rankguard_model::Step;
use rankguard_rank::{RankClient, RankEnv};

use crate::conversions::{self, RestoreTuple, SaveTuple, lock};
use crate::entry::{TensorTuple, entries};
use crate::error::raise;
use crate::fork_guard::ForkGuard;
use crate::signals::run_call;

/// Maximum number of step marks that wait while another thread saves; beyond it the oldest are dropped and counted.
const MAX_MARKS: usize = 1024;

/// A rank's connection to the agent of its node. Calls may come from any thread; they are served one at a time.
#[pyclass(frozen, module = "rankguard._rankguard")]
pub(crate) struct Agent {
    client: ForkGuard<RankClient>,
    marks: Mutex<StepMarks>,
}

/// Step marks that were not passed to the client yet.
#[derive(Debug, Default)]
struct StepMarks {
    /// Step, loss, duration in ms, and the part in ms in which this rank worked; oldest first.
    waiting: VecDeque<(Step, Option<f64>, f64, Option<f64>)>,
    /// Number of marks that were dropped beyond [`MAX_MARKS`].
    dropped: u64,
}

#[pymethods]
impl Agent {
    /// Connects to the agent that the environment names; `None` if it names none.
    #[staticmethod]
    fn connect(py: Python<'_>) -> PyResult<Option<Self>> {
        let env = RankEnv::from_env().map_err(|problem| raise(&problem))?;
        let client = run_call(py, "connect to the agent", || RankClient::connect(&env))?;
        Ok(client.map(|client| Self {
            client: ForkGuard::new(client),
            marks: Mutex::default(),
        }))
    }

    /// Returns the rank and the number of ranks of its generation.
    fn place(&self, py: Python<'_>) -> PyResult<(u32, u32)> {
        self.client.call(py, "read the place", |client| {
            let (rank, world_size) = client.place();
            Ok((rank.0, world_size))
        })
    }

    /// Returns the steps between checkpoints by the rule of the launch; 0 without checkpoints. The controller may
    /// change the rule: use `due`.
    fn checkpoint_every(&self, py: Python<'_>) -> PyResult<u64> {
        self.client
            .call(py, "read the checkpoint rule", |client| Ok(client.checkpoint_every()))
    }

    /// Returns true if the job was submitted without a checkpoint store: all saves are skipped.
    fn without_store(&self, py: Python<'_>) -> PyResult<bool> {
        self.client
            .call(py, "read the checkpoint rule", |client| Ok(client.without_store()))
    }

    /// Returns true if a checkpoint is due at the end of this step, by the rule or because the controller called it.
    fn due(&self, py: Python<'_>, step: u64) -> PyResult<bool> {
        self.client
            .call(py, "read the checkpoint rule", |client| Ok(client.due(Step(step))))
    }

    /// Returns the counts of saves (`sealed`, `skipped`, `waited`, `replaced`), of void checkpoints (`failed`) and of
    /// step marks that were not sent (`marks_dropped`).
    fn counts(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        self.client.call(py, "count saves", |client| {
            let mut counts = conversions::counted(client.counts());
            counts.push(("failed", client.failed()));
            counts.push(("marks_dropped", client.marks_dropped() + lock(&self.marks).dropped));
            Ok(counts)
        })
    }

    /// Returns the steps with a checkpoint that became void since the last call, each with the reason, oldest first; at
    /// most 16. Never waits: while another thread saves, the list is empty, and the steps are retained for the next
    /// call.
    fn take_failures(&self) -> Vec<(u64, String)> {
        let mut failures = Vec::new();
        self.client.try_use(|client| failures = client.take_failures());
        failures.into_iter().map(|(step, reason)| (step.0, reason)).collect()
    }

    /// Returns the newest step with a void checkpoint, and the reason; `None` without one.
    fn last_failure(&self, py: Python<'_>) -> PyResult<Option<(u64, String)>> {
        self.client.call(py, "read the last failure", |client| {
            Ok(client.last_failure().map(|(step, reason)| (step.0, reason.clone())))
        })
    }

    /// Sets the behaviour of a save when no slot is free: `wait` (at most `wait_s` seconds, 0 to 1e9), `replace-oldest`
    /// or `skip`. Raises `ValueError` for other values.
    fn set_when_full(&self, py: Python<'_>, when_full: &str, wait_s: f64) -> PyResult<()> {
        let policy = conversions::policy(when_full, wait_s)?;
        self.client.call(py, "set the policy", |client| {
            client.set_policy(policy);
            Ok(())
        })
    }

    /// Fills the buffers from the checkpoint that this generation starts from; `None` for a fresh start. After an error
    /// the buffers may be partly filled.
    fn restore(&self, py: Python<'_>, wanted: Vec<TensorTuple>) -> PyResult<Option<RestoreTuple>> {
        let mut wanted = entries(wanted)?;
        self.client.call(py, "restore", |client| {
            let restored = client.restore_into(&mut conversions::places(&mut wanted))?;
            Ok(restored.map(conversions::given))
        })
    }

    /// Reports a completed step of `step_ms` milliseconds, of which this rank worked `own_ms` rather than waited for
    /// others. Never waits: while another thread saves, marks are queued for the next call.
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

    /// Copies the tensors into the arena and reports the image to the agent. The tensors may be changed when it
    /// returns.
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
        self.client.call(py, "save a checkpoint", |client| {
            let saved = client.checkpoint_with(
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
        self.client.call(py, "begin a checkpoint", |client| {
            let begun = client.begin(conversions::step(step), parts, state, notes)?;
            Ok(begun.map(conversions::outcome))
        })
    }

    /// Waits for the rest of a copy that was begun, and reports the image to the agent; `None` if none was begun.
    fn finish(&self, py: Python<'_>) -> PyResult<Option<SaveTuple>> {
        self.client.call(py, "finish a checkpoint", |client| {
            Ok(client.finish()?.map(conversions::outcome))
        })
    }

    /// Reports that all work of this rank is done. Does nothing in a fork.
    fn done(&self, py: Python<'_>) -> PyResult<()> {
        if self.client.is_fork() {
            return Ok(());
        }
        self.client.call(py, "report the end", RankClient::done)
    }

    /// Closes a fork's copy of the socket. Does nothing in the process that connected.
    fn leave_to_parent(&self) {
        self.client.leave(RankClient::leave_to_parent);
    }
}
