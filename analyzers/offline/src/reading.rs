//! Reader of one stream: lines through triage, into signs with their place.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem::Finder;
use memchr::{memchr, memchr_iter, memrchr};
use rankguard_diagnosis::{
    ASSUMED_YEAR_FIELD, HOST_FIELD, LOG_NODE_FIELD, LOST_NODE_FIELD, LOST_PEER_FIELD, POD_FIELD, REPEATS_FIELD,
    SILENT_SINCE_FIELD, SINCE_BOOT_FIELD, Signal, is_board_event, is_sender, stated_wait,
};
use rankguard_faults::line::{self, LineClock, YearHint};
use rankguard_faults::{LogObservation, SignatureMatcher, StreamContext, Triage, classes};
use rankguard_model::{
    Classification, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, Generation, JobId, NodeId, Rank,
    Sequence, Timestamp,
};

use crate::announced::announced_end;
use crate::batch_host::name_batch_host;
use crate::boots;
use crate::cause_lists::CauseLists;
use crate::daemon_ends;
use crate::dead_actors::DeadActors;
use crate::last_lines::LastLines;
use crate::named_machine::{
    described_node, is_of_machine, is_refused_login, kubelet_host, lost_node, lost_peer, named_pod, node_in,
    states_own_loss,
};
use crate::outcome::RunRecords;
use crate::outcome_records::{ALARM_HINTS, END_HINTS};
use crate::overcome;
use crate::pod_ends::PodEnds;
use crate::process_hosts::name_hosts;
use crate::progress::{ProgressLine, is_completion, is_progress, is_retried, labelled_rank, tells_finite_loss};
use crate::quotation::{describes_option, is_quoted};
use crate::services::{self, ServiceRelation};
use crate::stamps::StampIndex;
use crate::stream::{PlacedObservation, ReadStream};
use crate::tasks::forget_task_ranks;
use crate::worker_failures::WorkerFailures;

/// Maximum time between the last answer of a node and the report of its restart that is one failure.
const LONGEST_SILENCE: Duration = Duration::from_secs(24 * 3_600);

/// Returns the time for which a node was silent by Slurm's report of its restart: `Node h3 unexpectedly rebooted
/// boot_time=1780272980 last response=1780272391`, seconds since 1970.
fn stated_silence(text: &str, at: Timestamp) -> Option<Duration> {
    let (_, rest) = text.split_once("last response=")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let seconds: i64 = rest[..end].parse().ok()?;
    let last = Timestamp::from_millis(seconds.checked_mul(1_000)?);
    let silence = at.since(last);
    (last <= at && silence <= LONGEST_SILENCE).then_some(silence)
}

/// Returns the time without a line before the boot of a machine that was not shut down.
fn unannounced_silence(boot: &LogObservation) -> Option<Duration> {
    let since = boot
        .marks
        .first()?
        .fields
        .get(SILENT_SINCE_FIELD)?
        .parse()
        .ok()
        .map(Timestamp)?;
    Some(boot.at?.since(since))
}

/// Job of offline logs; there is no fleet to query.
pub(crate) const JOB: &str = "job";
/// Maximum number of observations of one stream; later ones are dropped as repetitive.
const KEPT: usize = 20_000;

/// Block size, bytes, after which the need for progress lines is checked again.
const STRETCH: usize = 64 << 10;
/// Number of progress lines after a sign that suffices for all uses ([`crate::incident`]).
const PROGRESS: usize = 16;
/// Number of progress lines with a rank that count as one without.
const NAMED_RANKS: usize = 32;
/// Maximum part of the last line that is searched for an exception, bytes.
const TAIL: usize = 4 << 10;
/// Confidence of an exception that the last line of a log names after the word for an error: it was caught, and nothing
/// shows that the program ended with it.
const LOGGED_LAST: f64 = 0.35;
/// Maximum part of a line that is searched for progress, bytes; triage reads the whole line.
const LINE_BYTES: usize = 10 << 20;

/// Properties of a stream that are known before its first line.
#[derive(Debug, Clone, Default)]
pub struct StreamOrigin {
    /// Display name: its path, or the case's stream.
    pub name: String,
    /// Source of the evidence; a job log if not set.
    pub source: Option<EvidenceSource>,
    /// Rank that wrote it, if it is one rank's.
    pub rank: Option<Rank>,
    /// Node that wrote it.
    pub node: Option<NodeId>,
    /// Time of writing, for a file without clocks in its lines.
    pub at: Option<Timestamp>,
    /// Hint for clocks without a year.
    pub year: Option<YearHint>,
    /// Measured lead of the node's clock over the reference, ns.
    pub ahead_ns: Option<i64>,
}

