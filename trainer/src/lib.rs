//! Demo job: a small network trained data-parallel with a sharded optimizer, bit-identical at every world size.
//!
//! It is a real job in small: forward, backward, reduce-scatter of gradients, an optimizer with state sharded over the
//! ranks, all-gather of parameters, over sockets between processes; on real data (`data/README.md`).
//!
//! Terms: a batch is cut into *pieces*, one per *virtual rank*; a real rank computes a contiguous range of virtual
//! ranks. Each virtual rank's gradient is computed separately, and the owner of a parameter adds them in the order of
//! virtual ranks. So the sum, and every bit that follows from it, does not depend on the number of real ranks (the
//! idea of EasyScale). A *shard* is the rows of every tensor that a rank owns: it updates them and checkpoints them.
//!
//! Invariants:
//! - same settings, same bits: parameters and optimizer state are equal at any world size, also when it changes between
//!   checkpoints; nothing depends on the processor's libm or on the order of messages;
//! - every sample is consumed exactly once an epoch, which [`ledger`] can verify;
//! - every wait ends within its deadline, and a lost rank ends the others at once (RG-9);
//! - ranks of another generation are refused before the first gradient (RG-3).
//!
//! Absent on purpose: tensor and pipeline parallelism, mixed precision, a held-out set (accuracy is that of the
//! training set), shuffling between epochs beyond one permutation, and optimised speed.

mod adam;
mod checkpointer;
mod digits;
mod error;
mod handshake;
pub mod ledger;
mod math;
mod mesh;
mod network;
mod output;
mod random;
mod rendezvous;
mod run;
mod schedule;
mod settings;
mod shard;
mod state;
mod train;

pub use checkpointer::{CheckpointBackend, NoCheckpoints};
pub use digits::DataError;
pub use error::{FailureCause, RankLocation, TrainError};
pub use handshake::HelloVerdict;
pub use mesh::{CollectiveOp, MeshError};
pub use network::{ShapeError, SourceFrame};
pub use output::{PARAMETERS_FILE, RunSummary, SUMMARY_FILE};
pub use run::{RankSeat, SAMPLES, run, run_as};
pub use settings::TrainingSettings;
