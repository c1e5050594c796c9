use std::os::unix::fs::PermissionsExt as _;

use super::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000_000_000);

fn entry(action: &str, target: &str) -> NewAuditEntry {
    NewAuditEntry {
        actor: "operator ada".to_owned(),
        door: AuditDoor::Grpc,
        address: Some("10.0.0.1".to_owned()),
        action: action.to_owned(),
        target: target.to_owned(),
        detail: "XID 79\nticket".to_owned(),
        key: None,
    }
}

fn all(log: &AuditLog) -> AuditPage {
    log.read(&AuditFilter::default(), None, 100_000).expect("readable")
}

#[test]
fn entries_and_results_survive_a_restart_and_a_write_that_was_cut_off() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(dir.path(), NOW).expect("opened");
    let done = log.begin(entry("node.cordon", "n1"), NOW).expect("written");
    let open = log.begin(entry("job.cancel", "train"), NOW).expect("written");
    log.refuse(entry("node.drain", "n2"), "role viewer", NOW)
        .expect("written");
    log.end(done, AuditOutcome::Done, "").expect("written");
    assert_eq!(open.seq, 2);
    drop(log);
    let path = dir.path().join("audit-000001.log");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    let whole = fs::read(&path).expect("bytes");
    for cut in [0, 1, 40, 70] {
        let mut bytes = whole.clone();
        bytes.extend(&whole[..cut]);
        fs::write(&path, bytes).expect("written");
        let log = AuditLog::open(dir.path(), NOW).expect("opened");
        let page = all(&log);
        let outcomes: Vec<AuditOutcome> = page.entries.iter().map(|entry| entry.outcome).collect();
        assert_eq!(
            outcomes,
            [AuditOutcome::Refused, AuditOutcome::Unknown, AuditOutcome::Done]
        );
        assert!(page.damaged.is_empty(), "{page:?}");
    }
    let log = AuditLog::open(dir.path(), NOW).expect("opened");
    let added = log.begin(entry("node.cordon", "n3"), NOW).expect("written");
    assert_eq!(added.seq, 4);
    assert!(all(&log).damaged.is_empty());
}

/// A changed, a removed and a moved line are damage, and the log goes on in another file.
#[test]
fn edited_lines_are_found() {
    for edit in 0..3 {
        let dir = tempfile::tempdir().expect("a folder");
        let log = AuditLog::open(dir.path(), NOW).expect("opened");
        for number in 1..=4 {
            log.refuse(entry("node.cordon", &format!("n{number}")), "no", NOW)
                .expect("written");
        }
        drop(log);
        let path = dir.path().join("audit-000001.log");
        let text = fs::read_to_string(&path).expect("text");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        match edit {
            0 => lines[2] = lines[2].replace("ada", "eve"),
            1 => drop(lines.remove(2)),
            _ => lines.swap(2, 3),
        }
        fs::write(&path, lines.join("\n") + "\n").expect("written");
        let log = AuditLog::open(dir.path(), NOW).expect("opened");
        let page = all(&log);
        assert!(
            page.damaged.contains(&"audit-000001.log, line 3".to_owned()),
            "{edit}: {page:?}"
        );
        assert!(page.entries.iter().all(|entry| !entry.actor.contains("eve")));
        assert_eq!(page.entries[0].action, "audit.damage");
        let seq = page.entries[0].seq;
        assert!(seq >= 5, "{edit}: number {seq} was assigned before");
        assert_eq!(log.begin(entry("x", ""), NOW).expect("written").seq, seq + 1);
    }
}

#[test]
fn the_log_is_bounded_and_states_what_it_dropped() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = AuditLog::with_file_bytes(dir.path(), NOW, 600).expect("opened");
    for number in 0..60 {
        let ticket = log
            .begin(entry("node.cordon", &number.to_string()), NOW)
            .expect("written");
        log.end(ticket, AuditOutcome::Done, "").expect("written");
    }
    assert!(file::list(dir.path()).expect("listed").len() <= FILES_MAX + 1);
    let page = all(&log);
    let drops: Vec<&AuditEntry> = page
        .entries
        .iter()
        .filter(|entry| entry.action == "audit.drop")
        .collect();
    let oldest = page.entries.last().expect("entries").seq;
    assert!(
        drops[0].detail.contains(&format!("entries before number {oldest}")),
        "{}",
        drops[0].detail
    );
    let changes = page.entries.iter().filter(|entry| entry.action == "node.cordon");
    assert!(changes.clone().all(|entry| entry.outcome == AuditOutcome::Done));
    let numbers: Vec<u64> = page.entries.iter().map(|entry| entry.seq).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] == pair[1] + 1), "{numbers:?}");
    drop(log);
    // More than 400 days later only the newest file is left.
    let later = NOW.after(RETENTION + Duration::from_secs(1));
    let log = AuditLog::with_file_bytes(dir.path(), later, 600).expect("opened");
    let page = all(&log);
    assert_eq!(page.entries[0].action, "audit.drop");
    assert!(page.entries.len() < 6, "{}", page.entries.len());
}

