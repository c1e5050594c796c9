//! Complaints that the log itself shows as overcome: retried, skipped, waited for, corrected, or followed by the work
//! they should have stopped. A retry that finally fails logs a complaint of its own.
//!
//! Progress that excuses any earlier alarm is not handled here; [`crate::incident`] weighs it, also across streams.

mod beside_success;
mod corrected;
mod demotion;
mod ready_nodes;
mod redundant;
mod requeue;

use std::time::Duration;

use rankguard_diagnosis::{LINK_UP_SIGNATURE, Signal, is_connect_attempt, reports_store_recovery};
use rankguard_faults::classes;
use rankguard_model::Role;

use crate::incident::LocatedSignal;
use crate::stream::PlacedObservation;
pub(crate) use beside_success::survived_ends;
pub use beside_success::{OvercomeReport, machine_report};
pub(crate) use beside_success::{beside_run, beside_sentence, ended_nothing, is_lasting};
pub(crate) use corrected::{only_corrected, without_corrected};
use demotion::{NEAR, silence};
pub(crate) use redundant::{answered_disk, paths_came_back, took_over};
pub(crate) use requeue::{asks_for_requeue, requeued};

/// Signatures that end a wait, with the class of the complaint. A scheduled pod has its volumes, the containers of a
/// completed job are stopped, a throttled processor runs at full speed again, and one of the tried batch sizes fits.
const WAITS: [(&str, &str); 12] = [
    ("another-port-taken", classes::PORT_IN_USE),
    ("batch-size-found", classes::CUDA_OOM),
    ("container-made", classes::K8S_VOLUME_UNBOUND),
    ("cpu-cooled", classes::HOST_THERMAL),
    ("kubernetes-job-completed", classes::EXTERNAL_TERMINATION),
    ("pod-assigned", classes::K8S_UNSCHEDULABLE),
    ("pod-assigned", classes::K8S_VOLUME_UNBOUND),
    ("pod-scales-up", classes::K8S_UNSCHEDULABLE),
    ("session-started", classes::RENDEZVOUS_FAILURE),
    ("settled-volume", classes::K8S_VOLUME_UNBOUND),
    ("settled-image", classes::K8S_IMAGE_PULL),
    ("trial-finished", classes::LOSS_NAN),
];

/// Signatures of a pod that has its resource, with the text of the complaint that it lacked it.
const HOUSED: [(&str, &str); 2] = [
    ("container-made", "FailedCreatePodSandBox"),
    ("settled-image", "Failed to pull image"),
];

/// Twice the maximum time that a scheduler waits between two tries.
const TRIES: Duration = Duration::from_secs(600);

/// Texts for a node without switches to manage.
const NO_SWITCHES: [&str; 2] = ["NVSwitch device information", "NVSwitch not detected"];

/// Texts of an interpreter that does not find its program.
const NEVER_RAN: [&str; 2] = [": can't open file '", ": can't find '__main__' module in '"];

/// Texts of trainers that skip a step or sample and continue.
const PASSED_OVER: [&str; 8] = [
    "ignoring corrupt",
    "skipping batch",
    "skipping this batch",
    "skipping the batch",
    "skipping sample",
    "skipping this sample",
    "skipping this step",
    "skipping updating",
];

/// Texts of Slurm when it ends the processes of a step.
const STEP_ENDS: [&str; 3] = ["Job step aborted: ", " CANCELLED AT ", "Terminating StepId="];

/// Returns true if the items concern only file systems that did not answer, and each later answered again in the same
/// log. If anything else failed, the wait may be its cause.
pub(crate) fn answered_again(items: &[LocatedSignal]) -> bool {
    let answers = |item: &&LocatedSignal| item.sign.mark().is_some_and(reports_store_recovery);
    let server = |item: &LocatedSignal| item.sign.field("server").map(str::to_owned);
    let answered = |wait: &LocatedSignal| {
        let is_same = |item: &&LocatedSignal| {
            let servers = server(item).zip(server(wait));
            item.log == wait.log && servers.is_none_or(|(one, other)| one == other)
        };
        let own = items.iter().filter(is_same);
        own.filter(answers).map(|item| item.last_line).max().unwrap_or(0)
    };
    let means_something = |item: &&LocatedSignal| item.sign.mark().is_none_or(|mark| mark.role != Role::Noise);
    let mut told = items.iter().filter(means_something).peekable();
    told.peek().is_some()
        && told.all(|item| {
            let waits = item
                .sign
                .class()
                .is_some_and(|class| class.as_str() == classes::FILESYSTEM_HANG);
            waits && item.last_line < answered(item)
        })
}

