//! Python class of the connection over which a rank leaves its generation.

use std::os::fd::IntoRawFd as _;
use std::sync::Mutex;
use std::time::Duration;

use pyo3::prelude::*;
use rankguard_rank::{DepartureCloser, RankDeparture, RankEnv};

use crate::conversions::lock;
use crate::error::raise;
use crate::signals::run_call;

/// Connection over which the agent asks this rank to leave its generation. One thread waits; another one closes it.
#[pyclass(frozen, module = "rankguard._rankguard")]
pub(crate) struct Departure {
    connection: Mutex<RankDeparture>,
    closer: DepartureCloser,
}

#[pymethods]
impl Departure {
    /// Connects to the agent that the environment names; `None` if it names none.
    #[staticmethod]
    fn connect(py: Python<'_>) -> PyResult<Option<Self>> {
        let env = RankEnv::from_env().map_err(|problem| raise(&problem))?;
        let connected = run_call(py, "connect to the agent", || RankDeparture::connect(&env))?;
        Ok(connected.map(|(connection, closer)| Self {
            connection: Mutex::new(connection),
            closer,
        }))
    }

    /// Waits at most `seconds`; returns true once the agent has asked this rank to leave its generation. Raises when the
    /// connection is closed.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        // Not for the main thread: a wait of another thread handles no signals.
        py.detach(|| lock(&self.connection).wait(limit))
            .map_err(|problem| raise(&problem))
    }

    /// Reports that this process does nothing more in its generation. Returns the descriptor of the socket at which it
    /// receives its next rank; the caller closes it.
    fn leave(&self, py: Python<'_>) -> PyResult<i32> {
        let socket = run_call(py, "leave the generation", || lock(&self.connection).leave())?;
        Ok(socket.into_raw_fd())
    }

    /// Closes the connection; a wait in another thread ends.
    fn close(&self) {
        self.closer.close();
    }
}
