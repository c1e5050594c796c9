//! Parts of an agent that injections use.

use std::path::PathBuf;
use std::sync::Arc;

use rankguard_model::Timestamp;

use crate::catalogue_handle::CatalogueHandle;
use crate::collectors::gpu::XidMerger;
use crate::intake::EvidenceIntake;
use crate::mount_users::MountUsers;
use crate::nic_overlay::NicOverlay;
use crate::roster::RankRoster;
use crate::spool::Spool;

/// Parts of an agent that injections use.
pub(crate) struct InjectionContext {
    pub(crate) intake: EvidenceIntake,
    pub(crate) roster: RankRoster,
    pub(crate) spool: Arc<Spool>,
    /// Those of the collectors, used if the GPUs are simulated.
    pub(crate) xids: XidMerger,
    pub(crate) overlay: NicOverlay,
    pub(crate) knowledge: CatalogueHandle,
    pub(crate) uses: MountUsers,
    /// Scenario file that is played, and its start time.
    pub(crate) scenario: Option<(PathBuf, Timestamp)>,
}
