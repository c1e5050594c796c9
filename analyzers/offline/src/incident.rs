//! Incidents: signals of all streams, divided into periods that are diagnosed separately.
//!
//! Logs with wall clocks are divided at pauses of [`QUIET`]. A timeout is reported when its wait ends, and what it waited
//! for failed before or during the wait, so the time of a reported wait belongs to its incident. A stream without a wall clock cannot be placed in time: it
//! is added to the others if they form one period, or to the only period after the last work of its log; otherwise all such
//! streams form one incident. The log of an unnamed
//! machine is added to the logs of a job only if both name the same process, or if it alone explains an error in them
//! ([`crate::explanation`]), and never to that of another unnamed machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_diagnosis::{HOST_FIELD, NEXT_ATTEMPT_FIELD, RankLog, Signal};
use rankguard_faults::classes;
use rankguard_model::{EvidenceSource, NodeId, Rank, Role, Timestamp};

use crate::aftermath;
use crate::attempts::{Restart, mark_next};
use crate::excuse::{causes, is_excused, without_excused};
use crate::explanation;
use crate::named_logs::name_machines;
use crate::outage;
use crate::outcome::WENT_ON;
use crate::pod_ends::place_pods;
use crate::services::without_services;
use crate::stream::{PlacedObservation, ReadStream, wait_start};

/// Pause after which signals belong to different failures.
pub(crate) const QUIET: Duration = Duration::from_secs(120);
/// Classes of failures that a program can survive: a line of work after one shows that it did.
const LIVED_WITHOUT: [&str; 8] = [
    classes::CLOCK_SKEW,
    classes::CONNECTION_REFUSED,
    classes::CONNECTION_RESET,
    classes::CONNECTION_TIMEOUT,
    classes::DNS_FAILURE,
    classes::EXTERNAL_SERVICE_UNAVAILABLE,
    classes::NETWORK_UNREACHABLE,
    classes::TLS_FAILURE,
];

/// Signal with its place in a log.
#[derive(Debug, Clone)]
pub(crate) struct LocatedSignal {
    pub sign: Signal,
    /// Index of the log in the incident.
    pub log: usize,
    pub first_line: u64,
    /// Last line, including folded repeats.
    pub last_line: u64,
    /// Number of the line that decides its class, such as that of the exception in a traceback.
    pub key_line: u64,
    /// First line divided by the number of lines in its log, 0 to 1.
    pub(crate) position: f64,
}

/// Log of an incident.
#[derive(Debug, Clone)]
pub(crate) struct IncidentLog {
    pub name: String,
    pub source: EvidenceSource,
    pub rank: Option<Rank>,
    pub node: Option<NodeId>,
    /// True if its clock was corrected by a measured offset.
    pub measured: bool,
    /// True if it shows progress or states a success.
    pub worked: bool,
    /// Last line that shows progress, from 1; 0 without one.
    pub last_work: u64,
    /// True if it states that a run failed.
    pub states_failure: bool,
    /// True if it ends with an exception that left the program.
    pub raised: bool,
    /// Number of lines.
    pub lines: u64,
}

/// Signals that are diagnosed together, ordered by time or, if one has no time, by position in their logs.
#[derive(Debug, Clone, Default)]
pub struct Incident {
    pub(crate) logs: Vec<IncidentLog>,
    pub(crate) items: Vec<LocatedSignal>,
    /// True if the logs of jobs state that their run ended well.
    pub(crate) ended_well: bool,
    /// Time of the last work that the logs of jobs show, if they report nothing else.
    pub(crate) worked_until: Option<Timestamp>,
    /// Time of the last work that all logs of jobs with work show, whether or not they fail later.
    pub(crate) last_work: Option<Timestamp>,
    /// Nodes of the logs that were read with those of the incident.
    pub(crate) nodes: BTreeSet<NodeId>,
    /// Nodes of which a log of the kernel or the services was read with those of the incident.
    pub(crate) machines: BTreeSet<NodeId>,
    /// Ranks with a log of their own, with the time of its last line.
    pub(crate) ranks: BTreeMap<Rank, Option<Timestamp>>,
    /// Ranks with a log of their own on a node with a name.
    pub(crate) placed_ranks: BTreeMap<Rank, RankLog>,
}

