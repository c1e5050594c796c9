//! Real dumps with injected faults, compared with their authors' answers.

// A test acts as its own shell: it reads the files that the crate never reads.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::PathBuf;

use rankguard_flight::{AnalysisReport, RecorderDump, analyze, rank_of_file_name};

fn read_case(case: &str) -> Option<(PathBuf, Vec<RecorderDump>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/datasets/nccl-flight-recorder-dumps")
        .join(case);
    if !folder.is_dir() {
        let text = format_args!("SKIPPED: no dumps at {}\n", folder.display());
        std::io::Write::write_fmt(&mut std::io::stderr(), text).unwrap();
        return None;
    }
    let mut dumps = Vec::new();
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        let Some(rank) = rank_of_file_name(&path.to_string_lossy()) else {
            continue;
        };
        let (dump, problems) = RecorderDump::read(Some(rank), &std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(problems, [], "{}", path.display());
        dumps.push(dump);
    }
    assert_eq!(dumps.len(), 16);
    Some((folder, dumps))
}

/// Returns the row of the authors' answer: group, description, operation, size, type, missing ranks.
fn reference(folder: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("reference.txt")).unwrap();
    let row = text.lines().nth(1).unwrap();
    row.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Checks that the excerpt of a dump is much smaller and blames the same ranks in the same groups.
fn check_briefs(dumps: &[RecorderDump], whole: &AnalysisReport) {
    let briefs: Vec<RecorderDump> = dumps
        .iter()
        .map(|dump| {
            let brief = dump.brief(64 << 10).unwrap();
            assert!(brief.text.len() <= 64 << 10);
            let (read, problems) = RecorderDump::read(None, brief.text.as_bytes()).unwrap();
            assert_eq!(problems, []);
            assert_eq!(read.entries.len() + brief.left_out, dump.entries.len());
            read
        })
        .collect();
    let report = analyze(&briefs, Some(16));
    let named = |report: &AnalysisReport| -> Vec<(u32, f64)> {
        let culprits = report.culprits.iter().map(|culprit| (culprit.rank, culprit.confidence));
        culprits
            .chain(report.suspects.iter().map(|suspect| (suspect.rank, suspect.confidence)))
            .collect()
    };
    assert_eq!(named(&report), named(whole));
    assert_eq!(report.groups, whole.groups);
}

fn check_against_authors(case: &str) -> Option<AnalysisReport> {
    let (folder, dumps) = read_case(case)?;
    let report = analyze(&dumps, Some(16));
    let row = reference(&folder);
    let group = &report.groups[0];
    assert!(group.root);
    assert_eq!(group.id, row[0]);
    assert_eq!(group.description, row[1].split(',').next().unwrap());
    assert!(group.name.contains(&group.id) && group.name.contains(&group.description));
    assert_eq!(group.collective, row[2]);
    assert_eq!(group.size, row[3]);
    assert_eq!(group.dtype, row[4]);
    let missing: Vec<u32> = row[5].split(',').map(|rank| rank.parse().unwrap()).collect();
    assert_eq!(group.missing_ranks, missing);
    let culprits: Vec<u32> = report.culprits.iter().map(|culprit| culprit.rank).collect();
    assert_eq!(culprits, missing);
    assert_eq!(report.groups.iter().filter(|group| group.root).count(), 1);
    assert_eq!(report.problems, []);
    check_briefs(&dumps, &report);
    Some(report)
}

#[test]
fn a_gpu_error_is_found_where_its_authors_find_it() {
    let Some(report) = check_against_authors("gpu_error_1st") else {
        return;
    };
    // The truth names rank 14 as well. It called everything, but did not see the end of operations that its
    // peers completed.
    let suspects: Vec<u32> = report.suspects.iter().map(|suspect| suspect.rank).collect();
    assert_eq!(suspects, [14]);
    assert_eq!(report.groups[0].seq, 20537);
    assert_eq!(report.groups[0].waiting_ranks, [13, 14, 15]);
    assert!(report.cycles.is_empty());
}

#[test]
fn a_held_interpreter_lock_is_found_where_its_authors_find_it() {
    let Some(report) = check_against_authors("lock_gil_1st") else {
        return;
    };
    assert_eq!(report.ranks_without_entries, [9, 14]);
    assert!(report.suspects.is_empty());
    assert!(report.cycles.is_empty());
    let because = report.culprits[0].because.join("\n");
    assert!(because.contains("has no entry at all"), "{because}");
}

#[test]
fn order_of_dumps_makes_no_difference() {
    for case in ["gpu_error_1st", "lock_gil_1st"] {
        let Some((_, mut dumps)) = read_case(case) else { return };
        dumps.sort_by_key(|dump| dump.rank);
        let forward = analyze(&dumps, Some(16));
        dumps.reverse();
        assert_eq!(analyze(&dumps, Some(16)), forward);
    }
}

#[test]
fn a_culprit_without_a_dump_is_still_found() {
    let Some((_, mut dumps)) = read_case("lock_gil_1st") else {
        return;
    };
    dumps.retain(|dump| ![Some(9), Some(14)].contains(&dump.rank));
    let report = analyze(&dumps, None);
    let culprits: Vec<u32> = report.culprits.iter().map(|culprit| culprit.rank).collect();
    assert_eq!(culprits, [9, 14]);
    assert_eq!(report.ranks_without_dump, [9, 14]);
    assert_eq!(report.groups[0].missing_ranks, [9, 14]);
}

#[test]
fn without_any_one_dump_nobody_else_is_named() {
    for (case, authors) in [("gpu_error_1st", &[12][..]), ("lock_gil_1st", &[9, 14])] {
        let Some((_, dumps)) = read_case(case) else { return };
        for gone in 0..16 {
            let left: Vec<RecorderDump> = dumps.iter().filter(|dump| dump.rank != Some(gone)).cloned().collect();
            let report = analyze(&left, Some(16));
            let named: Vec<u32> = report.culprits.iter().map(|culprit| culprit.rank).collect();
            assert!(
                authors.iter().all(|rank| named.contains(rank)),
                "{case} without {gone}: {named:?}"
            );
            assert!(
                named.iter().all(|rank| authors.contains(rank) || *rank == gone),
                "{case} without {gone}: {named:?}"
            );
            let certain = report.culprits[0].rank;
            assert!(authors.contains(&certain), "{case} without {gone}: {named:?}");
        }
    }
}
