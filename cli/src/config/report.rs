//! Settings of scheduled reports, and their check against the receivers of notifications.

use std::path::PathBuf;

use rankguard_controller::{ReportSchedule, ReportSettings};
use rankguard_notify::ReceiverKind;

use super::mistake::{ConfigMistake, ValueOrigin};
use super::{ResolvedConfig, SettingValue};

const EVERY: &str = "controller.report.every";
const AT: &str = "controller.report.at";
const TIMEZONE: &str = "controller.report.timezone";
const SEND_TO: &str = "controller.report.send_to";
/// Folder of the reports in the state directory.
const FOLDER: &str = "reports";

impl ResolvedConfig {
    /// Returns the settings of scheduled reports; `None` without them.
    pub(super) fn report(&self) -> Option<ReportSettings> {
        let schedule = self.schedule()?.ok()?;
        let directory = self.value("controller.report.directory").map(SettingValue::show);
        let in_state = || PathBuf::from(self.text("controller.state_dir")).join(FOLDER);
        Some(ReportSettings {
            schedule,
            directory: directory.map_or_else(in_state, PathBuf::from),
            keep: usize::try_from(self.count("controller.report.keep")).unwrap_or(usize::MAX),
            send_to: self.names(SEND_TO),
        })
    }

    fn schedule(&self) -> Option<Result<ReportSchedule, (&'static str, String)>> {
        let every = self.text(EVERY);
        (every != "off").then(|| ReportSchedule::parse(&every, &self.text(AT), &self.text(TIMEZONE)))
    }

    /// Returns the mistakes of the settings: a time or a time zone that does not exist, and receivers that are not configured or
    /// cannot show a report.
    pub(super) fn report_mistakes(&self) -> Vec<ConfigMistake> {
        let mut mistakes = Vec::new();
        if let Some(Err((name, what))) = self.schedule() {
            let setting = [EVERY, AT, TIMEZONE].into_iter().find(|path| path.ends_with(name));
            mistakes.extend(setting.map(|setting| self.mistake(setting, what)));
        }
        let receivers = match self.value("controller.notify") {
            Some(SettingValue::Receivers(receivers)) => receivers.as_slice(),
            _ => &[],
        };
        for name in self.names(SEND_TO) {
            let found = receivers.iter().find(|receiver| receiver.name == name);
            let what = match found.map(|receiver| receiver.kind) {
                None => format!("there is no receiver {name:?} in [[controller.notify]]"),
                Some(kind @ (ReceiverKind::Alertmanager | ReceiverKind::Pagerduty)) => {
                    format!(
                        "receiver {name:?} of kind {} holds incidents and takes no report",
                        kind.name()
                    )
                }
                Some(ReceiverKind::Webhook | ReceiverKind::Slack | ReceiverKind::Email) => continue,
            };
            mistakes.push(self.mistake(SEND_TO, what));
        }
        mistakes
    }

    fn mistake(&self, setting: &'static str, what: String) -> ConfigMistake {
        let at = self.values.get(setting).map(|(_, at)| at.clone());
        ConfigMistake {
            at: at.unwrap_or(ValueOrigin::Default),
            what: format!("{setting}: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("c.toml");
        fs::write(&file, text).expect("written");
        let (_, mistakes) = ResolvedConfig::read(Some(&file), [], &[]);
        mistakes.into_iter().map(|mistake| mistake.what).collect()
    }

    #[test]
    fn a_schedule_and_its_receivers_are_checked() {
        let receivers = "[[controller.notify]]\nname = 'chat'\nkind = 'slack'\nurl = 'https://chat.example.com/x'\n\
                         [[controller.notify]]\nname = 'alerts'\nkind = 'alertmanager'\nurl = 'http://alerts.example.com'\n";
        let check = |report: &str, expect: &[&str]| {
            let found = mistakes(&format!("[controller.report]\n{report}\n{receivers}"));
            assert_eq!(found.len(), expect.len(), "{report}: {found:#?}");
            for (found, expect) in found.iter().zip(expect) {
                assert!(found.starts_with(expect), "{found}");
            }
        };
        check("every = 'week'\nat = 'Mon 07:00'\nsend_to = ['chat']", &[]);
        check("every = 'month'", &["controller.report.every: "]);
        check(
            "every = 'week'\nat = 'Mon 25:00'",
            &["controller.report.at: \"Mon 25:00\" is invalid"],
        );
        check(
            "every = 'day'\ntimezone = 'Europe/Atlantis'\nsend_to = ['chat', 'pager', 'alerts']",
            &[
                "controller.report.timezone: cannot read ",
                "controller.report.send_to: receiver \"alerts\" of kind alertmanager",
                "controller.report.send_to: there is no receiver \"pager\"",
            ],
        );
    }
}
