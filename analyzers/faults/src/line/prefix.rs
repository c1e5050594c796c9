//! The prefixes that kernels, system loggers, launchers and frameworks put before a message.

use rankguard_model::Rank;

use super::cursor::Cursor;
use super::moment::{self, LineClock};
use super::{Level, ParsedLine};

/// Takes one prefix off `line.text`. False when none is left.
pub(super) fn peel(line: &mut ParsedLine<'_>, clock: &LineClock) -> bool {
    kmsg(line)
        || priority(line)
        || since_boot(line)
        || facility(line)
        || clocked(line, clock)
        || (!line.kernel && (rank_bracket(line) || mpi_tag(line) || srun_label(line) || ray(line) || host_label(line)))
}

/// `/dev/kmsg`: `6,3964,206764307,-;text`, and its ` KEY=value` lines.
fn kmsg(line: &mut ParsedLine<'_>) -> bool {
    if line.kernel_seq.is_some() {
        return false;
    }
    let mut c = Cursor::new(line.text);
    let (Some(prio), true) = (c.number(4), c.eat(",")) else {
        return false;
    };
    let (Some(seq), true) = (c.number(19), c.eat(",")) else {
        return false;
    };
    let (Some(micros), true) = (c.number(19), c.eat(",")) else {
        return false;
    };
    let Some((flags, text)) = c.rest.split_once(';') else {
        return false;
    };
    if flags.len() > 64 {
        return false;
    }
    line.kernel = true;
    line.kernel_seq = Some(seq);
    line.since_boot_us = Some(micros);
    line.continuation = flags.starts_with('c') || flags.starts_with('+');
    line.level = Some(kernel_level(prio));
    line.text = text;
    true
}

fn kernel_level(prio: u64) -> Level {
    match prio % 8 {
        0..=2 => Level::Critical,
        3 => Level::Error,
        4 => Level::Warning,
        5 | 6 => Level::Info,
        _ => Level::Debug,
    }
}

/// `<6>` of raw ring dumps and pstore.
fn priority(line: &mut ParsedLine<'_>) -> bool {
    let mut c = Cursor::new(line.text);
    if !c.eat("<") {
        return false;
    }
    let Some(prio) = c.number(3) else { return false };
    if !c.eat(">") {
        return false;
    }
    line.level = Some(kernel_level(prio));
    line.text = c.rest;
    true
}

/// `[  123.456789] ` of dmesg.
fn since_boot(line: &mut ParsedLine<'_>) -> bool {
    if line.since_boot_us.is_some() {
        return false;
    }
    let mut c = Cursor::new(line.text);
    if !c.eat("[") {
        return false;
    }
    c.spaces();
    let (Some(seconds), true) = (c.number(10), c.eat(".")) else {
        return false;
    };
    let Some(fraction) = c.digits(6).filter(|digits| digits.len() == 6) else {
        return false;
    };
    // Some kernels add the caller: `[  12.345678][  T123]`.
    if !c.eat("]") {
        return false;
    }
    let mut caller = c;
    if caller.eat("[") {
        caller.spaces();
        if caller.run(|b| b.is_ascii_alphanumeric()).is_some() && caller.eat("]") {
            c = caller;
        }
    }
    c.spaces();
    line.kernel = true;
    line.since_boot_us = Some(
        seconds
            .saturating_mul(1_000_000)
            .saturating_add(fraction.parse().unwrap_or(0)),
    );
    line.text = c.rest;
    true
}

/// `kern  :warn  : ` of `dmesg --decode`.
fn facility(line: &mut ParsedLine<'_>) -> bool {
    const FACILITIES: [&str; 8] = ["kern", "user", "daemon", "syslog", "auth", "mail", "cron", "authpriv"];
    let mut c = Cursor::new(line.text);
    let known = c
        .run(|b| b.is_ascii_lowercase())
        .is_some_and(|name| FACILITIES.contains(&name));
    if !known {
        return false;
    }
    c.spaces();
    if !c.eat(":") {
        return false;
    }
    let level = match c.run(|b| b.is_ascii_lowercase()) {
        Some("emerg" | "alert" | "crit") => Level::Critical,
        Some("err") => Level::Error,
        Some("warn") => Level::Warning,
        Some("notice" | "info") => Level::Info,
        Some("debug") => Level::Debug,
        _ => return false,
    };
    c.spaces();
    if !c.eat(":") {
        return false;
    }
    c.spaces();
    line.kernel = true;
    line.level = Some(level);
    line.text = c.rest;
    true
}

