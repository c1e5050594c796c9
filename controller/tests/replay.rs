//! Replay-only controller: permitted sessions, refused commands, and separation of journals.

use crate::common::{Agent, Running, job, settings};
use rankguard_controller::{ControllerError, Settings, run};
use rankguard_core::Policy;
use rankguard_proto::v1::control_client::ControlClient;
use rankguard_proto::{REPLAY_HEADER, v1};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

fn replaying(dir: &std::path::Path) -> Settings {
    let live = settings(dir);
    Settings {
        policy: Policy {
            replay_only: true,
            ..live.policy
        },
        ..live
    }
}

/// Opens a session as a live agent or as a replay; returns true if the response marks a replay-only controller.
async fn knock(controller: &Running, is_replay: bool) -> Result<bool, Status> {
    let mut client = ControlClient::connect(format!("http://{}", controller.address))
        .await
        .expect("it listens");
    let mut request = Request::new(tokio_stream::iter(Vec::<v1::FromAgent>::new()));
    if is_replay {
        request
            .metadata_mut()
            .insert(REPLAY_HEADER, MetadataValue::from_static("true"));
    }
    let answer = client.session(request).await?;
    Ok(answer.metadata().contains_key(REPLAY_HEADER))
}

#[tokio::test(flavor = "multi_thread")]
async fn live_agents_and_jobs_are_refused_and_replays_are_told_where_they_are() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(replaying(dir.path())).await;
    assert!(knock(&controller, true).await.expect("a replay is welcome"));
    let refusal = knock(&controller, false).await.expect_err("a live agent");
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    assert!(refusal.message().contains("takes replays only"), "{refusal}");
    let refusal = controller.submit(&job("train")).await.expect_err("a job");
    assert!(refusal.message().contains("runs no jobs"), "{refusal}");
    assert!(controller.status().await.jobs.is_empty());
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_controller_refuses_replays_and_works_on() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let refusal = knock(&controller, true).await.expect_err("a replay");
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    assert!(refusal.message().contains("runs a live cluster"), "{refusal}");
    let agent = Agent::join(controller.address, "n1").await;
    assert_eq!(agent.acknowledged, 0);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replays_journal_is_never_a_clusters_nor_the_other_way_round() {
    for replay_first in [true, false] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let of = |replay: bool| {
            if replay {
                replaying(dir.path())
            } else {
                settings(dir.path())
            }
        };
        Running::start(of(replay_first)).await.stop().await;
        let error = run(of(!replay_first), std::future::pending())
            .await
            .expect_err("another life");
        let ControllerError::ReplayJournal { is_replay, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(*is_replay, replay_first);
        assert!(error.to_string().contains("use another state directory"), "{error}");
    }
}
