//! TOML configuration file, parsed so that one mistake does not hide another.

use std::collections::BTreeSet;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::find::{find, is_section, nearest};
use super::keys::KEYS;
use super::mistake::{ConfigMistake, ValueOrigin};
use super::value::{SettingKind, SettingValue};

/// Values and mistakes of a file.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    pub(super) values: Vec<(&'static str, SettingValue, ValueOrigin)>,
    pub(super) mistakes: Vec<ConfigMistake>,
}

/// Parses the text of a file; `path` is used in messages.
pub(super) fn read(path: &Path, text: &str) -> FileSettings {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = ConfigReader {
        path,
        text,
        found: FileSettings::default(),
    };
    for error in &errors {
        let at = reader.at(error.span().map_or(0, |span| span.start));
        reader.found.mistakes.push(ConfigMistake {
            at,
            what: format!("not TOML: {}", error.message()),
        });
    }
    let broken: Vec<ValueOrigin> = reader.found.mistakes.iter().map(|mistake| mistake.at.clone()).collect();
    let headless = headless_lines(
        text,
        errors.iter().filter_map(|error| error.span()).map(|span| span.start),
    );
    reader.table("", table.get_ref());
    // A consequence of a syntax error gets no second message: on the same line, or below a broken header.
    let mut syntax = broken.len();
    reader.found.mistakes.retain(|mistake| {
        let is_syntax = syntax > 0;
        syntax = syntax.saturating_sub(1);
        let is_headless = matches!(&mistake.at, ValueOrigin::File(_, line) if headless.contains(line));
        is_syntax || !broken.contains(&mistake.at) && !is_headless
    });
    reader.found
}

/// Returns the numbers of the lines that follow a broken section header, up to the next header: their section is
/// unknown.
fn headless_lines(text: &str, errors: impl Iterator<Item = usize>) -> BTreeSet<usize> {
    let is_header = |line: &str| line.trim_start().starts_with('[');
    let mut lines = BTreeSet::new();
    for offset in errors {
        let before = text.as_bytes().iter().take(offset);
        let broken = before.filter(|byte| **byte == b'\n').count();
        let mut below = text.lines().skip(broken);
        if below.next().is_some_and(is_header) {
            let count = below.take_while(|line| !is_header(line)).count();
            lines.extend(broken + 2..broken + 2 + count);
        }
    }
    lines
}

struct ConfigReader<'a> {
    path: &'a Path,
    text: &'a str,
    found: FileSettings,
}

impl ConfigReader<'_> {
    fn at(&self, offset: usize) -> ValueOrigin {
        let before = self.text.as_bytes().iter().take(offset);
        ValueOrigin::File(self.path.to_owned(), 1 + before.filter(|byte| **byte == b'\n').count())
    }

    fn table(&mut self, section: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let at = self.at(name.span().start);
            let name = name.get_ref();
            let path = if section.is_empty() {
                name.to_string()
            } else {
                format!("{section}.{name}")
            };
            let outcome = match (find(&path), value.get_ref()) {
                (Some(key), _) if key.kind == SettingKind::Checks => {
                    let found = super::checks::read(value.get_ref());
                    for what in found.mistakes {
                        let what = format!("{path}: {what}");
                        self.found.mistakes.push(ConfigMistake { at: at.clone(), what });
                    }
                    self.found
                        .values
                        .push((key.path, SettingValue::Checks(found.checks), at.clone()));
                    Ok(())
                }
                (Some(key), _) if key.kind == SettingKind::Receivers => {
                    let found = super::receivers::read(value);
                    for (offset, what) in found.mistakes {
                        let at = self.at(offset);
                        let what = format!("{path}: {what}");
                        self.found.mistakes.push(ConfigMistake { at, what });
                    }
                    let value = SettingValue::Receivers(found.receivers);
                    self.found.values.push((key.path, value, at.clone()));
                    Ok(())
                }
                (Some(key), _) => match convert(key.kind, value) {
                    Ok(value) => {
                        self.found.values.push((key.path, value, at.clone()));
                        Ok(())
                    }
                    Err(what) => Err(format!("{path}: {what}")),
                },
                (None, DeValue::Table(below)) if is_section(&path) => {
                    self.table(&path, below);
                    Ok(())
                }
                (None, _) if is_section(&path) => Err(format!("{path} is a section; write [{path}]")),
                (None, found) => Err(unknown(&path, matches!(found, DeValue::Table(_)))),
            };
            if let Err(what) = outcome {
                self.found.mistakes.push(ConfigMistake { at, what });
            }
        }
    }
}

