//! Settings: built-in values, then a TOML file, then the environment, then flags; the later value wins.
//!
//! Every mistake of all three is reported at once. A variable that begins like the environment name of a section but is
//! no setting is a mistake, too: a mistyped name must not be ignored silently.

mod checks;
mod deployment;
mod file;
mod find;
mod hang;
mod identity;
mod key;
mod keys;
mod lease;
mod mistake;
mod reader;
mod receivers;
mod report;
mod settings;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

pub(crate) use find::nearest;
use key::SettingKey;
use keys::KEYS;
pub(crate) use mistake::{ConfigMistake, ConfigMistakes, ValueOrigin};
pub(crate) use value::SettingValue;

/// A value given by a flag: setting, flag, text as typed.
#[derive(Debug, Clone)]
pub(crate) struct FlagValue {
    setting: &'static str,
    flag: &'static str,
    text: String,
}

impl FlagValue {
    /// Returns the flag if it was given.
    pub(crate) fn of(setting: &'static str, flag: &'static str, text: Option<impl Into<OsString>>) -> Option<Self> {
        let text = text?.into().to_string_lossy().into_owned();
        Some(Self { setting, flag, text })
    }
}

/// All settings with their origins.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedConfig {
    values: BTreeMap<&'static str, (SettingValue, ValueOrigin)>,
}

/// Line of `config show`.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct SettingLine {
    /// Path of the setting.
    pub(crate) setting: &'static str,
    /// Value; `None` if it is not set and has no default.
    pub(crate) value: Option<SettingValue>,
    /// Origin of the value.
    pub(crate) from: String,
    /// Name of its environment variable.
    pub(crate) environment: String,
    /// Description of the setting.
    pub(crate) meaning: &'static str,
}

/// Variables that are no settings.
const OTHER_VARIABLES: [&str; 1] = ["RANKGUARD_CONFIG"];

/// Maximum size of a configuration file, in bytes.
const FILE_BYTES: u64 = 16 << 20;

impl ResolvedConfig {
    /// Loads all settings; `environment` is usually that of the process.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &[FlagValue],
    ) -> Result<Self, ConfigMistakes> {
        let (config, mistakes) = Self::read(file, environment, flags);
        if mistakes.is_empty() {
            Ok(config)
        } else {
            Err(ConfigMistakes(mistakes))
        }
    }

    /// Reads all settings. A setting with a mistake has its default value, so that the others can be checked.
    pub(crate) fn read(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &[FlagValue],
    ) -> (Self, Vec<ConfigMistake>) {
        let mut config = Self {
            values: BTreeMap::new(),
        };
        let mut mistakes = Vec::new();
        for (path, value) in settings::defaults() {
            config.values.insert(path, (value, ValueOrigin::Default));
        }
        if let Some(path) = file {
            match rankguard_files::read_text(path, FILE_BYTES) {
                Ok(text) => {
                    let found = file::read(path, &text);
                    mistakes.extend(found.mistakes);
                    let values = found.values.into_iter().map(|(path, value, at)| (path, (value, at)));
                    config.values.extend(values);
                }
                Err(problem) => mistakes.push(ConfigMistake {
                    at: ValueOrigin::File(path.to_owned(), 0),
                    what: format!("cannot read the file: {problem}"),
                }),
            }
        }
        config.environment(environment, &mut mistakes);
        for FlagValue { setting, flag, text } in flags {
            let key = find::find(setting).expect("flags name settings of the table");
            config.put(key, text, ValueOrigin::Flag(flag), &mut mistakes);
        }
        mistakes.extend(config.half_an_identity());
        mistakes.extend(config.half_an_issuer());
        mistakes.extend(config.short_lease());
        mistakes.extend(config.reader_mistakes());
        mistakes.extend(config.report_mistakes());
        if let Some((SettingValue::Checks(checks), at)) = config.values.get("agent.checks") {
            let unknown = checks::unknown_classes(checks, config.paths("agent.catalogue"));
            mistakes.extend(unknown.into_iter().map(|what| ConfigMistake { at: at.clone(), what }));
        }
        mistakes.sort();
        (config, mistakes)
    }

    fn environment(
        &mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        mistakes: &mut Vec<ConfigMistake>,
    ) {
        let names: BTreeMap<String, &SettingKey> = KEYS.iter().map(|key| (key.env(), key)).collect();
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with("RANKGUARD_")) else {
                continue;
            };
            let at = ValueOrigin::Environment(name.to_owned());
            match (names.get(name), value.to_str()) {
                (Some(key), Some(text)) => self.put(key, text, at, mistakes),
                (Some(_), None) => mistakes.push(ConfigMistake {
                    at,
                    what: "the value is not UTF-8".to_owned(),
                }),
                (None, _) if is_ours(name) => {
                    let near = find::nearest_variable(name);
                    let what = match near {
                        Some(near) => format!("no such setting; did you mean {near}?"),
                        None => "no such setting; `rankguard config show` lists all settings".to_owned(),
                    };
                    mistakes.push(ConfigMistake { at, what });
                }
                // Variables that agents set for their ranks (RANKGUARD_SOCKET ...) have the same prefix.
                (None, _) => {}
            }
        }
    }

    fn put(&mut self, key: &'static SettingKey, text: &str, at: ValueOrigin, mistakes: &mut Vec<ConfigMistake>) {
        match key.kind.parse(text) {
            Ok(value) => drop(self.values.insert(key.path, (value, at))),
            Err(what) => mistakes.push(ConfigMistake {
                at,
                what: format!("{}: {what}", key.path),
            }),
        }
    }

    /// Returns the value of a setting, if it has one.
    fn value(&self, path: &str) -> Option<&SettingValue> {
        self.values.get(path).map(|(value, _)| value)
    }

    /// Returns every setting, sorted by path.
    pub(crate) fn show(&self) -> Vec<SettingLine> {
        let shown = |key: &SettingKey| {
            let (value, from) = match self.values.get(key.path) {
                Some((value, from)) => (Some(value.clone()), from.to_string()),
                None => (None, "not set".to_owned()),
            };
            SettingLine {
                setting: key.path,
                value,
                from,
                environment: key.env(),
                meaning: key.doc,
            }
        };
        KEYS.iter().map(shown).collect()
    }
}

