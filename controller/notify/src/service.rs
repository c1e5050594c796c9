//! Service: a thread of its own with a task for each receiver. The event loop only replaces the newest facts.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rankguard_model::ReceiverView;
use rankguard_web_client::WebClientError;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::alarms::{AlarmBoard, AlarmLimits};
use crate::facts::ClusterFacts;
use crate::incident::Incident;
use crate::ledger::DeliveryLedger;
use crate::planner::{IncidentSet, SendTimes};
use crate::receiver::{ReceiverTask, SharedViews, TimedIncidents};
use crate::sender::MessageSender;
use crate::settings::{NotifySettings, ReceiverSettings};

/// Interval at which alarms are evaluated while no facts arrive.
const EVALUATION: Duration = Duration::from_secs(5);
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Age from which a report is not sent: a receiver that was away gets the next one.
const REPORT_AGE: Duration = Duration::from_secs(14 * 86_400);
/// Replacements of the receivers that wait; further ones are made to wait.
const ORDERS_MAX: usize = 4;

/// Facts with the time of their arrival.
type TimedFacts = (ClusterFacts, Instant);

/// Reason why notifications cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    #[error("receiver {name}: {source}")]
    Receiver { name: String, source: WebClientError },
    #[error("cannot start the thread of notifications: {0}")]
    Thread(#[from] io::Error),
    #[error("the thread of notifications has ended")]
    Ended,
}

