//! Parts of an agent that injections use.

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

/// Parts of an agent that injections use.
pub(crate) struct Means {
    pub(crate) intake: Intake,
    pub(crate) roster: Roster,
    pub(crate) spool: Arc<Spool>,
    /// Those of the collectors, used if the GPUs are simulated.
    pub(crate) xids: Xids,
    pub(crate) overlay: Overlay,
    pub(crate) knowledge: Knowledge,
    pub(crate) uses: Uses,
    /// Scenario file that is played, and its start time.
    pub(crate) scenario: Option<(PathBuf, Timestamp)>,
}