fn unknown(path: &str, is_table: bool) -> String {
    let sections = [
        "agent",
        "agent.intervals",
        "client",
        "controller",
        "controller.alarms",
        "controller.policy",
        "controller.report",
        "enrolment",
        "identity",
        "log",
        "reader",
    ];
    let (what, near) = if is_table {
        ("section", nearest(path, sections))
    } else {
        ("setting", nearest(path, KEYS.iter().map(|key| key.path)))
    };
    match near {
        Some(near) => format!("unknown {what} {path}; did you mean {near}?"),
        None => format!("unknown {what} {path}; `rankguard config show` lists all settings"),
    }
}

fn convert(kind: SettingKind, value: &Spanned<DeValue<'_>>) -> Result<SettingValue, String> {
    let found = match value.get_ref() {
        DeValue::String(text) => SettingValue::Text(text.to_string()),
        DeValue::Integer(number) => match u64::from_str_radix(number.as_str(), number.radix()) {
            Ok(count) => SettingValue::Count(count),
            Err(_) => return Err(format!("{} is invalid; expected {}", number.as_str(), kind.wanted())),
        },
        DeValue::Boolean(on) => SettingValue::Switch(*on),
        DeValue::Array(items) => {
            let texts = items.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
            match texts.collect() {
                Some(texts) => SettingValue::List(texts),
                None => return Err(format!("a list item is not text; expected {}", kind.wanted())),
            }
        }
        other => {
            return Err(format!(
                "the value has type {}; expected {}",
                other.type_str(),
                kind.wanted()
            ));
        }
    };
    let fits = matches!(
        (&found, kind),
        (SettingValue::Count(_), SettingKind::Count(..))
            | (
                SettingValue::List(_),
                SettingKind::Paths | SettingKind::LogPaths | SettingKind::Names
            )
            | (SettingValue::Switch(_), SettingKind::Switch)
    ) || matches!(found, SettingValue::Text(_))
        && !matches!(
            kind,
            SettingKind::Count(..)
                | SettingKind::Paths
                | SettingKind::LogPaths
                | SettingKind::Names
                | SettingKind::Switch
        );
    if !fits {
        return Err(format!(
            "the value has type {}; expected {}",
            value.get_ref().type_str(),
            kind.wanted()
        ));
    }
    kind.check(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        read(Path::new("c.toml"), text)
            .mistakes
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_good_file_gives_its_values_with_their_lines() {
        let found = read(
            Path::new("c.toml"),
            "[agent]\nslots = 4\njob_logs = [\"/a\"]\n[controller.policy]\nfence_ms = 1_000\n",
        );
        assert_eq!(found.mistakes, []);
        let slots = found.values.iter().find(|(path, ..)| *path == "agent.slots");
        assert_eq!(
            slots.map(|(_, value, at)| (value.clone(), at.to_string())),
            Some((SettingValue::Count(4), "c.toml:2".into()))
        );
        assert_eq!(found.values.len(), 3);
    }

    #[test]
    fn every_mistake_is_reported_at_once_with_its_line() {
        let text =
            "[agent]\nslotz = 4\nslots = \"four\"\nhost = 1\n\n[controler]\nlisten = 'x'\n[log]\nformat = 'xml'\n";
        let mut found = mistakes(text);
        found.sort();
        assert_eq!(
            found,
            [
                "c.toml:2: unknown setting agent.slotz; did you mean agent.slots?",
                "c.toml:3: agent.slots: the value has type string; expected an integer from 1 to 4096",
                "c.toml:4: agent.host: the value has type integer; expected a host name or an IP address, without a port",
                "c.toml:6: unknown section controler; did you mean controller?",
                "c.toml:9: log.format: \"xml\" is invalid; expected one of text, json",
            ]
        );
    }

    #[test]
    fn a_broken_line_does_not_hide_a_mistake_on_another_line() {
        let found = mistakes("[agent]\nslots = = 3\nhots = 'a'\n");
        assert!(found[0].starts_with("c.toml:2: not TOML: "), "{found:?}");
        assert!(
            found
                .iter()
                .any(|mistake| mistake.contains("c.toml:3: unknown setting agent.hots")),
            "{found:?}"
        );
    }

    #[test]
    fn settings_below_a_broken_header_are_no_further_mistakes() {
        let found = mistakes("[agent\nslots = 4\nhost = 'a'\n[controler]\nlisten = 'x'\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("c.toml:1: not TOML: "), "{found:?}");
        assert!(found[1].contains("c.toml:4: unknown section controler"), "{found:?}");
    }

    #[test]
    fn a_negative_number_is_invalid_and_the_setting_is_named() {
        assert_eq!(
            mistakes("[agent]\nslots = -1\n"),
            ["c.toml:2: agent.slots: -1 is invalid; expected an integer from 1 to 4096"]
        );
    }
}
