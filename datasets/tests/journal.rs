//! A controller's journal as tables and back: a history of the simulator with the truth in its script.

use std::fs;
use std::path::Path;

use rankguard_datasets::{Dataset, TableKind, open};
use rankguard_journal::{JOURNAL_FILE, Journal, encode};
use rankguard_model::Evidence;
use rankguard_sim::{FaultScript, SimulatedWorld, SimulationOutcome};

/// A GPU off the bus, two nodes that are lost and come back, a killed rank.
const STORY: &str = include_str!("four-failures.toml");

fn write(dir: &Path, story: &str) -> SimulationOutcome {
    let script = FaultScript::parse(story).expect("a script");
    let mut journal = Journal::open(&dir.join(JOURNAL_FILE), &script.policy).expect("a journal");
    let ended = SimulatedWorld::new(script).play();
    assert_eq!(ended.broken, Vec::<String>::new());
    for batch in ended.journal.chunks(100) {
        let entries: Vec<Vec<u8>> = batch.iter().map(|event| encode(event).expect("JSON")).collect();
        journal.append(&entries).expect("room");
    }
    ended
}

fn texts(data: &Dataset, table: TableKind, column: &str) -> Vec<String> {
    let column = data.strings(table, column).expect("the column");
    column.into_iter().map(|text| text.unwrap_or_default()).collect()
}

fn numbers(data: &Dataset, table: TableKind, column: &str) -> Vec<Option<f64>> {
    data.f64s(table, column).expect("the column")
}

#[test]
fn a_history_of_known_failures_is_counted_right() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let ended = write(dir.path(), STORY);
    let before = fs::read(dir.path().join(JOURNAL_FILE)).expect("the journal");
    let data = open(dir.path()).expect("a journal is recognised");
    assert_eq!(data.source, "rankguard-journal");
    assert!(data.problems.is_empty(), "{:?}", data.problems);
    assert_eq!(data.files[0].rows_read, ended.journal.len() as u64);
    assert_eq!(data.population.map(|all| all.count), Some(6));

    assert_eq!(texts(&data, TableKind::Jobs, "state"), ["completed"]);
    assert_eq!(
        numbers(&data, TableKind::Jobs, "gpus"),
        [None],
        "a controller does not know them"
    );
    let classes = texts(&data, TableKind::Failures, "class");
    assert_eq!(classes.len(), 4, "{classes:?}");
    assert_eq!(classes.iter().filter(|class| *class == "gpu-fallen-off-bus").count(), 1);
    let mut nodes = texts(&data, TableKind::Failures, "node");
    nodes.truncate(3);
    assert_eq!(nodes, ["node-1", "node-2", "node-3"]);
    assert_eq!(texts(&data, TableKind::Failures, "x_scope")[3], "process");
    // Lost nodes were away for 6 s and the time to join; the one with the lost GPU is still away, that of the killed
    // rank remained.
    let repairs = numbers(&data, TableKind::Failures, "repair_s");
    for at in [0, 2] {
        let repair = repairs[at].expect("it came back");
        assert!((5.5..7.5).contains(&repair), "{repair}");
    }
    assert_eq!((repairs[1], repairs[3]), (None, None));

    let states = texts(&data, TableKind::Outages, "state");
    let causes = texts(&data, TableKind::Outages, "x_cause");
    let cut = numbers(&data, TableKind::Outages, "x_cut");
    let count = |cause: &str| causes.iter().filter(|found| *found == cause).count();
    assert_eq!((count("lost"), count("cordoned")), (2, 1));
    assert_eq!(states.iter().filter(|state| *state == "down").count(), 3);
    assert_eq!(
        cut.iter().filter(|cut| **cut == Some(1.0)).count(),
        6,
        "each node's last interval"
    );
    let generations = ended.state.plans().len();
    assert_eq!(texts(&data, TableKind::Attempts, "job").len(), generations);
    let last = numbers(&data, TableKind::Capacity, "available")
        .last()
        .copied()
        .flatten();
    assert_eq!(last, Some(5.0));
    assert_eq!(
        fs::read(dir.path().join(JOURNAL_FILE)).expect("the journal"),
        before,
        "only looked at"
    );
}

