//! RG-13: only a rank's own processes may act for it at the agent's socket. The agent, its ranks and the foreign
//! processes are separate processes here, because the check uses the kernel's credentials.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rankguard_agent::run;
use rankguard_model::{AgentOrder, EvidenceBody, Rank, RankSlot, Step};
use rankguard_proto::frame::{self, FrameReader};
use rankguard_proto::v1;
use rankguard_proto::v1::from_rank::Kind as Said;
use rankguard_proto::v1::to_rank::Kind as Heard;
use rankguard_rank::{RankClient, RankEnv};
use support::agent::settings;
use support::{FakeController, LIMIT, launch};

const STATE: &str = "RANKGUARD_TEST_STATE";
const CONTROLLER: &str = "RANKGUARD_TEST_CONTROLLER";
/// File to which the rank process writes how it was received, and the rank that it claims to be.
const OUTCOME: &str = "RANKGUARD_TEST_OUTCOME";
const CLAIM: &str = "RANKGUARD_TEST_CLAIM";
/// Set if the rank process reports the end of its work.
const FINISHES: &str = "RANKGUARD_TEST_FINISHES";
/// Set if the rank process restores before it makes a step.
const RESTORES: &str = "RANKGUARD_TEST_RESTORES";

/// Not a test of its own: the agent process of the tests below.
#[tokio::test(flavor = "multi_thread")]
async fn agent_process() {
    let (Ok(state), Ok(controller)) = (std::env::var(STATE), std::env::var(CONTROLLER)) else {
        return;
    };
    let _ = run(settings(Path::new(&state), &controller), std::future::pending()).await;
}

/// Not a test of its own: a rank process that reports a step for the rank that it claims to be.
#[test]
fn rank_process() {
    let Ok(outcome) = std::env::var(OUTCOME) else { return };
    let mut vars: std::collections::BTreeMap<String, String> = std::env::vars().collect();
    if let Ok(claim) = std::env::var(CLAIM) {
        vars.insert("RANK".to_owned(), claim);
    }
    let env = RankEnv::from_vars(&vars.into_iter().collect()).unwrap();
    let told = match RankClient::connect(&env) {
        Ok(client) => {
            let mut client = client.expect("there is an agent");
            if std::env::var(RESTORES).is_ok() {
                let restored = client.restore(&[]);
                std::fs::write(&outcome, format!("{restored:?}")).unwrap();
                return;
            }
            client.step(Step(7), None, 1.0);
            if std::env::var(FINISHES).is_ok() {
                client.done().unwrap();
            }
            // The step mark is on its way when the process ends.
            std::thread::sleep(Duration::from_millis(500));
            "welcome".to_owned()
        }
        Err(problem) => format!("{problem}: {problem:?}"),
    };
    std::fs::write(format!("{outcome}.new"), told).unwrap();
    std::fs::rename(format!("{outcome}.new"), outcome).unwrap();
}

/// Killed when dropped, so that a failing test leaves nothing.
struct Process(Child);

