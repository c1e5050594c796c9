//! Parser of `[[agent.checks]]`: plug-in checks in the configuration file.

use std::path::PathBuf;

use rankguard_agent::{CatalogueHandle, PluginCheck};
use rankguard_faults::Catalogue;
use rankguard_model::ClassId;
use toml::de::{DeTable, DeValue};

/// Maximum number of checks on one node: more indicates a mistake in a script that generates the file.
const MOST: usize = 64;
/// Default interval between runs, in seconds.
const INTERVAL_S: u64 = 60;
/// Default timeout of a run, in seconds, as for Nagios plug-ins.
const TIMEOUT_S: u64 = 60;
const DAY_S: u64 = 86_400;

/// Parses all checks, or returns the problems of each that cannot be used.
pub(super) fn read(value: &DeValue<'_>) -> Result<Vec<PluginCheck>, String> {
    let DeValue::Array(tables) = value else {
        return Err("expected a list of tables [[agent.checks]]".to_owned());
    };
    if tables.len() > MOST {
        return Err(format!("{} checks; at most {MOST} are allowed", tables.len()));
    }
    let mut checks: Vec<PluginCheck> = Vec::new();
    let mut problems = Vec::new();
    for (at, table) in tables.iter().enumerate() {
        let here = |what: String| format!("check {}: {what}", at + 1);
        let DeValue::Table(table) = table.get_ref() else {
            problems.push(here("expected a table [[agent.checks]]".to_owned()));
            continue;
        };
        match one(table) {
            Err(problem) => problems.push(here(problem)),
            Ok(check) if checks.iter().any(|other| other.name == check.name) => {
                problems.push(here(format!("the name {:?} is already used", check.name)));
            }
            Ok(check) => checks.push(check),
        }
    }
    if problems.is_empty() {
        return Ok(checks);
    }
    Err(problems.join("; "))
}

fn one(table: &DeTable<'_>) -> Result<PluginCheck, String> {
    let mut name = None;
    let mut command = Vec::new();
    let mut class = None;
    let mut interval_s = INTERVAL_S;
    let mut timeout_s = TIMEOUT_S;
    let mut cpu_s = None;
    let mut memory_mb = None;
    for (key, value) in table {
        let key = key.get_ref();
        let value = value.get_ref();
        match key.as_ref() {
            "name" => name = Some(text(key, value)?),
            "class" => class = Some(ClassId::from(text(key, value)?)),
            "command" => {
                let DeValue::Array(words) = value else {
                    return Err("command: expected a list of program and arguments".to_owned());
                };
                command = words
                    .iter()
                    .map(|word| text(key, word.get_ref()))
                    .collect::<Result<_, _>>()?;
            }
            "interval_s" => interval_s = number(key, value, DAY_S)?,
            "timeout_s" => timeout_s = number(key, value, DAY_S)?,
            "cpu_s" => cpu_s = Some(number(key, value, DAY_S)?),
            "memory_mb" => memory_mb = Some(number(key, value, 1 << 24)?),
            other => {
                return Err(format!(
                    "unknown key {other}; known keys are name, command, interval_s, timeout_s, class, cpu_s, memory_mb"
                ));
            }
        }
    }
    let name = name.ok_or("name is missing")?;
    let class = class.ok_or("class is missing; `rankguard taxonomy crosswalk` lists the classes")?;
    if command.is_empty() {
        return Err("command is missing".to_owned());
    }
    Ok(PluginCheck {
        name,
        command,
        interval_s,
        timeout_s,
        class,
        cpu_s,
        memory_mb,
    })
}

/// Describes checks with unknown classes. The files of `agent.catalogue` are read only if the built-in catalogue lacks
/// a class.
pub(super) fn unknown_classes(checks: &[PluginCheck], files: Vec<PathBuf>) -> Vec<String> {
    let strangers = |catalogue: &Catalogue| -> Vec<PluginCheck> {
        let unknown = checks.iter().filter(|check| catalogue.class(&check.class).is_none());
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

    fn parse(text: &str) -> Result<Vec<PluginCheck>, String> {
        let table = DeTable::parse(text).expect("TOML");
        read(table.get_ref().get("checks").expect("checks").get_ref())
    }

    #[test]
    fn a_check_needs_a_name_a_command_and_a_class() {
        let text =
            "[[checks]]\nname = 'ntp'\ncommand = ['check_ntp', '-H', 'a']\nclass = 'clock-skew'\nmemory_mb = 64\n";
        let check = parse(text).expect("it is fine").remove(0);
        assert_eq!((check.interval_s, check.timeout_s, check.memory_mb), (60, 60, Some(64)));
        assert_eq!(check.command.len(), 3);
        for (broken, expect) in [
            ("[[checks]]\nname = 'a'\ncommand = ['b']\n", "class is missing"),
            ("[[checks]]\nname = 'a'\nclass = 'clock-skew'\n", "command is missing"),
            ("[[checks]]\nname = 'a'\ntimeout_s = 0\n", "1 to 86400"),
            ("[[checks]]\nnome = 'a'\n", "unknown key nome"),
            ("checks = 3\n", "list of tables"),
        ] {
            let problem = parse(broken).expect_err(expect);
            assert!(problem.contains(expect), "{problem}");
        }
        assert!(
            parse(&format!("{text}{text}")).is_err_and(|problem| problem.contains("is already used")),
            "two of one name"
        );
    }

    #[test]
    fn a_class_is_one_of_the_built_in_catalogue_or_of_the_files_beside_it() {
        let check = |class: &str| {
            parse(&format!("[[checks]]\nname = 'a'\ncommand = ['b']\nclass = '{class}'\n")).expect("it is fine")
        };
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