impl Incident {
    /// Returns the nodes with clocks that order the signals and were not corrected by a measured offset; none if the
    /// signals with a time are of one node.
    pub(crate) fn unmeasured_clocks(&self) -> BTreeSet<&NodeId> {
        let timed = self.items.iter().filter(|item| item.sign.timed);
        let logs = timed.filter_map(|item| self.logs.get(item.log));
        let nodes: BTreeSet<(&NodeId, bool)> = logs
            .filter_map(|log| Some((log.node.as_ref()?, log.measured)))
            .collect();
        if nodes.len() < 2 {
            return BTreeSet::new();
        }
        nodes
            .into_iter()
            .filter(|(_, measured)| !measured)
            .map(|(node, _)| node)
            .collect()
    }
}

impl Incident {
    /// Returns the nodes that the logs name, those of the lines included.
    pub(crate) fn named_nodes(&self) -> BTreeSet<NodeId> {
        let of_lines = self.items.iter().filter_map(|item| item.sign.node().cloned());
        let labels = self
            .items
            .iter()
            .filter_map(|item| item.sign.field(HOST_FIELD))
            .map(NodeId::from);
        let all = self.nodes.iter().cloned().chain(of_lines).chain(labels);
        all.filter(|node| !node.as_str().is_empty()).collect()
    }

    /// Returns the incident with the items that the predicate selects.
    pub(crate) fn part(&self, is_of_part: impl Fn(&LocatedSignal) -> bool) -> Self {
        let items = self.items.iter().filter(|item| is_of_part(item));
        Self {
            logs: self.logs.clone(),
            items: items.cloned().collect(),
            ended_well: self.ended_well,
            worked_until: self.worked_until,
            last_work: self.last_work,
            nodes: self.nodes.clone(),
            machines: self.machines.clone(),
            ranks: self.ranks.clone(),
            placed_ranks: self.placed_ranks.clone(),
        }
    }
}

/// Part of one stream without a pause longer than [`QUIET`].
pub(crate) struct StreamSegment {
    /// Index of the stream.
    pub(crate) stream: usize,
    /// Earliest and latest wall clock of its observations; a timeout begins when its wait began.
    pub(crate) from: Option<Timestamp>,
    to: Option<Timestamp>,
    /// Number of attempts of the run that its log shows below it.
    attempts_below: usize,
    /// Times of the stamps around a segment of an earlier attempt.
    within: Option<(Timestamp, Timestamp)>,
    pub(crate) items: Vec<LocatedSignal>,
}

/// Builds one incident of all streams regardless of their clocks, for callers that know that they are of one job.
pub(crate) fn single(streams: Vec<ReadStream>) -> Incident {
    let streams = without_services(streams);
    let streams = if streams.len() > 1 {
        without_excused(streams)
    } else {
        streams
    };
    let nodes = streams.iter().filter_map(|stream| stream.node.clone()).collect();
    let machines = machines(&streams);
    let logs = streams.iter().map(log).collect();
    let items = streams
        .iter()
        .enumerate()
        .flat_map(|(index, stream)| items(index, stream, 0..stream.seen.len()))
        .collect();
    let mut incident = Incident {
        logs,
        items,
        nodes,
        machines,
        ..Incident::default()
    };
    order(&mut incident);
    incident
}

