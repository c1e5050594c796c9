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
//! Modules lie in layers; a module imports modules of lower layers only (`tests/house`):
//!
//! | layer | modules | purpose |
//! |---|---|---|
//! | 12 | `run` | life of an agent: builds the parts, runs and ends them |
//! | 11 | `lease_watch`, `uplink` | contact with the controller and, without it, with other agents |
//! | 10 | `orders`, `supervision` | execution of orders; start of supervision |
//! | 9 | `ranks` | start, connection and logs of ranks |
//! | 8 | `checkpoint` | arenas, images, copies, restores |
//! | 7 | `inject`, `preflight` | injected faults; checks before a job starts |
//! | 6 | `collectors`, `identity`, `renewal` | observation of sources and of the node's identity; renewal of its certificate |
//! | 5 | `error`, `intake`, `settings` | way of evidence into the spool; settings and errors |
//! | 4 | `mount_users`, `outlets` | users of file systems; metrics, status socket, export |
//! | 3 | `roster` | table of running and recently ended ranks |
//! | 2 | `links`, `spool`, `stacks`, `supervisor`, `synthetic_targets` | measurement, storage, stacks, supervisor processes |
//! | 1 | `bounded`, `catalogue_handle`, `lease`, `memory_holders`, `pending_evidence`, `stop_flag` | state that parts share |
//! | 0 | `accept_loop`, `allowed_environment`, `boot_clock`, `clock`, `enrolment`, `fences`, `membership`, `memory`, `nic_overlay`, `packets`, `processes`, `quantities`, `scenario`, `state_dir`, `views` | clocks, processes, tables, views |
//!
//! Absent: ranks that survive their agent.

mod accept_loop;
mod allowed_environment;
mod boot_clock;
mod bounded;
mod catalogue_handle;
mod checkpoint;
mod clock;
mod collectors;
mod enrolment;
mod error;
mod fences;
mod identity;
mod inject;
mod intake;
mod lease;
mod lease_watch;
mod links;
mod membership;
mod memory;
mod memory_holders;
mod mount_users;
mod nic_overlay;
mod orders;
mod outlets;
mod packets;
mod pending_evidence;
mod preflight;
mod processes;
mod quantities;
mod ranks;
mod renewal;
mod roster;
mod run;
pub mod scenario;
mod settings;
mod spool;
mod stacks;
mod state_dir;
mod stop_flag;
mod supervision;
mod supervisor;
mod synthetic_targets;
mod uplink;
mod views;

pub use catalogue_handle::CatalogueHandle;
pub use checkpoint::keep_arenas;
pub use collectors::gpu::serve_gpu_calls;
pub use collectors::is_log_path;
pub use enrolment::{EnrolmentError, NodeEnrolment, enrol};
pub use error::{AgentError, ShutdownReport};
pub use inject::{FaultInjection, InjectError, LAST_MAX_MS, RankSelector, inject};
pub use links::{LinkBlame, LinkMeasurement, LinkSearch, LinkSurvey, MeasuringAgent, NodePair, measure, survey};
pub use memory::share_heap;
pub use outlets::{OtlpEndpoint, OtlpError, OtlpProtocol, OtlpSettings, ask_agent};
pub use preflight::{CheckVerdict, JobRequirements, PreflightCheck, ProgramEnvironment, preflight};
pub use run::run;
pub use settings::{
    AgentIntervals, AgentSettings, CloudKind, FullArenaPolicy, ImageSettings, KernelLogSource, PluginCheck,
    RankPeerPolicy, RemovalSettings,
};
pub use spool::SpoolError;
pub use stacks::serve_stack_calls;
pub use supervisor::{check_rank_user, restrict_process, supervise_ranks};
pub use views::{
    AgentQueryError, AgentView, CatalogueRefusalView, CatalogueView, CheckView, CodeView, CollectorView,
    FileSystemView, GapView, GenerationView, HostView, IdentityView, InjectionRecord, LeaseView, MigView, OtlpView,
    PressureView, RankRightsView, RankView, SeriesView, SpoolView, StandbyView, UplinkView,
};
