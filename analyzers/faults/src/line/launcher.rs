//! Prefixes that launchers, schedulers and log collectors put before the output of a rank.

use rankguard_model::Rank;

use super::ParsedLine;
use super::cursor::LineCursor;
use super::moment::{self, LineClock};

/// Removes one prefix from `line.text`. Returns false if none is left.
pub(super) fn peel(line: &mut ParsedLine<'_>, clock: &LineClock) -> bool {
    rank_bracket(line)
        || bare_bracket(line)
        || mpi_tag(line)
        || pod(line)
        || srun_label(line)
        || ray(line)
        || host_label(line, clock)
        || spoken_rank(line)
}

/// Parses `[rank3]:` of PyTorch and `[rank: 3]` of Lightning (global rank), and `[default3]:` of torchrun (local rank).
fn rank_bracket(line: &mut ParsedLine<'_>) -> bool {
    let mut c = LineCursor::new(line.text);
    if !c.eat("[") {
        return false;
    }
    let Some(name) = c.run(|b| b.is_ascii_alphabetic() || b == b'_') else {
        return false;
    };
    if name == "rank" {
        c.eat(":");
    }
    c.spaces();
    let Some(number) = c.number(7).and_then(|n| u32::try_from(n).ok()) else {
        return false;
    };
    if !c.eat("]") {
        return false;
    }
    let colon = c.eat(":");
    if name.eq_ignore_ascii_case("rank") {
        line.rank = line.rank.filter(|_| !line.task_label).or(Some(Rank(number)));
        line.task_label = false;
    } else if colon && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
        line.local_rank = line.local_rank.or(Some(number));
        forget_task(line);
    } else {
        return false;
    }
    // One blank belongs to the prefix; more are indentation, which is significant in a traceback.
    c.eat(" ");
    line.text = c.rest;
    true
}

