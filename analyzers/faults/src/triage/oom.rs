//! Kernel out-of-memory dump: from "invoked oom-killer" over memory tables to "Killed process". One kill gives one
//! observation.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use rankguard_model::{ClassId, Classification, Rank, Role, Timestamp};
use regex::Regex;

use super::limits::CONTEXT;
use super::observation::LogObservation;
use crate::classes;
use crate::line::ParsedLine;

/// Maximum duration of a dump on the kernel's clock; the kernel prints it at once.
const DUMP_TIME: Duration = Duration::from_secs(30);
/// Maximum length of a dump, lines: a host with this many processes prints them all.
const DUMP_LINES: u64 = 20_000;

static KILLED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)(?P<scope>Memory cgroup out of memory|Out of memory(?: \(oom_kill_allocating_task\))?)[:,]? Kill(?:ed)? process (?P<pid>\d+)(?:, UID \d+)?,? ?\((?P<process>[^)]*)\)(?:.*?anon-rss:(?P<anon_rss_kb>\d+)kB)?")
        .expect("a constant pattern")
});
static CONSTRAINT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"oom-kill:constraint=(?P<constraint>\w+)(?:.*?oom_memcg=(?P<oom_memcg>[^,\s]+))?(?:.*?task_memcg=(?P<task_memcg>[^,\s]+))?(?:.*?task=(?P<process>[^,]+))?(?:.*?pid=(?P<pid>\d+))?")
        .expect("a constant pattern")
});
static INVOKED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(?P<invoked_by>.{1,64}?) invoked oom-killer").expect("a constant pattern"));

#[derive(Debug, Default)]
pub(super) struct OomTracker {
    open: Option<OomReport>,
}

#[derive(Debug)]
pub(super) struct OomReport {
    text: String,
    context: Vec<String>,
    fields: BTreeMap<String, String>,
    killed: bool,
    at: Option<Timestamp>,
    since_boot_us: Option<u64>,
    host: Option<String>,
    rank: Option<Rank>,
    first_line: u64,
    last_line: u64,
}

/// Returns true if a line begins a dump, or ends one with a lost start.
pub(super) fn opens(text: &str) -> bool {
    text.contains("invoked oom-killer") || text.contains("oom-kill:constraint=") || KILLED.is_match(text)
}

impl OomTracker {
    /// Reads a kernel line. Returns true if it belongs to a dump, and the unit that it completes.
    pub(super) fn accept(&mut self, line: &ParsedLine<'_>, line_no: u64) -> (bool, Option<OomReport>) {
        let text = line.text;
        if text.contains("invoked oom-killer") {
            let before = self.open.take();
            let mut unit = OomReport::new(line, line_no);
            unit.capture(&INVOKED, text);
            self.open = Some(unit);
            return (true, before);
        }
        if text.contains("oom-kill:constraint=") {
            let unit = self.open.get_or_insert_with(|| OomReport::new(line, line_no));
            unit.capture(&CONSTRAINT, text);
            unit.note(text, line_no);
            return (true, None);
        }
        if KILLED.is_match(text) {
            let mut unit = self.open.take().unwrap_or_else(|| OomReport::new(line, line_no));
            unit.capture(&KILLED, text);
            unit.note(text, line_no);
            unit.killed = true;
            return (true, Some(unit));
        }
        (false, None)
    }

    /// Takes a dump that cannot continue with this line, because its end was lost.
    pub(super) fn take_over(&mut self, line: &ParsedLine<'_>, line_no: u64) -> Option<OomReport> {
        let open = self.open.as_ref()?;
        let over = line_no.saturating_sub(open.first_line) > DUMP_LINES || open.is_over(line);
        if over { self.open.take() } else { None }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn take(&mut self) -> Option<OomReport> {
        self.open.take()
    }
}

impl OomReport {
    fn new(line: &ParsedLine<'_>, line_no: u64) -> Self {
        Self {
            text: line.text.trim().to_owned(),
            context: Vec::new(),
            fields: BTreeMap::new(),
            killed: false,
            at: line.at,
            since_boot_us: line.since_boot_us,
            host: line.host.map(str::to_owned),
            rank: line.rank,
            first_line: line_no,
            last_line: line_no,
        }
    }

    fn is_over(&self, line: &ParsedLine<'_>) -> bool {
        match (self.at, line.at, self.since_boot_us, line.since_boot_us) {
            (Some(first), Some(now), _, _) => now.since(first) > DUMP_TIME,
            (_, _, Some(first), Some(now)) => Duration::from_micros(now.saturating_sub(first)) > DUMP_TIME,
            _ => false,
        }
    }

    fn capture(&mut self, regex: &Regex, text: &str) {
        let Some(captures) = regex.captures(text) else { return };
        for name in regex.capture_names().flatten() {
            if let Some(value) = captures.name(name) {
                self.fields.insert(name.to_owned(), value.as_str().trim().to_owned());
            }
        }
    }

    /// Makes a later line of the dump the deciding one; the previous one becomes context.
    fn note(&mut self, text: &str, line_no: u64) {
        let text = text.trim();
        if self.text != text {
            let before = std::mem::replace(&mut self.text, text.to_owned());
            if self.context.len() < CONTEXT {
                self.context.push(before);
            }
        }
        self.last_line = line_no;
    }

    pub(super) fn observation(mut self) -> LogObservation {
        let scope = self.fields.remove("scope").unwrap_or_default();
        let memcg = self.fields.get("constraint").is_some_and(|c| c == "CONSTRAINT_MEMCG")
            || scope.starts_with("Memory cgroup");
        if memcg {
            self.fields
                .entry("constraint".to_owned())
                .or_insert_with(|| "CONSTRAINT_MEMCG".to_owned());
        }
        let group = self.fields.get("oom_memcg").or_else(|| self.fields.get("task_memcg"));
        let container = memcg
            && group.is_some_and(|group| {
                ["kubepods", "docker", "containerd", "crio", "libpod", "lxc", "podman"]
                    .iter()
                    .any(|runtime| group.contains(runtime))
            });
        let class = if container {
            classes::CONTAINER_OOM_KILL
        } else {
            classes::HOST_OOM_KILL
        };
        let mark = Classification {
            class: ClassId::from(class),
            role: Role::Root,
            confidence: if self.killed { 0.97 } else { 0.8 },
            signature: "kernel-oom-kill".into(),
            fields: self.fields.into_iter().collect(),
        };
        LogObservation {
            text: self.text,
            context: self.context,
            repeats: 1,
            marks: vec![mark],
            at: self.at,
            since_boot_us: self.since_boot_us,
            rank: self.rank,
            local_rank: None,
            host: self.host,
            device: None,
            line_no: self.first_line,
            last_line_no: self.last_line,
            key_line_no: self.last_line,
        }
    }
}