#[test]
fn evidence_goes_out_and_comes_back_as_it_was() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), STORY);
    let mut wanted: Vec<Evidence> = Vec::new();
    rankguard_journal::evidence(dir.path(), |entry| {
        wanted.push(entry.expect("sound"));
        true
    })
    .expect("a journal");
    let data = open(dir.path()).expect("a journal");
    let tables = dir.path().join("tables");
    data.import(&tables).expect("room");
    let mut out = Vec::new();
    let written = data.evidence(&mut out).expect("memory");
    let lines = String::from_utf8(out).expect("JSON is text");
    let mut got: Vec<Evidence> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("evidence"))
        .collect();
    assert_eq!(written.pieces, got.len() as u64);
    assert!(got.is_sorted_by_key(|evidence| evidence.at));
    // Periodic reports of ranks are in the samples only.
    wanted.retain(|evidence| {
        use rankguard_model::EvidenceBody;
        !matches!(
            evidence.body,
            EvidenceBody::Progress { .. } | EvidenceBody::ShardSealed { .. } | EvidenceBody::ShardDurable { .. }
        )
    });
    let key = |evidence: &Evidence| (evidence.id.node.clone(), evidence.id.seq);
    wanted.sort_by_key(key);
    got.sort_by_key(key);
    assert_eq!(got, wanted);
}

#[test]
fn a_torn_last_record_is_a_problem_and_the_rest_is_counted() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let script = FaultScript::parse(STORY).expect("a script");
    let mut journal = Journal::open(&dir.path().join(JOURNAL_FILE), &script.policy).expect("a journal");
    let ended = SimulatedWorld::new(script).play();
    let mut entries: Vec<Vec<u8>> = ended.journal.iter().map(|event| encode(event).expect("JSON")).collect();
    let last = entries.last_mut().expect("entries");
    last.truncate(last.len() / 2);
    journal.append(&entries).expect("room");
    drop(journal);
    let data = open(dir.path()).expect("a journal");
    let bad = &data.problems.kinds["bad-row"];
    assert_eq!(
        (bad.count, bad.rows_lost, bad.first[0].line),
        (1, 1, entries.len() as u64)
    );
    assert!(bad.first[0].what.contains("cannot be read"), "{}", bad.first[0].what);
    assert_eq!(texts(&data, TableKind::Failures, "class").len(), 4);
}

#[test]
fn one_in_use_is_read_up_to_now_and_one_cut_short_is_a_problem() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join(JOURNAL_FILE);
    write(dir.path(), STORY);
    let policy = FaultScript::parse(STORY).expect("a script").policy;
    let closed = open(&path).expect("a journal");
    let mut held = Journal::open(&path, &policy).expect("a journal");
    let data = open(&path).expect("it is recognised");
    let told = &data.problems.kinds["in-use"];
    assert_eq!((told.rows_lost, told.first[0].line), (0, held.entries()));
    assert_eq!(data.rows, closed.rows, "all that was written so far");
    // Entries that the controller writes meanwhile are available to the next reader.
    let mut entries = Vec::new();
    held.replay(|stamped| entries.push(stamped)).expect("a sound journal");
    let last = encode(entries.last().expect("entries")).expect("JSON");
    held.append(&[last]).expect("room");
    let later = open(&path).expect("a journal");
    assert_eq!(later.files[0].rows_read, data.files[0].rows_read + 1);
    drop(held);
    let whole = fs::read(&path).expect("the journal");
    fs::write(&path, &whole[..whole.len() / 3]).expect("room");
    let data = open(&path).expect("it is recognised");
    assert!(data.problems.rows_lost() > 0 && data.rows.is_empty(), "{data:?}");
    assert_eq!(
        fs::read(&path).expect("the file").len(),
        whole.len() / 3,
        "only looked at"
    );
}

#[test]
fn somebody_elses_database_is_none_of_ours() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("other.redb");
    let database = redb::Database::create(&path).expect("room");
    let transaction = database.begin_write().expect("a transaction");
    drop(
        transaction
            .open_table(redb::TableDefinition::<u64, u64>::new("other"))
            .expect("a table"),
    );
    transaction.commit().expect("room");
    drop(database);
    assert!(open(&path).is_err());
}
