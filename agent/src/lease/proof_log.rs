//! When a session sent what the controller answers: an answer proves that the controller was reached after that moment.

use std::collections::VecDeque;
use std::time::Duration;

use crate::boot_clock::boot_now;

/// Entries of each kind that are kept, the newest.
const KEPT: usize = 64;

/// What one session has sent and the controller has not answered.
#[derive(Debug)]
pub(crate) struct ProofLog {
    joined: Duration,
    /// Heartbeats by their time stamp.
    beats: VecDeque<(i64, Duration)>,
    /// Batches of evidence by their newest number.
    batches: VecDeque<(u64, Duration)>,
}

impl ProofLog {
    /// A session that sends its join now.
    pub(crate) fn start() -> Self {
        Self {
            joined: boot_now(),
            beats: VecDeque::new(),
            batches: VecDeque::new(),
        }
    }

    /// What the answer to the join proves.
    pub(crate) fn joined(&self) -> Duration {
        self.joined
    }

    /// A heartbeat goes out.
    pub(crate) fn beat(&mut self, sent_ns: i64) {
        keep(&mut self.beats, sent_ns);
    }

    /// A batch of evidence goes out.
    pub(crate) fn batch(&mut self, newest: u64) {
        keep(&mut self.batches, newest);
    }

    /// What the echo of a heartbeat proves.
    pub(crate) fn echo(&mut self, sent_ns: i64) -> Option<Duration> {
        let place = self.beats.iter().position(|(sent, _)| *sent == sent_ns)?;
        self.beats.drain(..=place).next_back().map(|(_, at)| at)
    }

    /// What the acknowledgement of evidence proves.
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
