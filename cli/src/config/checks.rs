//! Parser of `[[agent.checks]]`: plug-in checks in the configuration file.

use std::path::PathBuf;

use rankguard_agent::{CatalogueHandle, PluginCheck};
use rankguard_faults::{Catalogue, classes};
use rankguard_model::ClassId;
use toml::de::{DeTable, DeValue};

/// Maximum number of checks on one node: more indicates a mistake in a script that generates the file.
const MOST: usize = 64;
/// Default interval between runs, in seconds.
const INTERVAL_S: u64 = 60;
/// Default timeout of a run, in seconds, as for Nagios plug-ins.
const TIMEOUT_S: u64 = 60;
const DAY_S: u64 = 86_400;

/// Checks of a file and its mistakes.
#[derive(Debug, Default)]
pub(super) struct ParsedChecks {
    /// Every check that names something that can be examined further; one with a mistake may lack parts.
    pub(super) checks: Vec<PluginCheck>,
    pub(super) mistakes: Vec<String>,
}

/// Parses all checks. A mistake in one hides no mistake of another.
pub(super) fn read(value: &DeValue<'_>) -> ParsedChecks {
    let mut found = ParsedChecks::default();
    let DeValue::Array(tables) = value else {
        found
            .mistakes
            .push("expected a list of tables [[agent.checks]]".to_owned());
        return found;
    };
    if tables.len() > MOST {
        found
            .mistakes
            .push(format!("{} checks; at most {MOST} are allowed", tables.len()));
        return found;
    }
    for (at, table) in tables.iter().enumerate() {
        let mut mistakes = Vec::new();
        match table.get_ref() {
            DeValue::Table(table) => {
                let check = one(table, &mut mistakes);
                let is_known = |other: &PluginCheck| !check.name.is_empty() && other.name == check.name;
                if found.checks.iter().any(is_known) {
                    mistakes.push(format!("the name {:?} is already used", check.name));
                }
                found.checks.push(check);
            }
            _ => mistakes.push("expected a table [[agent.checks]]".to_owned()),
        }
        let mistakes = mistakes.into_iter();
        found
            .mistakes
            .extend(mistakes.map(|what| format!("check {}: {what}", at + 1)));
    }
    found
}

/// Parses one check; parts with a mistake are empty or have their defaults.
fn one(table: &DeTable<'_>, mistakes: &mut Vec<String>) -> PluginCheck {
    let mut check = PluginCheck {
        name: String::new(),
        command: Vec::new(),
        interval_s: INTERVAL_S,
        timeout_s: TIMEOUT_S,
        class: classes::UNKNOWN.into(),
        cpu_s: None,
        memory_mb: None,
    };
    for (key, value) in table {
        let key = key.get_ref();
        if let Err(mistake) = set(&mut check, key, value.get_ref()) {
            mistakes.push(mistake);
        }
    }
    let has = |key: &str| table.iter().any(|(known, _)| known.get_ref() == key);
    if !has("name") {
        mistakes.push("name is missing".to_owned());
    }
    if !has("class") {
        mistakes.push("class is missing; `rankguard taxonomy crosswalk` lists the classes".to_owned());
    }
    let is_empty = |value: &DeValue<'_>| matches!(value, DeValue::Array(words) if words.is_empty());
    let command = table.iter().find(|(known, _)| known.get_ref() == "command");
    if command.is_none_or(|(_, value)| is_empty(value.get_ref())) {
        mistakes.push("command is missing".to_owned());
    }
    check
}

fn set(check: &mut PluginCheck, key: &str, value: &DeValue<'_>) -> Result<(), String> {
    match key {
        "name" => check.name = text(key, value)?,
        "class" => check.class = ClassId::from(text(key, value)?),
        "command" => {
            let DeValue::Array(words) = value else {
                return Err("command: expected a list of program and arguments".to_owned());
            };
            let words = words.iter().map(|word| text(key, word.get_ref()));
            check.command = words.collect::<Result<_, _>>()?;
        }
        "interval_s" => check.interval_s = number(key, value, DAY_S)?,
        "timeout_s" => check.timeout_s = number(key, value, DAY_S)?,
        "cpu_s" => check.cpu_s = Some(number(key, value, DAY_S)?),
        "memory_mb" => check.memory_mb = Some(number(key, value, 1 << 24)?),
        other => {
            return Err(format!(
                "unknown key {other}; known keys are name, command, interval_s, timeout_s, class, cpu_s, memory_mb"
            ));
        }
    }
    Ok(())
}

