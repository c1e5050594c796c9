//! Lines about the work itself: progress, completion and retries.

use rankguard_faults::LogObservation;
use rankguard_faults::line::{LineClock, clean, parse};
use rankguard_model::Rank;

/// Line that shows work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgressLine {
    /// Line number, from 1.
    pub(crate) line: u64,
    /// Rank in its prefix.
    pub(crate) rank: Option<Rank>,
}

/// Returns the rank in the prefix of a line.
pub(crate) fn labelled_rank(line: &str) -> Option<Rank> {
    let line = &line[..line.floor_char_boundary(2_000)];
    parse(&clean(line), &LineClock::default()).rank
}

/// Returns true for a bar that reached its end: `100%|####| 227/227 [...]`.
pub(crate) fn is_completion(line: &str) -> bool {
    let Some((head, rest)) = line.rsplit_once("100%|") else {
        return false;
    };
    if is_inner_bar(head) {
        return false;
    }
    let Some((done, total)) = rest
        .rsplit_once('|')
        .and_then(|(_, counts)| counts.trim().split_once('/'))
    else {
        return false;
    };
    let total: String = total.chars().take_while(char::is_ascii_digit).collect();
    !total.is_empty() && done.trim() == total
}

/// Returns true for the description of a bar that is one of several in a run: that of one epoch, or of a validation.
fn is_inner_bar(head: &str) -> bool {
    // A terminal shows only what was drawn last.
    let description = head
        .rsplit(['\r', '|'])
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let epoch = description
        .strip_prefix("epoch")
        .map(|rest| rest.trim_start_matches([' ', ':', '#', '[']));
    let is_epoch = epoch.is_some_and(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        // `Epoch 3/3` may be the last one.
        digits > 0 && !rest[digits..].trim_start().starts_with('/')
    });
    is_epoch
        || ["validati", "sanity check"]
            .iter()
            .any(|word| description.starts_with(word))
}

/// Substrings of which one occurs in every line that states the end of training, in the case that loggers use.
const DONE_HINTS: [&str; 3] = ["raining", "RAINING", "stopped: `max_"];

/// Returns true for `[after training is done]`, `Training completed. Do not forget to share your model ...`.
pub(crate) fn is_done(line: &str) -> bool {
    if !DONE_HINTS.iter().any(|hint| line.contains(hint)) {
        return false;
    }
    let lower = line[..line.floor_char_boundary(2_000)].to_ascii_lowercase();
    let done = [
        "training is done",
        "training done",
        "done training",
        "training completed",
        "training complete",
        "training finished",
        "finished training",
        "training has finished",
        "training successfully completed",
        "training successfully finished",
        "successfully completed training",
        "successfully finished training",
        "stopped: `max_epochs=",
        "stopped: `max_steps=",
    ];
    let doubt = ["not ", "error", "fail", "before ", "until "];
    lower.split(". ").any(|sentence| {
        done.iter().any(|phrase| sentence.contains(phrase)) && !doubt.iter().any(|word| sentence.contains(word))
    })
}

/// Units of training speed.
const RATES: [&str; 8] = [
    "it/s",
    "s/it",
    "s/step",
    "global_step/sec",
    "img/s",
    "images/s",
    "samples/s",
    "s/sample",
];

/// Returns true for a request that a server answered: `10.0.0.9:5134 - "POST /v1/completions HTTP/1.1" 200 OK` of an access log.
/// Requests that read a state or a health (GET) show no work, and a client names the URL before the request.
fn is_served(line: &str) -> bool {
    let Some((client, request)) = line.split_once("\"POST ") else {
        return false;
    };
    let status = request
        .split_once(" HTTP/")
        .and_then(|(_, rest)| rest.split_once("\" "));
    let is_success = status.is_some_and(|(_, status)| {
        let code = status.split(' ').next().unwrap_or(status);
        code.len() == 3 && code.starts_with('2')
    });
    is_success && (client.ends_with(" - ") || client.ends_with("] "))
}

