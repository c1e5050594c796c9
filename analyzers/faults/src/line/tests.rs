#![allow(clippy::unwrap_used)]

use super::*;

fn read(raw: &str) -> ParsedLine<'_> {
    parse(raw, &LineClock::default())
}

/// Checks message, time and rank of a parsed line.
fn check(raw: &str, text: &str, at: Option<&str>, rank: Option<u32>) {
    let line = read(raw);
    assert_eq!(line.text, text, "{raw}");
    assert_eq!(line.at.map(|at| at.to_string()).as_deref(), at, "{raw}");
    assert_eq!(line.rank, rank.map(Rank), "{raw}");
}

#[test]
fn kernel_ring_records_give_sequence_and_time_since_boot() {
    let line = read("4,3964,206764307,-;NVRM: something");
    assert!(line.kernel);
    assert_eq!((line.kernel_seq, line.since_boot_us), (Some(3964), Some(206_764_307)));
    assert_eq!(line.level, Some(LogLevel::Warning));
    assert_eq!(line.text, "NVRM: something");
}

#[test]
fn time_since_boot_becomes_a_moment_when_the_boot_is_known() {
    let clock = LineClock {
        boot: Some(Timestamp::from_millis(1_000)),
        ..LineClock::default()
    };
    let line = parse("[    2.500000] mce: text", &clock);
    assert_eq!(line.at, Some(Timestamp::from_millis(3_500)));
    assert_eq!(line.text, "mce: text");
}

#[test]
fn kernel_lines_of_every_shape_lose_their_prefix() {
    check("[  123.456789][  T42] watchdog: BUG", "watchdog: BUG", None, None);
    check(
        "[Sun Feb 23 16:24:18 2025] NVRM: Xid",
        "NVRM: Xid",
        Some("2025-02-23T16:24:18.000Z"),
        None,
    );
    check(
        "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 NVRM: Xid",
        "NVRM: Xid",
        Some("2025-01-21T04:41:44.283Z"),
        None,
    );
    check("<6>[   13.826900] RAPL PMU: x", "RAPL PMU: x", None, None);
    check(
        "2025-01-21T04:41:44+0100 n12 kernel: NVRM: Xid",
        "NVRM: Xid",
        Some("2025-01-21T03:41:44.000Z"),
        None,
    );
    let syslog = read("Feb 23 16:24:18 n12 kernel: [  123.456789] NVRM: Xid");
    assert_eq!(
        (syslog.text, syslog.host, syslog.kernel, syslog.at),
        ("NVRM: Xid", Some("n12"), true, None)
    );
}

#[test]
fn syslog_lines_get_their_year_from_the_reader() {
    let clock = LineClock {
        year: Some(2025),
        ..LineClock::default()
    };
    let line = parse("Feb  3 16:24:18 n12 kernel: x", &clock);
    assert_eq!(line.at.unwrap().to_string(), "2025-02-03T16:24:18.000Z");
}

#[test]
fn rank_prefixes_of_launchers_are_understood() {
    check("[rank3]: KeyError: 'x'", "KeyError: 'x'", None, Some(3));
    check(
        "[rank3]:   File \"a.py\", line 1, in f",
        "  File \"a.py\", line 1, in f",
        None,
        Some(3),
    );
    check("12: loss is nan", "loss is nan", None, Some(12));
    check(
        " 3: Traceback (most recent call last):",
        "Traceback (most recent call last):",
        None,
        Some(3),
    );
    check("[1,3]<stderr>:Killed", "Killed", None, Some(3));
    check("[2]<stderr>:Killed", "Killed", None, Some(2));
    check("[1,mpirank:3,algo-1]<stderr>:Killed", "Killed", None, Some(3));
    check("[rank: 4] boom", "boom", None, Some(4));
    check("[default1]:[rank5]: boom", "boom", None, Some(5));
    let local = read("[default3]:boom");
    assert_eq!((local.local_rank, local.rank, local.text), (Some(3), None, "boom"));
}