/// Returns true if an incident holds only links that went down and came up again in the same log. If anything else failed,
/// the loss may be its cause.
pub(crate) fn came_back(items: &[LocatedSignal]) -> bool {
    let is_up = |down: &LocatedSignal| {
        let mut later = items
            .iter()
            .filter(|item| item.log == down.log && item.last_line > down.last_line);
        later.any(|item| item.sign.is_signed(LINK_UP_SIGNATURE) && item.sign.entity == down.sign.entity)
    };
    let is_loss = |sign: &Signal| {
        sign.class()
            .is_some_and(|class| class.as_str() == classes::NIC_LINK_DOWN)
    };
    let means_something = |item: &&LocatedSignal| item.sign.mark().is_none_or(|mark| mark.role != Role::Noise);
    let mut losses = items.iter().filter(means_something).peekable();
    losses.peek().is_some() && losses.all(|item| is_loss(&item.sign) && is_up(item))
}

/// Turns overcome complaints into noise. `seen` is in line order; `worked` is the last line that shows work, `lines`
/// the number of lines.
pub(crate) fn forgive(seen: &mut [PlacedObservation], worked: Option<u64>, lines: u64) {
    retried(seen, lines);
    passed_over(seen);
    waited_for(seen);
    housed(seen);
    no_longer_told(seen);
    started_again(seen);
    corrected::forgive(seen);
    ready_nodes::forgive(seen);
    hidden_on_purpose(seen);
    nothing_to_manage(seen);
    killed_with_the_step(seen, worked);
    done_before(seen);
    if let Some(worked) = worked {
        set_up(seen, worked);
        met(seen, worked);
        left_out(seen, worked);
    }
}

/// Silences a complaint right before a line that announces a retry, in a log that continues after it.
fn retried(seen: &mut [PlacedObservation], lines: u64) {
    let says_so = |sign: &Signal| sign.mark().is_some_and(|mark| mark.signature.starts_with("retry"));
    // One observation holds all repeats, so it covers a range of lines.
    let retries: Vec<(u64, u64)> = seen
        .iter()
        .filter(|seen| seen.signs.iter().any(says_so) && seen.last_line < lines)
        .map(|seen| (seen.first_line, seen.last_line))
        .collect();
    // If a log ends with a retry, its success is unknown.
    silence(seen, |seen, _| {
        let near = |(first, last): &(u64, u64)| *last > seen.last_line && first.saturating_sub(NEAR) <= seen.last_line;
        let itself = seen.retried && seen.last_line < lines;
        itself || retries.iter().any(near)
    });
}

/// Silences a complaint in or right before a line that reports that the program skips the failed part and continues.
fn passed_over(seen: &mut [PlacedObservation]) {
    let says_so = |sign: &Signal| {
        let text = sign.text.to_ascii_lowercase();
        PASSED_OVER.iter().any(|words| text.contains(words))
    };
    let passed: Vec<u64> = seen
        .iter()
        .filter(|seen| seen.signs.iter().any(says_so))
        .map(|seen| seen.first_line)
        .collect();
    let Some(newest) = passed.last().copied() else { return };
    // A later failure may be the consequence of continuing.
    if seen
        .iter()
        .any(|seen| seen.first_line > newest && seen.signs.iter().any(Signal::is_root_mark))
    {
        return;
    }
    silence(seen, |seen, _| {
        let near = |line: &u64| (seen.first_line..=seen.last_line + NEAR).contains(line);
        passed.iter().any(near)
    });
}

