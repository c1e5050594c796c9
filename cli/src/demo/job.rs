//! Training job of the demo, and its undisturbed reference run.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rankguard_console::child::die_with_parent;
use rankguard_model::{CheckpointPolicy, JobId, JobSpec, NodeRange};

use super::{DemoError, LIMIT};

/// Ranks per node.
pub(super) const RANKS_PER_NODE: u32 = 2;
/// Steps of an epoch: 1,797 images in batches of 96, the last one short.
pub(super) const STEPS_PER_EPOCH: u64 = 19;
/// Steps between checkpoints.
const CHECKPOINT_EVERY: u64 = 10;

/// Length and pace of the demo's training.
#[derive(Debug, Clone)]
pub(super) struct TrainingPace {
    pub(super) epochs: u64,
    /// Minimum duration of a step in milliseconds, so that faults hit a running job.
    pub(super) step_ms_min: u64,
}

impl TrainingPace {
    /// Number of steps of the whole run.
    pub(super) fn steps(&self) -> u64 {
        self.epochs * STEPS_PER_EPOCH
    }

    fn command(&self, exe: &Path, out: &Path, paced: bool) -> Vec<String> {
        let step_ms_min = if paced { self.step_ms_min } else { 0 };
        [
            exe.display().to_string(),
            "demo-rank".to_owned(),
            format!("--epochs={}", self.epochs),
            format!("--step-ms-min={step_ms_min}"),
            format!("--out={}", out.display()),
        ]
        .into()
    }

    /// Returns the job specification as a user would submit it.
    pub(super) fn spec(&self, name: &str, exe: &Path, out: &Path, store: &Path, extra: &[String]) -> JobSpec {
        let mut command = self.command(exe, out, true);
        command.extend_from_slice(extra);
        JobSpec {
            id: JobId::from(name),
            command,
            env: BTreeMap::new(),
            workdir: None,
            nodes: NodeRange { min: 2, max: 3 },
            ranks_per_node: RANKS_PER_NODE,
            checkpoint: Some(CheckpointPolicy {
                every_steps: CHECKPOINT_EVERY,
                store: store.display().to_string(),
                keep: 3,
                retention: rankguard_model::RetentionPolicy::default(),
                tiers: rankguard_model::CheckpointTiers::default(),
            }),
            max_restarts: 100,
            user: None,
            resume_from: None,
            standby: None,
        }
    }
}

/// Ranks of the undisturbed run: no agent, no controller, no pacing. Killed on drop.
pub(super) struct ReferenceRun {
    ranks: Vec<Child>,
    out: PathBuf,
    started: Instant,
}

impl ReferenceRun {
    /// Starts six ranks of the same program.
    pub(super) fn start(training: &TrainingPace, root: &Path) -> Result<Self, DemoError> {
        let exe = std::env::current_exe().map_err(|source| DemoError::io("find this program", source))?;
        let out = root.join("undisturbed");
        fs::create_dir_all(&out).map_err(|source| DemoError::io("create a folder", source))?;
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|source| DemoError::io("find a free port", source))?
            .port();
        let world = RANKS_PER_NODE * 3;
        let mut reference = Self {
            ranks: Vec::new(),
            out: out.clone(),
            started: Instant::now(),
        };
        let command = training.command(&exe, &out, false);
        for rank in 0..world {
            let log = fs::File::create(out.join(format!("rank-{rank}.log")))
                .map_err(|source| DemoError::io("create a log", source))?;
            let mut process = Command::new(&exe);
            process
                .args(&command[1..])
                .env_remove("RANKGUARD_SOCKET")
                .envs([
                    ("MASTER_ADDR", "127.0.0.1".to_owned()),
                    ("MASTER_PORT", port.to_string()),
                ])
                .envs([("RANK", rank.to_string()), ("WORLD_SIZE", world.to_string())])
                .envs([
                    ("LOCAL_RANK", (rank % RANKS_PER_NODE).to_string()),
                    ("LOCAL_WORLD_SIZE", RANKS_PER_NODE.to_string()),
                    ("GROUP_RANK", (rank / RANKS_PER_NODE).to_string()),
                ])
                .envs([
                    ("TORCHELASTIC_RUN_ID", "undisturbed"),
                    ("TORCHELASTIC_RESTART_COUNT", "0"),
                ])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log);
            std::os::unix::process::CommandExt::process_group(&mut process, 0);
            die_with_parent(&mut process);
            let child = process
                .spawn()
                .map_err(|source| DemoError::io("start a rank", source))?;
            reference.ranks.push(child);
        }
        Ok(reference)
    }

    /// Waits for the end of the run; returns the directory of its results and its duration.
    pub(super) async fn finish(mut self) -> Result<(PathBuf, Duration), DemoError> {
        for rank in 0..self.ranks.len() {
            loop {
                let log = self.out.join(format!("rank-{rank}.log"));
                match self.ranks[rank].try_wait() {
                    Ok(Some(status)) if status.success() => break,
                    Ok(Some(status)) => {
                        return Err(DemoError::Died {
                            what: format!("undisturbed rank {rank}"),
                            status,
                            log,
                        });
                    }
                    Ok(None) if self.started.elapsed() > LIMIT => {
                        return Err(DemoError::Slow {
                            what: "the undisturbed run".to_owned(),
                            log,
                        });
                    }
                    Ok(None) => tokio::time::sleep(Duration::from_millis(10)).await,
                    Err(source) => return Err(DemoError::io("wait for a rank", source)),
                }
            }
        }
        Ok((self.out.clone(), self.started.elapsed()))
    }
}

impl Drop for ReferenceRun {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}
