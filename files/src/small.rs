//! Small text files, read whole within a limit.

use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

use crate::open_regular;

/// Reads the text of a regular file of at most `limit` bytes.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    open_regular(path)?.take(limit + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit {
        let what = format!("more than the {limit} bytes that such a file may have");
        return Err(io::Error::new(ErrorKind::FileTooLarge, what));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beyond_its_limit_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("file");
        std::fs::write(&path, "1234").expect("written");
        assert_eq!(read_text(&path, 4).expect("short enough"), "1234");
        assert_eq!(
            read_text(&path, 3).expect_err("too long").kind(),
            ErrorKind::FileTooLarge
        );
        assert!(read_text(Path::new("/dev/zero"), 3).is_err());
    }
}
