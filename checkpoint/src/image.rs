//! Where the bytes of an image come from or go to: a slot of an arena, or plain memory.

use std::io;

/// Something an image can be read from.
pub trait ImageSource {
    /// Fills `out` with the bytes from `at` on.
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()>;
}

/// Something an image can be written to, piece by piece in any order.
pub trait ImageSink {
    /// How many bytes it takes.
    fn capacity(&self) -> u64;

    /// Puts `bytes` at `at`.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
}

impl ImageSource for &[u8] {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let part = usize::try_from(at).ok().and_then(|at| self.get(at..)?.get(..out.len()));
        out.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl ImageSink for &mut [u8] {
    fn capacity(&self) -> u64 {
        self.len() as u64
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let part = usize::try_from(at)
            .ok()
            .and_then(|at| self.get_mut(at..)?.get_mut(..bytes.len()));
        part.ok_or(io::ErrorKind::WriteZero)?.copy_from_slice(bytes);
        Ok(())
    }
}