/// Divides streams into incidents at pauses of their wall clocks, as the module documentation describes. Excused alarms
/// are left out.
pub fn incidents(mut streams: Vec<ReadStream>) -> Vec<Incident> {
    name_machines(&mut streams);
    place_pods(&mut streams);
    let streams = without_services(streams);
    let machines = streams
        .iter()
        .filter(|stream| is_machine_log(stream) && !stream.seen.is_empty());
    let machines = machines.count();
    let nodes: BTreeSet<&NodeId> = streams.iter().filter_map(|stream| stream.node.as_ref()).collect();
    // Two logs of unnamed machines are from two machines, and it is unknown on which of them a job ran.
    let alone = |stretch: &StreamSegment| {
        let stream = &streams[stretch.stream];
        let unnamed = stream.node.is_none() && machines > 1;
        let unplaced = stretch.from.is_none() && nodes.len() != 1;
        is_machine_log(stream) && (unnamed || unplaced)
    };
    let all = streams
        .iter()
        .enumerate()
        .flat_map(|(index, stream)| stretches(index, stream));
    let (own, shared): (Vec<_>, Vec<_>) = all.partition(alone);
    let (mut timed, loose): (Vec<_>, Vec<_>) = shared.into_iter().partition(|stretch| stretch.from.is_some());
    let (earlier, loose): (Vec<_>, Vec<_>) = loose.into_iter().partition(|stretch| stretch.attempts_below > 0);
    timed.sort_by_key(|stretch| (stretch.from, stretch.stream));
    let mut groups: Vec<SegmentGroup> = Vec::new();
    for stretch in timed {
        match groups.last_mut() {
            Some((Some(end), group)) if stretch.from.is_some_and(|from| from.since(*end) <= QUIET) => {
                *end = (*end).max(stretch.to.unwrap_or(*end));
                group.push(stretch);
            }
            _ => groups.push((stretch.to, vec![stretch])),
        }
    }
    let mut groups = outage::join(aftermath::join(&streams, groups));
    let earlier = place_earlier(&mut groups, earlier);
    if let [(_, only)] = groups.as_mut_slice() {
        only.extend(loose);
    } else {
        let mut unplaced = Vec::new();
        for stretch in loose {
            match group_after_work(&streams, &groups, &stretch) {
                Some(group) => groups[group].1.push(stretch),
                None => unplaced.push(stretch),
            }
        }
        if !unplaced.is_empty() {
            groups.push((None, unplaced));
        }
    }
    groups.splice(0..0, earlier);
    for (stretch, home) in homes_of(&streams, &groups, own) {
        match home {
            Some(home) => groups[home].1.push(stretch),
            None => groups.push((None, vec![stretch])),
        }
    }
    // What the logs of the job report comes before what only machines report.
    let is_of_machines = |(_, group): &SegmentGroup| group.iter().all(|part| is_machine_log(&streams[part.stream]));
    groups.sort_by_key(is_of_machines);
    groups.into_iter().map(|(_, group)| incident(&streams, group)).collect()
}

/// Adds segments of earlier attempts without a wall clock to the only group of the time between the stamps around them, and
/// returns the others as groups of their own, the earliest first.
fn place_earlier(groups: &mut [SegmentGroup], earlier: Vec<StreamSegment>) -> Vec<SegmentGroup> {
    let mut own: BTreeMap<std::cmp::Reverse<usize>, Vec<StreamSegment>> = BTreeMap::new();
    for segment in earlier {
        let is_of_time = |(end, group): &SegmentGroup| {
            let from = group.iter().filter_map(|part| part.from).min();
            let within = segment.within.zip(from.zip(*end));
            within.is_some_and(|((above, below), (from, end))| from <= below && above <= end)
        };
        let mut of_time = (0..groups.len()).filter(|group| is_of_time(&groups[*group]));
        match (of_time.next(), of_time.next()) {
            (Some(group), None) => groups[group].1.push(segment),
            _ => own
                .entry(std::cmp::Reverse(segment.attempts_below))
                .or_default()
                .push(segment),
        }
    }
    own.into_values().map(|segments| (None, segments)).collect()
}

/// Longest time from the last work of a log to a failure below it that has no time. Collectives and watchdogs wait up to
/// half an hour.
pub(crate) const UNTIL_REPORTED: Duration = Duration::from_secs(1_800);

/// Returns the only group of the time of a segment without a wall clock, if the log has a time above it: the segment is
/// below the last work of its log.
fn group_after_work(streams: &[ReadStream], groups: &[SegmentGroup], segment: &StreamSegment) -> Option<usize> {
    let stream = &streams[segment.stream];
    let worked_at = stream.last_lines.worked_at?;
    let last_work = stream.progress.last()?.line;
    if segment.items.iter().any(|item| item.first_line < last_work) {
        return None;
    }
    let is_of_time = |(end, group): &SegmentGroup| {
        let from = group.iter().filter_map(|part| part.from).min();
        let is_begun = from.is_some_and(|from| from <= worked_at.after(UNTIL_REPORTED));
        is_begun && end.is_some_and(|end| worked_at <= end.after(QUIET))
    };
    let mut of_time = (0..groups.len()).filter(|group| is_of_time(&groups[*group]));
    let group = of_time.next()?;
    of_time.next().is_none().then_some(group)
}

/// Segments of streams with the latest time among them.
pub(crate) type SegmentGroup = (Option<Timestamp>, Vec<StreamSegment>);

