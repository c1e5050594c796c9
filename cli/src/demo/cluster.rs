//! Cluster of the demo: one controller and four agents as processes on loopback.
//!
//! Every process is started from the thread that owns the cluster and dies with it (`PR_SET_PDEATHSIG`), ranks die with
//! their agents: no process outlives the demo, even after a signal.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rankguard_console::child::die_with_parent;
use rankguard_model::{JobId, NodeId, Rank};
use rustix::process::{Pid, Signal, kill_process};

use super::{DemoError, LIMIT};

/// Nodes of the demo, the spare last.
pub(super) const NODES: [&str; 4] = ["node-1", "node-2", "node-3", "spare-1"];

/// Maximum wait for supervisors to end their ranks after the agents have ended.
const ENDED: Duration = Duration::from_secs(5);

/// Processes and directories of the demo.
pub(super) struct DemoCluster {
    exe: PathBuf,
    root: PathBuf,
    address: String,
    controller: Option<Child>,
    agents: BTreeMap<NodeId, Child>,
}

impl DemoCluster {
    /// Starts the controller and all agents under `root`.
    pub(super) async fn start(root: &Path) -> Result<Self, DemoError> {
        let exe = std::env::current_exe().map_err(|source| DemoError::io("find this program", source))?;
        let mut cluster = Self {
            exe,
            root: root.to_owned(),
            address: "127.0.0.1:0".to_owned(),
            controller: None,
            agents: BTreeMap::new(),
        };
        fs::create_dir_all(cluster.store()).map_err(|source| DemoError::io("create the checkpoint store", source))?;
        fs::create_dir_all(root.join("logs")).map_err(|source| DemoError::io("create the log folder", source))?;
        fs::write(cluster.config(), CONFIG).map_err(|source| DemoError::io("write the configuration", source))?;
        cluster.start_controller().await?;
        for node in NODES {
            cluster.start_agent(&NodeId::from(node))?;
        }
        Ok(cluster)
    }

    /// Address of the controller.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Checkpoint store; stands for a shared file system.
    pub(super) fn store(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// State directory of the controller.
    pub(super) fn controller_state(&self) -> PathBuf {
        self.root.join("controller")
    }

    fn config(&self) -> PathBuf {
        self.root.join("demo.toml")
    }

    /// Starts the controller; a restart uses its previous address.
    pub(super) async fn start_controller(&mut self) -> Result<(), DemoError> {
        let state = self.controller_state();
        fs::create_dir_all(&state).map_err(|source| DemoError::io("create the controller's folder", source))?;
        let announced = state.join("controller.addr");
        let _ = fs::remove_file(&announced);
        let mut command = self.command("controller")?;
        command
            .arg("--listen")
            .arg(&self.address)
            .arg("--state-dir")
            .arg(&state);
        let mut child = command
            .spawn()
            .map_err(|source| DemoError::io("start the controller", source))?;
        let started = Instant::now();
        self.address = loop {
            if let Ok(address) = fs::read_to_string(&announced) {
                break address.trim().to_owned();
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Err(DemoError::Died {
                    what: "controller".into(),
                    status,
                    log: self.log("controller"),
                });
            }
            if started.elapsed() > LIMIT {
                return Err(DemoError::Slow {
                    what: "the controller to listen".into(),
                    log: self.log("controller"),
                });
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        self.controller = Some(child);
        Ok(())
    }

    /// Starts the agent of a node.
    pub(super) fn start_agent(&mut self, node: &NodeId) -> Result<(), DemoError> {
        let kmsg = self.kernel_log(node);
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&kmsg)
            .map_err(|source| DemoError::io("create a kernel log", source))?;
        let mut command = self.command(node.as_str())?;
        command
            .args(["--node", node.as_str(), "--host", "127.0.0.1", "--slots", "2"])
            .args(["--controller", &self.address])
            .arg("--state-dir")
            .arg(self.root.join(node.as_str()))
            .arg("--kernel-log")
            .arg(&kmsg);
        let child = command
            .spawn()
            .map_err(|source| DemoError::io("start an agent", source))?;
        self.agents.insert(node.clone(), child);
        Ok(())
    }

    fn command(&self, name: &str) -> Result<Command, DemoError> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(name))
            .map_err(|source| DemoError::io("open a log", source))?;
        let both = log.try_clone().map_err(|source| DemoError::io("open a log", source))?;
        let mut command = Command::new(&self.exe);
        command
            .arg(if name == "controller" { "controller" } else { "agent" })
            .arg("--config")
            .arg(self.config())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(both)
            // A process group of its own: only the demo handles Ctrl-C.
            .process_group(0);
        die_with_parent(&mut command);
        Ok(command)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }

