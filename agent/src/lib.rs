//! Agent: one daemon per node. It observes and carries out orders; it never decides.
//!
//! Terms:
//! - A *collector* observes one source on its own thread; its evidence passes through the *intake* to the *spool* on
//!   disk, and from there through the *uplink* to the controller, which acknowledges it by sequence number.
//! - *Orders* arrive on the same session and are carried out one after the other. A *fence* is the newest generation
//!   of a job that this node was ordered; everything older is refused, and its ranks are killed (RG-3).
//! - *Ranks* run below a *supervisor*, one process per generation of a job, which ends all of them when this process
//!   is gone or stopped for longer than its lease. Ranks communicate with the agent over a Unix socket.
//! - *Arenas* are memory files of this process, mapped by ranks; sealed images in them outlive the rank. A second
//!   process, the keeper, holds the files, so that an agent that was killed finds them again.
//!
//! Invariants:
//! - Evidence is numbered without gaps and leaves the spool only when the controller has journalled it (RG-4).
//! - Without a controller everything continues: ranks train and seal, images become durable, evidence waits (RG-5).
//! - No call into a driver, a file system or a rank can block another part; each has a thread or a deadline (RG-9,
//!   RG-12).
//!
//! Absent: ranks that survive their agent.

mod boot_clock;
mod bounded;
mod checkpoint;
mod clock;
mod collectors;
mod door;
mod error;
mod fences;
mod holders;
mod identity;
mod inject;
mod intake;
mod knowledge;
mod lease;
mod links;
mod membership;
mod memory;
mod orders;
mod outlets;
mod packets;
mod preflight;
mod processes;
mod ranks;
mod run;
pub mod scenario;
mod settings;
mod sighting;
mod spool;
mod stacks;
mod state_dir;
mod supervision;
mod supervisor;
mod uplink;
mod uses;
mod words;

pub use checkpoint::keep_arenas;
pub use collectors::gpu::serve_gpu_calls;
pub use collectors::is_log_path;
pub use error::{AgentError, Ended};
pub use inject::{InjectError, Injected, Injection, LAST_MAX_MS, WhichRank, inject};
pub use knowledge::Knowledge;
pub use links::{Blame, Measured, Pair, Search, Station, Survey, measure, survey};
pub use memory::share_heap;
pub use outlets::{
    AgentView, CatalogueView, CheckView, CodeView, CollectorView, GapView, HostView, IdentityView, LeaseView,
    LocalError, MigView, OtlpEndpoint, OtlpError, OtlpProtocol, OtlpSettings, OtlpView, PressureView, RankRightsView,
    RankView, RefusedView, RoomView, SeriesView, SpoolView, UplinkView, ask_agent,
};
pub use preflight::{Check, Need, Surroundings, Verdict, preflight};
pub use run::run;
pub use settings::{ImageSettings, Intervals, KernelLogSource, PluginCheck, RankPeers, Settings, WhenFull};
pub use spool::SpoolError;
pub use stacks::serve_stack_calls;
pub use supervisor::{restrict_process, supervise_ranks};