/// The event loop's end: takes facts. Dropping it ends the thread; what was not delivered is delivered after the next
/// start.
#[derive(Debug)]
pub struct NotifyFeed {
    facts: Option<watch::Sender<Option<Arc<TimedFacts>>>>,
    thread: Option<JoinHandle<()>>,
    views: SharedViews,
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

/// Handle that replaces receivers and limits of alarms while messages are sent.
#[derive(Debug, Clone)]
pub struct NotifyControl {
    cluster: String,
    orders: mpsc::Sender<ReceiverSet>,
}

/// Receivers with their senders, and the limits of alarms.
#[derive(Debug)]
struct ReceiverSet {
    senders: Vec<MessageSender>,
    alarms: AlarmLimits,
}

impl ReceiverSet {
    /// Makes the senders; reads the authorities of the receivers.
    fn new(settings: &NotifySettings, cluster: &str) -> Result<Self, NotifyError> {
        let senders = settings.receivers.iter().map(|receiver| {
            let sender = MessageSender::new(receiver.clone(), cluster);
            sender.map_err(|source| NotifyError::Receiver {
                name: receiver.name.clone(),
                source,
            })
        });
        Ok(Self {
            senders: senders.collect::<Result<_, _>>()?,
            alarms: settings.alarms.clone(),
        })
    }
}

impl NotifyControl {
    /// Replaces the receivers and the limits of alarms; the name of the cluster remains. On an error the present ones remain
    /// in use.
    ///
    /// A receiver with the same settings continues. One with other settings ends its present delivery first; its record of
    /// deliveries, which its successor continues, has the key of each thread, so that nothing is lost or sent twice.
    pub async fn replace(&self, settings: &NotifySettings) -> Result<(), NotifyError> {
        let set = ReceiverSet::new(settings, &self.cluster)?;
        self.orders.send(set).await.map_err(|_| NotifyError::Ended)
    }
}

impl NotifyFeed {
    /// Starts the thread. `cluster` is the name in messages; the ledgers are in `state_dir`.
    pub fn start(
        settings: &NotifySettings,
        cluster: &str,
        state_dir: &Path,
    ) -> Result<(Self, NotifyCounts, NotifyControl), NotifyError> {
        let set = ReceiverSet::new(settings, cluster)?;
        let views = SharedViews::default();
        let tasks = ReceiverTasks {
            running: BTreeMap::new(),
            cluster: cluster.to_owned(),
            state_dir: state_dir.to_owned(),
            views: Arc::clone(&views),
        };
        // The counts are complete before the thread runs.
        tasks.renew_views(&set.senders);
        let (facts, newest) = watch::channel(None);
        let (orders, queue) = mpsc::channel(ORDERS_MAX);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let work = move || {
            runtime.block_on(run(tasks, set, queue, newest));
            // A look-up of a name that hangs does not hold up the end.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("notify".to_owned()).spawn(work)?;
        let feed = Self {
            facts: Some(facts),
            thread: Some(thread),
            views: Arc::clone(&views),
        };
        let control = NotifyControl {
            cluster: cluster.to_owned(),
            orders,
        };
        Ok((feed, NotifyCounts(views), control))
    }

    /// Returns true if a receiver is configured: otherwise facts need not be published.
    pub fn has_receivers(&self) -> bool {
        !self.views.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
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

/// Task of a receiver that runs.
struct RunningReceiver {
    settings: ReceiverSettings,
    stop: watch::Sender<bool>,
    task: task::JoinHandle<ReceiverTask>,
}

/// Tasks of all receivers, by name.
struct ReceiverTasks {
    running: BTreeMap<String, RunningReceiver>,
    cluster: String,
    state_dir: PathBuf,
    views: SharedViews,
}

impl ReceiverTasks {
    /// Starts, replaces and ends tasks, so that they are those of `senders`.
    fn renew(&mut self, senders: Vec<MessageSender>, incidents: &watch::Receiver<Option<Arc<TimedIncidents>>>) {
        self.renew_views(&senders);
        let mut before = std::mem::take(&mut self.running);
        for sender in senders {
            let settings = sender.settings().clone();
            let name = settings.name.clone();
            let running = match before.remove(&name) {
                Some(running) if running.settings == settings => running,
                older => self.start(sender, older, incidents.clone()),
            };
            self.running.insert(name, running);
        }
        for (name, removed) in before {
            removed.stop.send_replace(true);
            info!(receiver = %name, "the receiver is no longer configured");
        }
    }

    /// Starts the task of a receiver, which waits for the end of its predecessor and continues its record of deliveries.
    fn start(
        &self,
        sender: MessageSender,
        older: Option<RunningReceiver>,
        incidents: watch::Receiver<Option<Arc<TimedIncidents>>>,
    ) -> RunningReceiver {
        let settings = sender.settings().clone();
        let (stop, stopped) = watch::channel(false);
        let ledger_file = self.state_dir.join(format!("notify-{}.json", settings.name));
        let (cluster, views) = (self.cluster.clone(), Arc::clone(&self.views));
        let begun = async move {
            let ended = match older {
                Some(older) => {
                    older.stop.send_replace(true);
                    older.task.await.ok()
                }
                None => None,
            };
            let (ledger, sends) = ended.map_or_else(
                || (read_ledger(&ledger_file), SendTimes::default()),
                |ended| (ended.ledger, ended.sends),
            );
            let task = ReceiverTask {
                sender,
                cluster,
                ledger,
                ledger_file,
                views,
                sends,
                backoff: BACKOFF_MIN,
                refreshed: None,
            };
            task.run(incidents, stopped).await
        };
        RunningReceiver {
            settings,
            stop,
            task: task::spawn(begun),
        }
    }

    /// Renews the list of counts; a receiver of the same name and kind retains its counts.
    fn renew_views(&self, senders: &[MessageSender]) {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *views);
        *views = senders
            .iter()
            .map(|sender| {
                let settings = sender.settings();
                let kind = settings.kind.name();
                let known = before
                    .iter()
                    .find(|view| view.name == settings.name && view.kind == kind);
                known.cloned().unwrap_or_else(|| ReceiverView {
                    name: settings.name.clone(),
                    kind: kind.to_owned(),
                    ..ReceiverView::default()
                })
            })
            .collect();
    }
}

/// Evaluates facts until their sender is dropped; the tasks end with it.
async fn run(
    mut tasks: ReceiverTasks,
    first: ReceiverSet,
    mut orders: mpsc::Receiver<ReceiverSet>,
    mut newest: watch::Receiver<Option<Arc<TimedFacts>>>,
) {
    let (incidents, receivers) = watch::channel(None);
    let mut board = AlarmBoard::new(first.alarms);
    tasks.renew(first.senders, &receivers);
    loop {
        tokio::select! {
            changed = newest.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Some(set) = orders.recv() => {
                board.set_limits(set.alarms);
                tasks.renew(set.senders, &receivers);
            }
            // No facts arrive: the alarms are evaluated again.
            () = sleep(EVALUATION) => {}
        }
        let timed = newest.borrow_and_update().clone();
        if let Some(timed) = timed {
            let (facts, received) = &*timed;
            let at = facts.at.after(received.elapsed());
            let cases = facts.cases.iter().map(Incident::of_case);
            let report = facts.report.iter().filter(|report| at.since(report.until) < REPORT_AGE);
            let reports = report.map(Incident::of_report);
            let incidents_now = cases.chain(board.evaluate(facts, at)).chain(reports).collect();
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
