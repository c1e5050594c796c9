//! Request and report of an export, common to all formats.

use std::path::{Path, PathBuf};

use crate::{ExchangeError, ImportProblem};

/// File size in bytes above which a directory gets several files.
pub const DEFAULT_FILE_BYTES: u64 = 5_000_000_000;

/// Parameters of an export.
#[derive(Debug, Clone)]
pub struct ExportRequest<'a> {
    /// Target file or directory.
    pub out: &'a Path,
    /// File size limit in bytes; a directory export starts a new file above it. Default:
    /// [`DEFAULT_FILE_BYTES`].
    pub file_bytes: u64,
    /// Names to export.
    pub selection: NameSelection,
    /// True to replace an existing file, or a directory that holds only files of an export.
    pub is_replacing: bool,
}

impl<'a> ExportRequest<'a> {
    /// Exports all names to `out`, which must not exist.
    pub fn new(out: &'a Path) -> Self {
        Self {
            out,
            file_bytes: DEFAULT_FILE_BYTES,
            selection: NameSelection::default(),
            is_replacing: false,
        }
    }
}

/// Result of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct ExportReport {
    /// Written files, in order.
    pub files: Vec<PathBuf>,
    /// Number of tensors in all files.
    pub tensors: u64,
    /// Bytes of these tensors.
    pub bytes: u64,
    /// Damage that was repaired from another copy, one sentence each.
    pub repairs: Vec<String>,
    /// Values that the format cannot represent.
    pub problems: Vec<ImportProblem>,
}

/// Selection of tensors and values by the start of their dotted names; the default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameSelection {
    prefix: String,
    is_stripped: bool,
}

impl NameSelection {
    /// Selects names that start with `prefix`; `is_stripped` removes it from the exported names.
    pub fn new(prefix: impl Into<String>, is_stripped: bool) -> Self {
        Self {
            prefix: prefix.into(),
            is_stripped,
        }
    }

    pub(crate) fn is_all(&self) -> bool {
        self.prefix.is_empty()
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn is_stripped(&self) -> bool {
        self.is_stripped
    }

    /// Returns the exported name of `name`, or `None` if it is not selected.
    pub(crate) fn exported_name<'n>(&self, name: &'n str) -> Option<&'n str> {
        let rest = name.strip_prefix(self.prefix.as_str())?;
        if !self.is_stripped {
            return Some(name);
        }
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        // A tensor with exactly this name retains it, because a name cannot be empty.
        Some(if rest.is_empty() { name } else { rest })
    }

    /// Returns the error for a selection without a match; lists the first parts of `names`.
    pub(crate) fn no_match<'n>(&self, names: impl Iterator<Item = &'n str>) -> ExchangeError {
        let mut starts: Vec<String> = names.map(|name| first_part(name).to_owned()).collect();
        starts.sort();
        starts.dedup();
        let total = starts.len();
        starts.truncate(8);
        let more = if total > 8 { ", ..." } else { "" };
        ExchangeError::Unfit {
            what: format!(
                "no name starts with {:?}; names of this checkpoint start with {}{more}",
                self.prefix,
                starts.join(", ")
            ),
        }
    }
}

fn first_part(name: &str) -> &str {
    name.split_once('.').map_or(name, |(first, _)| first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prefix: &str, is_stripped: bool, name: &str, expect: Option<&str>) {
        let selection = NameSelection::new(prefix, is_stripped);
        assert_eq!(selection.exported_name(name), expect, "{prefix} {name}");
    }

    #[test]
    fn a_prefix_selects_and_can_be_removed() {
        check("", true, "model.w", Some("model.w"));
        check("model.", false, "model.w", Some("model.w"));
        check("model.", true, "model.w", Some("w"));
        check("model", true, "model.w", Some("w"));
        check("model.", true, "optimizer.w", None);
        check("model.w", true, "model.w", Some("model.w"));
    }
}
