//! Reload of the receivers of notifications while the controller runs.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rankguard_notify::{NotifyControl, NotifySettings};
use tokio::sync::Notify;
use tracing::{error, info};

use crate::health::SharedHealth;

/// Name of the part in `status` if a reload fails.
const PART: &str = "configuration";

/// Handle by which a process hands over a configuration that it has read again. Clones share it.
#[derive(Clone, Default)]
pub struct NotifyReload(Arc<ReloadState>);

#[derive(Default)]
struct ReloadState {
    /// Newest configuration that has not been taken over, or its mistakes.
    newest: Mutex<Option<Result<NotifySettings, String>>>,
    changed: Notify,
}

impl NotifyReload {
    /// Requests that the running controller uses these receivers and limits of alarms.
    pub fn replace(&self, settings: NotifySettings) {
        self.put(Ok(settings));
    }

    /// Reports that the new configuration cannot be used: the present one remains in use, and `status` names the mistakes.
    pub fn refuse(&self, mistakes: String) {
        self.put(Err(mistakes));
    }

    fn put(&self, read: Result<NotifySettings, String>) {
        *self.0.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
        self.0.changed.notify_one();
    }

    fn take(&self) -> Option<Result<NotifySettings, String>> {
        self.0.newest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes over each configuration; `control` is absent in a controller that sends nothing.
    pub(crate) async fn follow(self, control: Option<NotifyControl>, health: SharedHealth) -> Infallible {
        loop {
            self.0.changed.notified().await;
            let (Some(read), Some(control)) = (self.take(), &control) else {
                continue;
            };
            let taken = match read {
                Ok(settings) => control
                    .replace(&settings)
                    .await
                    .map(|()| settings.receivers.len())
                    .map_err(|problem| problem.to_string()),
                Err(mistakes) => Err(mistakes),
            };
            match &taken {
                Ok(receivers) => info!(receivers, "receivers of notifications read again"),
                Err(problem) => {
                    error!("cannot use the new configuration; the receivers of before remain in use: {problem}")
                }
            }
            let failure = taken.err().map(|problem| {
                format!(
                    "{problem}; the receivers of notifications of before remain in use: correct the file and send SIGHUP to the \
                     controller again"
                )
            });
            health.set_failure(PART, failure);
        }
    }
}

/// Every handle is equal: it is no setting.
impl PartialEq for NotifyReload {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for NotifyReload {}

impl fmt::Debug for NotifyReload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NotifyReload")
    }
}
