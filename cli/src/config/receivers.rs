//! Parser of `[[controller.notify]]`: receivers of notifications in the configuration file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rankguard_model::Severity;
use rankguard_notify::{ReceiverKind, ReceiverSettings, ReceiverUrl, check_mailbox, read_secret};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::find::nearest;

/// Maximum number of receivers.
const RECEIVERS_MAX: usize = 64;
const NAME_MAX: usize = 64;
const SEVERITIES: [(&str, Severity); 3] = [
    ("info", Severity::Info),
    ("warning", Severity::Warning),
    ("failure", Severity::Failure),
];
const KEYS: [&str; 17] = [
    "name",
    "kind",
    "url",
    "url_file",
    "secret_file",
    "ca_file",
    "from",
    "to",
    "user",
    "min_severity",
    "jobs",
    "drills",
    "wait_s",
    "limit",
    "limit_window_s",
    "quiet_hours",
    "maintenance_windows",
];
const QUIET_EXCEPT: &str = "quiet_except";

/// Receivers of a file and its mistakes.
#[derive(Debug, Default)]
pub(super) struct ParsedReceivers {
    pub(super) receivers: Vec<ReceiverSettings>,
    /// Byte offsets in the file, with the mistakes.
    pub(super) mistakes: Vec<(usize, String)>,
}

type MistakeList = Vec<(usize, String)>;

/// Parses all receivers. A mistake in one hides no mistake of another.
pub(super) fn read(value: &Spanned<DeValue<'_>>) -> ParsedReceivers {
    let mut found = ParsedReceivers::default();
    let at = value.span().start;
    let DeValue::Array(tables) = value.get_ref() else {
        let what = "expected a list of tables [[controller.notify]]";
        found.mistakes.push((at, what.to_owned()));
        return found;
    };
    if tables.len() > RECEIVERS_MAX {
        let what = format!("{} receivers; at most {RECEIVERS_MAX} are allowed", tables.len());
        found.mistakes.push((at, what));
        return found;
    }
    let mut names = BTreeSet::new();
    for (number, table) in (1..).zip(tables) {
        let at = table.span().start;
        let mut mistakes = Vec::new();
        match table.get_ref() {
            DeValue::Table(table) => {
                let receiver = one(table, at, &mut mistakes);
                // Also of a receiver with other mistakes.
                if let Some((place, name)) = name_of(table)
                    && !names.insert(name.to_owned())
                {
                    mistakes.push((place, format!("name: {name:?} is already used")));
                }
                found.receivers.extend(receiver);
            }
            _ => mistakes.push((at, "expected a table [[controller.notify]]".to_owned())),
        }
        let mistakes = mistakes.into_iter();
        let numbered = mistakes.map(|(at, what)| (at, format!("receiver {number}: {what}")));
        found.mistakes.extend(numbered);
    }
    found
}

/// Returns the name of a table with its place in the file; `None` without a text of that key.
fn name_of<'t>(table: &'t DeTable<'_>) -> Option<(usize, &'t str)> {
    let (_, value) = table.iter().find(|(key, _)| key.get_ref() == "name")?;
    Some((value.span().start, value.get_ref().as_str()?))
}

/// Parses one receiver and reports all its mistakes; `None` if it lacks a valid name or a kind.
fn one(table: &DeTable<'_>, at: usize, mistakes: &mut MistakeList) -> Option<ReceiverSettings> {
    let get = |wanted: &str| {
        table
            .iter()
            .find(|(key, _)| key.get_ref() == wanted)
            .map(|(_, value)| value)
    };
    let mut required = |key: &str, parse: &dyn Fn(&str) -> Result<(), String>| {
        let Some(value) = get(key) else {
            mistakes.push((at, format!("{key} is missing")));
            return None;
        };
        let text = text(value).and_then(|text| parse(&text).map(|()| text));
        let report = |what: String| mistakes.push((value.span().start, format!("{key}: {what}")));
        text.map_err(report).ok()
    };
    let name = required("name", &check_name);
    let kind = required("kind", &|text| receiver_kind(text).map(drop)).and_then(|text| receiver_kind(&text).ok());
    // Without a kind the keys are checked as those of any receiver.
    let mut receiver = ReceiverSettings::new(
        name.as_deref().unwrap_or_default(),
        kind.unwrap_or(ReceiverKind::Webhook),
    );
    for (key, value) in table.iter().filter(|(key, _)| kind.is_some() || key.get_ref() != "url") {
        if let Err(what) = set(&mut receiver, key.get_ref(), value) {
            mistakes.push((key.span().start, what));
        }
    }
    kind?;
    let lacks = missing(&receiver, &|key| get(key).is_some());
    mistakes.extend(lacks.into_iter().map(|what| (at, what)));
    name.map(|_| receiver)
}

