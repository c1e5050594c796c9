//! Recognition of the source of a folder or file.

use std::path::Path;

use crate::head::{FileHead, heads};
use crate::source::SourceFormat;
use crate::sources::sources;

/// Returns the source of a folder or file, recognised by content.
pub fn recognise(path: &Path) -> Option<&'static SourceFormat> {
    Some(choose(&heads(path).ok()?.0)?.0)
}

/// Returns the source that claims the most files, and the role of each file. On a tie the one listed first is
/// chosen.
pub(crate) fn choose(heads: &[FileHead]) -> Option<(&'static SourceFormat, Vec<Option<&'static str>>)> {
    let mut best: Option<(&'static SourceFormat, Vec<Option<&'static str>>, usize)> = None;
    for source in sources() {
        let roles: Vec<_> = heads.iter().map(source.role).collect();
        let claimed: Vec<&FileHead> = heads
            .iter()
            .zip(&roles)
            .filter(|(_, role)| role.is_some())
            .map(|(head, _)| head)
            .collect();
        let more = claimed.len() > best.as_ref().map_or(0, |(_, _, count)| *count);
        if more && (source.sign)(&claimed) {
            let count = claimed.len();
            best = Some((source, roles, count));
        }
    }
    best.map(|(source, roles, _)| (source, roles))
}
