//! Pipes that the user named. Each read has a deadline, so that a silent writer cannot block the program.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Reader of a pipe; a read fails with [`ErrorKind::TimedOut`] if no data arrives in time.
pub(crate) struct DeadlinePipe {
    file: File,
    wait: Duration,
}

impl DeadlinePipe {
    /// Wraps `file`; each read waits at most `wait`.
    pub(crate) fn new(file: File, wait: Duration) -> Self {
        Self { file, wait }
    }

    /// Waits until there are bytes or the writer has closed its end; fails at the deadline.
    fn wait(&self) -> io::Result<()> {
        let deadline = Instant::now() + self.wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    format!(
                        "its writer wrote nothing for {} s; raise --time-limit",
                        self.wait.as_secs()
                    ),
                ));
            }
            let limit = Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&limit)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(problem) => return Err(problem.into()),
            }
        }
    }
}

impl Read for DeadlinePipe {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait()?;
            match self.file.read(out) {
                Err(problem) if matches!(problem.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_writer_that_never_writes_ends_at_the_deadline_rg_9() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        let mut pipe = DeadlinePipe::new(file, Duration::from_millis(50));
        writer.write_all(b"one").expect("written");
        let mut out = [0; 8];
        assert_eq!(pipe.read(&mut out).expect("bytes"), 3);
        let error = pipe.read(&mut out).expect_err("the deadline passes");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
