//! Ends of daemons that their logs state: `slurmctld[26180]: fatal: text`, `slurmd.service: Main process exited, code=exited,
//! status=1/FAILURE`. Only services count without which a node runs no jobs: others fail on machines that serve well.

use std::collections::BTreeSet;

use rankguard_faults::line::{self, LineClock, LogLevel, SyslogTag};

use crate::last_lines::{LastLines, StatedFailure};
use crate::services::serves_jobs;

/// Program whose lines have no tag: the log is its own.
const OWN_LOG: &str = "";

/// Reads the last lines of the log of a machine or a scheduler, the last of which has the number `last`. A daemon that writes
/// below its end was started again.
pub(crate) fn read<'a>(lines: impl DoubleEndedIterator<Item = &'a str>, last: u64, clock: &LineClock) -> LastLines {
    let mut found = LastLines::default();
    let mut written: BTreeSet<String> = BTreeSet::new();
    let mut number = last;
    for text in lines.rev() {
        let cleaned = line::clean(text);
        let parsed = line::parse(&cleaned, clock);
        let tag = SyslogTag::parse(parsed.text).filter(|_| parsed.host.is_some());
        let name = tag
            .map_or(OWN_LOG, |tag| unit_of(&tag).unwrap_or(tag.name))
            .to_ascii_lowercase();
        let is_end = match tag {
            Some(tag) => serves_jobs(&name) && is_end(&tag),
            None => {
                let is_own_log = parsed.host.is_none() && parsed.at.is_some() && !parsed.kernel;
                is_own_log && parsed.level == Some(LogLevel::Critical)
            }
        };
        if is_end && !written.contains(&name) {
            found.failure = Some(StatedFailure::new(number, &cleaned, &parsed, clock));
        } else if !is_end && !parsed.text.trim().is_empty() {
            written.insert(name);
        }
        number = number.saturating_sub(1);
    }
    found
}

/// Returns true if a daemon states that it ends, or systemd that a process of its unit failed.
fn is_end(tag: &SyslogTag<'_>) -> bool {
    let is_fatal = ["fatal: ", "FATAL: ", "CRITICAL: "]
        .iter()
        .any(|level| tag.text.starts_with(level));
    is_fatal || unit_of(tag).is_some() && has_failed_process(tag.text)
}

/// Returns true for `process exited, code=exited, status=1/FAILURE` and `Failed with result 'exit-code'`.
fn has_failed_process(text: &str) -> bool {
    let status = text
        .split_once("process exited, code=exited, status=")
        .map(|(_, status)| status);
    status.is_some_and(|status| !status.starts_with("0/")) || text.contains("Failed with result '")
}

/// Returns the unit that a message of systemd is about: `systemd[1]: slurmd.service: Main process exited`.
fn unit_of<'a>(tag: &SyslogTag<'a>) -> Option<&'a str> {
    let unit = tag.text.split(": ").next().filter(|_| tag.name == "systemd")?;
    unit.strip_suffix(".service").filter(|name| !name.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(log: &str) -> Option<u64> {
        let lines = log.lines().count() as u64;
        read(log.lines(), lines, &LineClock::default())
            .failure
            .map(|failure| failure.line)
    }

    #[test]
    fn daemons_of_jobs_state_their_end() {
        let fatal = "Feb 24 09:21:38 n1 slurmd[77]: fatal: Unable to bind listen port (6818)\n";
        assert_eq!(end(fatal), Some(1));
        assert_eq!(
            end("[2026-02-24T09:21:38.010] fatal: cannot recover the last state\n"),
            Some(1)
        );
        let unit =
            "Feb 24 09:21:38 n1 systemd[1]: slurmd.service: Main process exited, code=exited, status=1/FAILURE\n";
        assert_eq!(end(unit), Some(1));
        let other = "Feb 24 09:21:39 n1 sshd[9]: Accepted publickey for root\n";
        assert_eq!(end(&format!("{fatal}{other}")), Some(1));
        // Started again.
        let again = "Feb 24 09:22:38 n1 slurmd[78]: slurmd version 23.11 started\n";
        assert_eq!(end(&format!("{fatal}{again}")), None);
        let started =
            "Feb 24 09:22:38 n1 systemd[1]: slurmd.service: Scheduled restart job, restart counter is at 1.\n";
        assert_eq!(end(&format!("{unit}{started}")), None);
    }

    #[test]
    fn other_daemons_fail_on_machines_that_serve_well() {
        for line in [
            "Feb 24 09:21:38 n1 sshd[77]: fatal: Timeout before authentication for 10.0.0.9 port 22",
            "Feb 24 09:21:38 n1 postgres[77]: FATAL: the database system is starting up",
            "Feb 24 09:21:38 n1 systemd[1]: motd-news.service: Main process exited, code=exited, status=1/FAILURE",
            "Feb 24 09:21:38 n1 systemd[1]: slurmd.service: Main process exited, code=exited, status=0/SUCCESS",
            "Feb 24 09:21:38 n1 slurmd[77]: error: fatal: no",
        ] {
            assert_eq!(end(line), None, "{line}");
        }
    }
}
