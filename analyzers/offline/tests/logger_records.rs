//! Records of structured loggers: one JSON object a line, with the message or the traceback of the program inside.

use rankguard_model::Rank;

use crate::folders::diagnose;

fn only(log: &str) -> (String, Option<Rank>, Option<String>) {
    let cases = diagnose(&[("app.jsonl", log)]);
    assert_eq!(cases.len(), 1, "{log}: {cases:?}");
    (cases[0].class.clone(), cases[0].root_rank, cases[0].first_at.clone())
}

#[test]
fn an_exception_in_the_message_of_a_record_is_one_of_its_rank() {
    let log = "{\"ts\":\"2026-05-03T08:10:10.000Z\",\"severity\":\"INFO\",\"rank\":1,\"msg\":\"step 70 loss 2.2\"}\n\
               {\"ts\": \"2026-05-03T08:10:11.250Z\", \"severity\": \"ERROR\", \"rank\": 6, \"hostname\": \"q4\", \"msg\": \"TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'\"}\n\
               {\"ts\":\"2026-05-03T08:10:13.000Z\",\"severity\":\"ERROR\",\"rank\":1,\"hostname\":\"q3\",\"msg\":\"RuntimeError: NCCL error: remote process exited or there was a network error\"}\n";
    let (class, rank, at) = only(log);
    assert_eq!((class.as_str(), rank), ("type-error", Some(Rank(6))));
    assert_eq!(at.as_deref(), Some("2026-05-03T08:10:11.250Z"));
}

#[test]
fn a_traceback_in_a_member_of_a_record_is_read() {
    let trace = "Traceback (most recent call last):\\n  File \\\"/work/loop.py\\\", line 44, in run\\n    x = cache[key]\\nKeyError: 'k9'";
    for record in [
        format!(
            "{{\"event\": \"step crashed\", \"level\": \"critical\", \"rank\": 2, \"timestamp\": \"2026-05-03T08:10:11Z\", \"exception\": \"{trace}\"}}"
        ),
        format!(
            "{{\"asctime\": \"2026-05-03 08:10:11,000\", \"levelname\": \"ERROR\", \"message\": \"giving up\", \"exc_info\": \"{trace}\", \"rank\": 2}}"
        ),
        format!(
            "{{\"@timestamp\":\"2026-05-03T08:10:11Z\",\"log.level\":\"error\",\"message\":\"giving up\",\"rank\":2,\"error\":{{\"type\":\"KeyError\",\"stack_trace\":\"{trace}\"}}}}"
        ),
        format!(
            "{{\"time\":1777795811000,\"level\":50,\"rank\":2,\"msg\":\"giving up\",\"err\":{{\"stack\":[],\"traceback\":\"{trace}\"}}}}"
        ),
        // What Python's loggers write of a loss that is no number is no JSON.
        format!(
            "{{\"asctime\": \"2026-05-03 08:10:11,000\", \"levelname\": \"ERROR\", \"loss\": NaN, \"scale\": -Infinity, \"message\": \"giving up\", \"exc_info\": \"{trace}\", \"rank\": 2}}"
        ),
        format!("2026-05-03T08:10:11Z stderr F {{\"level\":\"error\",\"rank\":2,\"msg\":\"{trace}\"}}"),
    ] {
        let (class, rank, at) = only(&format!("{record}\n"));
        assert_eq!((class.as_str(), rank), ("key-error", Some(Rank(2))), "{record}");
        assert_eq!(at.as_deref(), Some("2026-05-03T08:10:11.000Z"), "{record}");
    }
}

#[test]
fn the_quoted_line_is_that_of_the_program() {
    let record = "{\"ts\":\"2026-05-03T08:10:11Z\",\"level\":\"error\",\"logger\":\"loop\",\"msg\":\"AssertionError: empty shard 8\"}\n";
    let cases = diagnose(&[("rank3.jsonl", record)]);
    assert_eq!(cases[0].key_lines[0].text, "AssertionError: empty shard 8", "{cases:?}");
}

#[test]
fn a_reason_is_read_with_the_message_that_it_explains() {
    let record = "{\"level\":\"error\",\"time\":\"2026-05-03T08:10:11Z\",\"msg\":\"container trainer ended\",\"reason\":\"OOMKilled\"}\n";
    let cases = diagnose(&[("operator.log", record)]);
    assert_eq!(cases[0].class, "container-oom-kill", "{cases:?}");
    assert_eq!(cases[0].key_lines[0].text, "container trainer ended, reason: OOMKilled");
}

#[test]
fn records_of_normal_operation_are_no_failures() {
    for record in [
        "{\"ts\":\"2026-05-03T08:10:11Z\",\"level\":\"info\",\"msg\":\"KeyError: handled by the fallback table\"}",
        "{\"ts\":\"2026-05-03T08:10:11Z\",\"level\":\"debug\",\"msg\":\"ValueError: probe of an old format\"}",
        "{\"level\":\"error\",\"msg\":\"\"}",
        "{\"level\":\"error\",\"msg\":",
        "{\"metrics\":{\"level\":3,\"loss\":2.0},\"message\":\"KeyError: no level of a logger\"}",
    ] {
        let log = format!("{record}\n2026-05-03T08:10:20Z step 71 loss 2.1\n2026-05-03T08:10:30Z step 72 loss 2.1\n");
        let cases = diagnose(&[("app.jsonl", &log)]);
        assert!(cases.is_empty(), "{record}: {cases:?}");
    }
}