/// Returns a note for each variable that looks like one of Rankguard and is none. Those with the name of a section are
/// mistakes and not listed here.
pub(crate) fn unknown_variables(names: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let is_known = |name: &str| {
        KEYS.iter().any(|key| key.env() == name)
            || OTHER_VARIABLES.contains(&name)
            || rankguard_model::RESERVED_VARIABLES.contains(&name)
            || is_ours(name)
    };
    let names = names.into_iter().filter_map(|name| name.into_string().ok());
    let unknown = names.filter(|name| name.starts_with("RANKGUARD_") && !is_known(name));
    let describe = |name: String| match find::nearest_variable(&name) {
        Some(near) => format!("environment {name}: no such setting, it is ignored; did you mean {near}?"),
        None => format!("environment {name}: no such setting, it is ignored"),
    };
    let mut notes: Vec<String> = unknown.map(describe).collect();
    notes.sort();
    notes
}

/// True if a variable's name begins with that of a section of settings.
fn is_ours(name: &str) -> bool {
    ["AGENT", "CLIENT", "CONTROLLER", "IDENTITY", "LOG", "READER"]
        .iter()
        .any(|section| {
            name.strip_prefix("RANKGUARD_")
                .is_some_and(|rest| rest.starts_with(&format!("{section}_")))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect()
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(
            file.path(),
            "[agent]\nslots = 2\nhost = 'from-file'\nnode = 'from-file'\n",
        )
        .expect("written");
        let environment = variables(&[
            ("RANKGUARD_AGENT_SLOTS", "3"),
            ("RANKGUARD_AGENT_HOST", "from-environment"),
        ]);
        let flags = [FlagValue::of("agent.slots", "--slots", Some("4")).expect("given")];
        let config = ResolvedConfig::load(Some(file.path()), environment, &flags).expect("all is fine");
        let agent = config.agent();
        assert_eq!(
            (agent.slots, agent.host.as_str(), agent.node.as_str()),
            (4, "from-environment", "from-file")
        );
        let from = |setting: &str| {
            config
                .show()
                .into_iter()
                .find(|shown| shown.setting == setting)
                .map(|s| s.from)
        };
        assert_eq!(from("agent.slots").as_deref(), Some("--slots"));
        assert_eq!(from("agent.host").as_deref(), Some("environment RANKGUARD_AGENT_HOST"));
        assert_eq!(from("agent.node"), Some(format!("{}:4", file.path().display())));
    }

    /// The output of `rankguard simulate calibrate --out` is a valid configuration.
    #[test]
    fn a_calibrated_record_is_taken_and_a_mistyped_one_is_told_with_its_line() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let record = "# counted\n[controller.policy]\nprior = \"meta-rsc-1\"\n\n[controller.policy.record]\nnode_hours = 81234\n\
                      process_failures = 12\nnode_failures = 3\ndomain_failures = 0\n";
        std::fs::write(file.path(), record).expect("written");
        let policy = ResolvedConfig::load(Some(file.path()), [], &[])
            .expect("all is fine")
            .controller()
            .policy;
        assert_eq!(
            (
                policy.prior.as_str(),
                policy.record.node_hours,
                policy.record.process_failures
            ),
            ("meta-rsc-1", 81_234, 12)
        );
        assert!(policy.prior_rates() != belief_without_a_record());
        let wrong = record
            .replace("node_failures = 3", "node_failurs = 3")
            .replace("81234", "-1");
        std::fs::write(file.path(), wrong.replace("meta-rsc-1", "guess")).expect("written");
        let mistakes = ResolvedConfig::load(Some(file.path()), [], &[])
            .expect_err("three mistakes")
            .to_string();
        for (line, part) in [
            (3, "controller.policy.prior: \"guess\" is invalid"),
            (6, "controller.policy.record.node_hours: -1 is invalid"),
            (8, "did you mean controller.policy.record.node_failures?"),
        ] {
            let place = format!("{}:{line}", file.path().display());
            let told = mistakes
                .lines()
                .any(|told| told.contains(&place) && told.contains(part));
            assert!(told, "{place} {part:?} is not in:\n{mistakes}");
        }
    }

    fn belief_without_a_record() -> rankguard_checkpoint_schedule::rates::FailureRates {
        ResolvedConfig::load(None, [], &[])
            .expect("defaults")
            .controller()
            .policy
            .prior_rates()
    }

    #[test]
    fn variables_that_are_no_settings_are_noted() {
        let names = [
            "RANKGUARD_NOSUCH",
            "RANKGUARD_CONTROLER",
            "RANKGUARD_CONTROLLER",
            "RANKGUARD_SOCKET",
            "RANKGUARD_CONFIG",
            "RANKGUARD_AGENT_SLOT",
            "HOME",
        ];
        let notes = unknown_variables(names.map(OsString::from));
        assert_eq!(
            notes,
            [
                "environment RANKGUARD_CONTROLER: no such setting, it is ignored; did you mean RANKGUARD_CONTROLLER?",
                "environment RANKGUARD_NOSUCH: no such setting, it is ignored",
            ]
        );
    }

    #[test]
    fn mistakes_of_file_environment_and_flags_come_together() {
        let environment = variables(&[
            ("RANKGUARD_AGENT_SLOT", "1"),
            ("RANKGUARD_LOG_FORMAT", "xml"),
            ("RANKGUARD_SOCKET", "/run/x"),
        ]);
        let flags = [FlagValue::of("agent.slots", "--slots", Some("many")).expect("given")];
        let missing = Path::new("/does/not/exist.toml");
        let mistakes = ResolvedConfig::load(Some(missing), environment, &flags)
            .expect_err("four mistakes")
            .to_string();
        for part in [
            "4 mistakes",
            "/does/not/exist.toml: cannot read the file",
            "RANKGUARD_AGENT_SLOT: no such setting; did you mean RANKGUARD_AGENT_SLOTS?",
            "RANKGUARD_LOG_FORMAT: log.format: \"xml\" is invalid",
            "--slots: agent.slots: \"many\" is invalid",
        ] {
            assert!(mistakes.contains(part), "{part:?} is not in:\n{mistakes}");
        }
    }
}
