//! What a log itself shows as overcome: tried again, passed over, waited for, corrected, or followed by the work it should
//! have stopped. What did fail in the end says so once more, in a complaint of its own.
//!
//! Absent: progress that takes back whatever was said before it; [`crate::incident`] weighs that, and over streams.

mod corrected;
mod silence;

use std::time::Duration;

use rankguard_diagnosis::{Sign, answers_again};
use rankguard_model::Role;

use crate::incident::Item;
use crate::stream::Seen;
pub(crate) use corrected::only_corrected;
use silence::{NEAR, silence};

/// Signatures of what ends a wait, and the class of the complaint that it was one. What is given a place has its volumes, the
/// containers of a job that is through are stopped, a processor that was throttled runs at its speed again, and of the batch
/// sizes that were tried one fits.
const WAITS: [(&str, &str); 12] = [
    ("another-port-taken", "port-in-use"),
    ("batch-size-found", "cuda-oom"),
    ("container-made", "k8s-volume-unbound"),
    ("cpu-cooled", "gpu-thermal"),
    ("kubernetes-job-completed", "external-termination"),
    ("pod-assigned", "k8s-unschedulable"),
    ("pod-assigned", "k8s-volume-unbound"),
    ("pod-scales-up", "k8s-unschedulable"),
    ("session-started", "rendezvous-failure"),
    ("settled-volume", "k8s-volume-unbound"),
    ("settled-image", "k8s-image-pull"),
    ("trial-finished", "loss-nan"),
];

/// What a pod has in the end, and how it is told that it could not have it.
const HOUSED: [(&str, &str); 2] = [
    ("container-made", "FailedCreatePodSandBox"),
    ("settled-image", "Failed to pull image"),
];

/// Twice as long as a scheduler waits at most before it tries again.
const TRIES: Duration = Duration::from_secs(600);

/// How it is told that a node has no switches to manage.
const NO_SWITCHES: [&str; 2] = ["NVSwitch device information", "NVSwitch not detected"];

/// What an interpreter says that does not find its program.
const NEVER_RAN: [&str; 2] = [": can't open file '", ": can't find '__main__' module in '"];

/// How trainers say that they go on without the step or the sample that made trouble.
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

/// How Slurm says that it ends the processes of a step.
const STEP_ENDS: &str = "Job step aborted: ";

/// Whether nothing is told but of a file system that did not answer for a while, and then did again in the same log. Where
/// anything else failed, waiting for it may be what it failed of.
pub(crate) fn answered_again(items: &[Item]) -> bool {
    let answers = |item: &&Item| item.sign.mark().is_some_and(answers_again);
    let answered = |log: usize| {
        let own = items.iter().filter(|item| item.log == log);
        own.filter(answers).map(|item| item.last_line).max().unwrap_or(0)
    };
    let means_something = |item: &&Item| item.sign.mark().is_none_or(|mark| mark.role != Role::Noise);
    let mut told = items.iter().filter(means_something).peekable();
    told.peek().is_some()
        && told.all(|item| {
            let waits = item
                .sign
                .class()
                .is_some_and(|class| class.as_str() == "filesystem-hang");
            waits && item.last_line < answered(item.log)
        })
}

/// Turns what was overcome into noise. `seen` is in the order of its lines; `worked` is the last line that shows work, `lines`
/// how many there are in all.
pub(crate) fn forgive(seen: &mut [Seen], worked: Option<u64>, lines: u64) {
    retried(seen, lines);
    passed_over(seen);
    waited_for(seen);
    housed(seen);
    no_longer_told(seen);
    started_again(seen);
    corrected::forgive(seen);
    hidden_on_purpose(seen);
    nothing_to_manage(seen);
    killed_with_the_step(seen, worked);
    done_before(seen);
    if let Some(worked) = worked {
        set_up(seen, worked);
        left_out(seen, worked);
    }
}

/// A complaint right before a line that says that it is tried again, in a log that goes on after it, was no failure.
fn retried(seen: &mut [Seen], lines: u64) {
    let says_so = |sign: &Sign| sign.mark().is_some_and(|mark| mark.signature.starts_with("retry"));
    // One observation holds all repeats, so it stands for a stretch of lines.
    let retries: Vec<(u64, u64)> = seen
        .iter()
        .filter(|seen| seen.signs.iter().any(says_so) && seen.last_line < lines)
        .map(|seen| (seen.first_line, seen.last_line))
        .collect();
    // Where a log ends with a retry, nobody knows whether it helped.
    silence(seen, |seen, _| {
        let near = |(first, last): &(u64, u64)| *last > seen.last_line && first.saturating_sub(NEAR) <= seen.last_line;
        let itself = seen.retried && seen.last_line < lines;
        itself || retries.iter().any(near)
    });
}

