//! `rankguard logs`: the output of a job's ranks, read from the agents that store it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use rankguard_identity::{DialError, ExpectedPeer, PeerTransport};
use rankguard_model::{Generation, JobId, JobState, JobView, NodeId, NodeState, NodeView, Rank, StatusView};
use rankguard_proto::v1;
use rankguard_proto::v1::rank_logs_client::RankLogsClient;
use tonic::transport::{Channel, Endpoint};

use crate::args::ControllerAddress;
use crate::client::ControllerClient;
use crate::config::nearest;
use crate::display_text::job_state;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;
use crate::waiting::report_long_wait;

/// Maximum wait for an agent.
const AGENT_LIMIT: Duration = Duration::from_secs(10);
/// Poll interval for growing files.
const POLL: Duration = Duration::from_millis(300);
/// Bytes per read request.
const PIECE: u32 = 256 << 10;
/// Size of the end of a file in which `--tail` searches the last lines.
const TAIL_BYTES: u64 = 4 << 20;
/// Maximum length of a line; longer lines are split.
const LINE_MAX: usize = 64 << 10;

#[derive(Debug, Clone, Args)]
pub(crate) struct LogsArgs {
    /// Name of the job
    pub(crate) job: String,
    /// Show only this rank; may be repeated
    #[arg(long, value_name = "RANK")]
    pub(crate) rank: Vec<u32>,
    /// Show the output of this generation [default: the newest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) generation: Option<u64>,
    /// Show only the last lines of each stream
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<usize>,
    /// Print new output until the job has ended
    #[arg(long, short)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
}

