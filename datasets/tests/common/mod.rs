//! Real data sets, if they are available.

#![allow(clippy::print_stderr, reason = "a test that cannot run says so loudly")]
#![allow(dead_code, reason = "each suite uses its part")]

use std::path::{Path, PathBuf};

use rankguard_datasets::{Dataset, TableKind, open};

/// The folder of a data set; if it is absent the test prints a note and ends.
pub(crate) fn folder(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/datasets")
        .join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is absent, so its counts are not checked", path.display());
    None
}

/// Opens a data set, which must be of this source.
pub(crate) fn dataset(name: &str, source: &str) -> Option<Dataset> {
    let dataset = open(&folder(name)?).expect("a published data set opens");
    assert_eq!(dataset.source, source);
    for file in dataset.files.iter().filter(|file| !file.role.is_empty()) {
        assert_eq!(file.sha256.len(), 64, "{}", file.path);
    }
    Some(dataset)
}

pub(crate) fn rows(dataset: &Dataset, table: TableKind) -> u64 {
    dataset.rows.get(&table).copied().unwrap_or(0)
}

/// Number of rows of a table with this text.
pub(crate) fn with(dataset: &Dataset, table: TableKind, column: &str, wanted: &str) -> usize {
    let texts = dataset.strings(table, column).expect("a text column");
    texts.iter().flatten().filter(|text| *text == wanted).count()
}
