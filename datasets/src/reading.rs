//! Reading of one file, with its digest computed in parallel.

use std::thread;

use crate::head::Head;
use crate::input::digest;
use crate::load::Load;
use crate::provenance::FileRead;

/// Reads a file with a role in its source. The digest is empty if the file cannot be read.
pub(crate) fn file(head: &Head, role: Option<&'static str>, load: &mut Load, rows: impl FnOnce(&mut Load)) {
    load.begin(FileRead {
        path: head.relative.clone(),
        role: role.unwrap_or(""),
        ..FileRead::default()
    });
    let digest = thread::scope(|scope| {
        let digest = scope.spawn(|| digest(&head.path));
        rows(load);
        load.told_repeats();
        digest.join()
    });
    if let Ok(Ok((sha256, bytes))) = digest {
        load.digested(sha256, bytes);
    }
}
