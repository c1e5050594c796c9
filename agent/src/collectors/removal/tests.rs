//! Changes of notices, with sources that fail in between.

use super::*;

const LEAD: Duration = Duration::from_secs(600);

fn notice(in_s: u64) -> RemovalNotice {
    RemovalNotice {
        reason: "AWS terminates this spot instance".to_owned(),
        at: Some(clock::now().after(Duration::from_secs(in_s))),
        class: classes::PREEMPTED,
    }
}

#[test]
fn a_notice_is_reported_once_and_so_is_its_end() {
    let mut reported = ReportedNotices::default();
    let soon = notice(100);
    let mut next = |cloud| reported.next(LEAD, None, Some(cloud));
    assert_eq!(next(Ok(None)), []);
    assert_eq!(next(Ok(Some(soon.clone()))), [NoticeReport::Active(soon.clone())]);
    assert_eq!(next(Ok(Some(soon.clone()))), []);
    assert_eq!(next(Ok(None)), [NoticeReport::Withdrawn(soon)]);
}

#[test]
fn a_source_that_fails_is_a_gap_once_and_ends_no_notice() {
    let mut reported = ReportedNotices::default();
    let soon = notice(100);
    reported.next(LEAD, None, Some(Ok(Some(soon.clone()))));
    let mut next = |cloud| reported.next(LEAD, None, Some(cloud));
    let failed = || Err("no answer".to_owned());
    assert_eq!(next(failed()), [NoticeReport::Unreadable("no answer".to_owned())]);
    assert_eq!(next(failed()), []);
    assert_eq!(next(Ok(Some(soon))), []);
    assert_eq!(next(failed()).len(), 1);
}

#[test]
fn a_removal_in_the_far_future_is_announced_and_reported_when_it_is_near() {
    let mut reported = ReportedNotices::default();
    let far = RemovalNotice {
        class: classes::MAINTENANCE,
        ..notice(86_400)
    };
    let next = |reported: &mut ReportedNotices, lead| reported.next(lead, None, Some(Ok(Some(far.clone()))));
    assert_eq!(next(&mut reported, LEAD), [NoticeReport::Announced(far.clone())]);
    assert_eq!(next(&mut reported, LEAD), []);
    let near = next(&mut reported, Duration::from_secs(90_000));
    assert_eq!(near, [NoticeReport::Active(far.clone())]);
}

/// However short the lead is: it is for planned maintenance.
#[test]
fn a_spot_machine_is_left_at_once() {
    let mut reported = ReportedNotices::default();
    let spot = notice(120);
    let reports = reported.next(Duration::from_secs(60), None, Some(Ok(Some(spot.clone()))));
    assert_eq!(reports, [NoticeReport::Active(spot)]);
}

#[test]
fn the_file_and_the_cloud_are_one_notice_for_as_long_as_one_gives_it() {
    let mut reported = ReportedNotices::default();
    let (early, late) = (notice(50), notice(100));
    let both = reported.next(LEAD, Some(Ok(Some(late.clone()))), Some(Ok(Some(early.clone()))));
    assert_eq!(both, [NoticeReport::Active(early)]);
    let file = reported.next(LEAD, Some(Ok(Some(late.clone()))), Some(Ok(None)));
    assert_eq!(file, [NoticeReport::Active(late)]);
}

#[test]
fn a_file_gives_its_first_line_as_the_cause() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notice");
    assert_eq!(file_notice(&path), Ok(None));
    std::fs::write(&path, "Slurm preempts job 4711\u{1b}[2J\nsecond line\n").expect("written");
    let found = file_notice(&path).expect("readable").expect("a notice");
    assert_eq!(found.reason, "Slurm preempts job 4711[2J");
    std::fs::write(&path, "").expect("written");
    let found = file_notice(&path).expect("readable").expect("a notice");
    assert!(found.reason.contains("notice exists"), "{}", found.reason);
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .expect("it runs");
    assert!(made.success());
    let problem = file_notice(&pipe).expect_err("a pipe");
    assert!(problem.contains("no regular file"), "{problem}");
    let problem = file_notice(folder.path()).expect_err("a folder");
    assert!(problem.contains(folder.path().to_str().expect("a text")), "{problem}");
}
