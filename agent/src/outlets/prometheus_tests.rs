#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use super::*;

/// Mistakes of a page by the format's own text and promtool's linter; empty if there are none.
fn mistakes(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut kinds: BTreeMap<String, String> = BTreeMap::new();
    let mut ended: BTreeSet<String> = BTreeSet::new();
    let mut series: BTreeSet<String> = BTreeSet::new();
    let mut current = String::new();
    if !page.ends_with('\n') {
        found.push("the last line does not end".to_owned());
    }
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    };
    for line in page.lines() {
        let mut begin = |name: &str, found: &mut Vec<String>| {
            if name != current {
                if !ended.insert(name.to_owned()) {
                    found.push(format!("{name} is not in one piece"));
                }
                current = name.to_owned();
            }
        };
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            begin(name, &mut found);
            if help.is_empty() || helps.insert(name.to_owned(), help.to_owned()).is_some() {
                found.push(format!("help of {name}"));
            }
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            begin(name, &mut found);
            let is_total = name.ends_with("_total");
            if !matches!(kind, "counter" | "gauge") || (kind == "counter") != is_total {
                found.push(format!("type of {name}"));
            }
            for unit in ["_ms", "_milliseconds", "_minutes", "_kilobytes", "_percent", "_count"] {
                if name.contains(unit) {
                    found.push(format!("unit of {name}"));
                }
            }
            if kinds.insert(name.to_owned(), kind.to_owned()).is_some() {
                found.push(format!("two types of {name}"));
            }
            continue;
        }
        if line.starts_with('#') || line.is_empty() {
            found.push(format!("a line that means nothing: {line:?}"));
            continue;
        }
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        begin(name, &mut found);
        if !is_name(name) || !kinds.contains_key(name) || !helps.contains_key(name) {
            found.push(format!("{name} has no type, no help or no name"));
        }
        match labels(rest) {
            Ok((labels, value)) => {
                if !series.insert(format!("{name} {labels:?}")) {
                    found.push(format!("{line} twice"));
                }
                let fine = value
                    .parse::<f64>()
                    .is_ok_and(|value| value.is_finite() && value >= 0.0);
                if !fine || labels.keys().any(|label| !is_name(label) || label.starts_with("__")) {
                    found.push(format!("value or label of {line}"));
                }
            }
            Err(what) => found.push(format!("{what}: {line}")),
        }
    }
    found
}

/// Labels with their values unescaped, and the text of the value.
fn labels(rest: &str) -> Result<(BTreeMap<String, String>, &str), String> {
    let mut labels = BTreeMap::new();
    let Some(mut rest) = rest.strip_prefix('{') else {
        let value = rest.strip_prefix(' ').ok_or("no value")?;
        return Ok((labels, value));
    };
    loop {
        let (name, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().ok_or("a value without an end")? {
                (at, '"') => break at + 1,
                (_, '\\') => match chars.next().ok_or("an escape without an end")?.1 {
                    'n' => value.push('\n'),
                    c @ ('\\' | '"') => value.push(c),
                    c => return Err(format!("the escape \\{c}")),
                },
                (_, c) => value.push(c),
            }
        };
        if labels.insert(name.to_owned(), value).is_some() {
            return Err(format!("the label {name} twice"));
        }
        rest = &after[end..];
        if let Some(value) = rest.strip_prefix("} ") {
            return Ok((labels, value));
        }
        rest = rest.strip_prefix(',').ok_or("labels without a comma")?;
    }
}

#[test]
fn the_page_is_what_the_format_and_the_linter_want() {
    let folder = tempfile::tempdir().unwrap();
    let page = render(&crate::outlets::tests::snapshots(folder.path()).take());
    assert_eq!(mistakes(&page), Vec::<String>::new(), "{page}");
    for sample in [
        r#"rankguard_agent_findings_total{class="gpu-fallen-off-bus",role="root",kind="gpu",entity="00\"00:\\9b\n:00",synthetic="false"} 1"#,
        r#"rankguard_agent_codes_total{family="xid",code="79",kind="gpu",entity="00\"00:\\9b\n:00",synthetic="false"} 1"#,
        r#"rankguard_agent_injections_total{kind="rank-kill"} 1"#,
        r#"rankguard_agent_gaps_total{source="kernel-log"} 1"#,
        r#"rankguard_agent_lost_records_total{source="kernel-log"} 12"#,
        r#"rankguard_agent_spool_sequence{edge="durable"} 3"#,
        r#"rankguard_agent_uplink_connected 1"#,
        r#"rankguard_agent_rank_step{job="llm",rank="3"} 17"#,
        r#"rankguard_agent_check_status{check="ntp"} 1"#,
        r#"rankguard_agent_mig_info{gpu="0000:9b:00",kind="gpu",entity="0000:9b:00/5/0",synthetic="false",uuid="MIG-5"} 1"#,
        r#"rankguard_agent_mig_processes{gpu="0000:9b:00",kind="gpu",entity="0000:9b:00/5/0",synthetic="false"} 2"#,
        "rankguard_agent_start_time_seconds 1700000000",
    ] {
        assert!(page.lines().any(|line| line == sample), "{sample} is not in\n{page}");
    }
}

/// Linter `promtool`, or the program that `PROMTOOL` names.
#[test]
fn promtool_has_nothing_to_say() {
    let folder = tempfile::tempdir().unwrap();
    let page = render(&crate::outlets::tests::snapshots(folder.path()).take());
    let program = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    let started = Command::new(program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Err(problem) if problem.kind() == ErrorKind::NotFound => {
            eprintln!("SKIPPED: promtool is not there (Debian: prometheus; PROMTOOL names one)");
            return;
        }
        other => other.unwrap(),
    };
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let said = child.wait_with_output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr)
    );
    assert!(said.status.success() && text.trim().is_empty(), "{text}");
}

#[test]
fn the_checker_sees_what_is_wrong() {
    let page = "# HELP a_total x\n# TYPE a_total counter\na_total{b=\"c\"} 1\n";
    assert_eq!(mistakes(page), Vec::<String>::new());
    for broken in [
        "# HELP a_total x\n# TYPE a_total gauge\na_total 1\n",
        "# TYPE a_total counter\na_total 1\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total{b=\"c\"} 1\na_total{b=\"c\"} 2\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total{b=\"c\n\"} 1\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total{b=\"\\t\"} 1\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total NaN\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total 1",
        "# HELP a x\n# TYPE a gauge\na 1\n# HELP b x\n# TYPE b gauge\nb 1\na{c=\"d\"} 1\n",
        "# HELP a_ms x\n# TYPE a_ms gauge\na_ms 1\n",
    ] {
        assert_ne!(mistakes(broken), Vec::<String>::new(), "{broken}");
    }
}
