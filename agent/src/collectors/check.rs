//! Plug-in checks: third-party programs with the exit codes of Nagios plug-ins. Only a change of state is reported.
//!
//! The state is unknown for a check that cannot be started, does not end, exceeds the output limit or ends with another
//! code; that is a gap and never a failure. Absent: checks that run once at a start or an end of ranks.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use rankguard_model::{EvidenceBody, EvidenceSource, ProcessExit, Role};

use crate::bounded::{self, RunEnd, RunLimits};
use crate::clock;
use crate::intake::EvidenceIntake;
use crate::pending_evidence::{PendingEvidence, mark};
use crate::settings::PluginCheck;
use crate::stop_flag::StopFlag;
use crate::views::CheckView;

/// Most values retained from one check.
const VALUES: usize = 64;
/// Longest text retained from one check, and longest label, characters.
const TEXT: usize = 1024;

const OK: u8 = 0;
const CRITICAL: u8 = 2;
const UNKNOWN: u8 = 3;

/// Collector of one plug-in check.
#[derive(Debug)]
pub(crate) struct PluginCollector {
    pub(crate) plugin: PluginCheck,
    pub(crate) intake: EvidenceIntake,
    pub(crate) stop: StopFlag,
}

impl PluginCollector {
    /// Runs the check at its interval until `stop` is set.
    pub(crate) fn run(self) {
        // The first result is not reported if it is OK.
        let mut before = OK;
        loop {
            let Some(view) = self.look() else { return };
            if view.status != before {
                self.tell(&view);
                before = view.status;
            }
            self.intake.board().checked(view);
            if self.stop.wait(Duration::from_secs(self.plugin.interval_s)) {
                return;
            }
        }
    }

    /// Runs the check once. Returns none if the agent stops meanwhile.
    fn look(&self) -> Option<CheckView> {
        let words: Vec<OsString> = self.plugin.command.iter().map(OsString::from).collect();
        let bounds = RunLimits {
            deadline: Duration::from_secs(self.plugin.timeout_s),
            cpu_s: self.plugin.cpu_s,
            memory: self.plugin.memory_mb.map(|mb| mb.saturating_mul(1 << 20)),
        };
        let since = Instant::now();
        let outcome = bounded::run_until(&words, bounds, || self.stop.stopped());
        let took_s = since.elapsed().as_secs_f64();
        let unknown = |why: String| (UNKNOWN, why, BTreeMap::new());
        let (status, text, values) = match outcome {
            Err(problem) => unknown(format!("it cannot be started: {problem}")),
            Ok(outcome) => match outcome.end {
                RunEnd::Stopped => return None,
                RunEnd::Deadline => unknown(format!("it did not end within {} s", self.plugin.timeout_s)),
                RunEnd::Flood => unknown("it wrote more than anybody reads".to_owned()),
                RunEnd::Itself(ProcessExit::Signal(signal)) => unknown(format!("it ended by signal {signal}")),
                // Of ranks only.
                RunEnd::Itself(exit @ ProcessExit::Left) => unknown(exit.to_string()),
                RunEnd::Itself(ProcessExit::Code(code)) => {
                    let words = if outcome.stdout.trim().is_empty() {
                        &outcome.stderr
                    } else {
                        &outcome.stdout
                    };
                    let (text, values) = parse_output(words);
                    match u8::try_from(code).ok().filter(|code| *code <= UNKNOWN) {
                        Some(status) => (status, text, values),
                        None => unknown(format!("it ended with code {code}: {text}")),
                    }
                }
            },
        };
        Some(CheckView {
            check: self.plugin.name.clone(),
            status,
            text,
            at: clock::now(),
            took_s,
            values,
        })
    }

    fn tell(&self, view: &CheckView) {
        let name = &self.plugin.name;
        if view.status == UNKNOWN {
            let what = format!("the check {name} cannot tell: {}", view.text);
            return self.intake.gap(EvidenceSource::Host, what, None);
        }
        let state = ["ok", "warning", "critical"][usize::from(view.status)];
        let body = EvidenceBody::Line {
            text: format!("check {name} is {state}: {}", view.text),
            context: Vec::new(),
            repeats: 1,
        };
        // The operator configured the class; the confidence is low because the program that measures it is unknown
        // here.
        let says = (view.status == CRITICAL)
            .then(|| mark(self.plugin.class.as_str(), Role::Root, 0.6, &format!("check.{name}")));
        let sighting = PendingEvidence::now(EvidenceSource::Host, self.intake.node_entity(), body);
        self.intake.push(sighting.marked(says.into_iter().collect()));
    }
}