/// Silences complaints about a missing place, volume, image, memory or port that was obtained later in the same log.
fn waited_for(seen: &mut [PlacedObservation]) {
    for (id, waited) in WAITS {
        silence_before_match(seen, id, |sign| {
            sign.class().is_some_and(|class| class.as_str() == waited)
        });
    }
}

/// Silences a pod's earlier sandbox and image failures: one with a container has its sandbox, one with its image has
/// pulled it.
fn housed(seen: &mut [PlacedObservation]) {
    for (id, failed) in HOUSED {
        silence_before_match(seen, id, |sign| sign.text.contains(failed));
    }
}

/// Silences complaints before a line that the signature `id` matches.
fn silence_before_match(seen: &mut [PlacedObservation], id: &str, complains: impl Fn(&Signal) -> bool) {
    let told: Vec<(String, u64)> = seen
        .iter()
        .flat_map(|seen| seen.signs.iter().map(move |sign| (sign, seen.last_line)))
        .filter(|(sign, _)| sign.is_signed(id))
        .map(|(sign, line)| (sign.text.clone(), line))
        .collect();
    if !told.is_empty() {
        silence(seen, |seen, sign| {
            let over = |(text, line): &(String, u64)| {
                *line > seen.last_line && same_image(text, &sign.text) && same_pod(id, text, &sign.text)
            };
            complains(sign) && told.iter().any(over)
        });
    }
}

