//! GPUs, through the vendor's management library.
//!
//! Every call into the library is made by one worker thread. The collector waits for it with a deadline, so that a call
//! that never returns (a wedged driver) blocks nothing and becomes evidence itself, naming the call and the device
//! (RG-12). While a call hangs no second one is started. A node without the library says so once.
//!
//! The kernel log stays the reference for XIDs: the library gives no text for them and stops after a GPU is lost.
//! Absent: library events, NVLink and PCIe counters, processes, fabric state, recovery action.

mod judge;
mod library;

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rankguard_model::{Body, Device, DeviceKind, Entity, Mark, Role, Source};

use super::{Stop, mark, sample};
use crate::intake::Intake;
use crate::sighting::Sighting;
use judge::Judge;
use library::Library;

/// Everything the collector needs.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) library: Option<PathBuf>,
    pub(crate) interval: Duration,
    pub(crate) deadline: Duration,
    /// Between two tries to load a library that was not there.
    pub(crate) reload: Duration,
    pub(crate) intake: Intake,
    pub(crate) stop: Stop,
}

/// Name of the thread that calls the library.
const CALLS: &str = "gpu-calls";

/// What the worker found.
#[derive(Debug)]
enum Answer {
    /// The library does not answer at all.
    Absent(String),
    /// One entry a device, in the library's order.
    Devices(Vec<DeviceLook>),
}

/// One device as it was found. A value that the device does not support is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DeviceLook {
    /// PCI address in the form `0000:9b:00`; the index where that cannot be told.
    pub(crate) address: String,
    /// The device does not answer any more.
    pub(crate) lost: Option<String>,
    pub(crate) temperature: Option<f64>,
    /// Temperature at which the device slows itself down.
    pub(crate) slowdown: Option<f64>,
    /// Uncorrectable memory errors since the driver was loaded.
    pub(crate) uncorrected: Option<f64>,
    pub(crate) repair_pending: Option<bool>,
    pub(crate) repair_failed: Option<bool>,
    pub(crate) thermal_slowdown: Option<bool>,
    pub(crate) power_brake: Option<bool>,
}

/// The call that the worker is in, for the case that it never comes back.
type Current = Arc<Mutex<Option<String>>>;

/// The worker, as the collector sees it.
struct Worker {
    looks: SyncSender<()>,
    answers: Receiver<Answer>,
    current: Current,
}

impl Worker {
    fn start(path: Option<PathBuf>, reload: Duration) -> io::Result<Self> {
        let (looks, requests) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        let current = Current::default();
        let calls = Arc::clone(&current);
        // Not joined: a thread inside a wedged driver cannot be ended. It ends itself when the collector is gone.
        std::thread::Builder::new()
            .name(CALLS.to_owned())
            .spawn(move || work(path, reload, &requests, &answer, &calls))?;
        Ok(Self {
            looks,
            answers,
            current,
        })
    }

    fn call(&self) -> String {
        let current = self.current.lock().expect("no holder of the call's name panics");
        current.clone().unwrap_or_else(|| "between two calls".to_owned())
    }
}

fn work(
    path: Option<PathBuf>,
    reload: Duration,
    requests: &Receiver<()>,
    answer: &SyncSender<Answer>,
    current: &Current,
) {
    let mut library: Option<Library> = None;
    let mut tried: Option<Instant> = None;
    let mut problem = String::new();
    while requests.recv().is_ok() {
        if library.is_none() && tried.is_none_or(|tried| tried.elapsed() >= reload) {
            tried = Some(Instant::now());
            match Library::load(path.as_deref(), current) {
                Ok(loaded) => library = Some(loaded),
                Err(error) => problem = error,
            }
        }
        let found = match &mut library {
            Some(library) => library.look(current),
            None => Answer::Absent(problem.clone()),
        };
        if let Answer::Absent(why) = &found {
            // Its driver was unloaded or replaced: only a library that is loaded anew finds the next one.
            problem.clone_from(why);
            library = None;
        }
        if answer.send(found).is_err() {
            return;
        }
    }
}

impl Gpu {
    /// Drivers are installed and replaced under a running agent.
    pub(crate) const RELOAD: Duration = Duration::from_secs(60);

    /// Until asked to stop.
    pub(crate) fn run(self) {
        let worker = match Worker::start(self.library.clone(), self.reload) {
            Ok(worker) => worker,
            Err(error) => {
                return self
                    .intake
                    .gap(Source::Gpu, format!("GPUs are not watched: {error}"), None);
            }
        };
        let mut judge = Judge::default();
        let mut told_absent = None;
        let mut since: Option<Instant> = None;
        let mut hanging = false;
        loop {
            if since.is_none() && worker.looks.try_send(()).is_ok() {
                since = Some(Instant::now());
            }
            match self.answer(&worker, since, hanging) {
                Ok(answer) => {
                    since = None;
                    if std::mem::take(&mut hanging) {
                        self.push(None, "the GPU management library answers again".to_owned());
                    }
                    self.take(answer, &mut judge, &mut told_absent);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if !std::mem::replace(&mut hanging, true) && !self.stop.stopped() {
                        self.push_hang(worker.call());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return self.intake.gap(
                        Source::Gpu,
                        "GPUs are not watched any more: the library ended its thread",
                        None,
                    );
                }
            }
            if self.stop.wait(self.interval) {
                if hanging {
                    tracing::warn!(
                        thread = CALLS,
                        call = worker.call(),
                        "thread is stuck in the GPU library and left behind"
                    );
                }
                return;
            }
        }
    }

    /// Waits for the worker until the deadline, in small steps so that a stop is heard.
    fn answer(&self, worker: &Worker, since: Option<Instant>, hanging: bool) -> Result<Answer, RecvTimeoutError> {
        let until = since.unwrap_or_else(Instant::now) + self.deadline;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let step = if hanging {
                Duration::ZERO
            } else {
                left.min(Duration::from_millis(50))
            };
            match worker.answers.recv_timeout(step) {
                Err(RecvTimeoutError::Timeout) if !left.is_zero() && !hanging && !self.stop.stopped() => {}
                other => return other,
            }
        }
    }

    fn take(&self, answer: Answer, judge: &mut Judge, told_absent: &mut Option<String>) {
        match answer {
            Answer::Absent(problem) => {
                if told_absent.as_ref() != Some(&problem) {
                    self.intake
                        .gap(Source::Gpu, format!("GPUs are not watched: {problem}"), None);
                    *told_absent = Some(problem);
                }
            }
            Answer::Devices(looks) => {
                *told_absent = None;
                for change in judge.take(&looks) {
                    let entity = Entity::Device {
                        node: self.intake.node().clone(),
                        device: Device {
                            kind: DeviceKind::Gpu,
                            address: change.address,
                        },
                    };
                    let sighting = sample(Source::Gpu, entity, change.metric, change.value, change.unit);
                    self.intake.push(sighting.marked(change.marks));
                }
            }
        }
    }

    fn push_hang(&self, call: String) {
        let seconds = self.deadline.as_secs_f64();
        let what = format!("the GPU management library has not answered for {seconds} s in: {call}");
        let mut says = mark("gpu-driver-fault", Role::Root, 0.6, "gpu.call_deadline");
        says.fields.insert("call".to_owned(), call);
        self.push(Some(says), what);
    }

    fn push(&self, says: Option<Mark>, text: String) {
        let body = Body::Line {
            text,
            context: Vec::new(),
            repeats: 1,
        };
        let sighting = Sighting::now(Source::Gpu, self.intake.node_entity(), body);
        self.intake.push(sighting.marked(says.into_iter().collect()));
    }
}

#[cfg(test)]
mod tests;