#[test]
fn logger_and_container_clocks_come_off_in_layers() {
    check(
        "[2025-01-21, 04:41:44 UTC] {subprocess.py:93} INFO - boom",
        "{subprocess.py:93} INFO - boom",
        Some("2025-01-21T04:41:44.000Z"),
        None,
    );
    check(
        "2025-01-21T04:41:44.5Z stderr F [rank2]: boom",
        "boom",
        Some("2025-01-21T04:41:44.500Z"),
        Some(2),
    );
    check(
        "2025-01-21 04:41:44,283 - ERROR - boom",
        "boom",
        Some("2025-01-21T04:41:44.283Z"),
        None,
    );
    check(
        "[2025-01-21 04:41:44,283] [INFO] [launch.py:321] Killing",
        "[launch.py:321] Killing",
        Some("2025-01-21T04:41:44.283Z"),
        None,
    );
    let ray = read("(RayWorker pid=123, ip=10.0.0.7) boom");
    assert_eq!((ray.text, ray.host), ("boom", Some("10.0.0.7")));
    let pdsh = read("worker-1: boom");
    assert_eq!((pdsh.text, pdsh.host), ("boom", Some("worker-1")));
}

#[test]
fn what_only_looks_like_a_prefix_stays() {
    for text in [
        "KeyError: 'x'",
        "[E socket.cpp] boom",
        "slurmstepd: error: boom",
        "12 apples",
        "      7: not a rank",
        "[WARN]",
        "",
    ] {
        assert_eq!(read(text).text, text);
    }
}

#[test]
fn colours_and_redrawn_bars_are_cleaned() {
    assert_eq!(clean("\u{1b}[31mRuntimeError: x\u{1b}[0m\n"), "RuntimeError: x");
    assert_eq!(clean(" 10%|#  |\r 50%|## |\r100%|###|"), "100%|###|");
    assert_eq!(clean("plain\r\n"), "plain");
    assert!(matches!(clean("plain"), std::borrow::Cow::Borrowed("plain")));
}

#[test]
fn endless_lines_are_cut_at_a_character() {
    // RG-11
    let raw = "ä".repeat(crate::LINE_LIMIT);
    let cleaned = clean(&raw);
    assert!(cleaned.len() <= crate::LINE_LIMIT);
}

#[test]
fn a_task_label_is_no_rank_when_a_launcher_stands_between() {
    check("1: [rank9]: boom", "boom", None, Some(9));
    let line = read("1: [default3]:boom");
    assert_eq!((line.rank, line.local_rank, line.text), (None, Some(3), "boom"));
}

#[test]
fn ranks_are_told_by_hand_too() {
    check("Rank 3: boom", "boom", None, Some(3));
    check("rank=12 | boom", "boom", None, Some(12));
    check(
        "[2025-01-21 04:41:44,283] [Rank 7] boom",
        "boom",
        Some("2025-01-21T04:41:44.283Z"),
        Some(7),
    );
    let line = read("[3]: boom");
    assert_eq!((line.local_rank, line.text), (Some(3), "boom"));
    check("[prterun-node1-4711@1,3]<stderr>: boom", "boom", None, Some(3));
}

#[test]
fn pods_are_hosts() {
    for raw in [
        "[pod/llama-worker-3/pytorch] boom",
        "[llama-worker-3 pytorch] boom",
        "llama-worker-3 pytorch boom",
        "llama-worker-3  | boom",
    ] {
        let line = read(raw);
        assert_eq!((line.host, line.text), (Some("llama-worker-3"), "boom"), "{raw}");
    }
}

#[test]
fn a_line_of_a_container_log_in_json_reads_like_any_other() {
    let cleaned = clean(
        r#"{"log":"[rank2]: \u001b[31mKeyError: \"x\" \ud83d\ude00\u001b[0m\n","stream":"stderr","time":"2025-01-21T04:41:44.5Z"}"#,
    );
    check(
        &cleaned,
        "KeyError: \"x\" \u{1f600}",
        Some("2025-01-21T04:41:44.500Z"),
        Some(2),
    );
}

#[test]
fn clocks_of_a_dozen_shapes_are_read() {
    let at = Some("2025-03-04T11:22:33.000Z");
    for clock in [
        "2025-03-04T11:22:33Z",
        "2025-03-04 11:22:33",
        "2025/03/04 11:22:33",
        "2025.03.04 11:22:33",
        "2025-03-04_11:22:33",
        "2025-03-04T12:22:33+01:00",
        "20250304 11:22:33",
        "20250304-112233",
        "03/04/2025 11:22:33",
        "04/Mar/2025:11:22:33 +0000",
        "04-Mar-2025 11:22:33",
        "Mar 4 11:22:33 2025",
        "Tue Mar  4 11:22:33 2025",
        "Mar 04 2025 11:22:33",
        "1741087353.000",
        "[2025-03-04 11:22:33]",
        "[03/04/2025 11:22:33]",
        "[1741087353.000000]",
    ] {
        check(&format!("{clock} boom"), "boom", at, None);
    }
    for clock in ["11:22:33", "[11:22:33]", "11:22:33.123"] {
        check(&format!("{clock} boom"), "boom", None, None);
    }
}

