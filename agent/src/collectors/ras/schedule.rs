//! Schedules RAS queries and reports their answers as evidence.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceBody, EvidenceSource, JobId, LaunchOrder, RankRef, Role};

use super::answer::RasReport;
use super::client::{QueryError, QueryLimits, ask};
use super::{address, evidence};
use crate::intake::EvidenceIntake;
use crate::pending_evidence::{PendingEvidence, mark};
use crate::roster::RankRoster;
use crate::stop_flag::StopFlag;

/// Signature of the evidence; the controller matches it by this name.
const SIGNATURE: &str = "nccl.ras";
/// Number of nodes of a job that send queries, by their place in it: the second in case the first one hangs.
const ASKERS: u32 = 2;
/// Shortest time between two queries about one job.
const AGAIN: Duration = Duration::from_secs(60);

/// Sender of RAS queries. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RasClient {
    intake: EvidenceIntake,
    roster: RankRoster,
    stop: StopFlag,
    /// Time of the last query about each job.
    asked: Arc<Mutex<BTreeMap<JobId, Instant>>>,
}

impl RasClient {
    pub(crate) fn new(intake: EvidenceIntake, roster: RankRoster, stop: StopFlag) -> Self {
        Self {
            intake,
            roster,
            stop,
            asked: Arc::default(),
        }
    }

    /// Queries the job of a silent rank, on a thread of its own, if this node is one of the job's first two and the
    /// last query is older than [`AGAIN`]. The answer becomes evidence.
    pub(crate) fn rank_is_silent(&self, rank: &RankRef) {
        let Some((launch, _)) = self.roster.launch_of(rank) else {
            return;
        };
        if launch.group_rank >= ASKERS || !self.is_due(&launch.job) {
            return;
        }
        let asker = self.clone();
        let thread = std::thread::Builder::new().name("ras".to_owned());
        if let Err(problem) = thread.spawn(move || asker.ask_about(&launch)) {
            tracing::warn!(%problem, "no thread to ask NCCL's RAS with");
        }
    }

    fn is_due(&self, job: &JobId) -> bool {
        let mut asked = self.asked.lock().expect("no holder of the table of questions panics");
        asked.retain(|_, at| at.elapsed() < AGAIN);
        let due = !asked.contains_key(job);
        asked.entry(job.clone()).or_insert_with(Instant::now);
        due
    }

    fn ask_about(&self, launch: &LaunchOrder) {
        let gap = |why: String| {
            let what = format!("NCCL's RAS threads of job {} cannot be asked: {why}", launch.job);
            self.intake.gap(EvidenceSource::Ranks, what, None);
        };
        let addresses = match address::of(&launch.env) {
            Ok(addresses) => addresses,
            Err(why) => return gap(why),
        };
        let said = match ask(&addresses, &QueryLimits::default(), &self.stop) {
            Ok(said) => said,
            Err(QueryError::Foreign(why)) => return gap(why),
            Err(QueryError::Nobody | QueryError::Stopped) => return,
        };
        let answer = RasReport::read(&said.text);
        if !answer.whole {
            let why = said.broken.unwrap_or_else(|| "the answer breaks off".to_owned());
            gap(why);
        }
        // An incomplete answer may lack the ranks that differ.
        if answer.whole || !answer.troubles.is_empty() {
            self.intake.push(sighting(launch, &answer));
        }
    }
}

