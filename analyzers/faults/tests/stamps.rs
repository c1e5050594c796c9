//! Timestamps at the start of lines, in the forms that their programs document: expected time, host, rank and
//! remaining text.

use rankguard_faults::line::{LineClock, YearHint, clean, parse};
use rankguard_model::Timestamp;

/// Parses an ISO timestamp with a zone.
fn at(text: &str) -> Timestamp {
    let moment = parse(&format!("{text} x"), &LineClock::default()).at;
    moment.unwrap_or_else(|| panic!("{text} is a stamp"))
}

fn near(text: &str) -> LineClock {
    LineClock {
        hint: Some(YearHint::Near(at(text))),
        ..LineClock::default()
    }
}

/// Line, time (empty for none), host, rank, text.
type Row = (
    &'static str,
    &'static str,
    Option<&'static str>,
    Option<u32>,
    &'static str,
);

const ROWS: &[Row] = &[
    // Ray's own processes: level, process and thread follow in the brackets.
    (
        "[2026-11-23 10:04:11,798 E 329 331] (raylet) node_manager.cc:3069: it broke",
        "2026-11-23T10:04:11.798Z",
        None,
        None,
        "(raylet) node_manager.cc:3069: it broke",
    ),
    // RFC 3164, as rsyslog and /var/log/messages write it.
    (
        "Nov 23 10:04:11 gpu-07 kernel: it broke",
        "2026-11-23T10:04:11Z",
        Some("gpu-07"),
        None,
        "it broke",
    ),
    (
        "Nov  3 10:04:11 dgx-h100-007 kernel: it broke",
        "2026-11-03T10:04:11Z",
        Some("dgx-h100-007"),
        None,
        "it broke",
    ),
    (
        "Nov 23 10:04:11 ip-10-0-0-17 kernel: [  12.345678] it broke",
        "2026-11-23T10:04:11Z",
        Some("ip-10-0-0-17"),
        None,
        "it broke",
    ),
    (
        "Nov 23 10:04:11 gpu-07.cluster.local systemd[1]: it broke",
        "2026-11-23T10:04:11Z",
        Some("gpu-07.cluster.local"),
        None,
        "systemd[1]: it broke",
    ),
    (
        "<6>Nov 23 10:04:11 gpu-07 kernel: it broke",
        "2026-11-23T10:04:11Z",
        Some("gpu-07"),
        None,
        "it broke",
    ),
    // journalctl -o short-full, short-iso, short-precise, with-unit; rsyslog's RSYSLOG_FileFormat.
    (
        "2026-11-23T10:04:11+0000 gpu-07 kernel: it broke",
        "2026-11-23T10:04:11Z",
        Some("gpu-07"),
        None,
        "it broke",
    ),
    (
        "2026-11-23T10:04:11+01:00 gpu-07 kernel: it broke",
        "2026-11-23T09:04:11Z",
        Some("gpu-07"),
        None,
        "it broke",
    ),
    (
        "2026-11-23T10:04:11.123456+00:00 gpu-07 kernel: it broke",
        "2026-11-23T10:04:11.123456Z",
        Some("gpu-07"),
        None,
        "it broke",
    ),
    (
        "Nov 23 10:04:11.123456 gpu-07 kernel: it broke",
        "2026-11-23T10:04:11.123456Z",
        Some("gpu-07"),
        None,
        "it broke",
    ),
    (
        "Mon Nov 23 10:04:11 2026 it broke",
        "2026-11-23T10:04:11Z",
        None,
        None,
        "it broke",
    ),
    // dmesg -T, dmesg --time-format iso, raw ring.
    (
        "[Mon Nov 23 10:04:11 2026] it broke",
        "2026-11-23T10:04:11Z",
        None,
        None,
        "it broke",
    ),
    (
        "2026-11-23T10:04:11,123456+00:00 it broke",
        "2026-11-23T10:04:11.123456Z",
        None,
        None,
        "it broke",
    ),
    ("[  123.456789] it broke", "", None, None, "it broke"),
    ("6,3964,206764307,-;it broke", "", None, None, "it broke"),
    // glog, absl, klog.
    (
        "E1123 10:04:11.123456 4021 a.cc:12] it broke",
        "2026-11-23T10:04:11.123456Z",
        None,
        None,
        "a.cc:12] it broke",
    ),
    (
        "I1123 10:04:11.123456    4021 a.go:12] it broke",
        "2026-11-23T10:04:11.123456Z",
        None,
        None,
        "a.go:12] it broke",
    ),
    (
        "W1123 10:04:11.123456 123456789 a.cpp:5] it broke",
        "2026-11-23T10:04:11.123456Z",
        None,
        None,
        "a.cpp:5] it broke",
    ),
    (
        "F1123 10:04:11.000001 7 b.cc:1] it broke",
        "2026-11-23T10:04:11.000001Z",
        None,
        None,
        "b.cc:1] it broke",
    ),
    (
        "[rank7]:E1123 10:04:11.123456 4021 a.cc:12] it broke",
        "2026-11-23T10:04:11.123456Z",
        None,
        Some(7),
        "a.cc:12] it broke",
    ),
    // Python's logging, loguru, structlog, PyTorch's own.
    (
        "2026-11-23 10:04:11,123 ERROR: it broke",
        "2026-11-23T10:04:11.123Z",
        None,
        None,
        "it broke",
    ),
    (
        "2026-11-23 10:04:11,123 - ERROR - it broke",
        "2026-11-23T10:04:11.123Z",
        None,
        None,
        "it broke",
    ),
    (
        "[2026-11-23 10:04:11,123] [ERROR] it broke",
        "2026-11-23T10:04:11.123Z",
        None,
        None,
        "it broke",
    ),
    (
        "2026-11-23 10:04:11.123 | ERROR    | a:b:1 - it broke",
        "2026-11-23T10:04:11.123Z",
        None,
        None,
        "it broke",
    ),
    (
        "11/23/2026 10:04:11 - INFO - it broke",
        "2026-11-23T10:04:11Z",
        None,
        None,
        "it broke",
    ),
    (
        "2026-11-23T10:04:11Z it broke",
        "2026-11-23T10:04:11Z",
        None,
        None,
        "it broke",
    ),
    (
        "2026-11-23 10:04:11 UTC it broke",
        "2026-11-23T10:04:11Z",
        None,
        None,
        "it broke",
    ),
    (
        "2026/11/23 10:04:11 it broke",
        "2026-11-23T10:04:11Z",
        None,
        None,
        "it broke",
    ),
    (
        "20261123 10:04:11 it broke",
        "2026-11-23T10:04:11Z",
        None,
        None,
        "it broke",
    ),
    (
        "20261123-10:04:11 it broke",
        "2026-11-23T10:04:11Z",
        None,
        None,
        "it broke",
    ),
    (
        "23/Nov/2026:10:04:11 +0000 it broke",
        "2026-11-23T10:04:11Z",
        None,
        None,
        "it broke",
    ),
    (
        "[1795428251.123456] it broke",
        "2026-11-23T10:04:11.123456Z",
        None,
        None,
        "it broke",
    ),
    ("10:04:11 it broke", "", None, None, "it broke"),
    // Slurm's daemons, the CRI's container logs.
    (
        "[2026-11-23T10:04:11.123] error: it broke",
        "2026-11-23T10:04:11.123Z",
        None,
        None,
        "it broke",
    ),
    (
        "2026-11-23T10:04:11.123456789Z stderr F it broke",
        "2026-11-23T10:04:11.123456789Z",
        None,
        None,
        "it broke",
    ),
    (
        "2026-11-23T10:04:11.123456789+01:00 stdout P it broke",
        "2026-11-23T09:04:11.123456789Z",
        None,
        None,
        "it broke",
    ),
    // Launchers before loggers.
    (
        "7: 2026-11-23 10:04:11,123 ERROR: it broke",
        "2026-11-23T10:04:11.123Z",
        None,
        Some(7),
        "it broke",
    ),
    (
        "[1,7]<stderr>:2026-11-23 10:04:11,123 ERROR: it broke",
        "2026-11-23T10:04:11.123Z",
        None,
        Some(7),
        "it broke",
    ),
    (
        "[rank7]:[2026-11-23 10:04:11,123] it broke",
        "2026-11-23T10:04:11.123Z",
        None,
        Some(7),
        "it broke",
    ),
    ("gpu-07: [rank7]: it broke", "", Some("gpu-07"), Some(7), "it broke"),
    (
        "2026-11-23T10:04:11Z gpu-07 kernel: NVRM: it broke",
        "2026-11-23T10:04:11Z",
        Some("gpu-07"),
        None,
        "NVRM: it broke",
    ),
    // Event logs of Los Alamos, as loghub publishes HPC.
    (
        "134681 node-246 unix.hw state_change.unavailable 1795428251 1 it broke",
        "2026-11-23T10:04:11Z",
        Some("node-246"),
        None,
        "it broke",
    ),
    (
        "350766 node-109 unix.hw state_change.unavailable 1795428251 -1 it broke",
        "2026-11-23T10:04:11Z",
        Some("node-109"),
        None,
        "it broke",
    ),
    // Texts that only look like a timestamp.
    (
        "E1323 10:04:11.123456 4021 a.cc:12] it broke",
        "",
        None,
        None,
        "E1323 10:04:11.123456 4021 a.cc:12] it broke",
    ),
    (
        "epoch 12 node-1 a b 1795428251 x it broke",
        "",
        None,
        None,
        "epoch 12 node-1 a b 1795428251 x it broke",
    ),
    // PyTorch's own logger: month without a leading zero. The place in the code remains in the text.
    (
        "[rank1]:[E914 03:47:14.018811902 ProcessGroupNCCL.cpp:542] it broke",
        "2026-09-14T03:47:14.018811902Z",
        None,
        Some(1),
        "[E914 03:47:14.018811902 ProcessGroupNCCL.cpp:542] it broke",
    ),
    (
        "[W1105 03:47:14.018811902 socket.cpp:204] it broke",
        "2026-11-05T03:47:14.018811902Z",
        None,
        None,
        "[W1105 03:47:14.018811902 socket.cpp:204] it broke",
    ),
    // pdsh before the line of a logger or of a rank.
    (
        "h4: [2026-05-06 10:00:03,100] [ERROR] it broke",
        "2026-05-06T10:00:03.1Z",
        Some("h4"),
        None,
        "it broke",
    ),
    ("h4: [rank30]: it broke", "", Some("h4"), Some(30), "it broke"),
    ("h4: it broke", "", None, None, "h4: it broke"),
    ("layer4: 2026 it broke", "", None, None, "layer4: 2026 it broke"),
    // System event logs, as ipmitool and FreeIPMI print them.
    (
        "1a | 05/06/2026 | 10:10:10 | Fan FAN3A | it broke",
        "2026-05-06T10:10:10Z",
        None,
        None,
        "1a | 05/06/2026 | 10:10:10 | Fan FAN3A | it broke",
    ),
    (
        "12 | May-06-2026 | 10:10:10 | PS2 | it broke",
        "2026-05-06T10:10:10Z",
        None,
        None,
        "12 | May-06-2026 | 10:10:10 | PS2 | it broke",
    ),
    (
        "12 | 34/56/2026 | 10:10:10 | it broke",
        "",
        None,
        None,
        "12 | 34/56/2026 | 10:10:10 | it broke",
    ),
    // journalctl -o json, with fields in any order and values that are no texts.
    (
        r#"{"_PID":"7","__REALTIME_TIMESTAMP":"1778062203000000","_UID":null,"_TAGS":["a","b"],"_HOSTNAME":"n8","SYSLOG_IDENTIFIER":"sshd","PRIORITY":3,"MESSAGE":"it \"broke\""}"#,
        "2026-05-06T10:10:03Z",
        Some("n8"),
        None,
        r#"sshd[7]: it "broke""#,
    ),
    (
        r#"{"__REALTIME_TIMESTAMP":"1778062203000000","_HOSTNAME":"n8","SYSLOG_IDENTIFIER":"kernel","MESSAGE":[105,116]}"#,
        "",
        None,
        None,
        r#"{"__REALTIME_TIMESTAMP":"1778062203000000","_HOSTNAME":"n8","SYSLOG_IDENTIFIER":"kernel","MESSAGE":[105,116]}"#,
    ),
];

