//! A controller and one agent of two slots, as people start them, in a folder of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::{Daemon, NOBODY, rankguard, until};

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
        let text = format!(
            "[controller.policy]\ngather_ms = 200\npending_ms = 2_000\nsettle_ms = 300\nuser_retries = {user_retries}\n"
        );
        fs::write(cluster.config(), text).expect("written");
        cluster.start_controller("127.0.0.1:0");
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

    /// A controller without an agent.
    pub(crate) fn controller_alone() -> Self {
        let mut cluster = Self::folder();
        cluster.start_controller("127.0.0.1:0");
        cluster
    }

    /// A folder without processes.
    pub(crate) fn folder() -> Self {
        let cluster = Self {
            dir: tempfile::tempdir().expect("a temporary folder"),
            address: NOBODY.to_owned(),
            controller: None,
            agent: None,
        };
        fs::write(cluster.config(), "").expect("written");
        cluster
    }

    /// Settings of the controller and of the agent.
    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("test.toml")
    }

    /// Starts the controller at an address, again on the state it had.
    pub(crate) fn start_controller(&mut self, listen: &str) {
        let config = self.config();
        let state = self.dir.path().join("controller");
        let told = state.join("controller.addr");
        let _ = fs::remove_file(&told);
        let words = ["--config", text_of(&config), "controller", "--listen", listen];
        let words = [&words[..], &["--state-dir", text_of(&state)]].concat();
        self.controller = Some(Daemon::start(&words, &self.dir.path().join("controller.log")));
        self.address = until("the controller to listen", LIMIT, || {
            let address = fs::read_to_string(&told).ok()?;
            Some(address.trim().to_owned())
        });
    }

    /// Starts the agent, again on the state it had, and waits until it answers.
    pub(crate) fn start_agent(&mut self, words: &[&str]) {
        let config = self.config();
        let state = self.state();
        let log = self.dir.path().join("agent.log");
        let fixed = [
            "--config",
            text_of(&config),
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