/// A complaint right before a line that says that the program goes on without what made trouble, or in that line.
fn passed_over(seen: &mut [Seen]) {
    let says_so = |sign: &Sign| {
        let text = sign.text.to_ascii_lowercase();
        PASSED_OVER.iter().any(|words| text.contains(words))
    };
    let passed: Vec<u64> = seen
        .iter()
        .filter(|seen| seen.signs.iter().any(says_so))
        .map(|seen| seen.first_line)
        .collect();
    let Some(newest) = passed.last().copied() else { return };
    // What fails after all may be what became of going on.
    if seen
        .iter()
        .any(|seen| seen.first_line > newest && seen.signs.iter().any(Sign::is_root_mark))
    {
        return;
    }
    silence(seen, |seen, _| {
        let near = |line: &u64| (seen.first_line..=seen.last_line + NEAR).contains(line);
        passed.iter().any(near)
    });
}

/// What waited for a place, a volume, an image, memory that is enough or a port and got it, later in the same log, only had to wait.
fn waited_for(seen: &mut [Seen]) {
    for (id, waited) in WAITS {
        got_it(seen, id, |sign| {
            sign.class().is_some_and(|class| class.as_str() == waited)
        });
    }
}

/// A pod that has a container has its sandbox, and one that has its image has pulled it, whatever kept it from that before.
fn housed(seen: &mut [Seen]) {
    for (id, failed) in HOUSED {
        got_it(seen, id, |sign| sign.text.contains(failed));
    }
}

/// Silences complaints after which the signature of this id tells that they are over.
fn got_it(seen: &mut [Seen], id: &str, complains: impl Fn(&Sign) -> bool) {
    let told: Vec<(String, u64)> = seen
        .iter()
        .flat_map(|seen| seen.signs.iter().map(move |sign| (sign, seen.last_line)))
        .filter(|(sign, _)| sign.is_signed(id))
        .map(|(sign, line)| (sign.text.clone(), line))
        .collect();
    if !told.is_empty() {
        silence(seen, |seen, sign| {
            let over = |(text, line): &(String, u64)| *line > seen.last_line && same_image(text, &sign.text);
            complains(sign) && told.iter().any(over)
        });
    }
}

/// Whether two events may be of one image: containers of a pod have each their own.
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

/// What the scheduler tried again and told each time, and has not told for longer than it waits between two tries, came about.
/// Not so for the kubelet: of what goes wrong with one pod it tells one event in five minutes after the first few, whichever
/// that is, so the failure of a pull is old in a list while the pull still fails.
fn no_longer_told(seen: &mut [Seen]) {
    silence(seen, |_, sign| {
        let class = sign.class().map_or("", |class| class.as_str());
        class.starts_with("k8s-") && sign.text.contains("FailedScheduling") && told_before(&sign.text) >= Some(TRIES)
    });
}

/// How long before its list was printed an event was told for the last time: `FailedScheduling  18m (x2 over 20m)`. Only of what was told
/// more than once is it known that it would be told again.
fn told_before(text: &str) -> Option<Duration> {
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

/// A start that ended before the program ran, in a log in which it then ran: somebody corrected the command and started again.
fn started_again(seen: &mut [Seen]) {
    let ran = |sign: &Sign| {
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

/// Who hides the GPUs from a program does not expect it to see any.
fn hidden_on_purpose(seen: &mut [Seen]) {
    let mut signs = seen.iter().flat_map(|seen| &seen.signs);
    if signs.any(|sign| sign.is_signed("gpus-hidden-on-purpose")) {
        silence(seen, |_, sign| {
            sign.class().is_some_and(|class| class.as_str() == "gpu-not-visible") || sign.text.contains("cuInit")
        });
    }
}

/// A fabric manager that finds no switches ends, and its unit with it. What CUDA says of a fabric is for nobody to take back.
fn nothing_to_manage(seen: &mut [Seen]) {
    let nothing = |sign: &Sign| {
        sign.is_signed("fabric-manager-nothing") && NO_SWITCHES.iter().any(|words| sign.text.contains(words))
    };
    if seen.iter().flat_map(|seen| &seen.signs).any(nothing) {
        silence(seen, |_, sign| {
            sign.is_signed("fabric-manager-down") || sign.is_signed("fabric-manager-inactive")
        });
    }
}

/// A step that ends is killed by the scheduler itself: who is killed after that is no victim of the kernel, unless the job was
/// at work again in between.
fn killed_with_the_step(seen: &mut [Seen], worked: Option<u64>) {
    let ends = |seen: &&Seen| seen.signs.iter().any(|sign| sign.text.contains(STEP_ENDS));
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

/// Who asks to end a job that is done asks for nothing.
fn done_before(seen: &mut [Seen]) {
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

/// A complaint about the environment before work that then went on changed nothing.
fn set_up(seen: &mut [Seen], worked: u64) {
    silence(seen, |seen, sign| {
        let setup = sign
            .class()
            .is_some_and(|class| class.as_str() == "environment-setup-error");
        setup && seen.last_line < worked
    });
}

/// What cannot be read and is no exception of the program, before work that then went on, was left out.
fn left_out(seen: &mut [Seen], worked: u64) {
    silence(seen, |seen, sign| {
        let unread = sign
            .class()
            .is_some_and(|class| ["data-corrupt", "bad-sample"].contains(&class.as_str()));
        unread && sign.field("exception").is_none() && seen.last_line < worked
    });
}