#[test]
fn stamps_of_many_programs_are_read() {
    assert!(ROWS.len() >= 40);
    let clock = near("2026-11-24T00:00:00Z");
    let mut wrong = Vec::new();
    for (line, moment, host, rank, text) in ROWS {
        let cleaned = clean(line);
        let parsed = parse(&cleaned, &clock);
        let expect = (!moment.is_empty()).then(|| at(moment));
        let found = (parsed.at, parsed.host, parsed.rank.map(|rank| rank.0), parsed.text);
        if found != (expect, *host, *rank, *text) {
            wrong.push(format!(
                "{line}\n  found {found:?}\n  want  {:?}",
                (expect, host, rank, text)
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        ROWS.len(),
        wrong.join("\n")
    );
}

#[test]
fn a_log_over_new_year_has_two_years() {
    let lines = ["Dec 31 23:59:59 n1 kernel: a", "Jan  1 00:00:01 n1 kernel: b"];
    let moments = |clock: &LineClock| lines.map(|line| parse(line, clock).at);
    let expect = [Some(at("2025-12-31T23:59:59Z")), Some(at("2026-01-01T00:00:01Z"))];
    assert_eq!(
        moments(&near("2025-12-30T12:00:00Z")),
        expect,
        "by a moment of the incident before it"
    );
    assert_eq!(moments(&near("2026-01-02T12:00:00Z")), expect, "and behind it");
    let written = LineClock {
        hint: Some(YearHint::WrittenBy(at("2026-01-01T00:10:00Z"))),
        ..LineClock::default()
    };
    assert_eq!(moments(&written), expect, "by when the file was written");
    assert_eq!(moments(&LineClock::default()), [None, None], "nothing tells the year");
}

#[test]
fn a_leap_day_is_of_a_leap_year() {
    let clock = LineClock {
        hint: Some(YearHint::WrittenBy(at("2026-11-23T00:00:00Z"))),
        ..LineClock::default()
    };
    assert_eq!(
        parse("Feb 29 12:00:00 n1 kernel: a", &clock).at,
        Some(at("2024-02-29T12:00:00Z"))
    );
}

/// Checks that any content of a line parses without a panic.
#[test]
fn cut_and_mixed_stamps_never_panic() {
    let clock = near("2026-11-24T00:00:00Z");
    for (line, ..) in ROWS {
        for end in (0..=line.len()).filter(|end| line.is_char_boundary(*end)) {
            let _ = parse(&line[..end], &clock);
            let _ = parse(&line[end..], &clock);
            let _ = parse(&format!("{}\u{1F643}{}", &line[..end], &line[end..]), &clock);
        }
    }
}
