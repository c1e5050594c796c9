//! Agent for tests, and the ranks that it starts.

use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

use rankguard_agent::{AgentSettings, KernelLogSource, ShutdownReport, run};
use rankguard_model::NodeId;
use rankguard_rank::{RankClient, RankEnv};
use tokio::sync::oneshot;

use super::{FakeController, LIMIT};

/// Settings of an agent that observes nothing of the machine it runs on.
pub fn settings(state_dir: &Path, controller: &str) -> AgentSettings {
    let mut settings = AgentSettings::new(NodeId::from("n1"), controller, state_dir);
    settings.slots = 2;
    settings.kernel_log = KernelLogSource::Off;
    settings.sysfs_root = state_dir.join("no-sysfs");
    settings.nvml_library = Some(state_dir.join("no-nvml.so"));
    settings.supervisor_process = supervisor_process();
    settings
}

/// Not a test of its own: the process that supervises ranks of the agents of this binary.
#[test]
fn supervisor() {
    // Only an agent starts this with its mark, and with a socket as standard input.
    if std::env::var_os("RANKGUARD_FENCE").is_some() {
        rankguard_agent::supervise_ranks().unwrap();
    }
}

/// Command that starts this binary as a supervisor.
pub fn supervisor_process() -> Vec<OsString> {
    let words = ["support::agent::supervisor", "--exact", "--nocapture"].map(OsString::from);
    let program = std::env::current_exe().unwrap().into_os_string();
    std::iter::once(program).chain(words).collect()
}

/// Runs an agent beside a test body; ends it in order afterwards.
pub async fn with_agent<F: Future<Output = ()>>(
    adjust: impl FnOnce(&mut AgentSettings),
    story: impl FnOnce(FakeController) -> F,
) -> ShutdownReport {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(true).await;
    let (end, ended) = oneshot::channel::<()>();
    let mut settings = settings(dir.path(), &controller.address.to_string());
    adjust(&mut settings);
    let agent = tokio::spawn(run(settings, async {
        let _ = ended.await;
    }));
    controller.joined(1).await;
    story(controller).await;
    end.send(()).unwrap();
    let ended = tokio::time::timeout(LIMIT, agent).await.unwrap().unwrap().unwrap();
    assert!(!dir.path().join("ranks.sock").exists(), "the socket is gone");
    ended
}

/// Shell script of a rank that writes the path of its agent's socket to `place`.
pub fn tells_its_socket(place: &Path) -> String {
    format!(
        "echo $RANKGUARD_SOCKET > {0}.new; mv {0}.new {0}; sleep 300",
        place.display()
    )
}

/// Connects as rank 0 of a generation, once the rank has written the path of its agent's socket to `place`.
pub fn client_at(place: &Path, generation: u64) -> RankClient {
    let until = Instant::now() + LIMIT;
    while !place.exists() {
        assert!(Instant::now() < until, "the rank does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let socket = std::fs::read_to_string(place).unwrap();
    let vars = [
        ("RANKGUARD_SOCKET", socket.trim()),
        ("RANKGUARD_JOB", "train"),
        ("RANKGUARD_GENERATION", &generation.to_string()),
    ];
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let env = RankEnv::from_vars(&vars.into_iter().collect()).unwrap();
    RankClient::connect(&env).unwrap().unwrap()
}