/// Reader of one stream.
pub struct StreamReader {
    origin: StreamOrigin,
    source: EvidenceSource,
    matcher: Arc<SignatureMatcher>,
    triage: Triage,
    seen: Vec<PlacedObservation>,
    progress: Vec<ProgressLine>,
    completed: Vec<u64>,
    finite_loss: Option<u64>,
    records: RunRecords,
    failures: WorkerFailures,
    actors: DeadActors,
    causes: CauseLists,
    pod_ends: PodEnds,
    stamps: StampIndex,
    lines: u64,
    /// True if a launcher numbers the processes of a node.
    has_local_ranks: bool,
    /// Start of an incomplete line at the end of a block.
    partial: Option<Vec<u8>>,
    /// Number of the last line that triage had parsed at the previous block.
    last_read: u64,
    /// End of the bytes read so far, at most [`TAIL`].
    tail: Vec<u8>,
    /// End of the bytes before the next part of the log of a machine, at most [`boots::ABOVE`].
    above: Vec<u8>,
    end_hints: [Finder<'static>; END_HINTS.len()],
    alarm_hints: [Finder<'static>; ALARM_HINTS.len()],
}

impl StreamReader {
    /// Creates a reader with the built-in signatures.
    pub fn new(origin: StreamOrigin) -> Self {
        Self::with(SignatureMatcher::builtin(), origin)
    }

    /// Creates a reader with other signatures.
    pub fn with(matcher: Arc<SignatureMatcher>, origin: StreamOrigin) -> Self {
        let source = origin.source.unwrap_or(EvidenceSource::JobLog);
        let stream = StreamContext {
            source,
            rank: origin.rank,
            clock: LineClock {
                hint: origin.year,
                ..LineClock::default()
            },
        };
        let triage = Triage::new(Arc::clone(&matcher), stream);
        Self {
            origin,
            source,
            matcher,
            triage,
            seen: Vec::new(),
            progress: Vec::new(),
            completed: Vec::new(),
            finite_loss: None,
            records: RunRecords::default(),
            failures: WorkerFailures::default(),
            actors: DeadActors::default(),
            causes: CauseLists::default(),
            pod_ends: PodEnds::default(),
            stamps: StampIndex::default(),
            lines: 0,
            has_local_ranks: false,
            partial: None,
            last_read: 0,
            tail: Vec::new(),
            above: Vec::new(),
            end_hints: END_HINTS.map(Finder::new),
            alarm_hints: ALARM_HINTS.map(Finder::new),
        }
    }

    /// Returns the number of lines read so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Reads the next line, without its end.
    pub fn push(&mut self, line: &str) {
        self.look(line);
        self.keep_tail(line.as_bytes());
        self.keep_tail(b"\n");
        for observation in self.triage.push(line, Timestamp(0)) {
            self.add_observation(observation);
        }
    }

    /// Reads the next bytes: any number of lines, the first and the last possibly incomplete. Invalid UTF-8 is
    /// accepted. Progress is only searched after a parsed line, so that a healthy log costs no more than its scan.
    pub fn push_block(&mut self, block: &[u8]) {
        self.keep_tail(block);
        let mut rest = block;
        while !rest.is_empty() {
            let most = &rest[..rest.len().min(STRETCH)];
            let (stretch, more) = rest.split_at(memrchr(b'\n', most).map_or(most.len(), |at| at + 1));
            rest = more;
            self.read_boots(stretch);
            for observation in self.triage.push_block(stretch, Timestamp(0)) {
                self.add_observation(observation);
            }
            self.follow(stretch);
        }
    }

    /// Searches for boots in the log of a machine.
    fn read_boots(&mut self, stretch: &[u8]) {
        if !matches!(self.source, EvidenceSource::KernelLog | EvidenceSource::Host) {
            return;
        }
        for boot in boots::unannounced(&self.above, stretch, self.lines + 1, &self.clock()) {
            self.add_observation(boot);
        }
        self.above
            .extend_from_slice(&stretch[stretch.len().saturating_sub(boots::ABOVE)..]);
        let excess = self.above.len().saturating_sub(boots::ABOVE);
        self.above.drain(..excess);
    }

    /// Retains the end of what was read.
    fn keep_tail(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
    }

    /// Adds the exception that the last line of a job's log names after the word for an error, if nothing was observed
    /// there.
    fn add_logged_last(&mut self) {
        let is_of_job = matches!(self.source, EvidenceSource::JobLog | EvidenceSource::Launcher);
        let tail = String::from_utf8_lossy(&self.tail).into_owned();
        let line = tail.trim_end().lines().next_back().unwrap_or_default();
        let blank = tail[tail.trim_end().len()..].matches('\n').count().saturating_sub(1) as u64;
        let number = self.lines.saturating_sub(blank);
        let is_seen = self.seen.iter().any(|seen| seen.last_line >= number);
        let Some(exception) = logged_exception(line).filter(|_| is_of_job && !is_seen) else {
            return;
        };
        let at = line::parse(&line::clean(line), &self.clock()).at;
        let mut found = self.triage.push(exception, Timestamp(0));
        found.extend(self.triage.flush());
        for mut observation in found {
            observation.at = at;
            observation.line_no = number;
            observation.last_line_no = number;
            observation.key_line_no = number;
            for mark in &mut observation.marks {
                mark.confidence = mark.confidence.min(LOGGED_LAST);
            }
            self.add_observation(observation);
        }
    }

    /// Searches for progress in bytes that triage has read.
    fn follow(&mut self, stretch: &[u8]) {
        let mut lines = stretch;
        if let Some(mut line) = self.partial.take() {
            let end = memchr(b'\n', lines);
            let more = &lines[..end.unwrap_or(lines.len())];
            line.extend_from_slice(&more[..more.len().min(LINE_BYTES - line.len())]);
            let Some(end) = end else {
                self.partial = Some(line);
                return;
            };
            self.look_at(&line);
            lines = &lines[end + 1..];
        }
        let (lines, tail) = lines.split_at(memrchr(b'\n', lines).map_or(0, |at| at + 1));
        let before = std::mem::replace(&mut self.last_read, self.triage.last_read());
        let behind = self.progress.iter().rev().take_while(|work| work.line > self.last_read);
        // With named ranks, each has to be seen.
        let enough = behind
            .map(|work| if work.rank.is_some() { 1 } else { NAMED_RANKS })
            .sum::<usize>();
        let job_log = matches!(self.source, EvidenceSource::JobLog | EvidenceSource::Launcher);
        if job_log && (self.last_read > before || self.last_read > 0 && enough < PROGRESS * NAMED_RANKS) {
            // The last newline ends a line and begins none.
            let body = lines.strip_suffix(b"\n");
            body.into_iter()
                .flat_map(|body| body.split(|byte| *byte == b'\n'))
                .for_each(|line| self.look_at(line));
        } else {
            self.read_records(lines);
            self.lines += memchr_iter(b'\n', lines).count() as u64;
        }
        if !tail.is_empty() {
            self.partial = Some(tail.to_vec());
        }
    }

    /// Reads the records of starts and ends in complete lines without examining each line.
    fn read_records(&mut self, lines: &[u8]) {
        let mut starts = BTreeSet::new();
        let behind_alarm: &[Finder<'_>] = if self.last_read > 0 { &self.alarm_hints } else { &[] };
        for hint in self.end_hints.iter().chain(behind_alarm) {
            let mut from = 0;
            while let Some(hit) = hint.find(&lines[from..]).map(|hit| from + hit) {
                starts.insert(memrchr(b'\n', &lines[..hit]).map_or(0, |newline| newline + 1));
                from = memchr(b'\n', &lines[hit..]).map_or(lines.len(), |more| hit + more);
            }
        }
        let mut number = self.lines + 1;
        let mut counted = 0;
        for start in starts {
            let end = memchr(b'\n', &lines[start..]).map_or(lines.len(), |more| start + more);
            number += memchr_iter(b'\n', &lines[counted..start]).count() as u64;
            counted = start;
            self.records.read(number, &String::from_utf8_lossy(&lines[start..end]));
        }
    }

    fn look_at(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.look(&String::from_utf8_lossy(line));
    }

    /// Counts a line, and records its progress.
    fn look(&mut self, line: &str) {
        self.lines += 1;
        if is_progress(line) {
            self.progress.push(ProgressLine {
                line: self.lines,
                rank: labelled_rank(line),
            });
            if tells_finite_loss(line) {
                self.finite_loss = Some(self.lines);
            }
        }
        if is_completion(line) {
            self.completed.push(self.lines);
        }
        self.records.read(self.lines, line);
        self.failures.read(self.lines, line);
        self.actors.read(self.lines, line);
        self.causes.read(self.lines, line);
        self.pod_ends.read(self.lines, line);
        self.stamps.read(self.lines, line, &self.clock());
    }

    fn clock(&self) -> LineClock {
        LineClock {
            hint: self.origin.year,
            ..LineClock::default()
        }
    }

    /// Ends the stream and returns it.
    pub fn finish(mut self) -> ReadStream {
        if let Some(line) = self.partial.take() {
            self.look_at(&line);
        }
        for observation in self.triage.flush() {
            self.add_observation(observation);
        }
        self.add_logged_last();
        self.causes.remove_from(&mut self.seen);
        self.seen.sort_by_key(|seen| seen.first_line);
        let restarts = std::mem::take(&mut self.stamps.restarts);
        // The time at which the stream was written is that of its lines.
        if self.origin.at.is_none() && matches!(self.source, EvidenceSource::JobLog | EvidenceSource::Launcher) {
            std::mem::take(&mut self.stamps).date(&mut self.seen, self.origin.ahead_ns.unwrap_or(0));
        }
        self.failures.place(&mut self.seen);
        self.actors.place(&mut self.seen);
        self.pod_ends.place(&mut self.seen);
        name_batch_host(&mut self.seen);
        name_hosts(&mut self.seen);
        if self.has_local_ranks {
            forget_task_ranks(&mut self.seen);
        }
        let asks_for_requeue = overcome::asks_for_requeue(&String::from_utf8_lossy(&self.tail));
        if asks_for_requeue {
            overcome::requeued(&mut self.seen);
        }
        overcome::forgive(&mut self.seen, self.progress.last().map(|work| work.line), self.lines);
        let last_lines = self.last_lines();
        ReadStream {
            name: self.origin.name,
            source: self.source,
            rank: self.origin.rank,
            node: self.origin.node.or_else(|| sole_node(self.source, &self.seen)),
            measured: self.origin.ahead_ns.is_some(),
            seen: self.seen,
            progress: self.progress,
            completed: self.completed,
            finite_loss: self.finite_loss,
            records: self.records,
            restarts,
            asks_for_requeue,
            last_lines,
            lines: self.lines,
        }
    }

    /// Reads the retained end of a log.
    fn last_lines(&self) -> LastLines {
        let tail = String::from_utf8_lossy(&self.tail);
        // The first line may be cut.
        let whole = match tail.split_once('\n') {
            Some((_, rest)) if self.tail.len() >= TAIL => rest,
            _ => &tail,
        };
        let clock = self.clock();
        if !matches!(self.source, EvidenceSource::JobLog | EvidenceSource::Launcher) {
            return daemon_ends::read(whole.lines(), self.lines, &clock).without_known(&self.seen);
        }
        let mut last = LastLines::read(whole.lines(), self.lines, &clock).without_known(&self.seen);
        last.worked_at = last.worked_at.map(|at| self.corrected(at));
        last.written_at = last.written_at.map(|at| self.corrected(at));
        last
    }

    fn add_observation(&mut self, mut observation: LogObservation) {
        if self.seen.len() >= KEPT || describes_option(&observation.text) {
            return;
        }
        let is_of_service = weigh_service(&mut observation);
        if observation.marks.is_empty() {
            return;
        }
        let wall = observation.at.or(self.origin.at).map(|at| self.corrected(at));
        let since_boot = observation.since_boot_us.and_then(|us| i64::try_from(us).ok());
        let own_clock = wall.or_else(|| since_boot.map(|us| Timestamp(us.saturating_mul(1_000))));
        if self.triage.has_assumed_year(observation.line_no) {
            for mark in &mut observation.marks {
                mark.fields.fill(ASSUMED_YEAR_FIELD, "file");
            }
        }
        if let Some(micros) = observation.since_boot_us.filter(|_| wall.is_none()) {
            for mark in &mut observation.marks {
                mark.fields.fill(SINCE_BOOT_FIELD, micros.to_string());
            }
        }
        let evidence = self.evidence(&observation);
        let announced = announced_end(&observation, observation.at).map(|at| self.corrected(at));
        let retried = is_retried(&observation);
        let is_quoted = is_quoted(&self.matcher, self.source, &observation);
        self.has_local_ranks |= observation.local_rank.is_some();
        let mut signs = Signal::of(&evidence);
        for sign in &mut signs {
            sign.timed = wall.is_some();
        }
        self.seen.push(PlacedObservation {
            signs,
            first_line: observation.line_no,
            last_line: observation.last_line_no,
            key_line: observation.key_line_no,
            wall,
            own_clock,
            is_of_service,
            retried,
            is_quoted,
            wait: stated_wait(&observation.text)
                .or_else(|| stated_silence(&observation.text, wall?))
                .or_else(|| unannounced_silence(&observation))
                .unwrap_or_default(),
            announced,
        });
    }

    /// Converts a time of the writer's clock to the reference clock.
    fn corrected(&self, at: Timestamp) -> Timestamp {
        Timestamp(at.0.saturating_sub(self.origin.ahead_ns.unwrap_or(0)))
    }

    /// Returns the machine that a line of a log of a job, a scheduler or a system names as the failed one: in its text, or
    /// as the host on which a service reports it.
    fn named_machine(&self, observation: &LogObservation) -> Option<NodeId> {
        if !observation.marks.iter().any(is_of_machine) {
            return None;
        }
        let of_service = || {
            let host = observation.host.as_deref()?;
            let is_own = services::is_service_line(&observation.text) && !services::is_of_controller(&observation.text);
            is_own.then(|| NodeId::from(host))
        };
        let of_daemon = || {
            let is_own = observation.text.contains(OWN_PROLOG) || is_board_event(&observation.text);
            self.origin.node.clone().filter(|_| is_own)
        };
        // Slurm's daemon names the node of the processes that it could not end.
        let of_step = || {
            let mut marks = observation.marks.iter();
            let mark = marks.find(|mark| mark.class.as_str() == classes::HUNG_TASK)?;
            mark.fields.get("node").map(NodeId::from)
        };
        // A kernel names no other machine; a manager of nodes in the same log does.
        let names_nodes = self.source != EvidenceSource::KernelLog || services::is_of_manager(&observation.text);
        node_in(&observation.text)
            .filter(|_| names_nodes)
            .or_else(|| described_node(&observation.context))
            .or_else(of_step)
            .or_else(of_service)
            .or_else(of_daemon)
    }

    fn evidence(&self, observation: &LogObservation) -> Evidence {
        let machine = self.named_machine(observation);
        let is_of_other = machine.is_none() && is_of_other_machine(observation);
        let writer = || {
            let node = self.origin.node.clone();
            node.or_else(|| observation.host.as_deref().map(NodeId::from))
                .filter(|_| !is_of_other)
        };
        let node = machine.clone().or_else(writer).unwrap_or_else(|| NodeId::from(""));
        let is_host = self.source == EvidenceSource::Host && !node.as_str().is_empty();
        let is_of_machine_log = self.source == EvidenceSource::KernelLog || is_host;
        let entity = match (&observation.device, observation.rank) {
            (Some(device), _) => Entity::Device {
                node,
                device: device.clone(),
            },
            (None, Some(rank)) => Entity::Rank {
                job: JobId::from(JOB),
                generation: Generation(0),
                rank,
                node,
            },
            (None, None) if is_of_machine_log && !is_of_other || machine.is_some() => Entity::Node { node },
            (None, None) => Entity::Job { job: JobId::from(JOB) },
        };
        Evidence {
            id: EvidenceId {
                node: NodeId::from(self.origin.name.clone()),
                seq: Sequence(self.seen.len() as u64 + 1),
            },
            at: observation
                .at
                .or(self.origin.at)
                .map(|at| self.corrected(at))
                .unwrap_or_default(),
            source: self.source,
            entity: entity.clone(),
            body: EvidenceBody::Line {
                text: observation.text.clone(),
                context: observation.context.clone(),
                repeats: observation.repeats,
            },
            marks: marks_with_origin(observation, &entity, self.origin.node.as_ref()),
            synthetic: false,
        }
    }
}

/// Returns the marks of an observation with what logs show of its origin: the number of equal lines, and the host that
/// labels a line of a job without a rank, or the node of its log.
fn marks_with_origin(observation: &LogObservation, entity: &Entity, node: Option<&NodeId>) -> Vec<Classification> {
    let mut marks = observation.marks.clone();
    let is_of_job = matches!(entity, Entity::Job { .. });
    let host = observation.host.as_deref().or_else(|| kubelet_host(&observation.text));
    let host = host.filter(|_| is_of_job && !is_of_other_machine(observation));
    let node = node.filter(|_| is_of_job && host.is_none() && !is_of_other_machine(observation));
    let text = &observation.text;
    for mark in &mut marks {
        if let Some(pod) = named_pod(text) {
            mark.fields.fill(POD_FIELD, pod);
        }
        let own = || host.or(node.map(NodeId::as_str)).filter(|_| states_own_loss(text));
        let labelled = || host.filter(|host| is_refused_login(text, host));
        if let Some(lost) = lost_node(text).or_else(own).or_else(labelled) {
            mark.fields.fill(LOST_NODE_FIELD, lost);
        }
        if let Some(peer) = lost_peer(text) {
            mark.fields.fill(LOST_PEER_FIELD, peer);
        }
        if observation.repeats > 1 {
            mark.fields.fill(REPEATS_FIELD, observation.repeats.to_string());
        }
        if let Some(host) = host {
            mark.fields.fill(HOST_FIELD, host);
        }
        if let Some(node) = node {
            mark.fields.fill(LOG_NODE_FIELD, node.as_str());
        }
    }
    marks
}

/// Classes of failures of a whole machine, by reports of other machines.
const MACHINE_LOSSES: [&str; 2] = [classes::NODE_CRASH, classes::SLURM_NODE_FAIL];

/// Returns true for a controller's report that another machine failed, which is never the one on which the controller runs.
fn is_of_other_machine(observation: &LogObservation) -> bool {
    let mut marks = observation.marks.iter();
    services::is_of_controller(&observation.text) && marks.any(|mark| MACHINE_LOSSES.contains(&mark.class.as_str()))
}

/// Text of a Slurm daemon about its own node.
const OWN_PROLOG: &str = "prolog failed";

/// Returns the node that all observations of a machine's log name.
fn sole_node(source: EvidenceSource, seen: &[PlacedObservation]) -> Option<NodeId> {
    if !matches!(source, EvidenceSource::KernelLog | EvidenceSource::Host) {
        return None;
    }
    let named = seen.iter().flat_map(|seen| &seen.signs).filter_map(Signal::node);
    let names: BTreeSet<&NodeId> = named.filter(|node| !node.as_str().is_empty()).collect();
    names.first().filter(|_| names.len() == 1).map(|node| (*node).clone())
}

/// Removes what a service reports about itself. Returns true if the rest is about something that the job may use.
fn weigh_service(observation: &mut LogObservation) -> bool {
    // A system log names the host before the tag of the program.
    if observation.host.is_none() {
        return false;
    }
    let mut relations = Vec::new();
    let text = &observation.text;
    observation.marks.retain(|mark| {
        if is_sender(mark) {
            return true;
        }
        let relation = services::relation(text, mark);
        relations.push(relation);
        relation != ServiceRelation::None
    });
    relations.iter().min() == Some(&ServiceRelation::Possible)
}

/// Returns the exception that a line logs as an error, from its name on: `ERROR trainer.py:88 KeyError: 'acc'`.
fn logged_exception(line: &str) -> Option<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut starts = line
        .char_indices()
        .filter(|(at, c)| is_word(*c) && !line[..*at].ends_with(is_word))
        .map(|(at, _)| at);
    starts.find_map(|at| {
        let rest = &line[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let name = rest[..end].rsplit('.').next().unwrap_or_default();
        let is_exception = name.starts_with(|c: char| c.is_ascii_uppercase())
            && ["Error", "Exception"]
                .iter()
                .any(|ending| name.len() > ending.len() && name.ends_with(ending));
        let mut before = line[..at].split(|c: char| !c.is_ascii_alphabetic());
        let is_error = before.any(|word| ["ERROR", "CRITICAL", "FATAL"].contains(&word));
        let is_raised = rest[end..].is_empty() || rest[end..].starts_with([':', '(']);
        (is_exception && is_error && is_raised).then_some(rest)
    })
}

#[cfg(test)]
mod tests;