/// A wall clock, and what stands behind it: host and program of a system log, stream of a container log, level of a logger.
fn clocked(line: &mut ParsedLine<'_>, clock: &LineClock) -> bool {
    let mut c = Cursor::new(line.text);
    let bracket = c.eat("[");
    let at = if let Some(at) = moment::iso(&mut c, clock) {
        Some(at)
    } else if let Some(at) = moment::month_first(&mut c, clock) {
        at
    } else {
        return false;
    };
    if bracket && !c.eat("]") {
        return false;
    }
    // The first clock is the collector's (container log, system log): it is the one all lines of the file share.
    line.at = line.at.or(at);
    c.spaces();
    if !bracket {
        container_stream(&mut c);
        system_log(&mut c, line);
    }
    if c.eat("- ") || c.eat("| ") || c.eat(": ") {
        c.spaces();
    }
    logger_level(&mut c, line);
    line.text = c.rest;
    true
}

/// `stdout F ` and `stderr P ` of container logs.
fn container_stream(c: &mut Cursor<'_>) {
    let mut next = *c;
    if (next.eat("stdout ") || next.eat("stderr ")) && (next.eat("F ") || next.eat("P ")) {
        *c = next;
    }
}

/// `host kernel: `, `host program[123]: ` of syslog and journal.
fn system_log<'a>(c: &mut Cursor<'a>, line: &mut ParsedLine<'a>) {
    let mut next = *c;
    let Some(host) = next.run(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) else {
        // no host
        return;
    };
    if !next.eat(" ") {
        if host == "kernel" && next.eat(": ") {
            line.kernel = true;
            *c = next;
        }
        return;
    }
    let Some(program) = next.run(|b| b.is_ascii_alphanumeric() || b"._-/()".contains(&b)) else {
        return;
    };
    let mut bracketed = next;
    if bracketed.eat("[") && bracketed.digits(10).is_some() && bracketed.eat("]") {
        next = bracketed;
    }
    if !next.eat(": ") || level_of(host).is_some() {
        return;
    }
    line.host = Some(host);
    line.kernel |= program == "kernel";
    // The kernel's own clock may follow: `kernel: [  123.456789] text`. It is the next layer. Programs that speak under their
    // own name keep it: `slurmd: error: ...` means something.
    if program == "kernel" {
        *c = next;
    } else {
        let rest = c.rest.get(host.len() + 1..).unwrap_or(next.rest);
        *c = Cursor::new(rest);
    }
}

/// `ERROR - `, `[ERROR] `, `WARNING: ` of loggers. The word stays in the text when it is not a clear prefix.
fn logger_level(c: &mut Cursor<'_>, line: &mut ParsedLine<'_>) {
    let mut next = *c;
    let bracket = next.eat("[");
    let Some(word) = next.run(|b| b.is_ascii_alphabetic()) else {
        return;
    };
    let Some(level) = level_of(word) else { return };
    line.level = line.level.or(Some(level));
    next.spaces();
    let closed = if bracket {
        next.eat("]")
    } else {
        next.eat("- ") || next.eat("| ") || next.eat(": ")
    };
    if closed {
        next.spaces();
        *c = next;
    }
}

fn level_of(word: &str) -> Option<Level> {
    Some(match word {
        "DEBUG" | "debug" | "TRACE" => Level::Debug,
        "INFO" | "info" | "NOTICE" => Level::Info,
        "WARNING" | "warning" | "WARN" | "warn" => Level::Warning,
        "ERROR" | "error" | "ERR" => Level::Error,
        "CRITICAL" | "critical" | "FATAL" | "fatal" => Level::Critical,
        _ => return None,
    })
}