#[test]
fn filters_and_pages_select() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(dir.path(), NOW).expect("opened");
    for number in 0..10_i64 {
        let action = if number % 2 == 0 { "node.cordon" } else { "nodes.other" };
        let at = Timestamp(NOW.0 + number);
        log.refuse(entry(action, ""), "", at).expect("written");
    }
    let read = |filter: &AuditFilter| log.read(filter, None, 100).expect("readable").entries.len();
    let group = AuditFilter {
        action: Some("node".to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!(read(&group), 5);
    let times = AuditFilter {
        since: Some(Timestamp(NOW.0 + 2)),
        until: Some(Timestamp(NOW.0 + 4)),
        ..AuditFilter::default()
    };
    assert_eq!(read(&times), 2);
    let actor = AuditFilter {
        actor: Some("bob".to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!(read(&actor), 0);
    let first = log.read(&group, None, 3).expect("readable");
    let rest = log.read(&group, first.next, 3).expect("readable");
    let numbers = |page: &AuditPage| page.entries.iter().map(|entry| entry.seq).collect::<Vec<_>>();
    assert_eq!(
        (numbers(&first), numbers(&rest), rest.next),
        (vec![9, 7, 5], vec![3, 1], None)
    );
}

/// A new file that could not be begun on a full disk does not refuse all later changes.
#[test]
fn a_file_that_could_not_be_begun_is_begun_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = AuditLog::with_file_bytes(dir.path(), NOW, 1).expect("opened");
    let next = dir.path().join("audit-000002.log");
    fs::create_dir(&next).expect("in the way");
    assert!(log.begin(entry("node.cordon", "n1"), NOW).is_err());
    assert!(log.probe(NOW).is_err());
    assert!(log.failure().expect("a cause").contains("audit-000002.log"));
    fs::remove_dir(&next).expect("removed");
    fs::write(&next, "").expect("left by a full disk");
    log.probe(NOW).expect("writable");
    assert_eq!(log.failure(), None);
    log.refuse(entry("node.cordon", "n1"), "no", NOW).expect("written");
    assert!(all(&log).damaged.is_empty());
}

/// A trial write leaves nothing in the file.
#[test]
fn a_trial_write_is_no_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(dir.path(), NOW).expect("opened");
    let path = dir.path().join("audit-000001.log");
    let before = fs::read(&path).expect("bytes");
    log.probe(NOW).expect("writable");
    assert_eq!(fs::read(&path).expect("bytes"), before);
}

/// Lines that are missing at the end of an older file, and a file that is missing, are damage.
#[test]
fn lines_and_files_that_are_missing_in_the_middle_are_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = AuditLog::with_file_bytes(dir.path(), NOW, 1_000).expect("opened");
    for number in 0..20 {
        log.refuse(entry("node.cordon", &format!("n{number}")), "no", NOW)
            .expect("written");
    }
    let path = |number: u32| dir.path().join(format!("audit-{number:06}.log"));
    assert!(path(4).exists());
    assert!(all(&log).damaged.is_empty(), "{:?}", all(&log).damaged);
    let whole = fs::read_to_string(path(2)).expect("text");
    let lines: Vec<&str> = whole.lines().collect();
    fs::write(path(2), lines[..lines.len() - 1].join("\n") + "\n").expect("written");
    assert_eq!(all(&log).damaged, ["audit-000002.log, after its last line"]);
    fs::remove_file(path(2)).expect("removed");
    assert_eq!(all(&log).damaged, ["audit-000002.log, which is missing"]);
    fs::write(path(2), whole).expect("written");
    assert!(all(&log).damaged.is_empty());
}