/// Parses `[1,3]<stderr>:` of mpirun and horovodrun with tagged output: job, then rank. SageMaker names both the rank and
/// the host: `[1,mpirank:3,algo-1]<stderr>:`.
fn mpi_tag(line: &mut ParsedLine<'_>) -> bool {
    let mut c = LineCursor::new(line.text);
    if !c.eat("[") {
        return false;
    }
    // Newer versions print their own name first: `[prterun-node1-4711@1,3]`.
    if c.rest.starts_with("prterun-")
        && let Some((name, rest)) = c.rest.split_once('@')
        && name.len() < 128
    {
        c = LineCursor::new(rest);
    }
    let Some(first) = c.number(10) else {
        return false;
    };
    // Horovod without MPI omits the job: `[3]<stderr>:`.
    let has_job = c.eat(",");
    let is_named = has_job && c.eat("mpirank:");
    let rank = if has_job { c.number(7) } else { Some(first) };
    let Some(rank) = rank.and_then(|n| u32::try_from(n).ok()) else {
        return false;
    };
    if is_named && c.eat(",") {
        c.run(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    }
    if !(c.eat("]<stderr>:") || c.eat("]<stdout>:")) {
        return false;
    }
    line.rank = line.rank.or(Some(Rank(rank)));
    c.eat(" ");
    line.text = c.rest;
    true
}

/// Parses `3: ` of `srun --label`, right-aligned.
fn srun_label(line: &mut ParsedLine<'_>) -> bool {
    if line.rank.is_some() || line.at.is_some() {
        return false;
    }
    let mut c = LineCursor::new(line.text);
    if c.rest.starts_with("   ") {
        // Wider than any alignment of task numbers, so it is indentation.
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
    line.task_label = true;
    line.text = c.rest.strip_prefix(':').unwrap_or(c.rest);
    true
}

/// Parses `(RayTrainWorker pid=123, ip=10.0.0.7) `, `(TaskRunner pid=123) `.
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

/// Parses `worker-1: `, `10.0.0.2: ` of pdsh and DeepSpeed, `worker-1  | ` of docker compose. Only names that look
/// like machines match: `KeyError: ` must remain text. A short name (`h4: `) is one of a machine before a clock or a rank.
fn host_label(line: &mut ParsedLine<'_>, clock: &LineClock) -> bool {
    if line.host.is_some() {
        return false;
    }
    let mut c = LineCursor::new(line.text);
    let Some(name) = c.run(is_name_byte) else { return false };
    let bar = c.rest.starts_with(' ') && c.spaces() && c.eat("| ");
    if !bar && !c.eat(": ") {
        return false;
    }
    let address = name.split('.').count() == 4 && name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let machine = [
        "node", "worker", "host", "compute", "ip-", "master", "cn", "gpu-", "dgx", "hgx", "gpunode", "launcher",
        "head-",
    ]
    .iter()
    .any(|start| name.starts_with(start))
        && name.bytes().any(|b| b.is_ascii_digit());
    let is_short = || is_numbered(name) && (is_output(c, clock) || is_of_traceback(c.rest) && !is_counter(name));
    if !address && !machine && !is_replica(name) && !is_short() {
        return false;
    }
    line.host = Some(name);
    line.text = c.rest;
    true
}

/// Returns true for a letter first and a digit last, as in `h4` and `tcn12`.
fn is_numbered(name: &str) -> bool {
    let is_rank = ["rank", "step", "epoch", "iter"]
        .iter()
        .any(|word| name.starts_with(word));
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.ends_with(|c: char| c.is_ascii_digit()) && !is_rank
}

/// Words before numbers that count something else than machines.
const COUNTERS: [&str; 20] = [
    "attempt", "batch", "block", "case", "chunk", "fold", "job", "layer", "part", "proc", "retry", "run", "seed",
    "shard", "stage", "task", "test", "thread", "trial", "try",
];

fn is_counter(name: &str) -> bool {
    COUNTERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-'))
}

/// Returns true for a line of a Python traceback: its head, a frame, a line of code below a frame, the exception.
fn is_of_traceback(text: &str) -> bool {
    let end = text.find([':', '(']).unwrap_or(text.len());
    let name = text[..end].rsplit('.').next().unwrap_or_default();
    let is_exception = text[end..].starts_with(": ")
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(|b| b.is_ascii_alphanumeric())
        && (name.ends_with("Error") || name.ends_with("Exception"));
    let code = text.strip_prefix("    ").unwrap_or_default();
    let is_code = code.starts_with(|c: char| c.is_ascii_alphabetic());
    is_exception || is_code || text.starts_with("  File \"") || text.starts_with("Traceback (most recent call last):")
}

/// Returns true if a clock with a day or the bracket of a rank follows, as at the start of a program's line.
fn is_output(mut c: LineCursor<'_>, clock: &LineClock) -> bool {
    let bracket = c.eat("[");
    let mut clocked = c;
    let is_clock = matches!(moment::any(&mut clocked, clock), Some(Some(_)));
    let mut graded = c;
    let is_clock = is_clock || graded.eat_any(&['I', 'W', 'E', 'F']) && moment::month_day(&mut graded, clock).is_some();
    is_clock || bracket && ["rank", "default"].iter().any(|word| c.rest.starts_with(word))
}

/// Parses `[pod/train-worker-3/pytorch] ` of kubectl, `[train-worker-3 pytorch] ` of kubetail, `train-worker-3
/// pytorch ` of stern.
fn pod(line: &mut ParsedLine<'_>) -> bool {
    if line.host.is_some() {
        return false;
    }
    let mut c = LineCursor::new(line.text);
    let bracket = c.eat("[");
    let by_kubectl = bracket && c.eat("pod/");
    let Some(pod) = c.run(is_name_byte) else { return false };
    if !by_kubectl && !is_replica(pod) {
        return false;
    }
    let separator = if by_kubectl { "/" } else { " " };
    let container = c.eat(separator) && c.run(is_name_byte).is_some();
    let ended = if bracket { c.eat("] ") } else { container && c.eat(" ") };
    if !ended || by_kubectl && !container {
        return false;
    }
    line.host = Some(pod);
    line.text = c.rest;
    true
}

fn is_name_byte(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.'
}

/// Returns true for `llama-worker-3`, `job1-master-0`: a role of a training job followed by a number.
fn is_replica(name: &str) -> bool {
    let roles = [
        "worker", "master", "launcher", "head", "node", "trainer", "ps", "server",
    ];
    let mut parts = name.rsplit('-');
    let number = parts
        .next()
        .is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    let role = parts.next().is_some_and(|part| roles.contains(&part));
    number && role && parts.next().is_some()
}

/// Parses `Rank 3: `, `rank3: `, `rank 3 | ` of user-written loggers.
fn spoken_rank(line: &mut ParsedLine<'_>) -> bool {
    if line.rank.is_some() && !line.task_label {
        return false;
    }
    let mut c = LineCursor::new(line.text);
    if !["Rank", "rank", "RANK"].iter().any(|word| c.eat(word)) {
        return false;
    }
    c.eat_any(&[' ', '_', '-', '=']);
    let Some(rank) = c.number(7).and_then(|n| u32::try_from(n).ok()) else {
        return false;
    };
    if !(c.eat(": ") || c.eat(" | ") || c.eat(" - ")) || c.rest.trim().is_empty() {
        return false;
    }
    line.rank = Some(Rank(rank));
    line.task_label = false;
    line.text = c.rest;
    true
}

/// Parses `[3]:` of launchers without role names for workers: local rank.
fn bare_bracket(line: &mut ParsedLine<'_>) -> bool {
    let mut c = LineCursor::new(line.text);
    if line.local_rank.is_some() || !c.eat("[") {
        return false;
    }
    let Some(number) = c.number(4).and_then(|n| u32::try_from(n).ok()) else {
        return false;
    };
    // Without text after it, it is a heading of torchrun's summary.
    if !c.eat("]:") || c.rest.trim().is_empty() {
        return false;
    }
    line.local_rank = Some(number);
    forget_task(line);
    c.eat(" ");
    line.text = c.rest;
    true
}

/// Drops the task label: a launcher under `srun --label` has one task a node, so the label was not a rank.
fn forget_task(line: &mut ParsedLine<'_>) {
    if line.task_label {
        line.rank = None;
        line.task_label = false;
    }
}