/// Returns true for a line that training prints while it works: a step, an epoch or a bar together with a number; and for a
/// request that a server answered.
pub(crate) fn is_progress(line: &str) -> bool {
    if is_served(&line[..line.floor_char_boundary(2_000)]) {
        return true;
    }
    // A bar that was redrawn a thousand times is one line.
    let lower = line[..line.floor_char_boundary(2_000)].to_ascii_lowercase();
    let bar = RATES.iter().any(|rate| lower.contains(rate)) || (lower.contains("%|") && lower.contains('/'));
    let counts = ["step", "epoch", "iter", "loss"]
        .iter()
        .filter(|word| lower.contains(*word))
        .count();
    // `Completed 400000 out of 5000000 steps (8%)`
    let share = counts == 1 && lower.contains("%)");
    // `[120/500] loss_D: 1.02`
    let counted = (lower.contains("loss") || lower.contains("epoch")) && has_fraction(&lower);
    // A bar that a complaint cuts off on its own line had moved before.
    let moved = lower.find("it/s").or_else(|| lower.find("s/it"));
    let error = ["error", "exception", "traceback", "file \""]
        .iter()
        .filter_map(|word| lower.find(word))
        .chain(value_nan(&lower))
        .min();
    let undisturbed = error.is_none_or(|at| moved.is_some_and(|bar| bar < at));
    let named = || counts == 1 && (is_bare_step(&line[..lower.len()]) || is_step_record(&line[..lower.len()]));
    // The program wandb prints what it was given: warnings about steps, and the last values at the end.
    let undisturbed = undisturbed && !lower.starts_with("wandb:");
    (bar || share || counted || counts >= 2 || named()) && lower.bytes().any(|b| b.is_ascii_digit()) && undisturbed
}

/// Returns the position of a value that is not a number. A counter of such values is a number: `number of nan iterations: 0`.
fn value_nan(lower: &str) -> Option<usize> {
    let counts = |at: usize| lower[..at].trim_end().ends_with(" of");
    lower.match_indices("nan").map(|(at, _)| at).find(|at| !counts(*at))
}

/// Returns true for a message that is only the number of a step: `step 200`, `iteration 40/1000`, `rank 0 step 7`.
fn is_bare_step(line: &str) -> bool {
    if !line.trim_end().ends_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    let cleaned = clean(line);
    let text = parse(&cleaned, &LineClock::default()).text.trim().to_ascii_lowercase();
    let number = after_unit(without_rank(without_phase(&text)));
    number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit() || b == b'/'))
}

/// Returns true for the number of a step or an epoch and then a value: `Epoch: 10, Accuracy: 0.6676`, `Step 50/2000; acc: 4.12`.
fn is_step_record(line: &str) -> bool {
    let cleaned = clean(line);
    let text = parse(&cleaned, &LineClock::default()).text.trim().to_ascii_lowercase();
    let Some(rest) = after_unit(without_rank(without_phase(&text))) else {
        return false;
    };
    let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '/');
    let Some(values) = number
        .trim_start()
        .strip_prefix([',', ';', '|'])
        .filter(|_| number.len() < rest.len())
    else {
        return false;
    };
    let is_end = [
        "exit",
        "fail",
        "abort",
        "kill",
        "cancel",
        "retr",
        "timeout",
        "timed out",
    ]
    .iter()
    .any(|word| values.contains(word));
    values.split([',', ';', '|']).any(is_value) && !is_end
}

/// Returns true for a name and its number: `accuracy: 0.66`, `lr = 1e-05`, and for the phase of work: `training ...`.
fn is_value(part: &str) -> bool {
    let is_phase = || {
        ["training", "validating", "evaluating"]
            .iter()
            .any(|word| part.trim_start().starts_with(word))
    };
    let number = part
        .split_once([':', '='])
        .map(|(name, value)| (name.trim(), value.trim_start()));
    let is_number = |(name, value): (&str, &str)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && value.starts_with(|c: char| c.is_ascii_digit())
    };
    number.map_or_else(is_phase, is_number)
}