/// `[rank3]:` of PyTorch (rank in the world), `[default3]:` of torchrun (rank on the node).
fn rank_bracket(line: &mut ParsedLine<'_>) -> bool {
    let mut c = Cursor::new(line.text);
    if !c.eat("[") {
        return false;
    }
    let Some(name) = c.run(|b| b.is_ascii_alphabetic() || b == b'_') else {
        return false;
    };
    c.spaces();
    let Some(number) = c.number(7).and_then(|n| u32::try_from(n).ok()) else {
        return false;
    };
    if !c.eat("]") {
        return false;
    }
    let colon = c.eat(":");
    if name.eq_ignore_ascii_case("rank") {
        line.rank = line.rank.or(Some(Rank(number)));
    } else if colon && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
        line.local_rank = line.local_rank.or(Some(number));
    } else {
        return false;
    }
    // One blank belongs to the prefix; more are indentation and mean something in a traceback.
    c.eat(" ");
    line.text = c.rest;
    true
}

/// `[1,3]<stderr>:` of mpirun with tagged output: job, then rank.
fn mpi_tag(line: &mut ParsedLine<'_>) -> bool {
    let mut c = Cursor::new(line.text);
    if !(c.eat("[") && c.digits(6).is_some() && c.eat(",")) {
        return false;
    }
    let Some(rank) = c.number(7).and_then(|n| u32::try_from(n).ok()) else {
        return false;
    };
    if !(c.eat("]<stderr>:") || c.eat("]<stdout>:")) {
        return false;
    }
    line.rank = line.rank.or(Some(Rank(rank)));
    line.text = c.rest;
    true
}

/// `3: ` of `srun --label`, right-aligned.
fn srun_label(line: &mut ParsedLine<'_>) -> bool {
    if line.rank.is_some() || line.at.is_some() {
        return false;
    }
    let mut c = Cursor::new(line.text);
    if c.rest.starts_with("   ") {
        // Wider than any alignment of task numbers: indentation.
        return false;
    }
    c.spaces();
    let Some(rank) = c.number(5).and_then(|n| u32::try_from(n).ok()) else {
        return false;
    };
    if !c.eat(": ") && c.rest != ":" {
        return false;
    }
    line.rank = Some(Rank(rank));
    line.text = c.rest.strip_prefix(':').unwrap_or(c.rest);
    true
}

/// `(RayTrainWorker pid=123, ip=10.0.0.7) `, `(TaskRunner pid=123) `.
fn ray<'a>(line: &mut ParsedLine<'a>) -> bool {
    let Some(inner) = line.text.strip_prefix('(') else {
        return false;
    };
    let Some((head, rest)) = inner.split_once(')') else {
        return false;
    };
    let Some((_, fields)) = head.split_once(" pid=") else {
        return false;
    };
    if let Some((_, ip)) = fields.split_once("ip=") {
        let host: &'a str = ip.split(',').next().unwrap_or(ip);
        line.host = line.host.or(Some(host));
    }
    line.text = rest.strip_prefix(' ').unwrap_or(rest);
    true
}

/// `worker-1: `, `10.0.0.2: ` of pdsh and DeepSpeed. Only names that look like machines: `KeyError: ` must stay text.
fn host_label(line: &mut ParsedLine<'_>) -> bool {
    if line.host.is_some() {
        return false;
    }
    let mut c = Cursor::new(line.text);
    let Some(name) = c.run(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.') else {
        return false;
    };
    if !c.eat(": ") {
        return false;
    }
    let address = name.split('.').count() == 4 && name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let machine = ["node", "worker", "host", "compute", "ip-", "master", "cn", "gpu-"]
        .iter()
        .any(|start| name.starts_with(start))
        && name.bytes().any(|b| b.is_ascii_digit());
    if !address && !machine {
        return false;
    }
    line.host = Some(name);
    line.text = c.rest;
    true
}