/// Returns segments of machines' logs, each with the index of the group that it belongs to: one that names the same
/// process, or the only one with an error that faults of one machine explain.
fn homes_of(
    streams: &[ReadStream],
    groups: &[SegmentGroup],
    own: Vec<StreamSegment>,
) -> Vec<(StreamSegment, Option<usize>)> {
    let homes: Vec<Option<usize>> = own
        .iter()
        .map(|stretch| groups.iter().position(|(_, group)| names_a_process(group, stretch)))
        .collect();
    if homes.iter().any(Option::is_some) {
        let streams = || own.iter().zip(&homes).filter(|(_, home)| home.is_some());
        // Processes of two machines may have the same number, so the match is used only if one machine log has one.
        let first = streams().map(|(stretch, _)| stretch.stream).next();
        let is_one = streams().all(|(stretch, _)| Some(stretch.stream) == first);
        return own
            .into_iter()
            .zip(homes)
            .map(|(stretch, home)| (stretch, home.filter(|_| is_one)))
            .collect();
    }
    let pairs: Vec<(usize, usize)> = own
        .iter()
        .enumerate()
        .flat_map(|(at, stretch)| {
            let explained = groups.iter().enumerate();
            let explained = explained.filter(|(_, (_, group))| explanation::explains(streams, stretch, group));
            explained.map(move |(group, _)| (at, group))
        })
        .collect();
    // Of several faults in one log without a wall clock, the last is the nearest to the end of the job.
    let last = pairs.last().copied();
    let is_one = |(at, group): &(usize, usize)| {
        last.is_some_and(|(other, of)| own[*at].stream == own[other].stream && *group == of)
    };
    let only = last.filter(|_| pairs.iter().all(is_one));
    let home = |at: usize| only.filter(|(stretch, _)| *stretch == at).map(|(_, group)| group);
    own.into_iter()
        .enumerate()
        .map(|(at, stretch)| (stretch, home(at)))
        .collect()
}

/// Returns true if a machine's log and those of a job name the same process id, above 1: the job then ran on that
/// machine.
fn names_a_process(group: &[StreamSegment], machine: &StreamSegment) -> bool {
    let pids = |stretch: &StreamSegment| -> BTreeSet<u32> {
        stretch.items.iter().filter_map(|item| item.sign.pid()).collect()
    };
    let there = pids(machine);
    // The first process of every container has the number 1.
    let named = |stretch: &StreamSegment| pids(stretch).iter().any(|pid| *pid > 1 && there.contains(pid));
    !there.is_empty() && group.iter().any(named)
}

pub(crate) fn is_machine_log(stream: &ReadStream) -> bool {
    matches!(stream.source, EvidenceSource::KernelLog | EvidenceSource::Host)
}

/// Returns the nodes of which a log of the kernel or the services was read.
fn machines(streams: &[ReadStream]) -> BTreeSet<NodeId> {
    let of_machines = streams.iter().filter(|stream| is_machine_log(stream));
    of_machines.filter_map(|stream| stream.node.clone()).collect()
}

/// Returns true if a log of a job states that the run ended well, none states a failure, and none of the whole job worked
/// without stating its end.
pub(crate) fn ended_well(streams: &[ReadStream]) -> bool {
    let of_jobs = || streams.iter().filter(|stream| !is_machine_log(stream));
    let is_open = |stream: &ReadStream| {
        let works = stream.rank.is_none() && !stream.progress.is_empty();
        works && !stream.records.states_success()
    };
    of_jobs().any(|stream| stream.records.states_success())
        && !of_jobs().any(|stream| stream.records.states_failure() || is_open(stream))
}

/// Returns the time of the last work that the logs of jobs show; none if one of them reports or states a failure.
fn worked_until(streams: &[ReadStream]) -> Option<Timestamp> {
    let is_noise = |sign: &Signal| sign.mark().is_some_and(|mark| mark.role == Role::Noise);
    let fails = |stream: &&ReadStream| {
        let reports = stream
            .seen
            .iter()
            .flat_map(|seen| &seen.signs)
            .any(|sign| !is_noise(sign));
        reports || stream.records.states_failure() || stream.last_lines.failure.is_some()
    };
    let mut of_jobs = streams.iter().filter(|stream| !is_machine_log(stream));
    last_work(streams).filter(|_| !of_jobs.any(|stream| fails(&stream)))
}