/// Returns the rest of a message that begins with the unit of a count, from its number on.
fn after_unit(text: &str) -> Option<&str> {
    let unit = ["iteration", "iter", "step", "epoch"]
        .iter()
        .find_map(|unit| text.strip_prefix(unit))?;
    let number = unit.trim_start_matches([' ', ':', '=', '#']);
    number.starts_with(|c: char| c.is_ascii_digit()).then_some(number)
}

/// Returns a message without its level, the place in its program, the phase of work or the local rank at its start: `trainer.py:517]
/// training: step 34`, `local rank: 0, epoch: 10`.
fn without_phase(text: &str) -> &str {
    let is_place = |prefix: &str| {
        let place = prefix.rsplit(' ').next().unwrap_or_default();
        let line = place.rsplit_once(".py:").map(|(_, line)| line);
        let is_line = line.is_some_and(|line| !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()));
        is_line || prefix.starts_with('[') && place == "info"
    };
    let text = text
        .split_once("] ")
        .filter(|(place, _)| is_place(place))
        .map_or(text, |(_, rest)| rest);
    let local = text
        .strip_prefix("local rank")
        .or_else(|| text.strip_prefix("local_rank"));
    if let Some(rest) = local {
        return rest.trim_start_matches(|c: char| c.is_ascii_digit() || " :=,|-".contains(c));
    }
    let phase = ["training", "train"].iter().find_map(|phase| text.strip_prefix(phase));
    phase
        .and_then(|rest| rest.strip_prefix([':', ',']))
        .map_or(text, str::trim_start)
}

/// Returns a message without the rank at its start, in lower case: `rank 0 step 7`, `[rank 0] step 7`.
fn without_rank(text: &str) -> &str {
    let named = text.trim_start_matches(['[', '(']).strip_prefix("rank");
    let number = named.map(|rest| rest.trim_start_matches([' ', ':', '=', '_']));
    let Some(number) = number.filter(|number| number.starts_with(|c: char| c.is_ascii_digit())) else {
        return text;
    };
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.trim_start_matches([']', ')', ':', ',', '-', '|', ' '])
}

