//! Server with a client, a watch and a writer.

use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rankguard_fake_kubernetes::FakeServer;
use rankguard_kubernetes::{
    ApiClient, ComparedNode, ControllerCordon, NodeRecord, NodeUse, NodeWatch, NodeWriter, ServerAccess, SyncAction,
    SyncPlan, reconcile,
};
use rankguard_scheduler_nodes::NodeLimit;

/// Token that the server accepts at first.
pub(crate) const TOKEN: &str = "first-token";
/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(20);

/// Server and its client.
pub(crate) struct Bench {
    pub(crate) server: FakeServer,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) api: ApiClient,
    pub(crate) watch: NodeWatch,
    pub(crate) writer: NodeWriter,
}

impl Bench {
    /// Starts a server with nodes `n0`, `n1` and so on.
    pub(crate) fn start(nodes: usize) -> Self {
        let server = FakeServer::start();
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("ca.crt"), &server.ca_pem).expect("written");
        std::fs::write(dir.path().join("token"), TOKEN).expect("written");
        {
            let mut cluster = server.cluster();
            cluster.set_tokens(&[TOKEN]);
            (0..nodes).for_each(|number| cluster.add_node(&format!("n{number}")));
        }
        let access = ServerAccess::of_address(
            &server.url,
            Some(dir.path().join("token")),
            Some(dir.path().join("ca.crt")),
        );
        let api = ApiClient::new(access.expect("an address")).expect("a client");
        let watch = NodeWatch::new(api.clone(), None);
        Self {
            writer: NodeWriter::new(api.clone(), watch.clone()),
            watch,
            api,
            dir,
            server,
        }
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    /// Node as the server has it.
    pub(crate) async fn node(&self, name: &str) -> NodeRecord {
        self.watch.read(name).await.expect("an answer").expect("a node")
    }

    /// Plan for one node with these reasons in Rankguard.
    pub(crate) async fn plan(&self, name: &str, reasons: &[&str]) -> SyncPlan {
        let pair = pair(name, self.node(name).await.node_use(), reasons);
        reconcile(&[pair], NodeLimit::Percent(100))
    }

    /// Only action for one node.
    pub(crate) async fn action(&self, name: &str, reasons: &[&str]) -> SyncAction {
        let mut plan = self.plan(name, reasons).await;
        assert_eq!(plan.actions.len(), 1, "{plan:?}");
        plan.actions.remove(0)
    }
}

/// Pair of nodes; the name in Rankguard is the same.
pub(crate) fn pair(name: &str, kubernetes: NodeUse, reasons: &[&str]) -> ComparedNode {
    ComparedNode {
        kubernetes_name: name.to_owned(),
        controller_name: name.to_owned(),
        kubernetes,
        controller: ControllerCordon {
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
            class: None,
        },
    }
}

/// Runs a test on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
