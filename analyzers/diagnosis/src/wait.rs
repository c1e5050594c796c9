//! Waits that lines report to have ended in vain: `ran for 600012 milliseconds before timing out`, `Timed out waiting
//! 1800000ms for recv operation to complete`, `blocked for more than 122 seconds`.

use std::time::Duration;

/// Words of a line that reports a wait.
const WAITS: [&str; 8] = [
    "timed out",
    "timing out",
    "timeout",
    "time out",
    "waiting",
    "waited",
    "failed to pass",
    "blocked for",
];

/// Words before the length of a wait.
const BEFORE: [&str; 8] = ["after", "exceeded", "for", "in", "than", "waited", "waiting", "within"];

/// Units of time, and each in milliseconds.
const UNITS: [(&str, f64); 15] = [
    ("h", 3_600_000.0),
    ("hour", 3_600_000.0),
    ("hours", 3_600_000.0),
    ("m", 60_000.0),
    ("min", 60_000.0),
    ("minute", 60_000.0),
    ("minutes", 60_000.0),
    ("s", 1_000.0),
    ("sec", 1_000.0),
    ("secs", 1_000.0),
    ("second", 1_000.0),
    ("seconds", 1_000.0),
    ("ms", 1.0),
    ("millisecond", 1.0),
    ("milliseconds", 1.0),
];

/// Maximum wait; a longer one is no limit of a framework.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// Maximum number of words used of a line.
const WORDS: usize = 200;

/// Reports of a lost node, each with the default time for which its sender waits for the node: `SlurmdTimeout` of
/// slurm.conf, `node-monitor-grace-period` of kube-controller-manager,
/// `tolerationSeconds` of the pods there.
const LOST_NODES: [(&str, Duration); 3] = [
    ("not responding, setting down", Duration::from_secs(300)),
    ("nodenotready", Duration::from_secs(50)),
    ("taintmanagereviction", Duration::from_secs(300)),
];

/// Returns the longest wait that a line reports; none if it reports no wait.
pub fn stated_wait(text: &str) -> Option<Duration> {
    let lower = text[..text.floor_char_boundary(4_000)].to_ascii_lowercase();
    if let Some((_, wait)) = LOST_NODES.iter().find(|(words, _)| lower.contains(words)) {
        return Some(*wait);
    }
    if !WAITS.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let splits = |c: char| c.is_whitespace() || ",;()[]'\"".contains(c);
    let words: Vec<&str> = lower
        .split(splits)
        .filter(|word| !word.is_empty())
        .take(WORDS)
        .collect();
    let in_words = words
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(at, _)| BEFORE.contains(&words[at - 1]))
        .filter_map(|(at, word)| length(word, words.get(at + 1).copied()));
    let limit = words
        .iter()
        .filter_map(|word| clock(word.strip_prefix("timeout=")?.trim_end_matches('.')));
    in_words.chain(limit).filter(|wait| *wait <= LONGEST).max()
}

/// Parses `1800000ms`, or `600012` before the word of a unit.
fn length(word: &str, next: Option<&str>) -> Option<Duration> {
    let word = word.trim_end_matches(['.', ':']);
    let digits = word
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(word.len());
    let (number, unit) = word.split_at(digits);
    let unit = if unit.is_empty() {
        next?.trim_end_matches(['.', ':', '!'])
    } else {
        unit
    };
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * millis / 1_000.0).ok()
}

/// Parses `0:30:00`, as Python prints a time span.
fn clock(text: &str) -> Option<Duration> {
    let parts: Vec<&str> = text.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else {
        return None;
    };
    let number = |text: &str| text.parse::<u32>().ok();
    let minutes = number(hours)?.checked_mul(60)?.checked_add(number(minutes)?)?;
    let seconds = seconds.parse::<f64>().ok()? + f64::from(minutes) * 60.0;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, millis: Option<u64>) {
        assert_eq!(stated_wait(text), millis.map(Duration::from_millis), "{text}");
    }

    #[test]
    fn timeouts_state_their_wait() {
        check(
            "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=881, OpType=ALLREDUCE, NumelIn=4, \
             NumelOut=4, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
            Some(600_012),
        );
        check(
            "Timed out waiting 1800000ms for recv operation to complete",
            Some(1_800_000),
        );
        check(
            "wait timeout after 300000ms, keys: /default_pg/0/store_based_barrier_key:1",
            Some(300_000),
        );
        check(
            "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 1800000 ms",
            Some(1_800_000),
        );
        check(
            "Timed out after 901 seconds waiting for clients. 1/2 clients joined.",
            Some(901_000),
        );
        check("(world_size=4, worker_count=3, timeout=0:30:00)", Some(1_800_000));
        check("task python3:1003 blocked for more than 122 seconds.", Some(122_000));
    }

    #[test]
    fn other_lengths_of_time_are_no_waits() {
        check("step 100 took 3.5 s", None);
        check("saved in 600 s", None);
        check("the timeout of step 600 was reached", None);
        check("timed out after 999999999 hours", None);
        check("timed out waiting for 8 ranks", None);
    }
}
