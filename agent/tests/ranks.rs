//! Real processes of a real agent: started, fenced, stopped, and never left behind.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rankguard_model::{
    AgentOrder, CheckpointCall, EvidenceBody, Generation, JobId, PrepareOrder, ProcessExit, Rank, RankSlot,
    StandbyPolicy, Step,
};
use rankguard_proto::v1;
use support::agent::{client_at, tells_its_socket, with_agent};
use support::{FakeController, LIMIT, gone, launch, lives};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn started(body: &EvidenceBody) -> Option<u32> {
    match body {
        EvidenceBody::RankStarted { pid, .. } => Some(*pid),
        _ => None,
    }
}

fn exited(body: &EvidenceBody) -> Option<ProcessExit> {
    match body {
        EvidenceBody::RankExited { exit, .. } => Some(*exit),
        _ => None,
    }
}

fn failed(body: &EvidenceBody) -> Option<String> {
    match body {
        EvidenceBody::OrderFailed { reason, .. } => Some(reason.clone()),
        _ => None,
    }
}

fn fence(generation: u64, reserve_port: bool) -> AgentOrder {
    AgentOrder::Fence {
        job: JobId::from("train"),
        generation: Generation(generation),
        reserve_port,
        nodes: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_runs_and_its_exit_code_is_told_after_its_last_words() {
    with_agent(
        |_| {},
        |controller| async move {
            let script = "echo 'ValueError: shapes (2,3) and (4,5) not aligned' >&2; exit 3";
            let traceback = format!(
                "printf 'Traceback (most recent call last):\\n  File \"t.py\", line 7, in <module>\\n' >&2; {script}"
            );
            controller
                .order(&AgentOrder::Launch(launch(1, &["sh", "-c", &traceback])))
                .await;
            assert_eq!(controller.wait_body("exit", exited).await, ProcessExit::Code(3));
            let bodies: Vec<EvidenceBody> = controller.all().into_iter().map(|evidence| evidence.body).collect();
            let line = bodies
                .iter()
                .position(|body| matches!(body, EvidenceBody::Line { text, .. } if text.contains("ValueError")));
            let exit = bodies.iter().position(|body| exited(body).is_some());
            assert!(line.is_some() && line < exit, "{bodies:#?}");
        },
    )
    .await;
}

/// The dump that PyTorch writes to the configured file arrives before the exit; invalid content is reported as such.
#[tokio::test(flavor = "multi_thread")]
async fn a_flight_recorder_dump_is_sent_before_its_rank_ends() {
    with_agent(
        |_| {},
        |controller| async move {
            let dump = r#"{"version":"2.9","pg_config":{"0":{"desc":"default_pg","ranks":"[0, 1]"}},"entries":[]}"#;
            let script = format!("echo '{dump}' > \"$TORCH_NCCL_DEBUG_INFO_TEMP_FILE$RANK\"; exit 6");
            controller
                .order(&AgentOrder::Launch(launch(1, &["sh", "-c", &script])))
                .await;
            controller.wait_body("exit", exited).await;
            let bodies: Vec<EvidenceBody> = controller.all().into_iter().map(|evidence| evidence.body).collect();
            let place = |wanted: &dyn Fn(&EvidenceBody) -> bool| bodies.iter().position(wanted);
            let sent =
                place(&|body| matches!(body, EvidenceBody::FlightDump { dump, .. } if dump.contains("default_pg")));
            assert!(
                sent.is_some() && sent < place(&|body| exited(body).is_some()),
                "{bodies:#?}"
            );

            let script = "echo nonsense > \"$TORCH_FR_DUMP_TEMP_FILE$RANK\"; sleep 300";
            controller
                .order(&AgentOrder::Launch(launch(2, &["sh", "-c", script])))
                .await;
            let told = |body: &EvidenceBody| match body {
                EvidenceBody::Gap { what, .. } if what.contains("nccl_trace_rank_0") => Some(what.clone()),
                _ => None,
            };
            let what = controller.wait_body("word of a dump that is none", told).await;
            assert!(what.contains("rank 0 of job train"), "{what}");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_and_a_folder_that_do_not_exist_are_named() {
    with_agent(
        |_| {},
        |controller| async move {
            controller
                .order(&AgentOrder::Launch(launch(1, &["no-such-program-here"])))
                .await;
            let reason = controller.wait_body("refusal", failed).await;
            assert!(reason.contains("no-such-program-here"), "{reason}");
            let mut elsewhere = launch(2, &["true"]);
            elsewhere.workdir = Some("/no/such/folder".to_owned());
            controller.order(&AgentOrder::Launch(elsewhere)).await;
            let named = |body: &EvidenceBody| failed(body).filter(|reason| reason.contains("/no/such/folder"));
            controller.wait_body("refusal that names the folder", named).await;
        },
    )
    .await;
}

/// RG-3: no SIGTERM is sent, the whole group ends, and older generations never act again.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_kills_the_whole_group_and_refuses_what_is_stale() {
    with_agent(
        |_| {},
        |controller| async move {
            let script = "trap '' TERM; sleep 300 & echo $!; wait";
            controller
                .order(&AgentOrder::Launch(launch(1, &["sh", "-c", script])))
                .await;
            let pid = controller.wait_body("start", started).await;
            let children = format!("/proc/{pid}/task/{pid}/children");
            let child: u32 = {
                let until = Instant::now() + LIMIT;
                loop {
                    let text = std::fs::read_to_string(&children).unwrap_or_default();
                    if let Some(Ok(child)) = text.split_whitespace().next().map(str::parse) {
                        break child;
                    }
                    assert!(Instant::now() < until, "the shell starts no child");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            controller.order(&fence(2, true)).await;
            let port = controller.wait_body("fenced", |body| match body {
                EvidenceBody::Fenced {
                    generation: Generation(2),
                    master_port,
                    ..
                } => Some(*master_port),
                _ => None,
            });
            assert!(port.await.is_some_and(|port| port > 0));
            assert!(!lives(pid), "the rank is gone when the fence is up");
            assert!(gone(child).await, "its child went with it");
            assert_eq!(controller.wait_body("exit", exited).await, ProcessExit::Signal(9));
            controller
                .order(&AgentOrder::Launch(launch(1, &["sleep", "300"])))
                .await;
            controller
                .wait_body("refusal", |body| {
                    failed(body).filter(|reason| reason.contains("generation 1"))
                })
                .await;
            let starts = controller
                .all()
                .iter()
                .filter(|evidence| started(&evidence.body).is_some())
                .count();
            assert_eq!(starts, 1, "nothing stale was started");
            // A repeated fence is answered again.
            controller.order(&fence(2, false)).await;
            let twice = |journal: &support::Journal| {
                let fenced = journal
                    .evidence
                    .iter()
                    .filter(|evidence| matches!(evidence.body, EvidenceBody::Fenced { .. }));
                (fenced.count() == 2).then_some(())
            };
            controller.wait("second answer", twice).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_launch_starts_nothing_twice() {
    with_agent(
        |_| {},
        |controller| async move {
            let order = AgentOrder::Launch(launch(1, &["sleep", "300"]));
            controller.order(&order).await;
            controller.wait_body("start", started).await;
            controller.order(&order).await;
            // Orders are carried out in sequence: the answer to the fence proves that the launch before it was
            // handled.
            controller.order(&fence(1, false)).await;
            controller
                .wait_body("fenced", |body| {
                    matches!(body, EvidenceBody::Fenced { .. }).then_some(())
                })
                .await;
            let starts = controller
                .all()
                .iter()
                .filter(|evidence| started(&evidence.body).is_some())
                .count();
            assert_eq!(starts, 1);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_serves_the_store_of_a_job_that_wants_it_while_ranks_run() {
    with_agent(
        |_| {},
        |controller| async move {
            controller.order(&fence(1, true)).await;
            let reserved = |body: &EvidenceBody| match body {
                EvidenceBody::Fenced { master_port, .. } => *master_port,
                _ => None,
            };
            let port = controller.wait_body("fenced", reserved).await;
            let mut wanted = launch(1, &["sleep", "300"]);
            wanted.master_port = port;
            wanted
                .env
                .insert(rankguard_model::AGENT_STORE_VARIABLE.to_owned(), "True".to_owned());
            controller.order(&AgentOrder::Launch(wanted)).await;
            let pid = controller.wait_body("start", started).await;
            let mut client = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            client.write_all(b"\x00\xce\xf7\x85\x3c\x0dping").await.unwrap();
            let mut reply = [0; 4];
            client.read_exact(&mut reply).await.unwrap();
            assert_eq!(&reply, b"ping");
            let killed = std::process::Command::new("kill")
                .args(["-9", &pid.to_string()])
                .status();
            assert!(killed.unwrap().success());
            let ended = tokio::time::timeout(LIMIT, client.read(&mut reply)).await;
            assert_eq!(ended.expect("the store ends with its last rank").unwrap(), 0);
        },
    )
    .await;
}

/// Starts a rank that runs `then` on SIGTERM, and waits until its handler is installed.
async fn asked_to_end(controller: &FakeController, dir: &Path, generation: u64, then: &str) {
    let note = dir.join(generation.to_string());
    let script = format!("trap '{then}' TERM; : > \"$0\"; while :; do sleep 0.05; done");
    let words = ["sh", "-c", &script, note.to_str().unwrap()];
    controller.order(&AgentOrder::Launch(launch(generation, &words))).await;
    let until = Instant::now() + LIMIT;
    while !note.exists() {
        assert!(Instant::now() < until, "the shell sets no trap");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_asks_first_and_kills_after_the_grace() {
    with_agent(
        |_| {},
        |controller| async move {
            let dir = tempfile::tempdir().unwrap();
            asked_to_end(&controller, dir.path(), 1, "exit 5").await;
            let stop = |generation, grace_ms| AgentOrder::Stop {
                job: JobId::from("train"),
                generation: Generation(generation),
                grace_ms,
                keeps_images: false,
            };
            controller.order(&stop(1, 60_000)).await;
            assert_eq!(controller.wait_body("exit", exited).await, ProcessExit::Code(5));
            asked_to_end(&controller, dir.path(), 2, "").await;
            controller.order(&stop(2, 100)).await;
            let killed = |body: &EvidenceBody| exited(body).filter(|exit| *exit == ProcessExit::Signal(9));
            controller.wait_body("kill", killed).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rank_started_ends_when_the_rank_does() {
    with_agent(
        |_| {},
        |controller| async move {
            let script = "sleep 300 >/dev/null 2>&1 & echo $! > \"$0\"; exit 1";
            let dir = tempfile::tempdir().unwrap();
            let note = dir.path().join("child");
            controller
                .order(&AgentOrder::Launch(launch(
                    1,
                    &["sh", "-c", script, note.to_str().unwrap()],
                )))
                .await;
            controller.wait_body("exit", exited).await;
            let child: u32 = std::fs::read_to_string(&note).unwrap().trim().parse().unwrap();
            let ended = gone(child).await;
            if !ended {
                // Ends the test's own grandchild, also when this test fails.
                let pid = rustix::process::Pid::from_raw(i32::try_from(child).unwrap()).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            assert!(ended, "the process that the rank left behind still runs");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_end_takes_the_ranks_along() {
    let pid = std::sync::Arc::new(std::sync::Mutex::new(0));
    let known = pid.clone();
    let ended = with_agent(
        |_| {},
        |controller| async move {
            controller
                .order(&AgentOrder::Launch(launch(1, &["sleep", "300"])))
                .await;
            *known.lock().unwrap() = controller.wait_body("start", started).await;
        },
    )
    .await;
    assert_eq!((ended.ranks_ended, ended.left_behind.len()), (1, 0));
    assert!(!lives(*pid.lock().unwrap()));
}

/// Neither a supervisor nor a control group is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_clean_end_leaves_no_supervisor_and_no_control_group() {
    let known = std::sync::Arc::new(std::sync::Mutex::new((0, String::new())));
    let found = known.clone();
    with_agent(
        |_| {},
        |controller| async move {
            controller
                .order(&AgentOrder::Launch(launch(1, &["sleep", "300"])))
                .await;
            let pid = controller.wait_body("start", started).await;
            let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
            let status = read("status");
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
            *found.lock().unwrap() = (parent.trim().parse().unwrap(), read("cgroup"));
        },
    )
    .await;
    let (supervisor, groups) = known.lock().unwrap().clone();
    assert!(!lives(supervisor));
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    if let Some(group) = group.filter(|group| group.contains("rankguard-")) {
        for root in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
            assert!(!Path::new(&format!("{root}{group}")).exists(), "{group} is left");
        }
    }
}

/// A spot notice is a SIGTERM: the controller is informed while the ranks still run, and they run until their steps
/// are committed.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_asked_to_end_waits_for_one_more_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("socket");
    let store = folder.path().join("store").display().to_string();
    let kept = std::sync::Arc::new(std::sync::Mutex::new(None));
    let keeps = kept.clone();
    let ended = with_agent(
        |_| {},
        |controller| async move {
            let mut order = launch(1, &["sh", "-c", &tells_its_socket(&place)]);
            order.checkpoint_store = store;
            controller.order(&AgentOrder::Launch(order)).await;
            let pid = controller.wait_body("start", started).await;
            let client = tokio::task::spawn_blocking(move || {
                let mut client = client_at(&place, 1);
                client.step(Step(7), None, 1.0);
                client
            });
            let client = client.await.unwrap();
            let stepped =
                |body: &EvidenceBody| matches!(body, EvidenceBody::Progress { step: Step(7), .. }).then_some(());
            controller.wait_body("progress", stepped).await;
            // Runs concurrently with the agent's end.
            *keeps.lock().unwrap() = Some(tokio::spawn(async move {
                let announced = |journal: &support::Journal| {
                    let marks = journal.evidence.iter().flat_map(|evidence| &evidence.marks);
                    let mut classes = marks.map(|mark| mark.class.as_str());
                    classes.any(|class| class == "maintenance").then_some(())
                };
                controller.wait("announcement", announced).await;
                let keep = |step| AgentOrder::Keep {
                    job: JobId::from("train"),
                    generation: Generation(1),
                    step: Step(step),
                    stays: None,
                };
                controller.order(&keep(6)).await;
                assert!(lives(pid), "step 7 is not safe yet");
                controller.order(&keep(8)).await;
                controller.wait_body("exit", exited).await;
                drop(client);
            }));
        },
    )
    .await;
    assert_eq!(ended.ranks_ended, 1);
    let keeps = kept.lock().unwrap().take().unwrap();
    keeps.await.unwrap();
}

/// A call reaches a rank that was still starting, and a step that the rank misses is reported to the controller.
#[tokio::test(flavor = "multi_thread")]
async fn a_called_step_reaches_the_rank_and_a_missed_one_the_controller() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("socket");
    with_agent(
        |_| {},
        |controller| async move {
            let script = tells_its_socket(&place);
            controller
                .order(&AgentOrder::Launch(launch(1, &["sh", "-c", &script])))
                .await;
            controller.wait_body("start", started).await;
            let call = |number, step| AgentOrder::Checkpoint {
                job: JobId::from("train"),
                generation: Generation(1),
                number,
                call: CheckpointCall::At { step: Step(step) },
            };
            controller.order(&call(1, 3)).await;
            let missed = tokio::task::spawn_blocking(move || {
                let until = Instant::now() + LIMIT;
                let mut client = client_at(&place, 1);
                // Until the call has arrived: a rank never waits for one.
                while !client.due(Step(3)) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(5));
                    client = client_at(&place, 1);
                }
                client.step(Step(4), None, 1.0);
                client
            });
            let client = missed.await.unwrap();
            let failed = |body: &EvidenceBody| match body {
                EvidenceBody::ShardFailed { step, reason } => Some((*step, reason.clone())),
                _ => None,
            };
            let told = controller.wait_body("missed step", failed).await;
            assert_eq!(told, (Step(3), "no image of it was taken".to_owned()));
            // Of what the controller reports as void, this rank knows step 3 itself; nothing of another generation is for it.
            for (step, generation) in [(3, 1), (5, 2), (7, 1)] {
                let void = v1::CheckpointVoid {
                    job: "train".to_owned(),
                    generation,
                    step,
                    reason: format!("the store is full at step {step}"),
                };
                controller.report_void(void).await;
            }
            let counted = tokio::task::spawn_blocking(move || {
                let (mut client, until) = (client, Instant::now() + LIMIT);
                while client.failed() == 0 && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(5));
                }
                client.take_failures()
            });
            let expected = (Step(7), "the store is full at step 7".to_owned());
            assert_eq!(counted.await.unwrap(), [expected]);
        },
    )
    .await;
}

/// RG-3: a full disk does not keep old ranks alive.
#[tokio::test(flavor = "multi_thread")]
async fn old_ranks_end_although_the_fence_cannot_be_written() {
    let state_dir = Arc::new(OnceLock::new());
    let told = Arc::clone(&state_dir);
    with_agent(
        move |settings| drop(told.set(settings.state_dir.clone())),
        |controller| async move {
            controller
                .order(&AgentOrder::Launch(launch(1, &["sleep", "300"])))
                .await;
            let pid = controller.wait_body("start", started).await;
            // The temporary file of the fences cannot be created.
            let state_dir: &PathBuf = state_dir.get().unwrap();
            std::fs::create_dir(state_dir.join("fences.tmp")).unwrap();
            controller.order(&fence(2, false)).await;
            let reason = controller.wait_body("refusal", failed).await;
            assert!(reason.contains("the fence cannot be written"), "{reason}");
            assert!(!lives(pid));
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_answered_with_the_number_of_processes_that_ended() {
    with_agent(
        |_| {},
        |controller| async move {
            controller
                .order(&AgentOrder::Launch(launch(1, &["sleep", "300"])))
                .await;
            let pid = controller.wait_body("start", started).await;
            let stop = AgentOrder::Stop {
                job: JobId::from("train"),
                generation: Generation(1),
                grace_ms: 2_000,
                keeps_images: false,
            };
            controller.order(&stop).await;
            let answer = controller
                .wait_body("answer", |body| match body {
                    EvidenceBody::Stopped { ended, left, .. } => Some((*ended, left.clone())),
                    _ => None,
                })
                .await;
            assert_eq!(answer, (1, Vec::new()));
            assert!(!lives(pid));
            // A repeated stop is answered again.
            controller.order(&stop).await;
            let twice = |journal: &support::Journal| {
                let answers = journal.evidence.iter();
                let answers = answers.filter(|evidence| matches!(evidence.body, EvidenceBody::Stopped { .. }));
                (answers.count() == 2).then_some(())
            };
            controller.wait("second answer", twice).await;
        },
    )
    .await;
}

/// Order to prepare two processes of a job that sleep as ranks.
fn prepare(job: &str, import: &str) -> PrepareOrder {
    PrepareOrder {
        job: JobId::from(job),
        generation: Generation(1),
        command: ["python3", "-m", "timeit", "-n1", "-r1", "import time; time.sleep(300)"]
            .map(str::to_owned)
            .to_vec(),
        env: std::collections::BTreeMap::from([("OF_THE_JOB".to_owned(), of_job(job))]),
        workdir: None,
        user: None,
        standby: Some(StandbyPolicy {
            count: 2,
            imports: vec![import.to_owned()],
        }),
    }
}

/// Value by which this test finds the processes of a job.
fn of_job(job: &str) -> String {
    format!("{job}-{}", std::process::id())
}

fn prepared(of: &'static str) -> impl Fn(&EvidenceBody) -> Option<(u32, Option<String>)> {
    move |body| match body {
        EvidenceBody::Prepared {
            job, waiting, problem, ..
        } if job.as_str() == of => Some((*waiting, problem.clone())),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_processes_become_the_first_ranks_of_a_job_and_end_for_another_one() {
    with_agent(
        |_| {},
        |controller| async move {
            for (job, import) in [("train", "json"), ("other", "json"), ("third", "no_such_module")] {
                controller.order(&AgentOrder::Prepare(prepare(job, import))).await;
            }
            assert_eq!(controller.wait_body("report", prepared("train")).await, (2, None));
            assert_eq!(controller.wait_body("report", prepared("other")).await, (2, None));
            let (waiting, problem) = controller.wait_body("report", prepared("third")).await;
            let problem = problem.expect("its modules cannot be imported");
            assert!(
                waiting == 0 && problem.contains("no_such_module"),
                "{waiting}, {problem}"
            );

            let wanted = prepare("train", "json");
            let command: Vec<&str> = wanted.command.iter().map(String::as_str).collect();
            let slot = |number| RankSlot {
                rank: Rank(4 + number),
                local_rank: number,
            };
            let order = rankguard_model::LaunchOrder {
                env: wanted.env.clone(),
                ranks: vec![slot(0), slot(1)],
                standby: wanted.standby.clone(),
                world_size: 6,
                ..launch(2, &command)
            };
            controller.order(&AgentOrder::Launch(order)).await;
            let both = |journal: &support::Journal| {
                let starts = journal.evidence.iter().filter_map(|evidence| match &evidence.body {
                    EvidenceBody::RankStarted { from_standby, .. } => Some(*from_standby),
                    _ => None,
                });
                Some(starts.collect::<Vec<_>>()).filter(|starts| starts.len() == 2)
            };
            assert_eq!(controller.wait("starts", both).await, [true, true]);
            // The node is used by this job now.
            let mark = format!("OF_THE_JOB={}\0", of_job("other"));
            let left = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
                let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
                String::from_utf8_lossy(&environment).contains(&mark)
            });
            assert_eq!(left.count(), 0);
        },
    )
    .await;
}
