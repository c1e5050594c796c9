//! State that the parts of a running agent share.

use std::sync::Arc;

use rankguard_model::Timestamp;

use crate::checkpoint::CheckpointService;
use crate::fences::FenceTable;
use crate::intake::EvidenceIntake;
use crate::lease::RankLease;
use crate::roster::RankRoster;
use crate::settings::AgentSettings;
use crate::spool::Spool;
use crate::stop_flag::StopFlag;

/// Handles to the state that more than one part of an agent uses.
pub(super) struct SharedServices {
    pub(super) settings: AgentSettings,
    /// Start of the agent.
    pub(super) started: Timestamp,
    /// Ends the threads of collectors and of the rank socket.
    pub(super) stop: StopFlag,
    pub(super) spool: Arc<Spool>,
    pub(super) fences: FenceTable,
    pub(super) intake: EvidenceIntake,
    pub(super) roster: RankRoster,
    pub(super) lease: RankLease,
    pub(super) checkpoints: Arc<CheckpointService>,
}