/// Describes checks with unknown classes. The files of `agent.catalogue` are read only if the built-in catalogue lacks
/// a class.
pub(super) fn unknown_classes(checks: &[PluginCheck], files: Vec<PathBuf>) -> Vec<String> {
    let strangers = |catalogue: &Catalogue| -> Vec<PluginCheck> {
        // A missing class is a mistake of its own.
        let named = checks.iter().filter(|check| !check.class.as_str().is_empty());
        let unknown = named.filter(|check| catalogue.class(&check.class).is_none());
        unknown.cloned().collect()
    };
    let Some(PluginCheck { name, class, .. }) = strangers(Catalogue::builtin()).into_iter().next() else {
        return Vec::new();
    };
    let knowledge = CatalogueHandle::new(files);
    if let Err(problem) = knowledge.reload() {
        return vec![format!(
            "agent.checks: check {name}: class {class} is not built in, and the files of agent.catalogue cannot be read: {problem}"
        )];
    }
    knowledge.with_catalogue(|catalogue| {
        let unknown = strangers(catalogue).into_iter();
        unknown
            .map(
                |PluginCheck { name, class, .. }| match catalogue.similar_classes(class.as_str()).first() {
                    Some(close) => format!("agent.checks: check {name}: there is no class {class}; did you mean {close}?"),
                    None => format!(
                        "agent.checks: check {name}: there is no class {class}; `rankguard taxonomy crosswalk` lists the classes"
                    ),
                },
            )
            .collect()
    })
}

fn text(key: &str, value: &DeValue<'_>) -> Result<String, String> {
    match value.as_str() {
        Some(text) if !text.is_empty() && !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(format!("{key}: expected non-empty text")),
    }
}

fn number(key: &str, value: &DeValue<'_>, most: u64) -> Result<u64, String> {
    let found = match value {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    found
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| format!("{key}: expected an integer from 1 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "[[class]]\nid = 'own-fault'\nparent = 'filesystem-io-error'\nlayer = 'storage'\n\
                       definition = 'The tape robot is stuck.'\nadvice = 'Open the door.'\n";

    fn parse(text: &str) -> ParsedChecks {
        let table = DeTable::parse(text).expect("TOML");
        read(table.get_ref().get("checks").expect("checks").get_ref())
    }

    #[test]
    fn every_mistake_of_every_check_is_reported() {
        let found = parse(
            "[[checks]]\nname = 'x'\nclass = 'preempted'\ntimeout_s = 0\n\
             [[checks]]\nname = 'x'\ncommand = ['/nonexistent/x']\nclass = 'bad'\n\
             [[checks]]\nname = 'z'\ncommand = ['/nonexistent/z']\n",
        );
        let wanted = [
            "check 1: timeout_s: expected an integer from 1 to 86400",
            "check 1: command is missing",
            "check 2: the name \"x\" is already used",
            "check 3: class is missing; `rankguard taxonomy crosswalk` lists the classes",
        ];
        assert_eq!(found.mistakes, wanted);
        let programs: Vec<&str> = found
            .checks
            .iter()
            .filter_map(|check| check.command.first())
            .map(String::as_str)
            .collect();
        assert_eq!(
            programs,
            ["/nonexistent/x", "/nonexistent/z"],
            "they are examined further"
        );
        assert_eq!(unknown_classes(&found.checks, Vec::new()).len(), 1, "bad is no class");
    }

    #[test]
    fn a_check_needs_a_name_a_command_and_a_class() {
        let text =
            "[[checks]]\nname = 'ntp'\ncommand = ['check_ntp', '-H', 'a']\nclass = 'clock-skew'\nmemory_mb = 64\n";
        let found = parse(text);
        assert!(found.mistakes.is_empty(), "{:?}", found.mistakes);
        let check = &found.checks[0];
        assert_eq!((check.interval_s, check.timeout_s, check.memory_mb), (60, 60, Some(64)));
        assert_eq!(check.command.len(), 3);
        for (broken, expect) in [
            ("[[checks]]\nname = 'a'\ncommand = ['b']\n", "class is missing"),
            ("[[checks]]\nname = 'a'\nclass = 'clock-skew'\n", "command is missing"),
            ("[[checks]]\nname = 'a'\ntimeout_s = 0\n", "1 to 86400"),
            ("[[checks]]\nnome = 'a'\n", "unknown key nome"),
            ("checks = 3\n", "list of tables"),
        ] {
            let mistakes = parse(broken).mistakes;
            assert!(mistakes.iter().any(|what| what.contains(expect)), "{mistakes:?}");
        }
    }

    #[test]
    fn a_class_is_one_of_the_built_in_catalogue_or_of_the_files_beside_it() {
        let check =
            |class: &str| parse(&format!("[[checks]]\nname = 'a'\ncommand = ['b']\nclass = '{class}'\n")).checks;
        assert_eq!(
            unknown_classes(&check("clock-skew"), vec!["/nowhere/at/all".into()]),
            Vec::<String>::new()
        );
        let problem = unknown_classes(&check("clock-skwe"), Vec::new()).remove(0);
        assert!(problem.contains("did you mean clock-skew?"), "{problem}");
        let problem = unknown_classes(&check("own-fault"), vec!["/nowhere/at/all".into()]).remove(0);
        assert!(problem.contains("/nowhere/at/all"), "{problem}");
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("own.toml");
        std::fs::write(&file, OWN).expect("is written");
        assert!(unknown_classes(&check("own-fault"), vec![file]).is_empty());
    }
}
