//! Service: a thread of its own with a task for each receiver. The event loop only replaces the newest facts.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rankguard_model::ReceiverView;
use rankguard_web_client::WebClientError;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::alarms::{AlarmBoard, AlarmLimits};
use crate::facts::ClusterFacts;
use crate::incident::Incident;
use crate::ledger::DeliveryLedger;
use crate::planner::{IncidentSet, SendTimes};
use crate::receiver::{ReceiverTask, SharedViews, TimedIncidents};
use crate::sender::MessageSender;
use crate::settings::NotifySettings;

/// Interval at which alarms are evaluated while no facts arrive.
const EVALUATION: Duration = Duration::from_secs(5);
const BACKOFF_MIN: Duration = Duration::from_secs(1);

/// Facts with the time of their arrival.
type TimedFacts = (ClusterFacts, Instant);

/// Reason why notifications cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    #[error("receiver {name}: {source}")]
    Receiver { name: String, source: WebClientError },
    #[error("cannot start the thread of notifications: {0}")]
    Thread(#[from] io::Error),
}

/// The event loop's end: takes facts. Dropping it ends the thread; what was not delivered is delivered after the next
/// start.
#[derive(Debug)]
pub struct NotifyFeed {
    facts: Option<watch::Sender<Option<Arc<TimedFacts>>>>,
    thread: Option<JoinHandle<()>>,
}

/// Counts of the receivers; clones share them.
#[derive(Debug, Clone, Default)]
pub struct NotifyCounts(SharedViews);

impl NotifyCounts {
    /// Returns the counts of each receiver.
    pub fn views(&self) -> Vec<ReceiverView> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl NotifyFeed {
    /// Starts the thread. `cluster` is the name in messages; the ledgers are in `state_dir`.
    pub fn start(
        settings: &NotifySettings,
        cluster: &str,
        state_dir: &Path,
    ) -> Result<(Self, NotifyCounts), NotifyError> {
        let views: Vec<ReceiverView> = settings
            .receivers
            .iter()
            .map(|receiver| ReceiverView {
                name: receiver.name.clone(),
                kind: receiver.kind.name().to_owned(),
                ..ReceiverView::default()
            })
            .collect();
        let views: SharedViews = Arc::new(Mutex::new(views));
        let mut tasks = Vec::new();
        for (position, receiver) in settings.receivers.iter().enumerate() {
            let sender = MessageSender::new(receiver.clone(), cluster);
            let sender = sender.map_err(|source| NotifyError::Receiver {
                name: receiver.name.clone(),
                source,
            })?;
            let ledger_file = state_dir.join(format!("notify-{}.json", receiver.name));
            tasks.push(ReceiverTask {
                sender,
                cluster: cluster.to_owned(),
                ledger: read_ledger(&ledger_file),
                ledger_file,
                views: Arc::clone(&views),
                position,
                sends: SendTimes::default(),
                backoff: BACKOFF_MIN,
                refreshed: None,
            });
        }
        let (facts, newest) = watch::channel(None);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let limits = settings.alarms.clone();
        let work = move || {
            runtime.block_on(run(tasks, limits, newest));
            // A look-up of a name that hangs does not hold up the end.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("notify".to_owned()).spawn(work)?;
        let feed = Self {
            facts: Some(facts),
            thread: Some(thread),
        };
        Ok((feed, NotifyCounts(views)))
    }

    /// Replaces the newest facts; never waits for a receiver.
    pub fn publish(&self, facts: ClusterFacts) {
        if let Some(sender) = &self.facts {
            sender.send_replace(Some(Arc::new((facts, Instant::now()))));
        }
    }
}

impl Drop for NotifyFeed {
    fn drop(&mut self) {
        self.facts = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

fn read_ledger(path: &Path) -> DeliveryLedger {
    DeliveryLedger::read(path).unwrap_or_else(|problem| {
        let path = path.display();
        warn!(%path, %problem, "cannot read the record of deliveries; open cases are reported again");
        DeliveryLedger::new()
    })
}

/// Evaluates facts until their sender is dropped; the tasks end with it.
async fn run(tasks: Vec<ReceiverTask>, limits: AlarmLimits, mut newest: watch::Receiver<Option<Arc<TimedFacts>>>) {
    let (incidents, receivers) = watch::channel(None);
    let mut running = JoinSet::new();
    for task in tasks {
        running.spawn(task.run(receivers.clone()));
    }
    let mut board = AlarmBoard::new(limits);
    loop {
        // The time is over if no facts arrive: then the alarms are evaluated again.
        if let Ok(Err(_)) = timeout(EVALUATION, newest.changed()).await {
            return;
        }
        let timed = newest.borrow_and_update().clone();
        if let Some(timed) = timed {
            let (facts, received) = &*timed;
            let at = facts.at.after(received.elapsed());
            let cases = facts.cases.iter().map(Incident::of_case);
            let incidents_now = cases.chain(board.evaluate(facts, at)).collect();
            let set = IncidentSet {
                incidents: incidents_now,
                is_settled: AlarmBoard::is_settled(facts, at),
            };
            incidents.send_replace(Some(Arc::new(TimedIncidents {
                set,
                at,
                evaluated: Instant::now(),
            })));
        }
    }
}
