//! Start of each kind of injection, and the action that undoes it.

use std::time::{Duration, Instant};

use rankguard_model::{Device, DeviceKind, Entity, RankRef};
use rustix::process::Signal;

use super::executor::{InjectionExecutor, InjectionUndo, InjectionWork};
use super::{FaultInjection, RankSelector, disk};
use crate::collectors::observe::LineOrigin;
use crate::synthetic_targets::SyntheticTarget;

/// Most lines of one injection.
const LINES: usize = 256;
/// Longest line of an injection, bytes.
const LINE_BYTES: usize = 16 << 10;
/// Time after the end of an injection during which evidence about its target is still marked as synthetic: collectors
/// poll every few seconds, and a killed rank still writes lines.
const AFTER: Duration = Duration::from_secs(15);
/// Signals that [`FaultInjection::RankKill`] accepts: each ends a process that does not catch it.
const ENDING: [Signal; 10] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::ILL,
    Signal::ABORT,
    Signal::BUS,
    Signal::FPE,
    Signal::KILL,
    Signal::SEGV,
    Signal::TERM,
];

impl InjectionExecutor {
    /// Starts an injection that lasts until `until`; `None` for a single event or for one without an end. Returns its
    /// description, the entity that it affects, and the action that undoes it. Fails with a reason for the operator;
    /// the caller then removes the cover of `number`.
    pub(super) fn begin(
        &self,
        number: u64,
        wanted: FaultInjection,
        until: Option<Instant>,
    ) -> Result<(String, Entity, InjectionUndo), String> {
        let shared = &self.0;
        let node = shared.intake.node_entity();
        // End of the cover: evidence that arrives shortly after the fault is synthetic too.
        let covered = until.unwrap_or_else(Instant::now) + AFTER;
        match wanted {
            FaultInjection::KernelLine { lines } => {
                let what = describe_lines(&lines)?;
                self.write(LineOrigin::Kernel, lines)?;
                Ok((format!("the kernel writes {what}"), node, InjectionUndo::Nothing))
            }
            FaultInjection::LogLine { rank, lines } => {
                let what = describe_lines(&lines)?;
                let (writer, who, about) = match rank {
                    Some(which) => {
                        let rank = self.find(&which)?;
                        let about = shared.roster.entity(&rank);
                        (LineOrigin::Rank(rank), about.to_string(), about)
                    }
                    None => (LineOrigin::Unknown, "a job".to_owned(), node),
                };
                self.write(writer, lines)?;
                Ok((format!("{who} writes {what}"), about, InjectionUndo::Nothing))
            }
            FaultInjection::Nvml { facts, .. } => {
                let Some(scenario) = &shared.scenario else {
                    return Err(
                        "this agent was not started with --simulate: only simulated GPUs can be made to fail, not real ones"
                            .to_owned(),
                    );
                };
                if until.is_some() && facts.iter().any(|fact| fact.split_whitespace().next() == Some("xid")) {
                    return Err("an XID is a moment: it cannot be given an end".to_owned());
                }
                scenario.add(number, &facts)?;
                Ok((
                    format!("made-up GPUs say: {}", facts.join("; ")),
                    node,
                    InjectionUndo::Facts,
                ))
            }
            FaultInjection::Nic {
                device, metric, value, ..
            } => {
                if !value.is_finite() {
                    return Err(format!("{value} is no value"));
                }
                let about = Entity::Device {
                    node: shared.intake.node().clone(),
                    device: Device {
                        kind: DeviceKind::Nic,
                        address: device.clone(),
                    },
                };
                // The cover is added before the value changes, so that no sample of it counts as real.
                let until = until.unwrap_or(covered);
                let cover = SyntheticTarget::Metric(about.clone(), metric.clone());
                shared.intake.covers().add(number, cover, covered);
                shared.overlay.lay(&device, &metric, value, until)?;
                Ok((
                    format!("{value} is laid over {metric} of {device}"),
                    about,
                    InjectionUndo::Nothing,
                ))
            }
            FaultInjection::RankKill { rank, signal } => {
                let given = Signal::from_named_raw(signal).filter(|given| ENDING.contains(given));
                let given = given.ok_or_else(|| {
                    let known: Vec<String> = ENDING.iter().map(|known| known.as_raw().to_string()).collect();
                    format!(
                        "{signal} is no signal that ends a process; known are {}",
                        known.join(", ")
                    )
                })?;
                let rank = self.find(&rank)?;
                let about = self.cover(number, &rank, covered);
                self.signal(given, &rank)?;
                Ok((
                    format!("{about} is sent signal {signal}"),
                    about,
                    InjectionUndo::Nothing,
                ))
            }
            FaultInjection::RankHang { rank, .. } => {
                let rank = self.find(&rank)?;
                let about = self.cover(number, &rank, covered);
                self.signal(Signal::STOP, &rank)?;
                Ok((format!("{about} is stopped"), about, InjectionUndo::Continue(rank)))
            }
            FaultInjection::RankSlow { rank, stopped, .. } => {
                if !(0.05..=0.95).contains(&stopped) {
                    return Err(format!(
                        "it can be stopped for a part of 0.05 to 0.95 of the time, not {stopped}"
                    ));
                }
                let rank = self.find(&rank)?;
                let about = self.cover(number, &rank, covered);
                let what = format!("{about} is stopped for {stopped} of the time");
                let undo = InjectionUndo::Slowed {
                    rank,
                    stopped,
                    is_stopped: false,
                    turn: Instant::now(),
                };
                Ok((what, about, undo))
            }
            FaultInjection::DiskFull { directory, bytes, .. } => {
                shared.intake.covers().add(number, SyntheticTarget::Room, covered);
                let file = disk::fill(&directory, bytes)?;
                let what = format!("{bytes} bytes of room are taken in {}", directory.display());
                Ok((what, node, InjectionUndo::Room(file)))
            }
        }
    }