#[test]
fn loggers_lose_clock_and_level() {
    let at = Some("2025-03-04T11:22:33.123Z");
    for raw in [
        "2025-03-04 11:22:33.123 | ERROR    | trainer.loop:step:12 - boom",
        "2025-03-04 11:22:33,123 ERROR: boom",
        "2025-03-04 11:22:33,123 - ERROR - boom",
        "[2025-03-04 11:22:33,123] [ERROR] boom",
    ] {
        check(raw, "boom", at, None);
        assert_eq!(read(raw).level, Some(LogLevel::Error), "{raw}");
    }
    let clock = LineClock {
        year: Some(2025),
        ..LineClock::default()
    };
    let line = parse("E0304 11:22:33.123456 1234 ProcessGroupNCCL.cpp:852] boom", &clock);
    assert_eq!(
        (line.text, line.level),
        ("ProcessGroupNCCL.cpp:852] boom", Some(LogLevel::Error))
    );
    assert_eq!(line.at.map(|at| at.to_string()).as_deref(), at);
}

#[test]
fn events_of_blue_gene_lose_place_facility_and_severity() {
    let event = "1117838570 2005.06.03 R02-M1-N0 2005-06-03-15.42.50.363779 R02-M1-N0 RAS KERNEL FATAL boom";
    for raw in [event.to_owned(), format!("- {event}"), format!("KERNTERM {event}")] {
        let line = read(&raw);
        assert_eq!(
            (line.text, line.level, line.host),
            ("boom", Some(LogLevel::Critical), Some("R02-M1-N0")),
            "{raw}"
        );
        assert_eq!(
            line.at.map(|at| at.to_string()).as_deref(),
            Some("2005-06-03T22:42:50.000Z")
        );
    }
    let info = event.replace("FATAL", "INFO");
    assert_eq!((read(event).news, read(&info).news), (false, true));
    let unknown = event.replace("FATAL", "CALM");
    assert_eq!(read(&unknown).text, unknown);
}

#[test]
fn notebooks_of_kaggle_count_seconds_and_lines() {
    let line = read("704.7s\t1387\t[rank0]: RuntimeError: boom");
    assert_eq!((line.text, line.rank), ("RuntimeError: boom", Some(Rank(0))));
    assert_eq!(read("3.5s\tof silence").text, "3.5s\tof silence");
}

#[test]
fn numbers_and_names_that_are_no_clock_and_no_host_stay() {
    for text in [
        "12 apples and 3 pears",
        "1741087353 tokens",
        "2025.03 is a version",
        "step-3 done quickly",
        "E0304 is an error code",
        "[0]:",
        "Rank 3 died",
        "11:22 is no clock",
    ] {
        assert_eq!(read(text).text, text);
    }
}

#[test]
fn words_of_a_message_are_no_hosts_of_a_system_log() {
    let host = |text: &'static str| parse(text, &LineClock::default()).host;
    for text in [
        "2026-11-30 10:00:01 caught torch.OutOfMemoryError: CUDA out of memory",
        "2026-11-30 10:00:01,120 loading checkpoint: /ckpt/5",
        "2026-11-30T10:00:01Z retrying upload: 3 of 5",
        "2026-11-30T10:00:01+00:00 raised RuntimeError: stop",
        "2026-11-30 10:00:01 fine-tuning model: gpt",
        "2026-11-30 10:00:01 rank3 worker: ready",
        "Nov 30 10:00:01 ignoring UserWarning: old",
    ] {
        assert_eq!(host(text), None, "{text}");
    }
    for (text, name) in [
        ("Nov 30 10:00:01 head slurmd: error", "head"),
        ("2026-11-30T10:00:01.123456+00:00 head slurmd: error", "head"),
        ("2026-11-30T10:00:01+0000 head slurmd[812]: error", "head"),
        ("2026-11-30 10:00:01 head kernel: NVRM: Xid", "head"),
        ("2026-11-30 10:00:01 gpu07 slurmd: error", "gpu07"),
    ] {
        assert_eq!(host(text), Some(name), "{text}");
    }
}
