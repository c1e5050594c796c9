//! Thread that watches the lease: queries other agents while the controller is unreachable, and has ranks ended when
//! the lease expires.

use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use rankguard_identity::PeerTransport;
use rankguard_model::PeerAgent;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::boot_clock::boot_now;
use crate::lease::{LeaseVerdict, RankLease, WitnessAnswer};
use crate::links::ask_contact;
use crate::orders::OrderMessage;
use crate::roster::RankRoster;

/// Longest interval between two queries.
const ASK_EVERY_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the answers.
const ANSWER_LIMIT_MAX: Duration = Duration::from_secs(2);
/// Shortest interval between two checks.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(5);

/// Inputs of the lease thread.
pub(crate) struct LeaseWatch {
    pub(crate) lease: RankLease,
    pub(crate) network: PeerTransport,
    pub(crate) roster: RankRoster,
    pub(crate) orders: SyncSender<OrderMessage>,
}

/// Running lease thread; ends when this is dropped.
pub(crate) struct LeaseWatchHandle {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for LeaseWatchHandle {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl LeaseWatch {
    /// Starts the thread. It has a runtime of its own, so that other work of the agent does not delay the end of a
    /// lease.
    pub(crate) fn start(self) -> io::Result<LeaseWatchHandle> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ends) = oneshot::channel::<()>();
        let watch = move || {
            runtime.block_on(async {
                tokio::select! {
                    never = self.run() => match never {},
                    _ = ends => {}
                }
            });
        };
        let thread = thread::Builder::new().name("lease".to_owned()).spawn(watch)?;
        Ok(LeaseWatchHandle {
            end: Some(end),
            thread: Some(thread),
        })
    }

    async fn run(self) -> std::convert::Infallible {
        let length = self.lease.length();
        let ask_after = length / 3;
        let ask_every = (length / 6).min(ASK_EVERY_MAX);
        let answer_limit = (length / 3).min(ANSWER_LIMIT_MAX);
        let mut asked_at: Option<Duration> = None;
        loop {
            if !self.roster.running().is_empty() {
                if !self.lease.is_held() {
                    self.end_ranks();
                } else if self.lease.alone_for() >= ask_after && is_due(asked_at, ask_every) {
                    let now = boot_now();
                    let verdict = self.ask(answer_limit).await;
                    tracing::debug!(%verdict, "asked other agents for the controller");
                    self.lease.judged(now, verdict);
                    asked_at = Some(now);
                    continue;
                }
            }
            let look = self.lease.expires_in().min(ask_every / 4);
            let look = if look.is_zero() { ask_every / 4 } else { look };
            tokio::time::sleep(look.max(LOOK_EVERY_MIN)).await;
        }
    }

    /// Queries all witnesses concurrently.
    async fn ask(&self, limit: Duration) -> LeaseVerdict {
        let Some(witnesses) = self.lease.witnesses() else {
            return LeaseVerdict::Unknown;
        };
        let alone_for = self.lease.alone_for();
        let mut asked = JoinSet::new();
        for PeerAgent { node, address, .. } in witnesses.iter().cloned() {
            let network = self.network.clone();
            asked.spawn(async move {
                let contact = ask_contact(&network, &node, &address, limit).await;
                contact.map(|contact_age| WitnessAnswer { node, contact_age })
            });
        }
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(answer)) => answers.push(answer),
                Ok(Err(problem)) => tracing::debug!(problem, "a witness does not answer"),
                Err(problem) => tracing::warn!(%problem, "a question to a witness ended"),
            }
        }
        LeaseVerdict::of(witnesses.len(), &answers, alone_for)
    }

    /// Orders the end of all ranks. If the queue is full, the next check retries.
    fn end_ranks(&self) {
        let reason = self.lease.end_reason();
        if self.orders.try_send(OrderMessage::LeaseOver { reason }).is_err() {
            tracing::warn!("the lease is over and the queue of orders is full");
        }
    }
}

fn is_due(asked_at: Option<Duration>, every: Duration) -> bool {
    asked_at.is_none_or(|asked| boot_now().saturating_sub(asked) >= every)
}
