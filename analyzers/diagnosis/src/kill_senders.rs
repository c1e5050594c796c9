//! Senders of signals in logs of machines: a command of a person, or systemd as it stops a unit.
//!
//! Such a line is about any process. It explains the end of a process of a job only if a report names the same process and
//! the same signal, on the same node and within [`NOTICED`].

use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{Classification, NodeId};

use crate::first_failure::EXIT_STATUS_FIELD;
use crate::independent::reports_process;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Signature of a command of `sudo` that sends a signal.
const COMMAND: &str = "kill-command";
/// Signature of systemd, which ends what is left of a unit.
const UNIT: &str = "unit-process-killed";

/// Longest time from a signal to the report of the end of its process.
const NOTICED: Duration = Duration::from_secs(60);
/// Difference of the times of two logs of one machine.
const STAMPS: Duration = Duration::from_secs(2);
/// Score of an end with a known sender.
const SCORE: f64 = 0.85;
/// Factor on the score of the suspicion that it replaces.
const CONTRADICTED: f64 = 0.25;

/// Numbers of the signals that end a process, by the names that commands accept.
const SIGNALS: [(&str, i32); 6] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("TERM", 15),
];

/// Returns true for a line that states who sent a signal to a process.
pub fn is_sender(mark: &Classification) -> bool {
    [COMMAND, UNIT].contains(&mark.signature.as_str())
}

/// Names the sender of the signal that ended a process.
pub(crate) fn blame(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    if !scene.is_of_logs() || ranking.iter().any(|other| other.strength > CandidateStrength::Symptom) {
        return;
    }
    let mut kills = scene.marks().filter(|(_, sign)| sign.mark().is_some_and(is_sender));
    let named = kills.find_map(|(index, kill)| {
        let pid = kill.pid()?;
        let mut reports = scene.marks();
        let report = reports.find(|(at, report)| *at != index && is_end_by(kill, pid, report))?;
        Some((index, kill, pid, report))
    });
    let Some((index, kill, pid, (_, report))) = named else {
        return;
    };
    let name = signal_name(kill);
    let job = scene.job_entity();
    let mut candidate = CauseCandidate::new(
        classes::EXTERNAL_TERMINATION,
        job,
        index,
        CandidateStrength::Cause,
        SCORE,
    );
    candidate.root_rank = report.rank();
    let same = scene
        .marks()
        .filter(|(_, other)| reports_process(other, pid, kill.node()));
    candidate.support.extend(same.map(|(index, _)| index));
    candidate.notes.push(match (kill.field("user"), kill.field("unit")) {
        (Some(user), _) => format!("The user {user} sent {name} to process {pid}, and that process ended by it."),
        (None, Some(unit)) => {
            format!("systemd sent {name} to process {pid} as it stopped {unit}, and that process ended by it.")
        }
        (None, None) => format!("Process {pid} was sent {name}, and it ended by it."),
    });
    for other in ranking.iter_mut() {
        other.strength = CandidateStrength::Outcome;
        other.score *= CONTRADICTED;
    }
    ranking.push(candidate);
}

/// Returns true for a report that a process ended by the signal of a line, at about its time.
fn is_end_by(kill: &Signal, pid: u32, report: &Signal) -> bool {
    let is_near =
        report.timed && kill.timed && kill.at <= report.at.after(STAMPS) && report.at <= kill.at.after(NOTICED);
    let status = report.field(EXIT_STATUS_FIELD).or_else(|| report.field("exitcode"));
    let status = status.and_then(|text| text.parse::<i32>().ok());
    let is_of_signal = number(kill).is_some_and(|number| status == Some(-number) || status == Some(128 + number));
    is_near
        && is_of_signal
        && reports_process(
            report,
            pid,
            kill.node().filter(|node: &&NodeId| !node.as_str().is_empty()),
        )
}

/// Returns the number of the signal that a line names; a command without one sends SIGTERM.
fn number(kill: &Signal) -> Option<i32> {
    let Some(text) = kill.field("signal") else {
        return Some(15);
    };
    let name = text.trim_start_matches("SIG");
    let named = SIGNALS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number);
    named.or_else(|| text.parse().ok())
}

fn signal_name(kill: &Signal) -> String {
    let number = number(kill).unwrap_or_default();
    match SIGNALS.iter().find(|(_, known)| *known == number) {
        Some((name, _)) => format!("SIG{name}"),
        None => format!("signal {number}"),
    }
}