    fn kernel_log(&self, node: &NodeId) -> PathBuf {
        self.root.join(format!("{node}.kmsg"))
    }

    /// Appends lines to the kernel log of a node's agent, in the format of `/dev/kmsg`.
    pub(super) fn write_kernel_log(&self, node: &NodeId, lines: &[String]) -> Result<(), DemoError> {
        let path = self.kernel_log(node);
        let failed = |source| DemoError::io("write a kernel log", source);
        let before = fs::read(&path)
            .map_err(failed)?
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        let uptime_us = uptime_us();
        let text: String = lines
            .iter()
            .enumerate()
            .map(|(at, line)| format!("3,{},{},-;{line}\n", before + at + 1, uptime_us + at as u64 * 40))
            .collect();
        let mut file = OpenOptions::new().append(true).open(&path).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)
    }

    /// Sends SIGKILL to the controller.
    pub(super) fn kill_controller(&mut self) {
        if let Some(child) = self.controller.take() {
            end(child);
        }
    }

    /// Sends SIGKILL to an agent; its ranks die with it. Returns false if it does not run.
    pub(super) fn kill_agent(&mut self, node: &NodeId) -> bool {
        self.agents.remove(node).map(end).is_some()
    }

    /// Nodes with a running agent.
    pub(super) fn running_agents(&self) -> Vec<NodeId> {
        self.agents.keys().cloned().collect()
    }

    /// Returns the process ids of a job's ranks on a node, by rank.
    pub(super) fn ranks(&self, node: &NodeId, job: &JobId) -> BTreeMap<Rank, i32> {
        let Some(agent) = self.agents.get(node) else {
            return BTreeMap::new();
        };
        // Ranks are children of supervisors, which are children of the agent.
        children(agent.id())
            .into_iter()
            .flat_map(|supervisor| children(supervisor.cast_unsigned()))
            .filter_map(|pid| Some((rank_of(pid, job)?, pid)))
            .collect()
    }
}

impl Drop for DemoCluster {
    fn drop(&mut self) {
        let children: Vec<Child> = self
            .controller
            .take()
            .into_iter()
            .chain(std::mem::take(&mut self.agents).into_values())
            .collect();
        let mut below: Vec<i32> = children.iter().flat_map(|child| descendants(child.id())).collect();
        children.into_iter().for_each(end);
        // Supervisors end the ranks and then themselves; remaining processes are killed here.
        let until = Instant::now() + ENDED;
        while !below.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
            below.retain(|pid| is_alive(*pid));
        }
        for pid in below {
            signal(pid, Signal::KILL);
        }
    }
}

/// True if a process runs; false for a zombie.
fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Kills a process and reaps it.
fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Sends a signal to one process; a missing process is no error.
pub(super) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

fn children(pid: u32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<i32>>()
        })
        .collect()
}

fn descendants(pid: u32) -> Vec<i32> {
    let mut found = children(pid);
    let mut at = 0;
    while let Some(next) = found.get(at).copied() {
        found.extend(children(next as u32));
        at += 1;
    }
    found
}

fn rank_of(pid: i32, job: &JobId) -> Option<Rank> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environ
        .split(|byte| *byte == 0)
        .filter_map(|pair| std::str::from_utf8(pair).ok());
    let wanted = format!("RANKGUARD_JOB={job}");
    variables.clone().any(|pair| pair == wanted).then_some(())?;
    variables
        .find_map(|pair| pair.strip_prefix("RANK=")?.parse().ok())
        .map(Rank)
}

fn uptime_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// Configuration of the demo: every wait is short, and one node of four may be cordoned.
const CONFIG: &str = include_str!("demo.toml");