    /// Marks evidence about a rank as synthetic until `until`. Returns the entity of the rank.
    fn cover(&self, number: u64, rank: &RankRef, until: Instant) -> Entity {
        let about = self.0.roster.entity(rank);
        self.0
            .intake
            .covers()
            .add(number, SyntheticTarget::About(about.clone()), until);
        about
    }

    /// Queues lines for the executor's thread, which passes them to triage. Fails if the queue is full.
    fn write(&self, writer: LineOrigin, lines: Vec<String>) -> Result<(), String> {
        let sent = self.0.work.try_send(InjectionWork::Lines(writer, lines));
        sent.map_err(|_| "too many lines wait: try again".to_owned())
    }

    /// Returns the selected rank in its newest generation. Fails if no such rank runs here, or if it runs in several
    /// jobs and the selector names none.
    fn find(&self, which: &RankSelector) -> Result<RankRef, String> {
        let running = self.0.roster.running();
        let number = which.rank;
        let mut found: Vec<&RankRef> = running
            .iter()
            .map(|it| &it.rank)
            .filter(|rank| rank.rank == number && which.job.as_ref().is_none_or(|job| *job == rank.job))
            .collect();
        found.sort_by_key(|rank| rank.generation);
        if found
            .iter()
            .any(|rank| Some(&rank.job) != found.first().map(|first| &first.job))
        {
            return Err(format!("rank {number} of several jobs runs here: say which job"));
        }
        found.last().map(|rank| (*rank).clone()).ok_or_else(|| {
            let known: Vec<String> = running
                .iter()
                .map(|it| format!("{}/{}", it.rank.job, it.rank.rank))
                .collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            format!("rank {number} does not run here; ranks that do: {known}")
        })
    }
}

/// Checks the number and length of the lines. Returns their number, unless there is only one, and their first 80
/// characters, for messages.
fn describe_lines(lines: &[String]) -> Result<String, String> {
    if lines.is_empty() || lines.len() > LINES {
        return Err(format!("{} lines; expected 1 to {LINES}", lines.len()));
    }
    if let Some(line) = lines.iter().find(|line| line.len() > LINE_BYTES || line.contains('\n')) {
        let begin: String = line.chars().take(40).collect();
        return Err(format!(
            "`{begin}...` is no line: it is longer than {LINE_BYTES} bytes, or several"
        ));
    }
    let first: String = lines.iter().flat_map(|line| line.chars()).take(80).collect();
    Ok(match lines.len() {
        1 => format!("`{first}`"),
        many => format!("{many} lines: `{first}...`"),
    })
}