fn sighting(launch: &LaunchOrder, answer: &RasReport) -> PendingEvidence {
    let told = evidence::ras_finding(answer, launch.world_size);
    let entity = Entity::Job {
        job: launch.job.clone(),
    };
    let body = EvidenceBody::Line {
        text: told.text,
        context: told.lines,
        repeats: 1,
    };
    let sighting = PendingEvidence::now(EvidenceSource::Ranks, entity, body).urgent();
    if answer.troubles.is_empty() {
        return sighting;
    }
    let mut says = mark(classes::HANG_STALLED_RANKS, Role::Confirmation, 0.7, SIGNATURE);
    says.fields
        .insert("generation".to_owned(), launch.generation.to_string());
    let suspects = told.suspects.into_iter();
    says.fields
        .extend(suspects.map(|(rank, words)| (format!("rank {rank}"), words)));
    sighting.marked(vec![says])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use rankguard_model::NodeId;

    use super::*;
    use crate::collectors::testing::{launch, rank};

    const ANSWER: &str = "NCCL version 2.28.3 compiled with CUDA 13.0\n\nCommunicators... (0.00s)\n=============\n\n\
        Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n    \
        #  in group  per comm  per node  per comm  in group\n    \
        0         1         1         4         4         4   RUNNING  MISMATCH\n\nErrors\n======\n\nWarnings\n========\n\n\
        #0-0 (27a079b828ff1a75) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n  \
        3 ranks have launched up to operation 12\n  \
        Rank 2 has launched up to operation 11 -- GPU 2 managed by process 7 on node 127.0.0.1\n\n";

    /// Returns the evidence if a listener gives this answer to a node at this place in the job.
    fn told(answer: &'static str, group_rank: u32) -> Vec<PendingEvidence> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let node = NodeId::from("a");
        let asker = RasClient::new(
            EvidenceIntake::new(node.clone()),
            RankRoster::new(node),
            StopFlag::default(),
        );
        let mut order = launch(&rank(0));
        order
            .env
            .insert("NCCL_RAS_ADDR".to_owned(), listener.local_addr().unwrap().to_string());
        (order.world_size, order.group_rank) = (4, group_rank);
        asker.roster.expect(rank(0), 0, Arc::new(order));
        asker.rank_is_silent(&rank(0));
        // Another rank of the same job: one query is enough.
        asker.rank_is_silent(&rank(0));
        if group_rank >= ASKERS {
            return asker.intake.drain();
        }
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        lines.next();
        stream.write_all(b"SERVER PROTOCOL 2\n").unwrap();
        lines.next();
        stream.write_all(answer.as_bytes()).unwrap();
        drop((stream, lines));
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let told = asker.intake.drain();
            if !told.is_empty() {
                listener.set_nonblocking(true).unwrap();
                assert!(listener.accept().is_err(), "it asks once");
                return told;
            }
            assert!(Instant::now() < until, "nothing is told");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_rank_that_is_behind_is_told_with_its_generation() {
        let told = told(ANSWER, 1);
        let EvidenceBody::Line { text, context, .. } = &told[0].body else {
            panic!("{told:?}")
        };
        assert!(
            text.starts_with("NCCL 2.28.3 says: rank 2 of 4 in communicator 27a079b828ff1a75"),
            "{text}"
        );
        assert_eq!(context.len(), 1);
        assert_eq!(told[0].entity, Entity::Job { job: rank(0).job });
        let mark = &told[0].marks[0];
        assert_eq!((mark.role, mark.signature.as_str()), (Role::Confirmation, SIGNATURE));
        assert_eq!(mark.fields["generation"], "1");
        assert_eq!(
            mark.fields["rank 2"],
            "has launched 11 AllReduce operations, most ranks 12"
        );
    }

    #[test]
    fn half_an_answer_is_a_gap_and_a_job_in_order_is_told_without_a_mark() {
        let half = told("NCCL version 2.28.3 compiled with CUDA 13.0\n\nCommunicators...", 0);
        assert!(
            matches!(&half[..], [PendingEvidence { body: EvidenceBody::Gap { what, .. }, .. }] if what.ends_with("the answer breaks off")),
            "{half:?}"
        );
        let fine = told(
            "NCCL version 2.28.3 compiled\n\nErrors\n======\n\nWarnings\n========\n\n",
            0,
        );
        assert!(
            matches!(&fine[0].body, EvidenceBody::Line { text, .. } if text.contains("all processes answer")),
            "{fine:?}"
        );
        assert!(fine[0].marks.is_empty());
    }

    #[test]
    fn only_the_first_two_nodes_of_a_job_ask() {
        assert_eq!(told(ANSWER, 2), Vec::new());
    }

    #[test]
    fn the_class_that_is_marked_stands_in_the_catalogue() {
        let id = rankguard_model::ClassId::from("hang-stalled-ranks");
        assert!(rankguard_faults::Catalogue::builtin().class(&id).is_some());
    }
}
