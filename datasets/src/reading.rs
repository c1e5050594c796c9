//! Reading of one file, with its digest computed in parallel.

use std::thread;

use crate::head::FileHead;
use crate::input::digest;
use crate::load::LoadState;
use crate::provenance::FileRead;

/// Reads a file with a role in its source. The digest is empty if the file cannot be read.
pub(crate) fn file(
    head: &FileHead,
    role: Option<&'static str>,
    load: &mut LoadState,
    rows: impl FnOnce(&mut LoadState),
) {
    load.begin(FileRead {
        path: head.relative.clone(),
        role: role.unwrap_or(""),
        ..FileRead::default()
    });
    let digest = thread::scope(|scope| {
        let digest = scope.spawn(|| digest(&head.path));
        rows(load);
        load.report_repeats();
        digest.join()
    });
    if let Ok(Ok((sha256, bytes))) = digest {
        load.digested(sha256, bytes);
    }
}
