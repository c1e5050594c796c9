//! What an agent sees and does when it is asked: a rank that hangs, a job's needs, the way to another node.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use rankguard_agent::{KernelLogSource, Settings, measure, run};
use rankguard_model::{Body, Evidence, Generation, JobId, NodeId, Order, Preflight, Rank, Step};
use rankguard_rank::{RankClient, RankEnv};
use support::{FakeController, launch};
use tokio::sync::oneshot;

async fn with_agent<F: Future<Output = ()>>(story: impl FnOnce(FakeController) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(true).await;
    let (end, ended) = oneshot::channel::<()>();
    let mut settings = Settings::new(NodeId::from("n1"), controller.address.to_string(), dir.path());
    settings.kernel_log = KernelLogSource::Off;
    settings.sysfs_root = dir.path().join("no-sysfs");
    settings.nvml_library = Some(dir.path().join("no-nvml.so"));
    settings.intervals.ranks = Duration::from_millis(20);
    settings.intervals.stall = Duration::from_millis(300);
    let agent = tokio::spawn(run(settings, async {
        let _ = ended.await;
    }));
    controller.joined(1).await;
    story(controller).await;
    end.send(()).unwrap();
    tokio::time::timeout(support::LIMIT, agent)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

fn client(place: &Path) -> RankClient {
    let until = std::time::Instant::now() + support::LIMIT;
    while !place.exists() {
        assert!(std::time::Instant::now() < until, "the rank does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let socket = std::fs::read_to_string(place).unwrap();
    let vars = [
        ("RANKGUARD_SOCKET", socket.trim()),
        ("RANKGUARD_JOB", "train"),
        ("RANKGUARD_GENERATION", "1"),
    ];
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let env = RankEnv::from_vars(&vars.into_iter().collect()).unwrap();
    RankClient::connect(&env).unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_makes_no_more_steps_is_told_with_where_its_process_stands() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("socket");
    with_agent(|controller| async move {
        let script = format!(
            "echo $RANKGUARD_SOCKET > {0}.new; mv {0}.new {0}; exec sleep 300",
            place.display()
        );
        controller
            .order(&Order::Launch(launch(1, &["sh", "-c", &script])))
            .await;
        let steps = tokio::task::spawn_blocking(move || {
            let mut client = client(&place);
            for step in 1..=10 {
                client.step(Step(step), None, 1.0);
                std::thread::sleep(Duration::from_millis(2));
            }
            client
        });
        let client = steps.await.unwrap();
        let stalled = |evidence: &Evidence| evidence.marks.iter().any(|mark| mark.signature == "ranks.stalled");
        let told = controller
            .wait("silent rank", |journal| {
                journal.evidence.iter().find(|it| stalled(it)).cloned()
            })
            .await;
        assert_eq!(told.entity.rank(), Some(Rank(0)));
        assert_eq!(told.marks[0].fields["step"], "10");
        let Body::Line { context, .. } = told.body else {
            panic!("{told:?}")
        };
        assert!(context[0].starts_with("sleeping"), "{context:?}");
        drop(client);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_lacks_something_is_answered_with_what_and_with_what_must_be_equal() {
    with_agent(|controller| async move {
        let wanted = Preflight {
            job: JobId::from("train"),
            generation: Generation(1),
            command: vec!["sh".to_owned()],
            env: BTreeMap::from([("NCCL_DEBUG".to_owned(), "INFO".to_owned())]),
            workdir: None,
            write_paths: vec!["/no/such/store".to_owned()],
            deadline_ms: 10_000,
        };
        controller.order(&Order::Preflight(wanted)).await;
        let answer = |body: &Body| match body {
            Body::Preflighted {
                failed, environment, ..
            } => Some((failed.clone(), environment.clone())),
            _ => None,
        };
        let (failed, environment) = controller.wait_body("answer", answer).await;
        let told: Vec<_> = failed
            .iter()
            .map(|it| (it.check.as_str(), it.subject.as_str()))
            .collect();
        assert_eq!(told, [("write-path", "/no/such/store")]);
        assert_eq!(environment["env NCCL_DEBUG"], "INFO");
        assert_eq!(environment["program"].len(), 64);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_measure_the_way_between_them() {
    with_agent(|controller| async move {
        let address = controller
            .wait("join", |journal| Some(journal.joins.first()?.peer_address.clone()))
            .await;
        let measured = measure(&address, &address, 1, Duration::from_millis(20)).await.unwrap();
        assert!(measured.bandwidth > 0.0 && measured.latency > 0.0, "{measured:?}");
        let nobody = measure("127.0.0.1:1", &address, 2, Duration::from_millis(20)).await;
        assert_eq!(nobody, Err("no agent answers at 127.0.0.1:1".to_owned()));
    })
    .await;
}
