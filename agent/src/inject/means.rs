//! What a fault is made with: the parts of an agent that injections reach.

use std::path::PathBuf;
use std::sync::Arc;

use rankguard_model::Timestamp;

use super::overlay::Overlay;
use crate::collectors::gpu::Xids;
use crate::intake::Intake;
use crate::knowledge::Knowledge;
use crate::ranks::Roster;
use crate::spool::Spool;
use crate::uses::Uses;

/// What injections need of an agent.
pub(crate) struct Means {
    pub(crate) intake: Intake,
    pub(crate) roster: Roster,
    pub(crate) spool: Arc<Spool>,
    /// Of the collectors, where the GPUs are made up.
    pub(crate) xids: Xids,
    pub(crate) overlay: Overlay,
    pub(crate) knowledge: Knowledge,
    pub(crate) uses: Uses,
    /// The scenario that is played, and since when.
    pub(crate) scenario: Option<(PathBuf, Timestamp)>,
}