pub(crate) async fn run(args: &LogsArgs, client: &ControllerClient) -> Result<CommandExit, CliError> {
    let job = JobId::from(args.job.as_str());
    let mut reader = LogReader::new(job, args.rank.iter().copied().map(Rank).collect(), args.tail);
    reader.generation = args.generation.map(Generation);
    loop {
        let status = client.status().await?;
        let view = known(&reader.job, &status)?;
        // Read after the state was fetched, so that output written before the end of the job is included.
        reader.print_new(view, &status.nodes, client.network()).await;
        let is_over = matches!(view.state, JobState::Finished | JobState::Stopped);
        if !args.follow || is_over {
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    reader.finish();
    let status = client.status().await?;
    let view = known(&reader.job, &status)?;
    if reader.streams.is_empty() {
        return Err(reader.no_output(view));
    }
    let absent = reader.absent_ranks(view);
    for (_, why) in &absent {
        out::note(why);
    }
    if let Some(note) = reader.restart_note(view) {
        out::note(&note);
    }
    Ok(if reader.away.is_empty() && absent.is_empty() {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}

fn known<'a>(job: &JobId, status: &'a StatusView) -> Result<&'a JobView, CliError> {
    status.jobs.iter().find(|view| view.spec.id == *job).ok_or_else(|| {
        let names = status.jobs.iter().map(|view| view.spec.id.as_str());
        let hint = match nearest(job.as_str(), names) {
            Some(near) => format!("did you mean {near}? `rankguard status jobs --all` lists the jobs"),
            None => "`rankguard status jobs --all` lists the jobs".to_owned(),
        };
        CliError::failure(format!("there is no job {job}"), hint)
    })
}

/// One stream of a rank: node, generation, rank, and true for standard error.
type StreamKey = (NodeId, Generation, Rank, bool);

/// Cause of absent output of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AbsenceCause {
    /// The generation has no such rank.
    NotStarted,
    /// The agent of its node cannot be asked.
    AgentAway,
    /// The agent has no file of it.
    Removed,
}

/// Read position of a stream.
#[derive(Debug, Default)]
struct LogCursor {
    offset: u64,
    /// Incomplete last line.
    rest: Vec<u8>,
}

/// Reader that prints the output of a job's ranks as it grows.
pub(crate) struct LogReader {
    job: JobId,
    /// Empty for all ranks.
    ranks: BTreeSet<Rank>,
    /// Generation to read; `None` for the current one.
    generation: Option<Generation>,
    /// Generation that was read last.
    shown: Option<Generation>,
    tail: Option<usize>,
    streams: BTreeMap<StreamKey, LogCursor>,
    /// Ranks of which agents have output, whether selected or not.
    listed: BTreeSet<Rank>,
    channels: BTreeMap<NodeId, Channel>,
    /// Nodes with unreadable output, with the reason.
    away: BTreeMap<NodeId, String>,
    /// Nodes without a connected agent of which it is unknown whether the job ran there.
    unknown: BTreeSet<NodeId>,
}

impl LogReader {
    /// Creates a reader at the start of all streams. `tail` limits the first output of each stream to its last lines.
    pub(crate) fn new(job: JobId, ranks: BTreeSet<Rank>, tail: Option<usize>) -> Self {
        Self {
            job,
            ranks,
            generation: None,
            shown: None,
            tail,
            streams: BTreeMap::new(),
            listed: BTreeSet::new(),
            channels: BTreeMap::new(),
            away: BTreeMap::new(),
            unknown: BTreeSet::new(),
        }
    }

    /// Prints the output since the last call. The rest of earlier generations precedes that of a new one, and a line on
    /// standard error separates them.
    pub(crate) async fn print_new(&mut self, view: &JobView, nodes: &[NodeView], network: &PeerTransport) {
        let newest = self.generation.unwrap_or(view.generation);
        let first = self.shown.unwrap_or(newest);
        for generation in (first.0..=newest.0).map(Generation) {
            if self.shown.is_some_and(|shown| shown < generation) {
                self.finish();
            }
            if let Some(line) = separator(&self.job, self.shown, generation) {
                out::note(&line);
            }
            self.shown = Some(generation);
            self.print_generation(view, generation, nodes, network).await;
        }
    }

    async fn print_generation(
        &mut self,
        view: &JobView,
        generation: Generation,
        nodes: &[NodeView],
        network: &PeerTransport,
    ) {
        let mut places = nodes_of(view, generation);
        let are_known = !places.is_empty();
        if !are_known && generation > Generation(0) {
            // The controller does not know where the generation ran, as with jobs that another journal began.
            places = nodes.iter().map(|known| known.node.clone()).collect();
        }
        for node in places {
            let known = nodes.iter().find(|view| view.node == node);
            let read = match known {
                Some(known) if known.state != NodeState::Lost => {
                    let what = format!("waiting for the agent of node {node}");
                    report_long_wait(&what, self.read_node(known, generation, network)).await
                }
                // Ranks of the job may never have run there, so that nothing is known to be missing.
                Some(_) if !are_known => {
                    self.note_unknown(node);
                    continue;
                }
                Some(_) => {
                    Err("its agent is not connected; the output is on the node and is read when it is back".to_owned())
                }
                None => Err("the controller does not know the node any more".to_owned()),
            };
            match read {
                Ok(()) => drop(self.away.remove(&node)),
                Err(problem) => self.note_away(node, problem),
            }
        }
    }

    /// Reports once that the output of a node is not read of which it is unknown whether the job ran there.
    fn note_unknown(&mut self, node: NodeId) {
        if self.unknown.insert(node.clone()) {
            out::note(&format!(
                "node {node} is not read, because its agent is not connected; the controller does not know whether job {} \
                 ran there",
                self.job
            ));
        }
    }

    fn note_away(&mut self, node: NodeId, problem: String) {
        self.channels.remove(&node);
        if self.away.get(&node) != Some(&problem) {
            out::note(&format!(
                "cannot read the output of job {} on node {node}: {problem}",
                self.job
            ));
        }
        self.away.insert(node, problem);
    }

    /// Returns the generation that was read, else the one that would be.
    fn read_generation(&self, view: &JobView) -> Generation {
        self.generation.or(self.shown).unwrap_or(view.generation)
    }

    /// Reports that the job began another generation while this one was read.
    fn restart_note(&self, view: &JobView) -> Option<String> {
        let read = self.read_generation(view);
        let is_later = self.generation.is_none() && view.generation > read;
        is_later.then(|| {
            format!(
                "job {} began generation {} while the output of generation {read} was read; run the command again to read it",
                self.job, view.generation
            )
        })
    }

    /// Explains why nothing was printed: the job has not started, or the generation or rank does not exist.
    fn no_output(&self, view: &JobView) -> CliError {
        let job = &self.job;
        let newest = view.generation;
        let generation = self.read_generation(view);
        if newest == Generation(0) || view.state == JobState::Pending && nodes_of(view, generation).is_empty() {
            let reason = view
                .reason
                .as_ref()
                .map(|reason| format!(": {reason}"))
                .unwrap_or_default();
            let state = job_state(view.state);
            let what = format!("job {job} has no output: no rank has started, the job is {state}{reason}");
            return CliError::failure(
                what,
                "`rankguard status jobs --all` shows jobs and the reasons of their states",
            );
        }
        if generation > newest {
            let what = format!("job {job} has no generation {generation}; its newest is {newest}");
            return CliError::usage(what, format!("select --generation 1 to {newest}"));
        }
        let absent = self.absent_ranks(view);
        if !self.ranks.is_empty() && !absent.is_empty() {
            let has_started = absent.iter().any(|(cause, _)| *cause != AbsenceCause::NotStarted);
            let lines: Vec<String> = absent.into_iter().map(|(_, why)| why).collect();
            let what = lines.join("\n");
            return if has_started {
                CliError::failure(what, "`rankguard status nodes` shows which agents are connected")
            } else {
                CliError::usage(what, self.known_ranks(view, generation))
            };
        }
        if !self.away.is_empty() {
            let what = format!("cannot read the output of job {job}: {}", self.missing());
            return CliError::failure(what, "check that the agents of these nodes run");
        }
        let what = format!("no agent has output of generation {generation} of job {job}");
        let hint = "agents store output below jobs/ of agent.state_dir; check that it was not removed";
        CliError::failure(what, hint)
    }

    /// Explains for each selected rank why none of its output was read; without a selection, for each rank that ran.
    fn absent_ranks(&self, view: &JobView) -> Vec<(AbsenceCause, String)> {
        let job = &self.job;
        let generation = self.read_generation(view);
        let places = places_of(view, generation);
        let wanted: BTreeSet<Rank> = if self.ranks.is_empty() {
            places.keys().copied().collect()
        } else {
            self.ranks.clone()
        };
        let is_read = |rank: &Rank| {
            self.streams
                .keys()
                .any(|(_, of, read, _)| (of, read) == (&generation, rank))
        };
        let explain = |rank: Rank| match places.get(&rank) {
            None => (
                AbsenceCause::NotStarted,
                format!("job {job} has no rank {rank} in generation {generation}: it was never started"),
            ),
            Some(node) => match self.away.get(node) {
                Some(why) => (
                    AbsenceCause::AgentAway,
                    format!("cannot read the output of rank {rank} of job {job}: node {node}: {why}"),
                ),
                None => (
                    AbsenceCause::Removed,
                    format!(
                        "the output of rank {rank} of job {job} is no longer on node {node}: it was removed from jobs/ of \
                         agent.state_dir, or the rank could not be started"
                    ),
                ),
            },
        };
        wanted.into_iter().filter(|rank| !is_read(rank)).map(explain).collect()
    }

    /// Describes the ranks of a generation.
    fn known_ranks(&self, view: &JobView, generation: Generation) -> String {
        let ran = places_of(view, generation).into_keys();
        let ranks: BTreeSet<Rank> = ran.chain(self.listed.iter().copied()).collect();
        let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
        format!("ranks of generation {generation}: {}", ranks.join(", "))
    }

    /// Lists the unreadable nodes with the reasons.
    fn missing(&self) -> String {
        let words: Vec<String> = self.away.iter().map(|(node, why)| format!("{node} ({why})")).collect();
        words.join(", ")
    }

    async fn read_node(
        &mut self,
        node: &NodeView,
        generation: Generation,
        network: &PeerTransport,
    ) -> Result<(), String> {
        let mut client = self.client(node, network)?;
        let request = v1::LogsRequest {
            job: self.job.to_string(),
            generation: generation.0,
        };
        let listed = client.list_logs(request).await.map_err(|status| reason(&status))?;
        for file in listed.into_inner().files {
            let rank = Rank(file.rank);
            self.listed.insert(rank);
            if self.ranks.is_empty() || self.ranks.contains(&rank) {
                let key = (node.node.clone(), Generation(file.generation), rank, file.is_error);
                self.read_stream(&mut client, key, file.bytes).await?;
            }
        }
        Ok(())
    }

    async fn read_stream(
        &mut self,
        client: &mut RankLogsClient<Channel>,
        key: StreamKey,
        bytes: u64,
    ) -> Result<(), String> {
        let is_new = !self.streams.contains_key(&key);
        let tail = self.tail.filter(|_| is_new);
        let mut stream = self.streams.remove(&key).unwrap_or_default();
        if tail.is_some() {
            stream.offset = bytes.saturating_sub(TAIL_BYTES);
        }
        let mut lines: Vec<String> = Vec::new();
        let read = loop {
            let request = v1::ReadLogRequest {
                job: self.job.to_string(),
                generation: key.1.0,
                rank: key.2.0,
                is_error: key.3,
                offset: stream.offset,
                bytes_max: PIECE,
            };
            let piece = match client.read_log(request).await {
                Ok(piece) => piece.into_inner(),
                Err(status) => break Err(reason(&status)),
            };
            if piece.data.is_empty() {
                break Ok(());
            }
            stream.offset += piece.data.len() as u64;
            stream.append(&piece.data, &mut lines);
            if tail.is_none() {
                self.print(&key, lines.drain(..));
            }
        };
        // An incomplete last line counts as one.
        let rest = usize::from(!stream.rest.is_empty());
        let skipped = tail.map_or(0, |tail| (lines.len() + rest).saturating_sub(tail).min(lines.len()));
        self.print(&key, lines.into_iter().skip(skipped));
        self.streams.insert(key, stream);
        read
    }

    /// Prints lines, with their rank unless a single rank was selected.
    fn print(&self, key: &StreamKey, lines: impl Iterator<Item = String>) {
        let is_one = self.ranks.len() == 1;
        for line in lines {
            if is_one {
                out::line(&line)
            } else {
                out::line(&format!("[rank {}] {line}", key.2))
            }
        }
    }

    /// Prints incomplete last lines.
    pub(crate) fn finish(&mut self) {
        let mut rests = Vec::new();
        for (key, stream) in &mut self.streams {
            if !stream.rest.is_empty() {
                let rest = std::mem::take(&mut stream.rest);
                rests.push((key.clone(), String::from_utf8_lossy(&rest).into_owned()));
            }
        }
        for (key, rest) in rests {
            self.print(&key, std::iter::once(rest));
        }
    }

    fn client(&mut self, node: &NodeView, network: &PeerTransport) -> Result<RankLogsClient<Channel>, String> {
        let channel = match self.channels.get(&node.node) {
            Some(channel) => channel.clone(),
            None => {
                let endpoint = Endpoint::from_shared(format!("http://{}", node.address)).map_err(|e| e.to_string())?;
                let connector = network.connector(ExpectedPeer::Agent(node.node.clone()), AGENT_LIMIT);
                let channel = endpoint.timeout(AGENT_LIMIT).connect_with_connector_lazy(connector);
                self.channels.insert(node.node.clone(), channel.clone());
                channel
            }
        };
        Ok(RankLogsClient::new(channel).max_decoding_message_size(rankguard_proto::MESSAGE_BYTES_MAX))
    }
}

impl LogCursor {
    /// Splits data into lines. A line is split at [`LINE_MAX`] bytes.
    fn append(&mut self, data: &[u8], lines: &mut Vec<String>) {
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            if part.ends_with(b"\n") || self.rest.len() >= LINE_MAX {
                let line = std::mem::take(&mut self.rest);
                let text = String::from_utf8_lossy(&line);
                lines.push(text.trim_end_matches(['\n', '\r']).to_owned());
            }
        }
    }
}

