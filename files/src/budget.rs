//! Work budgets: bytes and time that a command spends on foreign files.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;

/// Processor time for each file, independent of its size.
const FILE_TIME: Duration = Duration::from_secs(20);
/// Additional processor time for each MiB of a file on disk.
const FILE_TIME_PER_MIB: Duration = Duration::from_secs(2);

/// Longest time that a pipe's writer may be silent.
const PIPE_WAIT: Duration = Duration::from_secs(60);

/// Limits of one command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadLimits {
    /// Maximum bytes of unpacked text of all files together; `None` means [`ReadLimits::TEXT_BYTES`], and for packed
    /// files the ratio limit as well.
    pub text_bytes: Option<u64>,
    /// Time for all files together; `None` means [`ReadLimits::TIME`], and for each file 20 s of processor time, and 2 s
    /// more for each MiB on disk.
    pub time: Option<Duration>,
}

impl ReadLimits {
    /// Default limit of text bytes: 64 GiB.
    pub const TEXT_BYTES: u64 = 64 << 30;
    /// Default time for all files together.
    pub const TIME: Duration = Duration::from_secs(3_600);
}

/// Limit that ended the reading of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LimitReached {
    /// Bytes of all files.
    #[error("the limit of {0} bytes of text is reached; raise --read-limit")]
    Bytes(u64),
    /// Processor time of one file.
    #[error("the limit of {0} s of processor time for this file is reached; raise --time-limit")]
    FileTime(u64),
    /// Time of all files.
    #[error("the time limit of {0} s for all files is reached; raise --time-limit, or name fewer files")]
    Time(u64),
}

impl From<LimitReached> for io::Error {
    fn from(limit: LimitReached) -> Self {
        Self::new(ErrorKind::QuotaExceeded, limit)
    }
}

/// Remaining budget of a command. Clones share it.
#[derive(Debug, Clone)]
pub struct ReadBudget {
    limits: ReadLimits,
    begun: Instant,
    left: Rc<Cell<u64>>,
}

impl ReadBudget {
    /// Starts a budget now.
    pub fn begin(limits: ReadLimits) -> Self {
        Self {
            limits,
            begun: Instant::now(),
            left: Rc::new(Cell::new(limits.text_bytes.unwrap_or(ReadLimits::TEXT_BYTES))),
        }
    }

    /// Returns the configured limits.
    pub fn limits(&self) -> ReadLimits {
        self.limits
    }

    /// Returns the time that a read of a pipe waits for its writer.
    pub fn pipe_wait(&self) -> Duration {
        self.limits.time.unwrap_or(PIPE_WAIT)
    }

    /// Returns a budgeted reader of one file that has `bytes` on disk; `None` for a pipe.
    pub fn reader<R: Read>(&self, inner: R, bytes: Option<u64>) -> BudgetedReader<R> {
        let own = FILE_TIME + FILE_TIME_PER_MIB * u32::try_from(bytes.unwrap_or(0) >> 20).unwrap_or(u32::MAX >> 8);
        let for_file = self.limits.time.is_none() && bytes.is_some();
        BudgetedReader {
            inner,
            budget: self.clone(),
            begun: processor_time(),
            limit: for_file.then_some(own),
        }
    }

    fn total_time(&self) -> Duration {
        self.limits.time.unwrap_or(ReadLimits::TIME)
    }

    /// Returns an error if a limit is reached.
    fn check(&self) -> Result<(), LimitReached> {
        if self.begun.elapsed() >= self.total_time() {
            return Err(LimitReached::Time(self.total_time().as_secs()));
        }
        if self.left.get() == 0 {
            let limit = self.limits.text_bytes.unwrap_or(ReadLimits::TEXT_BYTES);
            return Err(LimitReached::Bytes(limit));
        }
        Ok(())
    }
}

/// Reader that fails with [`LimitReached`] when a limit is reached.
pub struct BudgetedReader<R> {
    inner: R,
    budget: ReadBudget,
    /// Processor time of the reading thread when the file was opened.
    begun: Duration,
    /// Processor time for this file. What other programs of a busy machine take does not count: the same file is read
    /// whole beside them.
    limit: Option<Duration>,
}

/// Returns the processor time that the calling thread has used.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

impl<R: Read> Read for BudgetedReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some(limit) = self
            .limit
            .filter(|limit| processor_time().saturating_sub(self.begun) >= *limit)
        {
            return Err(LimitReached::FileTime(limit.as_secs()).into());
        }
        let reached = self.budget.check();
        let room = if reached.is_ok() {
            let left = usize::try_from(self.budget.left.get()).unwrap_or(usize::MAX);
            out.len().min(left)
        } else {
            // Allows one more byte, so that a file that ends exactly at the limit is read whole.
            out.len().min(1)
        };
        let read = self.inner.read(&mut out[..room])?;
        if read > 0 {
            reached?;
        }
        self.budget.left.set(self.budget.left.get() - read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(text_bytes: u64, time: Option<Duration>) -> ReadBudget {
        ReadBudget::begin(ReadLimits {
            text_bytes: Some(text_bytes),
            time,
        })
    }

    #[test]
    fn files_share_the_bytes_and_the_last_byte_is_read() {
        let budget = budget(5, None);
        let mut text = String::new();
        budget
            .reader(&b"123"[..], Some(3))
            .read_to_string(&mut text)
            .expect("within");
        budget
            .reader(&b"45"[..], Some(2))
            .read_to_string(&mut text)
            .expect("within");
        assert_eq!(text, "12345");
        let error = budget
            .reader(&b"6"[..], Some(1))
            .read_to_string(&mut text)
            .expect_err("beyond");
        assert!(error.to_string().contains("limit of 5 bytes"), "{error}");
    }

    /// Reader that waits before each byte, as a busy machine or a slow disk does.
    struct Waiting(u8);

    impl Read for Waiting {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(20));
            let Some(left) = self.0.checked_sub(1) else {
                return Ok(0);
            };
            self.0 = left;
            out[..1].copy_from_slice(b"x");
            Ok(1)
        }
    }

    fn limited<R: Read>(inner: R, limit: Duration) -> BudgetedReader<R> {
        let mut reader = budget(u64::MAX, None).reader(inner, Some(1));
        reader.limit = Some(limit);
        reader
    }

    #[test]
    fn waiting_is_no_work_on_a_file() {
        let mut text = String::new();
        let read = limited(Waiting(5), Duration::from_millis(30)).read_to_string(&mut text);
        assert_eq!((read.expect("hardly any processor time"), text.as_str()), (5, "xxxxx"));
    }

    #[test]
    fn a_file_ends_at_its_limit_of_processor_time_rg_11() {
        let mut endless = limited(io::repeat(b'x'), Duration::from_millis(30));
        let error = io::copy(&mut endless, &mut io::sink()).expect_err("the work is bounded");
        assert!(error.to_string().contains("processor time for this file"), "{error}");
    }

    #[test]
    fn an_endless_file_ends_at_the_time_limit_rg_11() {
        let budget = budget(u64::MAX, Some(Duration::from_millis(20)));
        let mut endless = budget.reader(io::repeat(b'x'), None);
        let error = io::copy(&mut endless, &mut io::sink()).expect_err("the time passes");
        assert!(error.to_string().contains("--time-limit"), "{error}");
    }
}