/// Returns the earliest of the times of last work in the logs of jobs.
fn last_work(streams: &[ReadStream]) -> Option<Timestamp> {
    let of_jobs = streams.iter().filter(|stream| !is_machine_log(stream));
    of_jobs.filter_map(|stream| stream.last_lines.worked_at).min()
}

/// Builds an incident of segments and the logs that they are from.
fn incident(streams: &[ReadStream], group: Vec<StreamSegment>) -> Incident {
    let used: BTreeSet<usize> = group.iter().map(|stretch| stretch.stream).collect();
    let place = |stream: usize| used.iter().position(|index| *index == stream).unwrap_or_default();
    let mut incident = Incident {
        logs: used.iter().map(|index| log(&streams[*index])).collect(),
        items: Vec::new(),
        ended_well: ended_well(streams),
        worked_until: worked_until(streams),
        last_work: last_work(streams),
        nodes: streams.iter().filter_map(|stream| stream.node.clone()).collect(),
        machines: machines(streams),
        ranks: rank_logs(streams),
        placed_ranks: placed_ranks(streams),
    };
    for stretch in group {
        let log = place(stretch.stream);
        incident
            .items
            .extend(stretch.items.into_iter().map(|item| LocatedSignal { log, ..item }));
    }
    order(&mut incident);
    incident
}

/// Returns the ranks with a log of their own; none if the node of one of them is unknown.
fn placed_ranks(streams: &[ReadStream]) -> BTreeMap<Rank, RankLog> {
    let of_jobs = streams.iter().filter(|stream| !is_machine_log(stream));
    let of_ranks = of_jobs.filter_map(|stream| Some((stream.rank?, stream)));
    let placed = of_ranks.map(|(rank, stream)| {
        let log = RankLog {
            node: stream.node.clone()?,
            works: !stream.progress.is_empty() || stream.last_lines.work.is_some(),
        };
        Some((rank, log))
    });
    placed.collect::<Option<_>>().unwrap_or_default()
}

/// Returns the ranks with a log of their own, and the time of the last line of each.
fn rank_logs(streams: &[ReadStream]) -> BTreeMap<Rank, Option<Timestamp>> {
    let of_jobs = streams.iter().filter(|stream| !is_machine_log(stream));
    of_jobs
        .filter_map(|stream| Some((stream.rank?, stream.last_lines.written_at)))
        .collect()
}

fn log(stream: &ReadStream) -> IncidentLog {
    IncidentLog {
        name: stream.name.clone(),
        source: stream.source,
        rank: stream.rank,
        node: stream.node.clone(),
        measured: stream.measured,
        worked: stream.records.states_success() || !stream.progress.is_empty(),
        last_work: stream.progress.last().map_or(0, |work| work.line),
        states_failure: stream.records.states_failure(),
        raised: stream.last_lines.raised,
        lines: stream.lines,
    }
}

/// Orders items by time if every signal has one; otherwise by their position in their own log.
fn order(incident: &mut Incident) {
    if incident.items.iter().all(|item| item.sign.timed) {
        incident
            .items
            .sort_by_key(|item| (item.sign.at, item.log, item.first_line));
    } else {
        incident.items.sort_by(|a, b| {
            a.position
                .total_cmp(&b.position)
                .then_with(|| (a.log, a.first_line).cmp(&(b.log, b.first_line)))
        });
    }
}

/// Divides a stream at pauses of its own clock that are longer than [`QUIET`], and where another attempt of the run begins. A
/// reported wait is no pause.
fn stretches(index: usize, stream: &ReadStream) -> Vec<StreamSegment> {
    let mut all: Vec<StreamSegment> = Vec::new();
    let mut start = 0;
    let mut newest: Option<Timestamp> = None;
    for (at, seen) in stream.seen.iter().enumerate() {
        let restart = at
            .checked_sub(1)
            .and_then(|before| stream.restarts.between(&stream.seen[before], seen));
        if let Some(restart) = restart.filter(|_| start < at) {
            all.extend(stretch(index, stream, start..at));
            end_attempt(&mut all, &restart);
            start = at;
            newest = None;
        }
        if let (Some(newest), Some(now)) = (newest, seen.own_clock)
            && wait_start(now, seen.wait).since(newest) > QUIET
        {
            let end = end_of_stretch(&stream.seen[start..=at]) + start;
            all.extend(stretch(index, stream, start..end));
            start = end;
        }
        newest = seen.own_clock.max(seen.announced).or(newest);
    }
    all.extend(stretch(index, stream, start..stream.seen.len()));
    all
}

