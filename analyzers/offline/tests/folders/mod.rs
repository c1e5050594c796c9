//! Diagnosis of folders of logs.

use std::collections::BTreeSet;
use std::path::Path;

use rankguard_faults::Catalogue;
use rankguard_model::Timestamp;
use rankguard_offline::{
    GroupDiagnosis, NodeNames, OfflineCase, StreamOrigin, StreamReader, add, diagnose_group, guess, hosts_of,
};

/// Diagnoses files of a folder, as the program reads them.
pub(crate) fn diagnose(files: &[(&str, &str)]) -> Vec<OfflineCase> {
    group(files).cases
}

/// Diagnoses files of a folder, and returns also the reports that ended no run.
pub(crate) fn group(files: &[(&str, &str)]) -> GroupDiagnosis {
    group_written_by(files, None)
}

/// Diagnoses files of a folder that were last written at a time, which gives stamps their year.
pub(crate) fn group_written_by(files: &[(&str, &str)], written: Option<Timestamp>) -> GroupDiagnosis {
    let root = Path::new("/logs");
    let paths: Vec<_> = files.iter().map(|(name, _)| root.join(name)).collect();
    let heads: Vec<Vec<String>> = files
        .iter()
        .map(|(_, text)| text.lines().map(str::to_owned).collect())
        .collect();
    let hosts: Vec<BTreeSet<String>> = heads.iter().map(|lines| hosts_of(lines)).collect();
    let names = NodeNames::among(root, paths.iter().map(AsRef::as_ref).zip(&hosts));
    let newest = heads.iter().filter_map(|lines| guess::newest_moment(lines)).max();
    let streams = files
        .iter()
        .zip(&paths)
        .zip(&heads)
        .map(|(((name, text), path), lines)| {
            let mut reader = StreamReader::new(StreamOrigin {
                name: (*name).to_owned(),
                source: Some(guess::source(path, lines)),
                rank: guess::rank(root, path),
                node: names.node(root, path),
                year: guess::year_hint(newest, written),
                ..StreamOrigin::default()
            });
            reader.push_block(text.as_bytes());
            reader.finish()
        });
    let found = diagnose_group(streams.collect(), Vec::new(), Catalogue::builtin());
    let mut cases = Vec::new();
    found.cases.into_iter().for_each(|case| add(&mut cases, case));
    GroupDiagnosis { cases, ..found }
}
