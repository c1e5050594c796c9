//! Parser of the RAS text, treated as foreign: lines that are not understood are left out.

use std::collections::BTreeMap;

/// Most troubles that are retained; more are counted. A job of thousands of ranks may have as many.
const TROUBLES: usize = 256;

/// Parsed RAS answer about a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RasReport {
    /// Version of NCCL; empty if the answer ended before it.
    pub(super) version: String,
    /// Ranks and processes that differ, in the order of the answer.
    pub(super) troubles: Vec<RankDifference>,
    /// Number of troubles beyond the limit.
    pub(super) further: usize,
    /// True if the last part of the answer was received.
    pub(super) whole: bool,
}

/// Rank or process that differs from the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RankDifference {
    /// Rank and communicator; none for a process as a whole.
    pub(super) member: Option<CommunicatorRank>,
    /// Process, node and GPU, as far as given: `process 483072 on 172.16.64.210, GPU 0`.
    pub(super) place: String,
    pub(super) what: DifferenceKind,
}

/// Rank of one communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommunicatorRank {
    /// Number in the communicator, which is the job's rank only if all ranks are in it.
    pub(super) rank: u32,
    /// Hash of the communicator, 16 hex digits.
    pub(super) communicator: String,
    /// Number of ranks in the communicator; 0 if unknown.
    pub(super) size: u32,
}

/// Kind of difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DifferenceKind {
    /// RAS gave the process up: unreachable for a minute.
    Dead,
    /// The process did not answer this query.
    Silent,
    /// The rank has launched another number of operations than most.
    Launched {
        /// Operation such as `AllReduce`; older versions report `collective`.
        operation: String,
        launched: u64,
        most: u64,
    },
    /// The rank's communicator is in another state than that of most.
    Status { status: String, most: String },
    /// NCCL reported an error to the rank.
    Error(String),
}

impl RasReport {
    pub(super) fn read(text: &str) -> Self {
        let mut reader = ReplyParser::default();
        for line in text.lines() {
            reader.line(line.trim_end());
        }
        reader.close();
        reader.answer
    }
}

/// Subject of the lines that follow a heading.
#[derive(Debug, Default)]
enum AnswerSection {
    #[default]
    Nothing,
    /// Processes of the job.
    Processes(DifferenceKind),
    /// Ranks of a communicator that do not answer.
    Silent,
    /// Ranks of a communicator with errors, and the error that the next lines share.
    Errors(String),
    /// Ranks of a communicator that differ in one value.
    Values(PropertyValues),
}

/// Values of one property by rank. The first one listed is that of most ranks.
#[derive(Debug)]
struct PropertyValues {
    /// Counted operation; none if the property is the status.
    operation: Option<String>,
    most: Option<String>,
    /// Value that the next lines share.
    shared: String,
}

#[derive(Debug, Default)]
struct ReplyParser {
    answer: RasReport,
    /// Ranks of each communicator, by the group's number in the table.
    sizes: BTreeMap<u32, u32>,
    communicator: Option<(String, u32)>,
    part: AnswerSection,
}

