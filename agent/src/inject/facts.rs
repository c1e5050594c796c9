//! Facts that injections add to the scenario of simulated GPUs and remove again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rankguard_model::Timestamp;

use crate::clock;
use crate::scenario::parse;

/// Most facts of one injection.
const FACTS: usize = 64;

/// Scenario file, and the time at which it began to play.
#[derive(Debug, Clone)]
pub(crate) struct PlayedScenario {
    pub(crate) path: PathBuf,
    pub(crate) start: Timestamp,
}

impl PlayedScenario {
    /// Adds facts that hold from now on, tagged with the injection's number.
    pub(super) fn add(&self, number: u64, facts: &[String]) -> Result<(), String> {
        if facts.is_empty() || facts.len() > FACTS {
            return Err(format!("{} facts; expected 1 to {FACTS}", facts.len()));
        }
        let since = clock::now().since(self.start);
        let mut text = self.read()?;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for fact in facts {
            let first = fact.split_whitespace().next();
            if first == Some("at") || fact.contains(['\n', '#']) {
                return Err(format!(
                    "`{fact}` has a time or a comment; expected a fact that holds from now on"
                ));
            }
            parse(fact).map_err(|mistake| mistake.problem)?;
            text.push_str(&format!("at {}ms {fact} {}\n", since.as_millis(), sign(number)));
        }
        self.replace(&text)
    }

    /// Removes the facts of one injection.
    pub(super) fn remove(&self, number: u64) -> Result<(), String> {
        let sign = sign(number);
        self.keep(|line| !line.ends_with(&sign))
    }

    /// Removes the facts of all injections, of this agent or an earlier one.
    pub(super) fn clear(&self) -> Result<(), String> {
        self.keep(|line| !line.contains(SIGN))
    }

    fn keep(&self, wanted: impl Fn(&str) -> bool) -> Result<(), String> {
        let text = self.read()?;
        if text.lines().all(&wanted) {
            return Ok(());
        }
        let kept: String = text
            .lines()
            .filter(|line| wanted(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        self.replace(&kept)
    }

    fn read(&self) -> Result<String, String> {
        fs::read_to_string(&self.path).map_err(|problem| failed("read", &self.path, &problem))
    }

    /// Replaces the file in one step, so that a reader never sees half of it.
    fn replace(&self, text: &str) -> Result<(), String> {
        parse(text).map_err(|mistake| format!("{} means nothing at {mistake}", self.path.display()))?;
        let mut fresh = self.path.clone().into_os_string();
        fresh.push(".injected");
        let fresh = PathBuf::from(fresh);
        fs::write(&fresh, text).map_err(|problem| failed("write", &fresh, &problem))?;
        fs::rename(&fresh, &self.path).map_err(|problem| failed("replace", &self.path, &problem))
    }
}

fn failed(doing: &str, path: &Path, problem: &io::Error) -> String {
    format!("cannot {doing} {}: {problem}", path.display())
}

/// Comment that tags lines of injections.
const SIGN: &str = "# injected by ";

/// Returns the tag of one injection.
fn sign(number: u64) -> String {
    format!("{SIGN}{} as {number}", std::process::id())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn facts_hold_from_now_on_and_go_again_and_what_means_nothing_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("scenario");
        fs::write(&path, "count 2").expect("written");
        let scenario = PlayedScenario {
            path: path.clone(),
            start: clock::now().before(Duration::from_secs(60)),
        };
        let text = || fs::read_to_string(&path).expect("it is there");
        scenario.add(1, &["temperature 0 95".to_owned()]).expect("it is a fact");
        scenario.add(2, &["xid 1 79".to_owned()]).expect("it is a fact");
        let lines = parse(&text()).expect("it is a scenario");
        let told: Vec<_> = lines.iter().map(|line| line.words.join(" ")).collect();
        assert_eq!(told, ["count 2", "temperature 0 95", "xid 1 79"]);
        assert!(lines[1].from >= Duration::from_secs(59), "{lines:?}");
        for wrong in [
            "temprature 0 95",
            "at 5s xid 0 79",
            "xid 0 79 # mine",
            "xid 0 79\nxid 1 79",
            "",
        ] {
            assert!(scenario.add(3, &[wrong.to_owned()]).is_err(), "{wrong:?}");
        }
        scenario.remove(1).expect("it is there");
        assert_eq!(parse(&text()).expect("it is a scenario").len(), 2);
        assert!(text().contains("xid 1 79"));
        scenario.clear().expect("it is there");
        assert_eq!(text(), "count 2\n");
    }
}