/// Returns the line between the output of two generations; `None` within one, and before the first.
fn separator(job: &JobId, shown: Option<Generation>, next: Generation) -> Option<String> {
    let is_another = shown.is_some_and(|shown| shown != next && shown != Generation(0));
    is_another.then(|| format!("--- job {job} was restarted: output of generation {next} follows ---"))
}

/// Returns the nodes on which ranks of a generation ran.
fn nodes_of(view: &JobView, generation: Generation) -> BTreeSet<NodeId> {
    let spans = view.spans.iter().filter(|span| span.generation == Some(generation));
    let placed = view.placements.iter().filter(|_| view.generation == generation);
    spans
        .map(|span| span.node.clone())
        .chain(placed.map(|place| place.node.clone()))
        .collect()
}

/// Returns the nodes of the ranks of a generation.
fn places_of(view: &JobView, generation: Generation) -> BTreeMap<Rank, NodeId> {
    let spans = view.spans.iter().filter(|span| span.generation == Some(generation));
    let ran = spans.filter_map(|span| Some((span.rank?, span.node.clone())));
    let placed = view.placements.iter().filter(|_| view.generation == generation);
    ran.chain(placed.map(|place| (place.rank, place.node.clone())))
        .collect()
}

fn reason(status: &tonic::Status) -> String {
    if status.code() == tonic::Code::Unimplemented {
        return "its agent is older than this command and does not serve output".to_owned();
    }
    if status.code() == tonic::Code::NotFound {
        return "its agent no longer has the file: it was removed from jobs/ of agent.state_dir".to_owned();
    }
    if let Some(dial) = DialError::within(status) {
        return if dial.is_about_identity() {
            dial.words()
        } else {
            format!("its agent cannot be reached: {}", dial.words())
        };
    }
    let mut innermost: &dyn std::error::Error = status;
    while let Some(next) = innermost.source() {
        innermost = next;
    }
    if std::ptr::addr_eq(innermost, status) {
        status.message().to_owned()
    } else {
        format!("its agent cannot be reached: {innermost}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankguard_model::{StateSpan, Timestamp};
    use rankguard_report::sample;

    /// Finding 13 of the first operator: all of these were "no agent keeps output".
    #[test]
    fn missing_output_is_explained_by_its_cause() {
        let (status, _) = sample::cluster();
        let running = status
            .jobs
            .iter()
            .find(|view| view.generation > Generation(0))
            .expect("a job that ran");
        let check = |change: &dyn Fn(&mut LogReader, &mut JobView), expect: &str| {
            let mut view = running.clone();
            let mut reader = LogReader::new(view.spec.id.clone(), BTreeSet::new(), None);
            change(&mut reader, &mut view);
            let lines = reader.no_output(&view).lines();
            assert!(lines.contains(expect), "{expect:?} is not in:\n{lines}");
        };
        check(
            &|reader, _| reader.generation = Some(Generation(99)),
            "has no generation 99; its newest is",
        );
        check(
            &|reader, _| {
                reader.ranks = BTreeSet::from([Rank(99)]);
                reader.listed = BTreeSet::from([Rank(0), Rank(1)]);
            },
            "has no rank 99 in generation",
        );
        check(
            &|reader, _| reader.ranks = BTreeSet::from([Rank(99)]),
            "hint: ranks of generation",
        );
        check(
            &|reader, _| reader.ranks = BTreeSet::from([Rank(0)]),
            "the output of rank 0 of job digits is no longer on node",
        );
        check(
            &|reader, view| {
                reader.ranks = BTreeSet::from([Rank(0)]);
                let node = places_of(view, view.generation)[&Rank(0)].clone();
                reader.away.insert(node, "its agent is not connected".to_owned());
            },
            "cannot read the output of rank 0 of job digits: node",
        );
        check(
            &|_, view| {
                view.state = JobState::Pending;
                view.generation = Generation(0);
                view.reason = Some("0 free healthy nodes".to_owned());
            },
            "no rank has started, the job is pending: 0 free healthy nodes",
        );
        check(
            &|reader, _| {
                drop(
                    reader
                        .away
                        .insert(NodeId::from("n1"), "its agent is not connected".to_owned()),
                )
            },
            "cannot read the output of job",
        );
        check(&|_, _| {}, "no agent has output of generation");
    }

    /// A node that does not answer delays the command; its job was restarted elsewhere meanwhile.
    #[test]
    fn a_restart_while_a_node_is_awaited_removes_no_output() {
        let (status, _) = sample::cluster();
        let running = status.jobs.iter().find(|view| view.placements.len() > 1);
        let mut view = running.expect("a job that runs").clone();
        let read = view.generation;
        let places = places_of(&view, read);
        view.spans = places
            .iter()
            .map(|(rank, node)| StateSpan {
                node: node.clone(),
                rank: Some(*rank),
                generation: Some(read),
                state: "running".to_owned(),
                from: Timestamp(0),
                to: Some(Timestamp(1)),
            })
            .collect();
        let (frozen, node) = places.last_key_value().expect("several ranks");
        let mut reader = LogReader::new(view.spec.id.clone(), BTreeSet::new(), None);
        reader.shown = Some(read);
        for (rank, node) in places.iter().filter(|(rank, _)| *rank != frozen) {
            let key = (node.clone(), read, *rank, false);
            reader.streams.insert(key, LogCursor::default());
        }
        reader.away.insert(node.clone(), "Timeout expired".to_owned());
        assert_eq!(reader.restart_note(&view), None);
        view.generation = read.next();
        let absent = reader.absent_ranks(&view);
        let [(AbsenceCause::AgentAway, why)] = &absent[..] else {
            panic!("{absent:?}")
        };
        assert!(
            why.starts_with(&format!("cannot read the output of rank {frozen} of job")),
            "{why}"
        );
        let note = reader.restart_note(&view).expect("another generation runs");
        assert!(note.contains(&format!("began generation {}", read.next())), "{note}");
    }

    #[test]
    fn the_output_of_another_generation_is_separated() {
        let line = |shown: Option<u64>, next| separator(&JobId::from("a"), shown.map(Generation), Generation(next));
        assert_eq!([line(None, 1), line(Some(0), 1), line(Some(2), 2)], [None, None, None]);
        let text = line(Some(1), 2).expect("another generation");
        assert!(text.contains("generation 2"), "{text}");
    }

    #[test]
    fn pieces_become_lines_wherever_they_are_cut() {
        let text = "one\r\ntwo\n\nthree \u{1F643}\nrest";
        for size in 1..text.len() {
            let mut stream = LogCursor::default();
            let mut lines = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                stream.append(piece, &mut lines);
            }
            assert_eq!(lines, ["one", "two", "", "three \u{1F643}"], "pieces of {size}");
            assert_eq!(stream.rest, b"rest");
        }
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let mut stream = LogCursor::default();
        let mut lines = Vec::new();
        for _ in 0..20 {
            stream.append(&vec![b'x'; LINE_MAX / 4], &mut lines);
        }
        assert_eq!(lines.len(), 5);
        assert!(stream.rest.len() < LINE_MAX);
    }
}
