//! Failure of a rank, and its report on standard error.
//!
//! The lines have the format of PyTorch and NCCL, so that the log readers for production jobs also read these. No NCCL
//! runs: a lost peer is a closed socket of this crate.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use rankguard_model::with_causes;
use rankguard_rank::{ClientError, EnvError, RankEnv};

use crate::digits::DataError;
use crate::mesh::{CollectiveOp, MeshError};
use crate::network::ShapeError;

/// NCCL release of the imitated messages.
const NCCL: &str = "NCCL version 2.27.3";
const PROCESS_GROUP: &str = "/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690";

/// Error that ended a rank before its work was done.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct TrainError {
    /// Failed rank, if the environment defined one.
    pub place: Option<Box<RankLocation>>,
    #[source]
    pub failure: FailureCause,
}

/// Rank that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankLocation {
    /// Rank in the world.
    pub rank: u32,
    /// Rank on the node.
    pub local_rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    pub node: String,
}

impl RankLocation {
    pub(crate) fn of(env: &RankEnv) -> Self {
        Self {
            rank: env.rank.0,
            local_rank: env.local_rank,
            world_size: env.world_size,
            node: env.node.to_string(),
        }
    }
}

/// Reason of a rank's failure.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each holds")]
pub enum FailureCause {
    #[error("find its place")]
    Env(#[from] EnvError),
    #[error("accept the settings: {}", problems.join("; "))]
    Settings { problems: Vec<String> },
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Mesh(#[from] MeshError),
    #[error("reach the agent's checkpoints")]
    Checkpoint(#[from] ClientError),
    #[error("go on from step {step}: {problem}")]
    State { step: u64, problem: String },
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error("write {}", path.display())]
    Output { path: PathBuf, source: io::Error },
}

impl TrainError {
    /// Returns the text for standard error: whole lines, the last one terminated. The exit code is 1.
    pub fn report(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_report(&mut text);
        text
    }

    fn write_report(&self, out: &mut String) -> std::fmt::Result {
        let Some(place) = &self.place else {
            return writeln!(out, "error: failed to {}", with_causes(&self.failure));
        };
        let who = format!("[rank{}]:", place.rank);
        match &self.failure {
            FailureCause::Shape(error) => {
                writeln!(out, "Traceback (most recent call last):")?;
                for frame in &error.frames {
                    writeln!(
                        out,
                        "  File \"{}\", line {}, in {}",
                        frame.file, frame.line, frame.function
                    )?;
                }
                writeln!(out, "RuntimeError: {error}")
            }
            FailureCause::Mesh(MeshError::Lost { address, source, .. }) => {
                let ip = address.ip();
                let port = address.port();
                let last = match source.kind() {
                    io::ErrorKind::UnexpectedEof => {
                        format!("socketProgress: Connection closed by remote peer {ip}<{port}>")
                    }
                    _ => {
                        let what = source.to_string();
                        let what = what.split(" (os error").next().unwrap_or_default();
                        format!("socketProgressOpt: Call to recv from {ip}<{port}> failed : {what}")
                    }
                };
                let pid = std::process::id();
                let node = &place.node;
                let local = place.local_rank;
                writeln!(out, "{node}:{pid}:{pid} [{local}] misc/socket.cc:71 NCCL WARN {last}")?;
                writeln!(
                    out,
                    "{who} torch.distributed.DistBackendError: NCCL error in: {PROCESS_GROUP}, remote process exited or \
                     there was a network error, {NCCL}"
                )?;
                writeln!(
                    out,
                    "{who} ncclRemoteError: A call failed possibly due to a network error or a remote process exiting \
                     prematurely."
                )?;
                writeln!(out, "{who} Last error:")?;
                writeln!(out, "{who} {last}")
            }
            FailureCause::Mesh(error) => write_waits(out, &who, place, error),
            other => writeln!(out, "{who} RuntimeError: failed to {}", with_causes(other)),
        }
    }
}

/// Writes the report of a wait that ended without an answer.
fn write_waits(out: &mut String, who: &str, place: &RankLocation, error: &MeshError) -> std::fmt::Result {
    match error {
        MeshError::Late {
            op,
            sequence,
            elements,
            waited_ms,
            ..
        } if *op != CollectiveOp::Rendezvous => {
            let op = match op {
                CollectiveOp::ReduceScatter => "REDUCE_SCATTER",
                CollectiveOp::AllGather => "ALLGATHER",
                CollectiveOp::Barrier | CollectiveOp::Rendezvous => "BARRIER",
            };
            writeln!(
                out,
                "{who}[E ProcessGroupNCCL.cpp:563] [Rank {}] Watchdog caught collective operation timeout: \
                 WorkNCCL(SeqNum={sequence}, OpType={op}, NumelIn={}, NumelOut={}, Timeout(ms)={waited_ms}) ran for \
                 {waited_ms} milliseconds before timing out.",
                place.rank, elements.0, elements.1
            )?;
            writeln!(out, "{who} failed to {}", with_causes(error))
        }
        MeshError::Unreachable { address, waited_ms, .. } => writeln!(
            out,
            "{who} torch.distributed.DistNetworkError: The client socket has timed out after {waited_ms}ms while trying \
             to connect to ({}, {}).",
            address.ip(),
            address.port()
        ),
        MeshError::Listen { address, source } if source.kind() == io::ErrorKind::AddrInUse => {
            let port = address.rsplit(':').next().unwrap_or_default();
            writeln!(
                out,
                "{who} torch.distributed.DistNetworkError: The server socket has failed to listen on any local network \
                 address. port: {port}, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
            )
        }
        MeshError::Missing { missing, waited_ms } => {
            let world = place.world_size as usize;
            writeln!(
                out,
                "{who} torch.distributed.DistStoreError: Timed out after {} seconds waiting for clients. {}/{world} \
                 clients joined.",
                waited_ms / 1000,
                world - missing.len()
            )?;
            writeln!(out, "{who} failed to {}", with_causes(error))
        }
        other => writeln!(out, "{who} RuntimeError: failed to {}", with_causes(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::SourceFrame;

    fn report(failure: impl Into<FailureCause>) -> String {
        let place = RankLocation {
            rank: 3,
            local_rank: 1,
            world_size: 6,
            node: "node-2".to_owned(),
        };
        TrainError {
            place: Some(Box::new(place)),
            failure: failure.into(),
        }
        .report()
    }

    fn lost(source: io::Error) -> MeshError {
        MeshError::Lost {
            op: CollectiveOp::AllGather,
            sequence: 9,
            rank: 2,
            address: ([127, 0, 0, 1], 4711).into(),
            source,
        }
    }

    #[test]
    fn a_lost_peer_reads_like_nccl() {
        let text = report(lost(io::ErrorKind::UnexpectedEof.into()));
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].ends_with(
                "[1] misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer 127.0.0.1<4711>"
            ),
            "{text}"
        );
        assert!(lines[0].starts_with("node-2:"));
        assert!(lines[1].starts_with("[rank3]: torch.distributed.DistBackendError: NCCL error in: "));
        assert!(lines[2].starts_with("[rank3]: ncclRemoteError: "));
    }

    #[test]
    fn a_reset_names_its_reason_without_the_number() {
        let text = report(lost(io::Error::from_raw_os_error(104)));
        assert!(
            text.contains("recv from 127.0.0.1<4711> failed : Connection reset by peer\n"),
            "{text}"
        );
    }

    #[test]
    fn a_bug_reads_like_a_python_traceback() {
        let text = report(ShapeError {
            mat1: (4, 65),
            mat2: (64, 256),
            frames: vec![SourceFrame {
                file: "trainer/src/network.rs",
                line: 7,
                function: "linear",
            }],
        });
        assert_eq!(
            text,
            "Traceback (most recent call last):\n  File \"trainer/src/network.rs\", line 7, in linear\nRuntimeError: \
             mat1 and mat2 shapes cannot be multiplied (4x65 and 64x256)\n"
        );
    }

    #[test]
    fn a_silent_peer_reads_like_the_watchdog() {
        let text = report(MeshError::Late {
            op: CollectiveOp::ReduceScatter,
            sequence: 12,
            ranks: vec![1],
            elements: (600, 100),
            waited_ms: 30_000,
        });
        assert!(
            text.contains("WorkNCCL(SeqNum=12, OpType=REDUCE_SCATTER, NumelIn=600, NumelOut=100, Timeout(ms)=30000)"),
            "{text}"
        );
    }

    #[test]
    fn every_report_is_whole_lines() {
        let failures: Vec<FailureCause> = vec![
            FailureCause::Settings {
                problems: vec!["epochs is 0".to_owned()],
            },
            MeshError::Missing {
                missing: vec![4],
                waited_ms: 30_000,
            }
            .into(),
            MeshError::Listen {
                address: "127.0.0.1:29500".to_owned(),
                source: io::ErrorKind::AddrInUse.into(),
            }
            .into(),
            ClientError::Refused {
                reason: "stale".to_owned(),
            }
            .into(),
        ];
        for failure in failures {
            let text = report(failure);
            assert!(text.ends_with('\n') && text.starts_with("[rank3]: "), "{text}");
        }
    }
}
