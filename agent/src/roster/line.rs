//! Sending half of a rank's connection: responses of its session, and checkpoint calls from other threads.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rankguard_model::CheckpointCall;
use rankguard_proto::frame;
use rankguard_proto::v1::to_rank::Kind as Said;
use rankguard_proto::v1::{CheckpointCalled, ToRank};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};

/// Deadline of a write; a rank that does not read for that long is disconnected (RG-9).
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Maximum queued calls for a rank that does not read; the oldest is dropped, and its step is missed.
const WAITING_MAX: usize = 32;

/// Sending half of a rank's connection; writes whole frames. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RankSender {
    stream: Arc<Mutex<UnixStream>>,
    /// Frames of calls, sent by the next holder of the stream.
    waiting: Arc<Mutex<VecDeque<Vec<u8>>>>,
}

impl RankSender {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(WRITE_LIMIT))?;
        Ok(Self {
            stream: Arc::new(Mutex::new(stream)),
            waiting: Arc::default(),
        })
    }

    /// Sends a message, with a file if given.
    pub(crate) fn send_message(&self, kind: Said, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = frame::encode(&ToRank { kind: Some(kind) });
        {
            let mut stream = self.stream.lock().expect("no holder of the line panics");
            let mut sent = 0;
            if let Some(fd) = fd {
                let fds = [fd];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                control.push(SendAncillaryMessage::ScmRights(&fds));
                sent = sendmsg(&*stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
            }
            stream.write_all(&bytes[sent..])?;
        }
        self.pass_on();
        Ok(())
    }

    /// Sends a call at once, or queues it behind the message that is being sent. Never waits.
    pub(crate) fn call(&self, number: u64, call: CheckpointCall) {
        self.notify(Said::Called(CheckpointCalled::from((number, call))));
    }

    /// Sends what answers no question, now or behind what is being sent. Never waits. A frame is smaller than a socket's buffer.
    pub(crate) fn notify(&self, kind: Said) {
        let kind = Some(kind);
        {
            let mut waiting = self.waiting.lock().expect("no holder of the calls panics");
            if waiting.len() == WAITING_MAX {
                waiting.pop_front();
            }
            waiting.push_back(frame::encode(&ToRank { kind }));
        }
        self.pass_on();
    }

    /// Sends the queued calls until the socket is full. A thread that holds the stream does it when done.
    fn pass_on(&self) {
        let next = || self.waiting.lock().expect("no holder of the calls panics").pop_front();
        let empty = || self.waiting.lock().expect("no holder of the calls panics").is_empty();
        // Checked again after the stream is released: a call may have been queued while it was held.
        while !empty() {
            let Ok(stream) = self.stream.try_lock() else { return };
            while let Some(frame) = next() {
                // The socket accepts a frame of this size whole or not at all.
                if send(&*stream, &frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
                    let mut waiting = self.waiting.lock().expect("no holder of the calls panics");
                    return waiting.push_front(frame);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::Step;
    use rankguard_proto::frame::FrameReader;
    use rankguard_proto::v1::RankWelcome;
    use std::io::Read as _;

    use super::*;

    #[test]
    fn calls_wait_for_room_and_keep_their_order() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let line = RankSender::new(ours).expect("a line");
        let stream = line.stream.lock().expect("held");
        line.call(1, CheckpointCall::At { step: Step(5) });
        line.call(2, CheckpointCall::At { step: Step(6) });
        drop(stream);
        let welcome = Said::Welcome(RankWelcome {
            checkpoint_every: 3,
            without_store: false,
        });
        line.send_message(welcome.clone(), None).expect("said");
        let called = |number, step| {
            let call = CheckpointCall::At { step: Step(step) };
            Said::Called(CheckpointCalled::from((number, call)))
        };
        let mut reader = FrameReader::new();
        let mut heard = Vec::new();
        while heard.len() < 3 {
            let mut bytes = [0; 512];
            let count = theirs.read(&mut bytes).expect("read");
            reader.push(&bytes[..count]);
            while let Some(message) = reader.next::<ToRank>().expect("a frame") {
                heard.extend(message.kind);
            }
        }
        assert_eq!(heard, [welcome, called(1, 5), called(2, 6)]);
    }
}
