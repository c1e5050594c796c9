//! Python class of the connection over which a rank leaves its generation.

use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use pyo3::prelude::*;
use rankguard_rank::{DepartureNews, DepartureSender, RankDeparture, RankEnv};

use crate::conversions::lock;
use crate::error::raise;
use crate::signals::run_call;

/// Connection over which this rank leaves its generation. One thread receives; any other one sends and closes.
#[pyclass(frozen, module = "rankguard._rankguard")]
pub(crate) struct Departure {
    receiver: Mutex<RankDeparture>,
    sender: DepartureSender,
    /// Socket that was received and not taken.
    socket: Mutex<Option<OwnedFd>>,
}

#[pymethods]
impl Departure {
    /// Connects to the agent that the environment names; `None` if it names none.
    #[staticmethod]
    fn connect(py: Python<'_>) -> PyResult<Option<Self>> {
        let env = RankEnv::from_env().map_err(|problem| raise(&problem))?;
        let connected = run_call(py, "connect to the agent", || RankDeparture::connect(&env))?;
        Ok(connected.map(|(receiver, sender)| Self {
            receiver: Mutex::new(receiver),
            sender,
            socket: Mutex::new(None),
        }))
    }

    /// Waits at most `seconds` for the agent. Returns `"leave"` if the rank is to leave its generation, `"kept"` if the
    /// process may wait for its next rank, and `None` if nothing was sent. Raises when the connection is closed.
    fn receive(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<&'static str>> {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        // Not for the main thread: a wait of another thread handles no signals.
        let received = py.detach(|| lock(&self.receiver).receive(limit));
        Ok(match received.map_err(|problem| raise(&problem))? {
            None => None,
            Some(DepartureNews::Leave) => Some("leave"),
            Some(DepartureNews::Kept(socket)) => {
                *lock(&self.socket) = Some(socket);
                Some("kept")
            }
        })
    }

    /// Reports that this process does nothing more in its generation; `"kept"` is received then.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        run_call(py, "leave the generation", || self.sender.leave())
    }

    /// Returns the descriptor of the received socket, which the caller closes; `None` if it was taken or not received.
    fn take_socket(&self) -> Option<i32> {
        lock(&self.socket).take().map(IntoRawFd::into_raw_fd)
    }

    /// Closes the connection; a wait in another thread ends.
    fn close(&self) {
        self.sender.close();
    }
}
