//! Send times of messages that the controller answers: an answer proves that the controller was reached after that
//! time.

use std::collections::VecDeque;
use std::time::Duration;

use crate::boot_clock::boot_now;

/// Maximum entries of each kind; the newest are retained.
const KEPT: usize = 64;

/// Unanswered messages of one session.
#[derive(Debug)]
pub(crate) struct ProofLog {
    joined: Duration,
    /// Heartbeats by their timestamp.
    beats: VecDeque<(i64, Duration)>,
    /// Batches of evidence by their newest sequence number.
    batches: VecDeque<(u64, Duration)>,
}

impl ProofLog {
    /// Starts the log of a session that sends its join now.
    pub(crate) fn start() -> Self {
        Self {
            joined: boot_now(),
            beats: VecDeque::new(),
            batches: VecDeque::new(),
        }
    }

    /// Returns the time that the answer to the join proves.
    pub(crate) fn joined(&self) -> Duration {
        self.joined
    }

    /// Records that a heartbeat is sent.
    pub(crate) fn beat(&mut self, sent_ns: i64) {
        keep(&mut self.beats, sent_ns);
    }

    /// Records that a batch of evidence is sent.
    pub(crate) fn batch(&mut self, newest: u64) {
        keep(&mut self.batches, newest);
    }

    /// Returns the time that the echo of a heartbeat proves.
    pub(crate) fn echo(&mut self, sent_ns: i64) -> Option<Duration> {
        let place = self.beats.iter().position(|(sent, _)| *sent == sent_ns)?;
        self.beats.drain(..=place).next_back().map(|(_, at)| at)
    }

    /// Returns the time that the acknowledgement of evidence proves.
    pub(crate) fn ack(&mut self, sequence: u64) -> Option<Duration> {
        let proven = self
            .batches
            .iter()
            .take_while(|(newest, _)| *newest <= sequence)
            .count();
        self.batches.drain(..proven).next_back().map(|(_, at)| at)
    }
}

fn keep<T>(log: &mut VecDeque<(T, Duration)>, key: T) {
    if log.len() >= KEPT {
        log.pop_front();
    }
    log.push_back((key, boot_now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_proves_the_moment_of_sending_once() {
        let mut log = ProofLog::start();
        log.beat(10);
        log.beat(20);
        let sent = log.beats[1].1;
        assert_eq!(log.echo(20), Some(sent));
        assert_eq!((log.echo(20), log.echo(10)), (None, None));
        log.batch(5);
        log.batch(9);
        let first = log.batches[0].1;
        assert_eq!(log.ack(4), None);
        assert_eq!(log.ack(8), Some(first));
        assert!(log.ack(9).is_some());
        (0..200).for_each(|number| log.beat(number));
        assert_eq!(log.beats.len(), KEPT);
    }
}
