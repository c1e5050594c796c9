//! Hosts of system logs: the word between the time and the program in `Nov 30 10:00:00 n7 slurmd[812]: text`.
//!
//! A program that writes its own time begins a message with words in the same place: `2026-11-30 10:00:01 caught
//! RuntimeError: text`, `2026-11-30 10:00:01 loading checkpoint: /ckpt`. A word without a digit is a host only in a line that has
//! another property of system logs.

/// Words before numbers that count something else than machines.
const COUNTERS: [&str; 12] = [
    "attempt", "batch", "epoch", "iter", "layer", "rank", "retry", "shard", "stage", "step", "task", "trial",
];

/// Endings of names of exceptions.
const EXCEPTIONS: [&str; 6] = ["Error", "Exception", "Exit", "Interrupt", "Iteration", "Warning"];

/// Line of which a word may be a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct SyslogWords<'a> {
    /// Text of the time.
    pub(super) stamp: &'a str,
    /// Word behind the time.
    pub(super) host: &'a str,
    /// Word behind that, before a colon.
    pub(super) program: &'a str,
    /// True if the number of a process is behind the program.
    pub(super) has_process: bool,
}

impl SyslogWords<'_> {
    /// Returns true if the word behind the time is the host of a system log.
    pub(super) fn name_host(&self) -> bool {
        if self.has_process || self.program == "kernel" {
            return true;
        }
        if self.host.bytes().any(|byte| byte.is_ascii_digit()) {
            let name = self
                .host
                .trim_end_matches(|c: char| c.is_ascii_digit() || "-_".contains(c));
            return !COUNTERS.contains(&name.to_ascii_lowercase().as_str());
        }
        is_of_syslog(self.stamp) && !is_exception(self.program)
    }
}

/// Returns true for the times of system logs: `Nov 30 10:00:00` (RFC 3164), and with an offset as rsyslog and journalctl print
/// them, `2026-11-30T10:00:00.123456+00:00` (RFC 3339).
fn is_of_syslog(stamp: &str) -> bool {
    let stamp = stamp.trim();
    let is_offset = |offset: &str| {
        let digits = offset.bytes().filter(u8::is_ascii_digit).count();
        digits == 4 && offset.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
    };
    let has_offset = || {
        let (_, clock) = stamp.split_once('T')?;
        let (_, offset) = clock.split_once(['+', '-'])?;
        is_offset(offset).then_some(())
    };
    stamp.starts_with(|c: char| c.is_ascii_uppercase()) || has_offset().is_some()
}

/// Returns true for the name of an exception: `torch.OutOfMemoryError`.
fn is_exception(program: &str) -> bool {
    let name = program.rsplit('.').next().unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_uppercase()) && EXCEPTIONS.iter().any(|ending| name.ends_with(ending))
}