impl ReplyParser {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("NCCL version ") {
            self.answer.version = rest.split(' ').next().unwrap_or_default().to_owned();
        } else if line == "Warnings" {
            self.answer.whole = true;
            self.close();
        } else if line.is_empty() {
            self.close();
        } else if let Some(heading) = line.strip_prefix('#') {
            self.heading(heading);
        } else if line == "DEAD" {
            self.part = AnswerSection::Processes(DifferenceKind::Dead);
        } else if line == "INCOMPLETE" {
            self.part = AnswerSection::Processes(DifferenceKind::Silent);
        } else if let Some(row) = row(line) {
            self.sizes.insert(row.0, row.1);
        } else {
            self.detail(line.trim_start());
        }
    }

    fn close(&mut self) {
        self.part = AnswerSection::Nothing;
    }

    /// Parses `0-1 (cf264af53edbe986) MISMATCH`: group, number in it, hash, problem.
    fn heading(&mut self, heading: &str) {
        self.close();
        let mut words = heading.split_whitespace();
        let group = words
            .next()
            .and_then(|place| place.split('-').next()?.parse::<u32>().ok());
        let hash = words.next().map(|hash| hash.trim_matches(['(', ')']).to_owned());
        let (Some(group), Some(hash)) = (group, hash) else {
            self.communicator = None;
            return;
        };
        self.communicator = Some((hash, self.sizes.get(&group).copied().unwrap_or(0)));
        self.part = match words.next() {
            Some("INCOMPLETE") => AnswerSection::Silent,
            Some("ERROR") => AnswerSection::Errors(String::new()),
            _ => AnswerSection::Nothing,
        };
    }

    fn detail(&mut self, line: &str) {
        if let Some(differ) = line.strip_prefix("Communicator ranks have different ") {
            let operation = differ.strip_suffix(" operation counts").map(str::to_owned);
            self.part = AnswerSection::Values(PropertyValues {
                operation,
                most: None,
                shared: String::new(),
            });
        } else if let Some(process) = line.strip_prefix("Process ") {
            if let AnswerSection::Processes(what) = &self.part {
                let place = process_place(process);
                let what = what.clone();
                self.push(None, place, what);
            }
        } else if let Some(rank) = line.strip_prefix("Rank ") {
            self.rank(rank);
        } else if let Some((count, says)) = line.split_once(" ranks ")
            && count.parse::<u32>().is_ok()
        {
            match &mut self.part {
                AnswerSection::Errors(error) => {
                    says.strip_prefix("reported ").unwrap_or(says).clone_into(error);
                }
                AnswerSection::Values(values) => values.shared = values.take(says),
                AnswerSection::Nothing | AnswerSection::Silent | AnswerSection::Processes(_) => {}
            }
        }
    }

    /// Parses `21 has launched up to operation 6649 -- GPU 5 managed by process 3487984 on node 172.16.64.213`.
    fn rank(&mut self, line: &str) {
        let (says, place) = line.split_once(" -- ").unwrap_or((line, ""));
        let place = rank_place(place);
        let (number, says) = says.split_once(' ').unwrap_or((says, ""));
        let (Ok(rank), Some((communicator, size))) = (number.parse(), self.communicator.clone()) else {
            return;
        };
        let what = match &mut self.part {
            AnswerSection::Silent => DifferenceKind::Silent,
            AnswerSection::Errors(shared) => {
                let own = says.strip_prefix("reported ").unwrap_or(shared);
                DifferenceKind::Error(own.to_owned())
            }
            AnswerSection::Values(values) => {
                let own = if says.is_empty() {
                    values.shared.clone()
                } else {
                    values.take(says)
                };
                match values.difference(&own) {
                    Some(what) => what,
                    None => return,
                }
            }
            AnswerSection::Nothing | AnswerSection::Processes(_) => return,
        };
        self.push(
            Some(CommunicatorRank {
                rank,
                communicator,
                size,
            }),
            place,
            what,
        );
    }

    fn push(&mut self, member: Option<CommunicatorRank>, place: String, what: DifferenceKind) {
        if self.answer.troubles.len() < TROUBLES {
            self.answer.troubles.push(RankDifference { member, place, what });
        } else {
            self.answer.further += 1;
        }
    }
}

impl PropertyValues {
    /// Parses the value in `have launched up to operation 6650`, `has status INIT`.
    fn take(&mut self, says: &str) -> String {
        let value = says.rsplit(' ').next().unwrap_or_default();
        let value = if says.contains("not launched any") { "0" } else { value };
        self.most.get_or_insert_with(|| value.to_owned());
        value.to_owned()
    }

    fn difference(&self, own: &str) -> Option<DifferenceKind> {
        let most = self.most.clone().filter(|most| most != own)?;
        match &self.operation {
            Some(operation) => Some(DifferenceKind::Launched {
                operation: operation.clone(),
                launched: own.parse().ok()?,
                most: most.parse().ok()?,
            }),
            None => Some(DifferenceKind::Status {
                status: own.to_owned(),
                most,
            }),
        }
    }
}

/// Parses a row of the table of groups: its number and the ranks of each of its communicators.
fn row(line: &str) -> Option<(u32, u32)> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    // Columns: group, communicators, nodes, ranks per node, per communicator, in the group, status, errors.
    let [group, comms, _, _, ranks, _, _, _] = cells[..] else {
        return None;
    };
    comms.parse::<u32>().ok()?;
    Some((group.parse().ok()?, ranks.parse().ok()?))
}

/// Formats `GPU 5 managed by process 3487984 on node 172.16.64.213` as a place.
fn rank_place(text: &str) -> String {
    match text.split_once(" managed by process ") {
        Some((gpu, process)) => format!("process {}, {gpu}", process.replacen(" on node ", " on ", 1)),
        None => String::new(),
    }
}

/// Formats `3487984 on node 172.16.64.213 managing GPU 5` as a place.
fn process_place(text: &str) -> String {
    let (process, gpus) = text.split_once(" managing ").unwrap_or((text, ""));
    let process = process.replacen(" on node ", " on ", 1);
    let comma = if gpus.is_empty() { "" } else { ", " };
    format!("process {process}{comma}{gpus}")
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
