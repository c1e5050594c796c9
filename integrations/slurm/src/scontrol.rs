//! Slurm's own program `scontrol`, with a time limit and a bounded answer.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use crate::slurm_node::{NodeAvailability, NodeListing, is_single_name};

/// Largest answer: some 100,000 nodes.
const OUTPUT_MAX: u64 = 128 << 20;
/// Largest text of an error that is retained, bytes.
const ERROR_MAX: u64 = 4 << 10;

/// Failure of a call of `scontrol`.
#[derive(Debug, thiserror::Error)]
pub enum ScontrolError {
    /// The program cannot be run.
    #[error("cannot run {program}: {source}")]
    Start {
        /// Path or name of the program.
        program: String,
        /// Cause of the failure.
        source: std::io::Error,
    },
    /// The program did not end in time.
    #[error("scontrol did not answer within {} s", .limit.as_secs())]
    Silent {
        /// Time limit of the call.
        limit: Duration,
    },
    /// The program ended with an error.
    #[error("scontrol failed: {text}")]
    Failed {
        /// Text of the error, one line.
        text: String,
    },
    /// The answer is larger than any cluster.
    #[error("the answer of scontrol is larger than {} MiB", OUTPUT_MAX >> 20)]
    Large,
    /// The name of a node stands for several nodes, or for none.
    #[error("{name:?} is not the name of one node")]
    Name {
        /// Name that was given.
        name: String,
    },
    /// Slurm does not know the node.
    #[error("Slurm does not list node {name}")]
    Unknown {
        /// Name that was given.
        name: String,
    },
}

/// Program `scontrol` of the cluster that the environment (`SLURM_CONF`) selects.
#[derive(Debug, Clone)]
pub struct Scontrol {
    program: PathBuf,
    limit: Duration,
}

impl Scontrol {
    /// Names the program and the time limit of one call.
    pub fn new(program: PathBuf, limit: Duration) -> Self {
        Self { program, limit }
    }

    /// Reads all nodes, also those of hidden partitions.
    ///
    /// # Errors
    /// The program fails or does not answer in time.
    pub async fn nodes(&self) -> Result<NodeListing, ScontrolError> {
        let text = self.run(&["--all", "--oneliner", "show", "node"]).await?;
        Ok(NodeListing::parse(&text))
    }

    /// Reads the use of one node.
    ///
    /// # Errors
    /// The program fails or does not answer in time, or does not list the node.
    pub async fn availability(&self, name: &str) -> Result<NodeAvailability, ScontrolError> {
        let name = single(name)?;
        let text = self.run(&["--all", "--oneliner", "show", "node", name]).await?;
        let nodes = NodeListing::parse(&text).nodes;
        let node = nodes.into_iter().find(|node| node.name == name);
        node.map(|node| node.availability)
            .ok_or_else(|| ScontrolError::Unknown { name: name.to_owned() })
    }

    /// Drains a node with a reason.
    ///
    /// # Errors
    /// The program fails or does not answer in time.
    pub async fn drain(&self, name: &str, reason: &str) -> Result<(), ScontrolError> {
        let name = format!("nodename={}", single(name)?);
        let reason = format!("reason={reason}");
        self.run(&["update", &name, "state=drain", &reason]).await.map(drop)
    }

    /// Lifts a drain. A node that is down remains down, unlike with `state=resume`.
    ///
    /// # Errors
    /// The program fails or does not answer in time.
    pub async fn undrain(&self, name: &str) -> Result<(), ScontrolError> {
        let name = format!("nodename={}", single(name)?);
        self.run(&["update", &name, "state=undrain"]).await.map(drop)
    }

    async fn run(&self, words: &[&str]) -> Result<String, ScontrolError> {
        let call = self.call(words);
        let ended = timeout(self.limit, call).await;
        ended.map_err(|_| ScontrolError::Silent { limit: self.limit })?
    }

    async fn call(&self, words: &[&str]) -> Result<String, ScontrolError> {
        let start = |source| ScontrolError::Start {
            program: self.program.display().to_string(),
            source,
        };
        let mut child = Command::new(&self.program)
            .args(words)
            .env("SLURM_TIME_FORMAT", "standard")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(start)?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let (output, errors) = tokio::join!(read(output, OUTPUT_MAX), read(errors, ERROR_MAX));
        let output = output.map_err(start)?;
        if output.len() as u64 >= OUTPUT_MAX {
            return Err(ScontrolError::Large);
        }
        let status = child.wait().await.map_err(start)?;
        if !status.success() {
            let text = errors.unwrap_or_default();
            let text = if text.trim().is_empty() { &output } else { &text };
            let words: Vec<&str> = text.split_whitespace().take(60).collect();
            return Err(ScontrolError::Failed { text: words.join(" ") });
        }
        Ok(output)
    }
}

fn single(name: &str) -> Result<&str, ScontrolError> {
    if is_single_name(name) {
        Ok(name)
    } else {
        Err(ScontrolError::Name { name: name.to_owned() })
    }
}

/// Reads a pipe to its end; text beyond the limit is dropped.
async fn read(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
