//! Recorded evidence into a running controller, and the protection of a live cluster.
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rankguard_controller::{Settings, read_address, run};
use rankguard_core::{Event, Policy};
use rankguard_model::{Case, CaseState};
use rankguard_proto::v1;
use rankguard_proto::v1::operator_client::OperatorClient;
use tokio::sync::oneshot;

/// Deadline of every wait, sized for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A controller in this process.
struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Running {
    fn start(dir: &Path, replay_only: bool) -> Self {
        let settings = Settings {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            policy: Policy {
                replay_only,
                ..Policy::default()
            },
            ..Settings::new(dir)
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build();
            runtime
                .unwrap()
                .block_on(run(settings, async {
                    let _ = stopped.await;
                }))
                .unwrap();
        });
        let begin = Instant::now();
        loop {
            assert!(
                begin.elapsed() < DEADLINE && !thread.is_finished(),
                "it does not listen"
            );
            if let Ok(address) = read_address(dir)
                && std::net::TcpStream::connect(address).is_ok()
            {
                return Self { address, stop, thread };
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn cases(&self) -> Vec<Case> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut client = OperatorClient::connect(format!("http://{}", self.address))
                .await
                .unwrap();
            let document = client.list_cases(v1::Empty {}).await.unwrap().into_inner();
            serde_json::from_str(&document.json).unwrap()
        })
    }

    /// Polls until `wanted` cases are concluded.
    fn concluded(&self, wanted: usize) -> Vec<Case> {
        let begin = Instant::now();
        loop {
            let cases = self.cases();
            let open = cases.iter().filter(|case| case.state == CaseState::Open).count();
            if cases.len() >= wanted && open == 0 {
                return cases;
            }
            assert!(begin.elapsed() < DEADLINE, "{} cases, {open} open", cases.len());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

fn replay(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rankguard-history"));
    command.arg("replay").args(words).output().unwrap()
}

#[test]
fn cases_that_need_facts_of_the_controller_are_counted_as_missing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    fs::create_dir(&journal).unwrap();
    let classes = super::own::journal(&journal);
    let silent = classes.iter().filter(|class| *class == "node-crash").count();
    assert!(silent > 0 && silent < classes.len(), "{classes:?}");
    let controller = Running::start(&dir.path().join("state"), true);
    let ran = replay(&[
        "--journal",
        journal.to_str().unwrap(),
        "--into",
        &controller.address.to_string(),
        "--format",
        "json",
    ]);
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{told}");
    let cases = controller.concluded(classes.len() - silent);
    let missing = format!(
        "{silent} of its {} cases need facts of its controller (node-crash {silent})",
        classes.len()
    );
    assert!(told.contains(&missing), "{told}");
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let journal = &report["journals"][0];
    assert_eq!(journal["cases"], classes.len());
    assert_eq!(journal["missing"]["node-crash"], silent);
    // The errors of the survivors are evidence, and open cases of other classes.
    let is_missing = |case: &Case| case.verdict.class.as_str() == "node-crash";
    assert!(!cases.iter().any(is_missing), "{cases:?}");
    controller.stop();
}

/// Two nodes lose a GPU each, an hour apart, years ago.
const LOG: &str = "2020-03-01T10:00:00.000000+00:00 node-1 kernel: eth0: renamed from veth1
2020-03-01T10:00:01.000000+00:00 node-1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
2020-03-01T11:00:00.000000+00:00 node-2 kernel: NVRM: Xid (PCI:0000:5e:00): 79, pid=77, name=python, GPU has fallen off the bus.
";

#[test]
fn recorded_evidence_makes_marked_cases_in_the_time_of_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("node.log");
    fs::write(&log, LOG).unwrap();
    let controller = Running::start(&dir.path().join("state"), true);
    let address = controller.address.to_string();
    let ran = replay(&[log.to_str().unwrap(), "--into", &address]);
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{told}");
    assert!(told.contains("2 evidence records sent to the controller"), "{told}");
    let cases = controller.concluded(2);
    assert_eq!(cases.len(), 2);
    for (case, (node, at)) in cases.iter().zip([
        ("node-1", "2020-03-01T10:00:01.000Z"),
        ("node-2", "2020-03-01T11:00:00.000Z"),
    ]) {
        assert!(case.replayed);
        assert_eq!(case.verdict.class.as_str(), "gpu-fallen-off-bus");
        assert_eq!(case.verdict.blamed.node().unwrap().as_str(), node);
        assert_eq!(case.first_at.to_string(), at);
        // Judged at the recorded time: seconds after the event, not years.
        assert!(case.delays.case_ms.unwrap() < 1_000, "{:?}", case.delays);
        assert!(case.plan.is_none() && case.actions.is_empty());
    }
    // The same controller accepts further replays, and its journal identifies it as a replay.
    assert!(
        replay(&[log.to_str().unwrap(), "--into", &address, "--speed", "1e9"])
            .status
            .success()
    );
    controller.stop();
    let mut found = 0;
    rankguard_journal::evidence(&dir.path().join("state"), |entry| {
        let evidence = entry.unwrap();
        assert_eq!(evidence.id.node.as_str(), "replay");
        assert!(evidence.marks.iter().all(|mark| mark.fields["replayed"] == "true"));
        found += 1;
        true
    })
    .unwrap();
    assert_eq!(found, 4);
    let state = dir.path().join("state");
    let history = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rankguard-history"));
        command.args(words).arg(&state).output().unwrap()
    };
    let told = String::from_utf8_lossy(&history(&["dataset", "check"]).stdout).into_owned();
    assert!(told.contains("no cluster's life"), "{told}");
    // Its clock is that of the evidence: nothing is in 1970, and the sender is not a node of a cluster.
    assert!(
        told.contains(", 2020-03-01 10:00:01 to 2020-03-01 1") && told.contains("population  not stated"),
        "{told}"
    );
    let told = String::from_utf8_lossy(&history(&["dataset", "export", "--table", "events"]).stdout).into_owned();
    assert!(told.contains("fallen off the bus") && !told.contains("1970"), "{told}");
    let refused = history(&["simulate", "calibrate", "--data"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && told.contains("was written by a replay") && told.contains("hint:"),
        "{told}"
    );
    assert!(
        rankguard_journal::policy(&dir.path().join("state"))
            .unwrap()
            .replay_only
    );
}