fn check_name(name: &str) -> Result<(), String> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.len() <= NAME_MAX && name.chars().all(is_fine) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is invalid; expected at most {NAME_MAX} letters, digits, - and _"
    ))
}

fn receiver_kind(text: &str) -> Result<ReceiverKind, String> {
    let kind = ReceiverKind::NAMES.iter().find(|(known, _)| *known == text);
    let known = ReceiverKind::NAMES.map(|(name, _)| name).join(", ");
    kind.map(|(_, kind)| *kind)
        .ok_or_else(|| format!("{text:?} is invalid; expected one of {known}"))
}

/// Describes all that a receiver of its kind needs and lacks, and what has no meaning for it. `has` is true for a key
/// that is present, also with a mistake.
fn missing(receiver: &ReceiverSettings, has: &dyn Fn(&str) -> bool) -> Vec<String> {
    let kind = receiver.kind.name();
    let is_pager = receiver.kind == ReceiverKind::Pagerduty;
    let is_mail = receiver.kind == ReceiverKind::Email;
    let mut found = Vec::new();
    if has("url") && has("url_file") {
        found.push("url and url_file are both set; set one".to_owned());
    }
    if !(has("url") || has("url_file") || is_pager) {
        found.push(format!("url or url_file is missing; kind {kind} requires one"));
    }
    if is_pager && !has("secret_file") {
        found.push("secret_file is missing; kind pagerduty requires the file of its routing key".to_owned());
    }
    if receiver.kind == ReceiverKind::Slack && has("secret_file") {
        found.push("secret_file has no meaning for kind slack; use url_file".to_owned());
    }
    if is_mail && !(has("from") && has("to")) {
        found.push("from or to is missing; kind email requires both".to_owned());
    }
    if is_mail && has("user") != has("secret_file") {
        found.push("user and secret_file belong together; set both or none".to_owned());
    }
    let of_mail = ["from", "to", "user"].into_iter().filter(|key| !is_mail && has(key));
    found.extend(of_mail.map(|key| format!("{key} has no meaning for kind {kind}")));
    found
}

fn set(receiver: &mut ReceiverSettings, key: &str, value: &Spanned<DeValue<'_>>) -> Result<(), String> {
    let named = |what: String| format!("{key}: {what}");
    match key {
        "name" | "kind" => {}
        "url" => {
            let url = text(value).and_then(|url| ReceiverUrl::parse(receiver.kind, &url));
            receiver.url = Some(url.map_err(named)?);
        }
        "url_file" => receiver.url_file = Some(PathBuf::from(text(value).map_err(named)?)),
        "secret_file" => receiver.secret_file = Some(PathBuf::from(text(value).map_err(named)?)),
        "from" => receiver.from = Some(text(value).and_then(mailbox).map_err(named)?),
        "to" => {
            let mailboxes = texts(value).and_then(|texts| texts.into_iter().map(mailbox).collect());
            receiver.to = mailboxes.map_err(named)?;
            if receiver.to.is_empty() {
                return Err(named("expected at least one mailbox".to_owned()));
            }
        }
        "user" => receiver.user = Some(text(value).map_err(named)?),
        "ca_file" => receiver.ca_file = Some(PathBuf::from(text(value).map_err(named)?)),
        "min_severity" => receiver.min_severity = text(value).and_then(|text| severity(&text)).map_err(named)?,
        "jobs" => receiver.jobs = texts(value).map_err(named)?,
        "drills" => match value.get_ref() {
            DeValue::Boolean(drills) => receiver.drills = *drills,
            _ => return Err(named("expected true or false".to_owned())),
        },
        "wait_s" => receiver.wait_s = number(value, 0, 3_600).map_err(named)?,
        "limit" => {
            let limit = number(value, 1, 10_000).map_err(named)?;
            receiver.limit = usize::try_from(limit).unwrap_or(usize::MAX);
        }
        "limit_window_s" => receiver.limit_window_s = number(value, 1, 86_400).map_err(named)?,
        "quiet_hours" => receiver.quiet_hours = parsed(value).map_err(named)?,
        "maintenance_windows" => receiver.maintenance = parsed(value).map_err(named)?,
        QUIET_EXCEPT => {
            let severities = texts(value).and_then(|texts| texts.iter().map(|text| severity(text)).collect());
            receiver.quiet_except = severities.map_err(named)?;
        }
        other => {
            let known = KEYS.iter().copied().chain([QUIET_EXCEPT]);
            return Err(match nearest(other, known.clone()) {
                Some(near) => format!("unknown key {other}; did you mean {near}?"),
                None => format!(
                    "unknown key {other}; known keys are {}",
                    known.collect::<Vec<_>>().join(", ")
                ),
            });
        }
    }
    Ok(())
}