/// Parses a plug-in's first line into its text and values: `OK - 3 peers | offset=0.3s;1;2 'jitter max'=4`.
fn parse_output(output: &str) -> (String, BTreeMap<String, f64>) {
    let line = output.lines().next().unwrap_or_default();
    let (text, data) = line.split_once('|').unwrap_or((line, ""));
    let mut values = BTreeMap::new();
    let mut rest = data.trim_start();
    while !rest.is_empty() && values.len() < VALUES {
        let (label, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once("'=").unwrap_or((quoted, "")),
            None => rest.split_once('=').unwrap_or((rest, "")),
        };
        let (value, next) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
        let number = value.split(';').next().unwrap_or_default();
        let number = number.trim_end_matches(|c: char| !c.is_ascii_digit());
        if let Ok(number) = number.parse::<f64>()
            && number.is_finite()
        {
            values.insert(label.chars().take(TEXT).collect(), number);
        }
        rest = next.trim_start();
    }
    (text.trim().chars().take(TEXT).collect(), values)
}

#[cfg(test)]
mod tests {
    use rankguard_model::{ClassId, NodeId};

    use super::*;

    fn check(script: &str, timeout_s: u64) -> PluginCollector {
        PluginCollector {
            plugin: PluginCheck {
                name: "ntp".to_owned(),
                command: vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()],
                interval_s: 3600,
                timeout_s,
                class: ClassId::from("clock-skew"),
                cpu_s: None,
                memory_mb: None,
            },
            intake: EvidenceIntake::new(NodeId::from("a")),
            stop: StopFlag::default(),
        }
    }

    fn look(script: &str, timeout_s: u64) -> CheckView {
        check(script, timeout_s).look().expect("nobody stops it")
    }

    #[test]
    fn the_four_codes_and_the_words_are_understood() {
        let view = look(
            "echo \"CRITICAL - off | offset=0.5s;0.1;0.2 'jitter max'=4ms bad=x\"; exit 2",
            60,
        );
        assert_eq!((view.status, view.text.as_str()), (2, "CRITICAL - off"));
        let wanted = [("jitter max".to_owned(), 4.0), ("offset".to_owned(), 0.5)];
        assert_eq!(view.values, BTreeMap::from(wanted));
        assert_eq!(look("exit 0", 60).status, 0);
        assert_eq!(look("exit 1", 60).status, 1);
        assert_eq!(look("exit 3", 60).status, 3);
        assert_eq!(look("exit 77", 60).status, 3);
        assert_eq!(look("kill -9 $$", 60).status, 3);
    }

    #[test]
    fn one_that_forks_and_hangs_one_that_floods_and_one_that_is_missing_are_unknown() {
        let view = look("sleep 7654 & setsid sleep 7654 & wait", 1);
        assert_eq!((view.status, view.text.as_str()), (3, "it did not end within 1 s"));
        let view = look("while :; do echo 01234567890123456789012345678901234567890; done", 600);
        assert_eq!(
            (view.status, view.text.as_str()),
            (3, "it wrote more than anybody reads")
        );
        let mut missing = check("", 60);
        missing.plugin.command = vec!["/no/such/check".to_owned()];
        let view = missing.look().expect("nobody stops it");
        assert!(
            view.status == 3 && view.text.starts_with("it cannot be started"),
            "{view:?}"
        );
    }

    #[test]
    fn only_a_change_of_state_is_told_and_critical_names_its_class() {
        let check = check("echo bad; exit 2", 60);
        let view = check.look().expect("nobody stops it");
        check.tell(&view);
        check.tell(&CheckView {
            status: 0,
            ..view.clone()
        });
        check.tell(&CheckView { status: 3, ..view });
        let told: Vec<_> = check
            .intake
            .drain()
            .into_iter()
            .map(|it| (it.body, it.marks.len()))
            .collect();
        let (EvidenceBody::Line { text, .. }, 1) = &told[0] else {
            panic!("{told:?}")
        };
        assert_eq!(text, "check ntp is critical: bad");
        assert!(matches!(&told[1], (EvidenceBody::Line { .. }, 0)));
        assert!(matches!(&told[2], (EvidenceBody::Gap { .. }, 0)));
    }

    #[test]
    fn a_running_check_ends_with_its_agent() {
        let check = check("sleep 8765", 3600);
        check.stop.stop();
        assert_eq!(check.look(), None);
    }
}
