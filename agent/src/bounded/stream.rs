//! Output of a bounded program.

use std::io;
use std::os::fd::OwnedFd;

use super::{FLOOD, KEPT};

/// Output stream; its beginning is retained, the rest is only counted.
pub(super) struct BoundedOutput {
    pub(super) pipe: Option<OwnedFd>,
    pub(super) kept: Vec<u8>,
    pub(super) seen: usize,
}

impl BoundedOutput {
    pub(super) fn of(pipe: Option<OwnedFd>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Self {
            pipe,
            kept: Vec::new(),
            seen: 0,
        })
    }

    /// Reads the available data without blocking.
    pub(super) fn read(&mut self) {
        let mut buffer = [0; 16 << 10];
        while let Some(pipe) = &self.pipe
            && self.seen <= FLOOD
        {
            match rustix::io::read(pipe, &mut buffer[..]) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    self.seen += count;
                    let room = KEPT.saturating_sub(self.kept.len()).min(count);
                    self.kept.extend_from_slice(&buffer[..room]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.pipe = None,
            }
        }
    }
}