/// Returns true if two events may concern one image: containers of a pod each have their own.
fn same_image(one: &str, other: &str) -> bool {
    let image = |text: &str| {
        let (_, rest) = text.split_once("image \"")?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    match (image(one), image(other)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// Returns true if two events may be of one pod. A container that was made beside an event that does not name its pod, or
/// the reverse, may be of another pod.
fn same_pod(id: &str, one: &str, other: &str) -> bool {
    let pod = |text: &str| -> Option<String> {
        let mut words = text.split_whitespace();
        let name = words.find_map(|word| word.strip_prefix("pod/").or_else(|| word.strip_prefix("Pod/")));
        name.map(|name| name.trim_end_matches([':', ',']).to_owned())
    };
    let [one, other] = [one, other].map(pod);
    one == other || id != "container-made" && (one.is_none() || other.is_none())
}

/// Silences scheduling failures that repeated and were not reported for longer than the scheduler's retry interval:
/// they were resolved. Not so for the kubelet: after a pod's first few failures it reports one event in five minutes,
/// of any kind, so an old pull failure may still persist.
fn no_longer_told(seen: &mut [PlacedObservation]) {
    silence(seen, |_, sign| {
        let class = sign.class().map_or("", |class| class.as_str());
        class.starts_with("k8s-") && sign.text.contains("FailedScheduling") && age_at_print(&sign.text) >= Some(TRIES)
    });
}

/// Returns the age of the last occurrence of an event when its list was printed: `FailedScheduling  18m (x2 over
/// 20m)`. None for a single occurrence, because only a repeated event would be reported again.
fn age_at_print(text: &str) -> Option<Duration> {
    let (before, rest) = text.split_once(" (x")?;
    let repeated = rest.split_once(')')?.0.contains(" over ");
    let age = before.split_whitespace().next_back().filter(|_| repeated)?;
    let mut seconds = 0;
    for part in age.split_inclusive(|c: char| c.is_ascii_alphabetic()) {
        let unit = match part.chars().next_back()? {
            'd' => 86_400,
            'h' => 3_600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        seconds += part[..part.len() - 1].parse::<u64>().ok()? * unit;
    }
    Some(Duration::from_secs(seconds))
}

/// Silences a start that failed before the program ran, if it ran later in the log: the command was corrected and
/// started again.
fn started_again(seen: &mut [PlacedObservation]) {
    let ran = |sign: &Signal| {
        let packages = sign.field("packages").filter(|_| sign.is_root_mark());
        packages.is_some_and(|packages| packages.split(',').any(|package| package == "program"))
    };
    let ran = seen.iter().filter(|seen| seen.signs.iter().any(ran));
    let Some(last) = ran.map(|seen| seen.first_line).max() else {
        return;
    };
    silence(seen, |seen, sign| {
        NEVER_RAN.iter().any(|words| sign.text.contains(words)) && seen.last_line < last
    });
}

/// Silences missing GPUs if they were hidden from the program on purpose.
fn hidden_on_purpose(seen: &mut [PlacedObservation]) {
    let mut signs = seen.iter().flat_map(|seen| &seen.signs);
    if signs.any(|sign| sign.is_signed("gpus-hidden-on-purpose")) {
        silence(seen, |_, sign| {
            sign.class()
                .is_some_and(|class| class.as_str() == classes::GPU_NOT_VISIBLE)
                || sign.text.contains("cuInit")
        });
    }
}

/// Returns true if a fabric manager reports that there are no switches to manage.
pub(crate) fn has_no_switches(sign: &Signal) -> bool {
    sign.is_signed("fabric-manager-nothing") && NO_SWITCHES.iter().any(|words| sign.text.contains(words))
}

/// Silences a fabric manager that ended because there are no switches, and its unit. CUDA's fabric errors are not
/// silenced.
fn nothing_to_manage(seen: &mut [PlacedObservation]) {
    if seen.iter().flat_map(|seen| &seen.signs).any(has_no_switches) {
        silence(seen, |_, sign| {
            sign.is_signed("fabric-manager-down") || sign.is_signed("fabric-manager-inactive")
        });
    }
}

/// Silences tasks that Slurm killed at the end of a step: they are no victims of the kernel, unless the job worked
/// again in between.
fn killed_with_the_step(seen: &mut [PlacedObservation], worked: Option<u64>) {
    let ends = |seen: &&PlacedObservation| {
        let mut signs = seen.signs.iter();
        signs.any(|sign| STEP_ENDS.iter().any(|words| sign.text.contains(words)))
    };
    let ends: Vec<[u64; 2]> = seen
        .iter()
        .filter(ends)
        .map(|seen| [seen.first_line, seen.last_line])
        .collect();
    silence(seen, |seen, sign| {
        let killed = sign.is_signed("srun-task-killed");
        let before = ends.as_flattened().iter().filter(|line| **line < seen.first_line).max();
        let again = |end: u64| worked.is_some_and(|line| (end..seen.first_line).contains(&line));
        killed && before.is_some_and(|end| !again(*end))
    });
}

/// Silences the cancellation of a job that was already done.
fn done_before(seen: &mut [PlacedObservation]) {
    let done: Vec<(String, u64)> = seen
        .iter()
        .flat_map(|seen| seen.signs.iter().map(move |sign| (sign, seen.first_line)))
        .filter(|(sign, _)| sign.is_signed("slurm-job-done"))
        .filter_map(|(sign, line)| Some((sign.field("job")?.to_owned(), line)))
        .collect();
    silence(seen, |seen, sign| {
        let asked = sign.field("job").filter(|_| sign.is_signed("slurm-cancelled"));
        asked.is_some_and(|asked| done.iter().any(|(job, line)| job == asked && *line < seen.first_line))
    });
}

/// Silences environment complaints before later work.
fn set_up(seen: &mut [PlacedObservation], worked: u64) {
    silence(seen, |seen, sign| {
        let setup = sign
            .class()
            .is_some_and(|class| class.as_str() == classes::ENVIRONMENT_SETUP_ERROR);
        setup && seen.last_line < worked
    });
}

/// Silences warnings of attempts to connect before later work, which needs all ranks.
fn met(seen: &mut [PlacedObservation], worked: u64) {
    let is_attempt = |seen: &&PlacedObservation| seen.last_line < worked && seen.signs.iter().any(is_connect_attempt);
    let attempts: Vec<u64> = seen.iter().filter(is_attempt).map(|seen| seen.first_line).collect();
    silence(seen, |seen, _| attempts.contains(&seen.first_line));
}

/// Silences unreadable data without an exception before later work: it was skipped.
fn left_out(seen: &mut [PlacedObservation], worked: u64) {
    silence(seen, |seen, sign| {
        let unread = sign
            .class()
            .is_some_and(|class| [classes::DATA_CORRUPT, classes::BAD_SAMPLE].contains(&class.as_str()));
        unread && sign.field("exception").is_none() && seen.last_line < worked
    });
}