impl Process {
    fn agent(state: &Path, controller: &FakeController) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["agent_process", "--exact", "--nocapture"]);
        command
            .env(STATE, state)
            .env(CONTROLLER, controller.address.to_string());
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for and returns the output of a rank process.
async fn outcome(path: &Path) -> String {
    let until = Instant::now() + LIMIT;
    loop {
        if let Ok(told) = std::fs::read_to_string(path) {
            return told;
        }
        assert!(Instant::now() < until, "{} is not told", path.display());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Starts two ranks, each with a shell script in which `$RANK_PROCESS` acts for a rank.
async fn ranks(dir: &Path, controller: &FakeController, script: &str) {
    ranks_with_store(dir, controller, script, "").await;
}

async fn ranks_with_store(dir: &Path, controller: &FakeController, script: &str, store: &str) {
    let program = std::env::current_exe().unwrap();
    let words = format!("{} rank_process --exact --nocapture", program.display());
    let mut order = launch(1, &["sh", "-c", &script.replace("$RANK_PROCESS", &words)]);
    order.world_size = 2;
    order.ranks = [0, 1]
        .map(|rank| RankSlot {
            rank: Rank(rank),
            local_rank: rank,
        })
        .to_vec();
    order.env.insert("OUT".to_owned(), dir.display().to_string());
    order.checkpoint_store = store.to_owned();
    controller.order(&AgentOrder::Launch(order)).await;
}

fn hello(stream: &mut UnixStream) {
    let hello = v1::RankHello {
        job: "train".to_owned(),
        generation: 1,
        rank: 0,
        pid: 1,
        follows: false,
        reads_failures: false,
        leaves: false,
    };
    let message = v1::FromRank {
        kind: Some(Said::Hello(hello)),
    };
    stream.write_all(&frame::encode(&message)).unwrap();
}

/// Returns the first message of the agent; `None` if it closed the connection.
fn heard(stream: &mut UnixStream) -> Option<Heard> {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut reader = FrameReader::new();
    let mut bytes = [0; 4096];
    loop {
        if let Some(message) = reader.next::<v1::ToRank>().unwrap() {
            return message.kind;
        }
        match stream.read(&mut bytes) {
            Ok(0) => return None,
            Ok(count) => reader.push(&bytes[..count]),
            Err(problem) if problem.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(problem) => panic!("{problem}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_is_spoken_for_by_its_own_processes_and_by_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let controller = FakeController::start(true).await;
    let _agent = Process::agent(&state, &controller);
    controller.joined(1).await;
    // Each rank acts for itself: as a child, and as a child in a session of its own. Then for the other one.
    let script = "export RANKGUARD_TEST_OUTCOME\n\
                  RANKGUARD_TEST_OUTCOME=$OUT/own-$RANK $RANK_PROCESS\n\
                  RANKGUARD_TEST_OUTCOME=$OUT/session-$RANK setsid $RANK_PROCESS\n\
                  RANKGUARD_TEST_CLAIM=$((1 - RANK)) RANKGUARD_TEST_OUTCOME=$OUT/other-$RANK $RANK_PROCESS\n\
                  exec sleep 300";
    ranks(dir.path(), &controller, script).await;
    for rank in [0, 1] {
        for name in ["own", "session"] {
            let told = outcome(&dir.path().join(format!("{name}-{rank}"))).await;
            assert_eq!(told, "welcome", "{name}-{rank}");
        }
        let told = outcome(&dir.path().join(format!("other-{rank}"))).await;
        assert!(told.contains(&format!("belongs to rank {rank} of job train")), "{told}");
    }

    // This process started the agent and belongs to no rank.
    let told = tokio::task::spawn_blocking(move || {
        let mut stream = UnixStream::connect(state.join("ranks.sock")).unwrap();
        hello(&mut stream);
        heard(&mut stream)
    });
    let Some(Heard::Refused(refused)) = told.await.unwrap() else {
        panic!("a stranger is refused");
    };
    assert!(
        refused.reason.contains("was not started by the rank"),
        "{}",
        refused.reason
    );
    let steps = controller
        .all()
        .into_iter()
        .filter(|evidence| matches!(evidence.body, EvidenceBody::Progress { .. }));
    assert!(steps.count() >= 2, "what ranks say of themselves is heard");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_end_and_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let controller = FakeController::start(true).await;
    let _agent = Process::agent(&state, &controller);
    controller.joined(1).await;
    let socket = state.join("ranks.sock");
    let ended = tokio::task::spawn_blocking(move || {
        let connect = || UnixStream::connect(&socket).unwrap();
        // One that announces a message of 60 MiB before it identifies itself.
        let mut large = connect();
        large.write_all(&(60_u32 << 20).to_le_bytes()).unwrap();
        assert_eq!(heard(&mut large), None);
        let mut silent: Vec<UnixStream> = (0..200).map(|_| connect()).collect();
        // Some have begun a message, byte by byte.
        for stream in silent.iter_mut().step_by(3) {
            let _ = stream.write_all(&[9]);
        }
        silent.iter_mut().filter_map(heard).count()
    });
    assert_eq!(ended.await.unwrap(), 0, "all of them are closed, and none is answered");
    // The agent still serves connections.
    ranks(
        dir.path(),
        &controller,
        "RANKGUARD_TEST_OUTCOME=$OUT/own-$RANK $RANK_PROCESS; exec sleep 300",
    )
    .await;
    for rank in [0, 1] {
        assert_eq!(outcome(&dir.path().join(format!("own-{rank}"))).await, "welcome");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_of_a_rank_neither_joins_nor_restores_in_a_generation() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let store = dir.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let controller = FakeController::start(true).await;
    let _agent = Process::agent(&state, &controller);
    controller.joined(1).await;
    // Rank 0 is started again after an error. Rank 1 reports the end of its work before another program begins.
    let script = "export RANKGUARD_TEST_OUTCOME\n\
                  test $RANK = 1 && export RANKGUARD_TEST_FINISHES=1\n\
                  RANKGUARD_TEST_OUTCOME=$OUT/first-$RANK $RANK_PROCESS\n\
                  RANKGUARD_TEST_OUTCOME=$OUT/second-$RANK $RANK_PROCESS\n\
                  RANKGUARD_TEST_RESTORES=1 RANKGUARD_TEST_OUTCOME=$OUT/third-$RANK $RANK_PROCESS\n\
                  exec sleep 300";
    ranks_with_store(dir.path(), &controller, script, store.to_str().unwrap()).await;
    for name in ["first-0", "first-1", "second-1"] {
        assert_eq!(outcome(&dir.path().join(name)).await, "welcome", "{name}");
    }
    for name in ["second-0", "third-0"] {
        let told = outcome(&dir.path().join(name)).await;
        assert!(told.contains("cannot continue the work of rank 0"), "{name}: {told}");
        assert!(told.contains("made step 7 and has ended"), "{name}: {told}");
    }
    let told = outcome(&dir.path().join("third-1")).await;
    assert!(told.contains("can neither restore nor save for rank 1"), "{told}");
    let reported = |evidence: &rankguard_model::Evidence| {
        let mut marks = evidence.marks.iter();
        marks.any(|mark| mark.signature == "agent.refused-process")
    };
    let reports = controller.all().into_iter().filter(reported).count();
    assert_eq!(reports, 1, "each rank is reported once");
}