/// Records in the segments before a start of the run that they are of an earlier attempt.
fn end_attempt(segments: &mut [StreamSegment], restart: &Restart) {
    for segment in segments {
        segment.attempts_below += 1;
        segment.within = segment.within.or(Some((restart.above.1, restart.below.1)));
        for item in &mut segment.items {
            if item.sign.field(NEXT_ATTEMPT_FIELD).is_none() {
                mark_next(&mut item.sign, restart);
            }
        }
    }
}

/// Returns the end of a segment with a pause of its clock before the last observation. Those without a clock before the pause
/// belong to the nearer side: a traceback belongs to the report of the launcher below it rather than to a warning far above.
fn end_of_stretch(seen: &[PlacedObservation]) -> usize {
    let Some((next, before)) = seen.split_last() else {
        return 0;
    };
    let clocked = before.iter().rposition(|seen| seen.own_clock.is_some());
    let Some(clocked) = clocked else { return before.len() };
    let above = before[clocked].last_line;
    let is_above = |seen: &PlacedObservation| seen.first_line - above < next.first_line - seen.last_line;
    let own = before[clocked + 1..].iter().take_while(|seen| is_above(seen)).count();
    clocked + 1 + own
}

/// Builds a segment of a range of observations; `None` if all are excused or have no signals.
fn stretch(index: usize, stream: &ReadStream, range: std::ops::Range<usize>) -> Option<StreamSegment> {
    let seen = &stream.seen[range.clone()];
    let from = first_moment(seen);
    let to = seen.iter().filter_map(|seen| seen.wall.max(seen.announced)).max();
    let items = items(index, stream, range);
    (!items.is_empty()).then_some(StreamSegment {
        stream: index,
        from,
        to,
        attempts_below: 0,
        within: None,
        items,
    })
}

/// Returns the earliest wall clock of observations, where a timeout begins with its wait. A timeout without a clock ended
/// before the next clock.
fn first_moment(seen: &[PlacedObservation]) -> Option<Timestamp> {
    let mut waited = Duration::ZERO;
    let mut first: Option<Timestamp> = None;
    for one in seen {
        waited = waited.max(one.wait);
        if let Some(wall) = one.wall {
            let from = wait_start(wall, waited);
            first = Some(first.map_or(from, |first| first.min(from)));
            waited = Duration::ZERO;
        }
    }
    first
}

/// Returns true if a log shows progress after its last observation, or enough after the first, and all its signals are
/// noise, a nearly full disk, or of a class that programs survive ([`LIVED_WITHOUT`]).
fn survived(stream: &ReadStream) -> bool {
    let light = |sign: &Signal| {
        let noise = sign.mark().is_some_and(|mark| mark.role == Role::Noise);
        let class = sign.class().map_or("", |class| class.as_str());
        let threshold = sign.is_signed("disk-nearly-full");
        noise || threshold || LIVED_WITHOUT.contains(&class)
    };
    let last = stream.seen.iter().map(|seen| seen.last_line).max();
    let first = stream.seen.iter().map(|seen| seen.first_line).min();
    let worked = stream.progress.last().map(|work| work.line);
    // Progress between observations shows that they do not stop the program, so the last one need not be followed by
    // progress.
    let between = |first: u64| stream.progress.iter().filter(|work| work.line > first).count() >= WENT_ON;
    let lived = worked > last || first < last && first.is_some_and(between);
    lived && stream.seen.iter().flat_map(|seen| &seen.signs).all(light)
}

/// Returns the items of a range of observations without excused ones. Those of a program that continued are left out
/// too, except in kernel logs.
fn items(log: usize, stream: &ReadStream, range: std::ops::Range<usize>) -> Vec<LocatedSignal> {
    let mut items = Vec::new();
    let survived = survived(stream);
    let causes = causes(stream);
    for seen in &stream.seen[range] {
        let lived = survived && stream.source != EvidenceSource::KernelLog;
        if lived || is_excused(stream, seen, &causes) {
            continue;
        }
        items.extend(seen.signs.iter().map(|sign| LocatedSignal {
            sign: sign.clone(),
            log,
            first_line: seen.first_line,
            last_line: seen.last_line,
            key_line: seen.key_line,
            position: seen.first_line as f64 / stream.lines.max(1) as f64,
        }));
    }
    items
}
