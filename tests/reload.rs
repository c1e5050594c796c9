//! Catalogues that are read again by an agent and a controller that run, through the programs that people start.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Daemon, rankguard, until};

const LIMIT: Duration = Duration::from_secs(60);
/// What no built-in signature knows.
const UNKNOWN: &str = "acme0: accelerator 0000:9b:00.0 vanished from its slot";
/// What one knows, and what is no case by itself: how a process's work on a GPU is cleared away.
const KNOWN: &str = "NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=python, Ch 00000010";
const CLASS: &str = "gpu-acme-gone";

/// A class and the signature that names it, as an operator writes them.
const GOOD: &str = r#"
[[class]]
id = "gpu-acme-gone"
parent = "gpu-fallen-off-bus"
layer = "hardware"
definition = "An accelerator of Acme is no longer in its slot."
causes = ["a loose card"]
advice = "Seat the card again."
clears = "the card is seen again"
sources = ["nvidia-gpu-debug"]

[[signature]]
id = "acme-gone"
literals = ["vanished from its slot"]
pattern = 'acme0: accelerator (?P<bdf>[0-9a-f:.]+) vanished from its slot'
class = "gpu-acme-gone"
confidence = 0.95
entity = "gpu"
source = "https://acme.example/accelerators"
example = "acme0: accelerator 0000:9b:00.0 vanished from its slot"
"#;

struct Cluster {
    dir: tempfile::TempDir,
    controller: Daemon,
    address: String,
    agent: Daemon,
}

impl Cluster {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        fs::write(at("mine.toml"), "# Nothing yet.\n").expect("written");
        fs::write(at("kern.log"), "").expect("written");
        let settings = format!(
            "[controller]\ncatalogue = [{file:?}]\n[controller.policy]\nsettle_ms = 200\n[agent]\ncatalogue = [{file:?}]\n",
            file = at("mine.toml")
        );
        fs::write(at("test.toml"), settings).expect("written");
        let config = at("test.toml");
        let log = at("kern.log");
        let brain = at("controller");
        let state = at("agent");
        let config = ["--config", text(&config)];
        let words = ["controller", "--listen", "127.0.0.1:0", "--state-dir", text(&brain)];
        let controller = Daemon::start(&[&config[..], &words[..]].concat(), &at("controller.log"));
        let address = until("the controller to listen", LIMIT, || {
            let address = fs::read_to_string(brain.join("controller.addr")).ok()?;
            Some(address.trim().to_owned())
        });
        let words = [
            "agent",
            "--node",
            "n1",
            "--controller",
            &address,
            "--kernel-log",
            text(&log),
        ];
        let of_state = ["--state-dir", text(&state)];
        let agent = Daemon::start(&[&config[..], &words[..], &of_state[..]].concat(), &at("agent.log"));
        let cluster = Self {
            controller,
            address,
            agent,
            dir,
        };
        until("the agent to answer", LIMIT, || {
            let asked = rankguard(&["agent", "status", "--state-dir", text(&cluster.at("agent"))]);
            (asked.code == Some(0)).then_some(())
        });
        cluster
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn writes(&self, line: &str) {
        let log = fs::File::options().append(true).open(self.at("kern.log"));
        writeln!(log.expect("it opens"), "{line}").expect("it is written");
    }

    fn view(&self) -> Value {
        let state = self.at("agent");
        let words = ["agent", "status", "--state-dir", text(&state), "--format", "json"];
        let ran = rankguard(&words).expect(0);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|problem| panic!("{problem}: {}", ran.stdout))
    }

    /// The catalogue of the agent, once it is so.
    fn catalogue(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        until(what, LIMIT, || Some(self.view()["catalogue"].clone()).filter(&is))
    }

    /// Waits for a concluded case of a class.
    fn case(&self, class: &str) -> Value {
        until(class, LIMIT, || {
            let words = ["cases", "--controller", &self.address, "--format", "json"];
            let ran = rankguard(&words).expect(0);
            let cases: Value = serde_json::from_str(&ran.stdout).ok()?;
            let all = cases.as_array()?;
            all.iter().find(|case| case["verdict"]["class"] == class).cloned()
        })
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap_or_default()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

#[test]
fn a_line_that_nothing_knew_becomes_a_case_after_a_reload_and_a_broken_file_changes_nothing() {
    let cluster = Cluster::start();
    let built_in = cluster.catalogue("the catalogue", |it| it["loads"] == 1);
    // The first line says nothing to anybody; the second shows that it was read.
    cluster.writes(UNKNOWN);
    cluster.writes(KNOWN);
    let about = |line: &str| {
        let view = cluster.view();
        let findings = view["findings"].as_array().expect("a list").iter();
        findings.filter(|it| it["body"]["text"] == line).count()
    };
    until("the second line", LIMIT, || (about(KNOWN) == 1).then_some(()));
    assert_eq!(about(UNKNOWN), 0);

    fs::write(
        cluster.at("mine.toml"),
        GOOD.replace("confidence = 0.95", "confidence = 7"),
    )
    .expect("written");
    cluster.agent.hang_up();
    cluster.controller.hang_up();
    let refused = cluster.catalogue("the refusal", |it| it["refused"] == 1);
    let why = refused["newest_refusal"]["why"].as_str().unwrap_or_default();
    assert!(why.contains("mine.toml:") && why.contains(": confidence: "), "{why}");
    assert_eq!(refused["version"], built_in["version"]);
    until("the controller to refuse", LIMIT, || {
        let log = cluster.log("controller.log");
        (log.contains("mine.toml:") && log.contains("stays in use")).then_some(())
    });

    fs::write(cluster.at("mine.toml"), GOOD).expect("written");
    cluster.agent.hang_up();
    cluster.controller.hang_up();
    let loaded = cluster.catalogue("the reload", |it| it["loads"] == 2);
    assert_ne!(loaded["version"], built_in["version"]);
    let count = |it: &Value| it["signatures"].as_u64();
    assert_eq!(count(&loaded), count(&built_in).map(|count| count + 1));
    let version = loaded["version"].as_str().expect("a version");
    until("the controller to take it", LIMIT, || {
        let said = format!("catalogue {version} is in force");
        cluster.log("controller.log").contains(&said).then_some(())
    });
    cluster.writes(UNKNOWN);
    let case = cluster.case(CLASS);
    // The controller knows the class as well: its layer and what clears it are those of the file.
    assert_eq!(case["verdict"]["layer"], "hardware");
    assert_eq!(case["clears"], "the card is seen again");
    // What was seen before is still known.
    assert_eq!((about(KNOWN), about(UNKNOWN)), (1, 1));
}

#[test]
fn neither_starts_with_files_that_cannot_be_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("mine.toml");
    let config = dir.path().join("test.toml");
    fs::write(&file, GOOD.replace("confidence = 0.95", "confidence = 7")).expect("written");
    let settings = format!("[controller]\ncatalogue = [{file:?}]\n[agent]\ncatalogue = [{file:?}]\n");
    fs::write(&config, settings).expect("written");
    let state = dir.path().join("state");
    for part in ["controller", "agent"] {
        let words = ["--config", text(&config), part, "--state-dir", text(&state)];
        rankguard(&words).expect(2).says(&["mine.toml:", "confidence"]);
    }
}