/// Returns true for a number of a total: `120/500`.
fn has_fraction(line: &str) -> bool {
    line.match_indices('/').any(|(at, _)| {
        let before = line[..at].trim_end().ends_with(|c: char| c.is_ascii_digit());
        before && line[at + 1..].trim_start().starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Returns true for progress with a finite loss: `loss 0.31`, `Loss is 1.2483`.
pub(crate) fn tells_finite_loss(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let number = |rest: &str| {
        let value = rest
            .trim_start_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .trim_start_matches("is ");
        value.starts_with(|c: char| c.is_ascii_digit())
    };
    lower.split("loss").skip(1).any(number) && !lower.contains("infinity")
}

/// Returns true for a complaint after which the program itself reports a retry and not that it gave up. A retry that
/// then fails logs a complaint of its own.
pub(crate) fn is_retried(observation: &LogObservation) -> bool {
    // A line before a complaint concerns it only if it announces it, or within its own traceback; otherwise the retry
    // reported there belongs to an earlier complaint.
    let traceback = observation
        .marks
        .iter()
        .any(|mark| mark.fields.contains_key("exception"));
    let before = observation
        .context
        .iter()
        .rev()
        .take(3)
        .filter(|line| traceback || line.trim_end().ends_with(':'));
    let words: Vec<String> = before
        .chain([&observation.text])
        .map(|line| line.to_ascii_lowercase())
        .collect();
    let says = |texts: &[&str]| words.iter().any(|line| texts.iter().any(|text| line.contains(text)));
    says(&["retry attempt", "retrying", "will retry", "trying again", "retry in "])
        && !says(&[
            "giving up",
            "gave up",
            "max retries exceeded",
            "retries exhausted",
            "no more retries",
            "after retr",
            // The last retry.
            "retry(total=0",
        ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_steps_are_progress_and_errors_are_not() {
        assert!(is_progress("step 12: loss 0.31"));
        assert!(is_progress("927/927 ━━━━━━━━━━ 2s 2ms/step - loss: 1.0546"));
        assert!(is_progress("Iter #0: 108.0 img/sec per GPU"));
        assert!(is_progress(" 40%|####      | 4/10 [00:01<00:02,  3.1it/s]"));
        assert!(is_progress("[120/500] loss_D: 1.02"));
        assert!(is_progress("2026-05-03T09:10:05Z [rank2]: step 2300"));
        assert!(is_progress("rank 0 step 7"));
        assert!(is_progress("[rank 3] step 7"));
        assert!(is_progress(
            "I0426 13:06:09.237899 140074531202880 trainer.py:517] Training: step 34"
        ));
        assert!(is_progress("(node-0 pid=26831) Epoch: 10, Accuracy: 0.6676"));
        assert!(is_progress("(node-0 pid=26831) Local Rank: 0, Epoch: 10, Training ..."));
        assert!(is_progress(
            "[2019-03-21 16:44:32,244 INFO] Step 50/200000; acc:   4.12; ppl: 2917.26"
        ));
        assert!(is_progress(
            "INFO:     10.2.0.9:51344 - \"POST /v1/completions HTTP/1.1\" 200 OK"
        ));
        assert!(is_progress(
            "10.2.0.9 - - [30/Nov/2026:10:00:00 +0000] \"POST /v1/completions HTTP/1.1\" 200 512"
        ));
        assert!(!is_progress(
            "INFO:     10.2.0.9:51344 - \"POST /v1/completions HTTP/1.1\" 500 Internal Server Error"
        ));
        assert!(!is_progress(
            "INFO:     10.2.0.9:51344 - \"GET /health HTTP/1.1\" 200 OK"
        ));
        assert!(!is_progress(
            "DEBUG https://hub.example.org:443 \"POST /x HTTP/1.1\" 200 12"
        ));
        assert!(!is_progress("Step 3, exit code: 1"));
        assert!(!is_progress("epoch 3, retries: 2"));
        assert!(!is_progress("Epoch: 10, Accuracy: nan"));
        assert!(!is_progress("rank 0 waits for step 7"));
        assert!(!is_progress(
            "wandb: WARNING (User provided step: 205224 is less than current step: 205528. Dropping entry: {'train/loss': 3.6})."
        ));
        assert!(is_progress(
            "iteration 7/ 9 | lm loss: 2.0 | number of nan iterations: 0 |"
        ));
        assert!(!is_progress("step 7 loss: nan"));
        assert!(!is_progress("waiting for step 7"));
        assert!(!is_progress("step 7 was cancelled"));
        assert!(!is_progress("Step 3/7 : RUN make"));
        assert!(!is_progress("RuntimeError: step 12 of epoch 3 failed"));
        assert!(tells_finite_loss("epoch 1: 200 / 1374 loss=14.351, loss_scale=0.062"));
        assert!(!tells_finite_loss("step 3 loss: nan"));
        assert!(is_completion("100%|##########| 227/227 [1:02:04<00:00, 16.41s/it]"));
        assert!(!is_completion("100%|##########| 226/227 [1:02:04<00:00, 16.41s/it]"));
        assert!(!is_completion(
            "Epoch 54: 100%|##########| 2950/2950 [1:03:38<00:00,  1.29s/it]"
        ));
        assert!(!is_completion(
            "Validating: 100%|##########| 282/282 [13:36<00:00,  3.50s/it]"
        ));
        assert!(is_completion(
            "Epoch 3/3: 100%|##########| 227/227 [1:02:04<00:00, 16.41s/it]"
        ));
    }
}
