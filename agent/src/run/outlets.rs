//! Outlets of an agent: local status socket, metrics page, OTLP export.

use super::shared::SharedServices;
use crate::error::AgentError;
use crate::outlets::{
    LogQueue, MetricsEndpoint, OtlpClient, OtlpExporter, StatusSocket, ViewSource, serve_metrics, start_otlp,
};
use crate::settings::AgentSettings;
use crate::supervisor::StandbyBoard;
use crate::views::RankRightsView;

/// Running outlets; each serves until it is ended.
pub(super) struct AgentOutlets {
    status: StatusSocket,
    metrics: Option<MetricsEndpoint>,
    otlp: Option<OtlpExporter>,
}

/// Client of the OTLP receiver and the queue of what it sends.
pub(super) struct OtlpOutlet {
    client: OtlpClient,
    pub(super) queue: LogQueue,
}

impl OtlpOutlet {
    /// Creates the client and its queue, if the settings name a receiver.
    pub(super) fn of(settings: &AgentSettings) -> Result<Option<Self>, AgentError> {
        let Some(otlp) = &settings.otlp else { return Ok(None) };
        Ok(Some(Self {
            client: OtlpClient::new(otlp)?,
            queue: LogQueue::new(&otlp.endpoint),
        }))
    }
}

impl AgentOutlets {
    pub(super) async fn start(
        services: &SharedServices,
        rank_rights: RankRightsView,
        standbys: StandbyBoard,
        otlp: Option<OtlpOutlet>,
    ) -> Result<Self, AgentError> {
        let settings = &services.settings;
        let views = ViewSource {
            lease: services.lease.clone(),
            node: settings.node.clone(),
            started: services.started,
            board: services.intake.board().clone(),
            spool: services.spool.clone(),
            roster: services.roster.clone(),
            knowledge: settings.knowledge.clone(),
            stop: services.stop.clone(),
            network: settings.network.clone(),
            injection: settings.injection,
            rank_rights,
            standbys,
            otlp: otlp.as_ref().map(|otlp| otlp.queue.clone()),
        };
        let otlp = otlp.map(|otlp| start_otlp(otlp.client, otlp.queue, views.clone(), settings.intervals.otlp));
        let status =
            StatusSocket::start(&settings.state_dir, views.clone()).map_err(|source| AgentError::LocalSocket {
                path: settings.state_dir.clone(),
                source,
            })?;
        let metrics = match &settings.metrics_listen {
            Some(address) => {
                let served = serve_metrics(address, views).await;
                Some(served.map_err(|source| AgentError::MetricsListen {
                    address: address.clone(),
                    source,
                })?)
            }
            None => None,
        };
        Ok(Self { status, metrics, otlp })
    }

    pub(super) async fn end(self) {
        self.status.end().await;
        if let Some(metrics) = self.metrics {
            metrics.end().await;
        }
        if let Some(otlp) = self.otlp {
            otlp.end().await;
        }
    }
}
