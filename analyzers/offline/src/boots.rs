//! Boots of a machine in its system log: the kernel writes its version first. A machine that was stopped in order states it
//! in the lines above; one that lost its power or hung does not.

use rankguard_diagnosis::{BOOT_SIGNATURE, SILENT_SINCE_FIELD};
use rankguard_faults::line::{LineClock, clean, parse};
use rankguard_faults::{LogObservation, classes};
use rankguard_model::{Classification, Role, Timestamp};

use memchr::memmem;

/// First words of the kernel.
const BANNER: &str = "Linux version ";
/// Maximum part of a log above a boot that is read, bytes.
pub(crate) const ABOVE: usize = 8 << 10;
/// Maximum number of lines above a boot that are read.
const LINES: usize = 60;
/// Longest time without a line before a boot, ns.
const LONGEST_SILENCE: i64 = 24 * 3_600 * 1_000_000_000;
/// Program that reports a shutdown in order, and that only a system log has: a log of the kernel alone shows none.
const MANAGER: &str = "systemd";
/// Confidence that a machine stopped without a shutdown.
const CONFIDENCE: f64 = 0.8;

/// Texts of a shutdown in order.
const ORDERLY: [&str; 14] = [
    "exiting on signal 15",
    "Journal stopped",
    "Power down",
    "Power-Off",
    "powering down",
    "powering off",
    "Reached target Reboot",
    "Reached target Shutdown",
    "reboot: ",
    "rebooting",
    "Rebooting",
    "hutting down",
    "Starting new kernel",
    "systemd-shutdown",
];
/// Texts of the kernel about its own failure, which explains the boot.
const EXPLAINED: [&str; 5] = ["Kernel panic", "kernel BUG", "Oops", "Hardware Error", "hard LOCKUP"];

/// Returns the boots in a part of a log without a shutdown before them. `above` are the bytes before the part, `number` is the
/// number of its first line.
pub(crate) fn unannounced(above: &[u8], part: &[u8], number: u64, clock: &LineClock) -> Vec<LogObservation> {
    let mut found = Vec::new();
    for at in memmem::find_iter(part, BANNER) {
        let start = memchr::memrchr(b'\n', &part[..at]).map_or(0, |newline| newline + 1);
        let end = memchr::memchr(b'\n', &part[at..]).map_or(part.len(), |more| at + more);
        let line = number + memchr::memchr_iter(b'\n', &part[..start]).count() as u64;
        let text = String::from_utf8_lossy(&part[start..end]);
        let before = [above, &part[..start]].concat();
        let before = &before[before.len().saturating_sub(ABOVE)..];
        found.extend(boot(&text, line, &String::from_utf8_lossy(before), clock));
    }
    found
}

fn boot(text: &str, line: u64, above: &str, clock: &LineClock) -> Option<LogObservation> {
    let cleaned = clean(text);
    let parsed = parse(&cleaned, clock);
    let at = parsed.at.filter(|_| parsed.text.starts_with(BANNER))?;
    let lines = || above.lines().rev().take(LINES);
    let holds = |words: &[&str]| lines().any(|line| words.iter().any(|word| line.contains(word)));
    if !holds(&[MANAGER]) || holds(&ORDERLY) || holds(&EXPLAINED) {
        return None;
    }
    let since = lines().find_map(|line| parse(&clean(line), clock).at)?;
    let is_near = since < at && at.0.saturating_sub(since.0) <= LONGEST_SILENCE;
    is_near.then(|| observation(parsed.text, parsed.host, line, at, since))
}

fn observation(text: &str, host: Option<&str>, line: u64, at: Timestamp, since: Timestamp) -> LogObservation {
    let mark = Classification {
        class: classes::NODE_CRASH.into(),
        role: Role::Root,
        confidence: CONFIDENCE,
        signature: BOOT_SIGNATURE.into(),
        fields: [(SILENT_SINCE_FIELD, since.0.to_string())].into(),
    };
    LogObservation {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
        marks: vec![mark],
        at: Some(at),
        since_boot_us: None,
        rank: None,
        local_rank: None,
        host: host.map(str::to_owned),
        device: None,
        line_no: line,
        last_line_no: line,
        key_line_no: line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "2026-05-02T08:05:12+00:00 c2 kernel: Linux version 6.8.0-45-generic (buildd@x) #45\n";

    fn lines_of_boots(above: &str) -> Vec<u64> {
        let text = format!("{above}{BOOT}");
        let found = unannounced(b"", text.as_bytes(), 1, &LineClock::default());
        found.iter().map(|one| one.line_no).collect()
    }

    #[test]
    fn a_boot_below_lines_without_a_shutdown_is_unannounced() {
        let session = "2026-05-02T08:01:50+00:00 c2 systemd[1]: Started session-91.scope.\n";
        assert_eq!(lines_of_boots(session), [2]);
        assert!(lines_of_boots("").is_empty());
        for end in [
            "systemd-logind[801]: System is rebooting.",
            "systemd[1]: Reached target Shutdown.",
            "rsyslogd: [origin software=\"rsyslogd\"] exiting on signal 15.",
            "systemd-journald[301]: Journal stopped",
            "kernel: Kernel panic - not syncing: Fatal exception",
        ] {
            let above = format!("{session}2026-05-02T08:02:50+00:00 c2 {end}\n");
            assert!(lines_of_boots(&above).is_empty(), "{end}");
        }
        // The log of the kernel alone never shows a shutdown.
        assert!(lines_of_boots("2026-05-02T08:01:50+00:00 c2 kernel: usb 1-1: new device\n").is_empty());
    }
}
