//! Watch: changes of cases, jobs and nodes as server-sent events.
//!
//! The first event is `start`; then each change is one event with the id that a client sends as `Last-Event-ID` to
//! continue. An event `gap` names the lists to read again. A watch ends after [`WATCH_LIFE`], and clients continue it; one with
//! a token ends with the token.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response};
use rankguard_access::{CallerIdentity, TokenStore};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use crate::changes::{ChangePosition, NextChange, event_text};
use crate::documents::{WatchGap, WatchStart};
use crate::problem::{Problem, quoted};
use crate::replica::StateReader;
use crate::service::ControllerHealth;

/// Largest number of clients that watch at a time.
pub(crate) const WATCHES_MAX: usize = 64;
/// Longest silence of a watch: then a comment is sent, so that both sides notice a broken connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Longest life of a watch.
const WATCH_LIFE: Duration = Duration::from_secs(3_600);
/// Parts of a watch that wait for its connection.
const PARTS_MAX: usize = 8;
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const LISTS: [&str; 3] = ["/api/v1/cases", "/api/v1/jobs", "/api/v1/nodes"];

/// Starts a watch. Its task ends with the body of the response.
pub(crate) fn start(
    reader: &StateReader,
    watches: &Arc<Semaphore>,
    headers: &HeaderMap,
    access: WatchEnd,
) -> Result<Response<Body>, Problem> {
    let resumed = resume_position(headers)?;
    let permit = Arc::clone(watches).try_acquire_owned();
    let permit = permit.map_err(|_| Problem::busy("64 clients watch already, and no more are admitted"))?;
    let position = resumed.unwrap_or_else(|| reader.changes().newest());
    let (parts, body) = mpsc::channel(PARTS_MAX);
    let watch = Watch {
        reader: reader.clone(),
        position,
        parts,
        access,
        _permit: permit,
    };
    tokio::spawn(watch.run(resumed.is_some()));
    let body = ReceiverStream::new(body).map(Ok::<_, Infallible>);
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn resume_position(headers: &HeaderMap) -> Result<Option<ChangePosition>, Problem> {
    let Some(id) = headers.get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    let position = id.to_str().ok().and_then(ChangePosition::parse);
    position.map(Some).ok_or_else(|| {
        let id = String::from_utf8_lossy(id.as_bytes());
        let detail = format!("Last-Event-ID is {}, which is no id of a watch", quoted(&id));
        Problem::invalid("Last-Event-ID", detail).hint("send the id of the last event, or leave the header out")
    })
}

/// End of the token with which a watch was started.
pub(crate) struct WatchEnd {
    tokens: TokenStore,
    revocations: watch::Receiver<u64>,
    /// Id of the token; `None` for a certificate and a local client.
    token: Option<String>,
    health: Arc<dyn ControllerHealth>,
}

impl WatchEnd {
    pub(crate) fn of(tokens: &TokenStore, caller: &CallerIdentity, health: Arc<dyn ControllerHealth>) -> Self {
        Self {
            tokens: tokens.clone(),
            revocations: tokens.revocations(),
            token: caller.token.clone(),
            health,
        }
    }

    /// Returns the time after which the watch ends: that of the token at most.
    fn life(&self) -> Duration {
        let expiry = self.token.as_ref().and_then(|token| self.tokens.expiry(token));
        expiry.map_or(WATCH_LIFE, |at| at.since(self.health.now()).min(WATCH_LIFE))
    }

    /// Waits until the token is revoked; forever without one.
    async fn revoked(&mut self) {
        let Some(token) = &self.token else {
            return std::future::pending().await;
        };
        // It may have been revoked between the authentication and this wait.
        while self.tokens.is_active(token, self.health.now()) {
            if self.revocations.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Sender of a watch.
struct Watch {
    reader: StateReader,
    position: ChangePosition,
    parts: mpsc::Sender<Bytes>,
    access: WatchEnd,
    _permit: OwnedSemaphorePermit,
}

impl Watch {
    async fn run(mut self, is_resumed: bool) {
        let end = Instant::now() + self.access.life();
        let mut newest = self.reader.changes().subscribe();
        if self.send("start", &WatchStart { is_resumed }).await.is_none() {
            return;
        }
        loop {
            newest.mark_unchanged();
            if self.send_available().await.is_none() {
                return;
            }
            let is_comment = tokio::select! {
                changed = newest.changed() => match changed {
                    Ok(()) => false,
                    Err(_) => return,
                },
                () = sleep(HEARTBEAT) => true,
                () = sleep_until(end) => return,
                () = self.access.revoked() => return,
                () = self.parts.closed() => return,
            };
            let comment = Bytes::from_static(b": no changes\n\n");
            if is_comment && self.parts.send(comment).await.is_err() {
                return;
            }
        }
    }

    /// Sends the changes after the position; returns `None` if the client is gone.
    async fn send_available(&mut self) -> Option<()> {
        loop {
            match self.reader.changes().next(self.position) {
                NextChange::Wait => return Some(()),
                NextChange::Change(number, change) => {
                    self.position.number = number;
                    self.send(&change.kind, &*change).await?;
                }
                NextChange::Gap { reason, newest } => {
                    self.position = newest;
                    let gap = WatchGap {
                        reason: reason.to_owned(),
                        lists: LISTS.map(str::to_owned).to_vec(),
                    };
                    self.send("gap", &gap).await?;
                }
            }
        }
    }

    async fn send(&self, name: &str, data: &impl serde::Serialize) -> Option<()> {
        let text = event_text(name, self.position, data);
        self.parts.send(Bytes::from(text)).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use rankguard_access::AccessRole;
    use rankguard_core::{DecisionState, Policy};
    use rankguard_faults::Catalogue;
    use rankguard_model::Timestamp;

    use super::*;
    use crate::replica::StateFeed;

    struct Healthy;

    impl ControllerHealth for Healthy {
        fn live(&self) -> Result<(), String> {
            Ok(())
        }

        fn ready(&self) -> Result<(), String> {
            Ok(())
        }

        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
    }

    async fn next(body: &mut Body) -> String {
        let frame = body.frame().await.expect("no end").expect("no error");
        String::from_utf8(frame.into_data().expect("data").to_vec()).expect("text")
    }

    /// RG-9, RG-4: a client that does not read holds a few parts; what it missed is a gap.
    #[tokio::test]
    async fn a_client_that_does_not_read_costs_a_few_parts_and_sees_the_gap() {
        let state = DecisionState::new(Policy::default(), Catalogue::builtin());
        let (_feed, reader) = StateFeed::start(state, Timestamp(0), 7).expect("a thread");
        let watches = Arc::new(Semaphore::new(1));
        let dir = tempfile::tempdir().expect("a folder");
        let tokens = TokenStore::open(dir.path()).expect("no file");
        let caller = CallerIdentity::local(AccessRole::Viewer);
        let end = WatchEnd::of(&tokens, &caller, Arc::new(Healthy));
        let response = start(&reader, &watches, &HeaderMap::new(), end).expect("a watch");
        let mut body = response.into_body();
        for _ in 0..100 {
            reader.changes().add_for_test(1_000);
            tokio::task::yield_now().await;
        }
        let mut parts = 0;
        loop {
            let text = next(&mut body).await;
            parts += 1;
            if text.contains("event: gap\n") {
                assert!(text.contains("no longer retained"), "{text}");
                break;
            }
        }
        assert!(parts <= PARTS_MAX + 3, "{parts} parts were held");
        drop(body);
        // The place of the watch becomes free.
        let _ = watches.acquire().await.expect("open");
    }
}
