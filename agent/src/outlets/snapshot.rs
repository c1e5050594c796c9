//! Collection of the state of a running agent's parts into one view.

use std::sync::Arc;

use rankguard_identity::PeerTransport;
use rankguard_model::{NodeId, Timestamp};

use super::board::StatusBoard;
use super::otlp::LogQueue;
use crate::catalogue_handle::CatalogueHandle;
use crate::clock;
use crate::lease::RankLease;
use crate::roster::RankRoster;
use crate::spool::Spool;
use crate::stop_flag::StopFlag;
use crate::supervisor::StandbyBoard;
use crate::views::{AgentView, CollectorView, IdentityView, RankRightsView};

/// Source of views. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ViewSource {
    pub(crate) node: NodeId,
    pub(crate) started: Timestamp,
    pub(crate) board: StatusBoard,
    pub(crate) spool: Arc<Spool>,
    pub(crate) roster: RankRoster,
    pub(crate) lease: RankLease,
    pub(crate) knowledge: CatalogueHandle,
    pub(crate) stop: StopFlag,
    pub(crate) network: PeerTransport,
    /// True if faults may be injected.
    pub(crate) injection: bool,
    pub(crate) rank_rights: RankRightsView,
    pub(crate) standbys: StandbyBoard,
    /// Export queue; `None` if OTLP export is disabled.
    pub(crate) otlp: Option<LogQueue>,
}

impl ViewSource {
    /// Returns the agent's current view. Waits only for locks that are held for a copy.
    pub(crate) fn take(&self) -> AgentView {
        let counts = self.board.read();
        let looks = self.stop.poll_times().into_iter();
        AgentView {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: self.started,
            now: clock::now(),
            catalogue: self.knowledge.view(),
            identity: identity(&self.network),
            spool: self.spool.view(),
            collectors: looks
                .map(|(collector, look)| CollectorView {
                    collector,
                    last_look: look.at,
                    next_look: look.next,
                })
                .collect(),
            ranks: self.roster.views(),
            rooms: counts.rooms.values().cloned().collect(),
            host: counts.host.clone(),
            series: counts.series(),
            codes: counts.codes(),
            injection: self.injection,
            rank_rights: Some(self.rank_rights.clone()),
            standbys: self.standbys.views(),
            injections: counts.injections.clone(),
            newest_injections: counts.newest_injections.clone().into(),
            series_beyond_limit: counts.beyond,
            uplink: counts.uplink,
            lease: self.lease.view(),
            dropped: counts.dropped,
            evidence: counts.evidence,
            gaps: counts.gaps,
            otlp: self.otlp.as_ref().map(LogQueue::view),
            mig_devices: counts.mig_devices,
            checks: counts.checks.into_values().collect(),
            findings: counts.findings.into(),
            generations: counts.generations.into(),
            clearings: counts.clearings.into_iter().collect(),
        }
    }
}

/// Returns the state of the identity, if there is one.
fn identity(network: &PeerTransport) -> Option<IdentityView> {
    let standing = network.identity()?.standing()?;
    let refusals = network.refusals().counts().into_iter();
    Some(IdentityView {
        name: standing.card.name.to_string(),
        valid_until: standing.card.valid_until(),
        refused_files: standing.refused,
        refusals: refusals.map(|(why, count)| (why.word().to_owned(), count)).collect(),
    })
}