/// Describes secrets and authorities of receivers that cannot be read.
pub(super) fn unreadable(receivers: &[ReceiverSettings]) -> Vec<String> {
    let mut found = Vec::new();
    for receiver in receivers {
        let name = &receiver.name;
        let mut report =
            |key: &str, problem: String| found.push(format!("controller.notify: {name}: {key}: {problem}"));
        if let Some(Err(problem)) = receiver.secret_file.as_deref().map(read_secret) {
            report("secret_file", problem);
        }
        let url = |path: &Path| read_secret(path).and_then(|url| ReceiverUrl::parse(receiver.kind, &url));
        if let Some(Err(problem)) = receiver.url_file.as_deref().map(url) {
            report("url_file", problem);
        }
        if let Some(path) = receiver.ca_file.as_deref().filter(|path| !path.is_file()) {
            report("ca_file", format!("{} is no file", path.display()));
        }
    }
    found
}

fn mailbox(text: String) -> Result<String, String> {
    check_mailbox(&text).map(|()| text)
}

fn severity(text: &str) -> Result<Severity, String> {
    let known = SEVERITIES.iter().find(|(name, _)| *name == text);
    let names = SEVERITIES.map(|(name, _)| name).join(", ");
    known
        .map(|(_, severity)| *severity)
        .ok_or_else(|| format!("{text:?} is invalid; expected one of {names}"))
}

fn text(value: &Spanned<DeValue<'_>>) -> Result<String, String> {
    match value.get_ref().as_str() {
        Some(text) if !text.is_empty() && !text.contains('\0') => Ok(text.to_owned()),
        _ => Err("expected non-empty text".to_owned()),
    }
}

