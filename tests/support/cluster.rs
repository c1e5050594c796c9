//! A controller and one agent of two slots, as people start them, in a folder of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::{Daemon, rankguard, until};

/// Longest wait for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Ends with the test.
pub(crate) struct Cluster {
    pub(crate) dir: tempfile::TempDir,
    /// Where the controller listens; a port at which nobody does where there is none.
    pub(crate) address: String,
    pub(crate) controller: Option<Daemon>,
    pub(crate) agent: Option<Daemon>,
}

impl Cluster {
    /// Both. A failure of the user's own program is tried again so often; `words` are the agent's.
    pub(crate) fn start(user_retries: u32, words: &[&str]) -> Self {
        let mut cluster = Self::folder();
        let config = cluster.dir.path().join("test.toml");
        let text = format!(
            "[controller.policy]\ngather_ms = 200\npending_ms = 2_000\nsettle_ms = 300\nuser_retries = {user_retries}\n"
        );
        fs::write(&config, text).expect("written");
        let state = cluster.dir.path().join("controller");
        let args = [
            "--config",
            text_of(&config),
            "controller",
            "--listen",
            "127.0.0.1:0",
            "--state-dir",
            text_of(&state),
        ];
        cluster.controller = Some(Daemon::start(&args, &cluster.dir.path().join("controller.log")));
        cluster.address = until("the controller to listen", LIMIT, || {
            let address = fs::read_to_string(state.join("controller.addr")).ok()?;
            Some(address.trim().to_owned())
        });
        cluster.start_agent(words);
        until("the agent to join", LIMIT, || {
            let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
            (nodes[0]["state"] == "healthy").then_some(())
        });
        cluster
    }

    /// An agent without a controller.
    pub(crate) fn agent_alone(words: &[&str]) -> Self {
        let mut cluster = Self::folder();
        cluster.start_agent(words);
        cluster
    }

    fn folder() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a temporary folder"),
            address: "127.0.0.1:1".to_owned(),
            controller: None,
            agent: None,
        }
    }

    /// Starts the agent, again on the state it had, and waits until it answers.
    pub(crate) fn start_agent(&mut self, words: &[&str]) {
        let (state, log) = (self.state(), self.dir.path().join("agent.log"));
        let fixed = [
            "agent",
            "--node",
            "n1",
            "--slots",
            "2",
            "--kernel-log",
            "off",
            "--controller",
            &self.address,
            "--state-dir",
            text_of(&state),
        ];
        self.agent = Some(Daemon::start(&[&fixed[..], words].concat(), &log));
        // The socket of one that was killed is still there.
        until("the agent to answer", LIMIT, || {
            let asked = rankguard(&["agent", "status", "--state-dir", text_of(&state)]);
            (asked.code == Some(0)).then_some(())
        });
    }

    /// The agent's own files.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("agent")
    }

    /// What the agent tells of itself.
    pub(crate) fn view(&self) -> Value {
        let state = self.state();
        json(&["agent", "status", "--state-dir", text_of(&state), "--format", "json"])
    }

    /// A command of people, to this controller.
    pub(crate) fn args<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&words[..1], &["--controller", &self.address], &words[1..]].concat()
    }

    /// Its answer, where it is JSON.
    pub(crate) fn ask(&self, words: &[&str]) -> Value {
        json(&self.args(words))
    }
}

fn json(words: &[&str]) -> Value {
    let ran = rankguard(words).expect(0);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|problem| panic!("{problem}: {}", ran.stdout))
}

/// A path as an argument.
pub(crate) fn text_of(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}