#[test]
fn a_live_controller_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("node.log");
    fs::write(&log, LOG).unwrap();
    let controller = Running::start(&dir.path().join("state"), false);
    let ran = replay(&[log.to_str().unwrap(), "--into", &controller.address.to_string()]);
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success(), "{told}");
    assert!(
        told.contains("runs a live cluster") && told.contains("--replay-only"),
        "{told}"
    );
    assert_eq!(controller.cases(), []);
    controller.stop();
    let mut events = 0;
    rankguard_journal::scan(&dir.path().join("state"), |entry| {
        events += 1;
        let event = entry.unwrap().event;
        let own = matches!(event, Event::ControllerStarted | Event::LifeBegan { .. });
        assert!(own, "{event:?}");
        Ok(())
    })
    .unwrap();
    assert_eq!(events, 2, "nothing but its own beginning");
}

#[test]
fn nothing_is_said_to_a_controller_before_everything_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let log = put("node.log", LOG.as_bytes());
    let picture = put("picture.log", b"\x89PNG\r\n\x1a\n\0\0");
    let absent = format!("{log}.absent");
    let state = dir.path().join("state");
    let controller = Running::start(&state, true);
    let address = controller.address.to_string();
    for words in [
        &[log.as_str(), &absent][..],
        &[&log, &picture],
        &[&log, "--journal", &absent],
        &[&log, "--journal", &log],
    ] {
        let ran = replay(&[words, &["--into", &address]].concat());
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(
            !ran.status.success() && told.contains(words[words.len() - 1]) && told.contains("nothing was sent"),
            "{told}"
        );
    }
    controller.stop();
    rankguard_journal::scan(&state, |entry| {
        let event = entry.unwrap().event;
        let own = matches!(event, Event::ControllerStarted | Event::LifeBegan { .. });
        assert!(own, "{event:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn nobody_there_is_a_failure_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("node.log");
    fs::write(&log, LOG).unwrap();
    let ran = replay(&[log.to_str().unwrap(), "--into", "127.0.0.1:1"]);
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(
        !ran.status.success() && told.contains("cannot reach the controller"),
        "{told}"
    );
}