fn texts(value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, String> {
    let DeValue::Array(items) = value.get_ref() else {
        return Err("expected a list of texts".to_owned());
    };
    items.iter().map(text).collect()
}

fn parsed<T: std::str::FromStr<Err = String>>(value: &Spanned<DeValue<'_>>) -> Result<Vec<T>, String> {
    texts(value)?.iter().map(|text| text.parse()).collect()
}

fn number(value: &Spanned<DeValue<'_>>, min: u64, max: u64) -> Result<u64, String> {
    let found = match value.get_ref() {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    found
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("expected an integer from {min} to {max}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ParsedReceivers {
        let table = DeTable::parse(text).expect("TOML");
        read(table.get_ref().get("notify").expect("receivers"))
    }

    #[test]
    fn a_receiver_has_defaults_and_hides_the_path_of_its_url() {
        let found =
            parse("[[notify]]\nname = 'chat'\nkind = 'slack'\nurl = 'https://hooks.example.com/T0/B0/secret'\n");
        assert!(found.mistakes.is_empty(), "{:?}", found.mistakes);
        let receiver = &found.receivers[0];
        assert_eq!((receiver.limit, receiver.min_severity), (30, Severity::Warning));
        for shown in [format!("{receiver:?}"), serde_json::to_string(receiver).expect("JSON")] {
            assert!(
                shown.contains("hooks.example.com") && !shown.contains("secret\""),
                "{shown}"
            );
        }
    }

    #[test]
    fn every_mistake_names_its_field_and_its_place() {
        let text = "[[notify]]\nname = 'a b'\nkind = 'slack'\n\
                    [[notify]]\nname = 'hook'\nkind = 'webhook'\nurl = 'ftp://x'\nmin_severity = 'bad'\nlimt = 3\n\
                    [[notify]]\nname = 'pager'\nkind = 'pagerduty'\nquiet_hours = ['22-7']\n\
                    [[notify]]\nkind = 'mail'\n";
        let found = parse(text);
        let line = |at: usize| 1 + text[..at].matches('\n').count();
        let mistakes: Vec<String> = found
            .mistakes
            .iter()
            .map(|(at, what)| format!("{}: {what}", line(*at)))
            .collect();
        for wanted in [
            "2: receiver 1: name: \"a b\" is invalid",
            "1: receiver 1: url or url_file is missing",
            "7: receiver 2: url: expected a URL",
            "8: receiver 2: min_severity: \"bad\" is invalid; expected one of info, warning, failure",
            "9: receiver 2: unknown key limt; did you mean limit?",
            "13: receiver 3: quiet_hours: \"22-7\" is invalid",
            "10: receiver 3: secret_file is missing",
            "14: receiver 4: name is missing",
            "15: receiver 4: kind: \"mail\" is invalid; expected one of webhook",
        ] {
            assert!(
                mistakes.iter().any(|mistake| mistake.starts_with(wanted)),
                "{wanted}\n{mistakes:#?}"
            );
        }
        assert_eq!(mistakes.len(), 9, "{mistakes:#?}");
    }

    #[test]
    fn one_mistake_of_a_receiver_hides_no_other() {
        let text = "[[notify]]\nname = 'a b'\nkind = 'slack'\nfrom = 'a@example.com'\nto = ['b@example.com']\nlimt = 3\n\
                    [[notify]]\nkind = 'mail'\nmin_severity = 'bad'\nurl = 'smtp://mail.example.com'\nwait_s = 'x'\n\
                    [[notify]]\nname = 'pager'\nkind = 'email'\nuser = 'x'\n";
        let mistakes: Vec<String> = parse(text).mistakes.into_iter().map(|(_, what)| what).collect();
        let wanted = [
            "receiver 1: name: \"a b\" is invalid",
            "receiver 1: unknown key limt",
            "receiver 1: url or url_file is missing",
            "receiver 1: from has no meaning for kind slack",
            "receiver 1: to has no meaning for kind slack",
            "receiver 2: name is missing",
            "receiver 2: kind: \"mail\" is invalid",
            "receiver 2: min_severity: \"bad\" is invalid",
            "receiver 2: wait_s: expected an integer",
            "receiver 3: url or url_file is missing",
            "receiver 3: from or to is missing",
            "receiver 3: user and secret_file belong together",
        ];
        for wanted in wanted {
            let is_there = mistakes.iter().any(|mistake| mistake.starts_with(wanted));
            assert!(is_there, "{wanted}\n{mistakes:#?}");
        }
        assert_eq!(mistakes.len(), wanted.len(), "{mistakes:#?}");
    }

    #[test]
    fn a_mail_receiver_needs_mailboxes_and_a_password_needs_a_user() {
        let table = "[[notify]]\nname = 'mail'\nkind = 'email'\nurl = 'smtp://mail.example.com'\n";
        let complete = format!("{table}from = 'a@example.com'\nto = ['Ada <ada@example.com>']\n");
        let found = parse(&complete);
        assert!(found.mistakes.is_empty(), "{:?}", found.mistakes);
        assert_eq!(found.receivers[0].to, ["Ada <ada@example.com>"]);
        for (text, wanted) in [
            (table.to_owned(), "from or to is missing"),
            (
                format!("{complete}user = 'x'\n"),
                "user and secret_file belong together",
            ),
            (complete.replace("ada@", "ada"), "is no mail address"),
            (
                complete.replace("smtp:", "http:"),
                "expected a URL such as smtps://host",
            ),
            (
                complete.replace("email", "slack").replace("smtp:", "https:"),
                "from has no meaning for kind slack",
            ),
        ] {
            let mistakes = parse(&text).mistakes;
            assert!(
                mistakes.iter().any(|(_, what)| what.contains(wanted)),
                "{wanted}: {mistakes:?}"
            );
        }
    }

    #[test]
    fn a_name_that_is_used_twice_is_a_mistake_beside_any_other() {
        let text = "[[notify]]\nname = 'chat'\nkind = 'mail'\n[[notify]]\nname = 'chat'\nkind = 'slack'\n\
                    [[notify]]\nname = 'chat'\nkind = 'slak'\n";
        let mistakes: Vec<String> = parse(text).mistakes.into_iter().map(|(_, what)| what).collect();
        for receiver in [2, 3] {
            let wanted = format!("receiver {receiver}: name: \"chat\" is already used");
            assert!(mistakes.contains(&wanted), "{mistakes:#?}");
        }
    }
}
