//! Start of the lighthouse for torchft from the settings.

use std::convert::Infallible;

use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::address::{TORCHFT_ADDRESS_FILE, read_address_file, write_address_file};
use crate::bind::bind_again;
use crate::clock::MonotonicClock;
use crate::error::ControllerError;
use crate::health::SharedHealth;
use crate::input::LoopInput;
use crate::lighthouse::LighthouseTerms;
use crate::lighthouse_service::{self, LighthouseServer};
use crate::lighthouse_task::{LIGHTHOUSE_INPUTS_MAX, LighthouseTask};
use crate::quorum_ids::{QUORUM_IDS_FILE, QuorumIds};
use crate::settings::Settings;

/// Lighthouse with its server.
#[derive(Debug)]
pub(crate) struct Lighthouse {
    task: LighthouseTask,
    _server: LighthouseServer,
}

impl Lighthouse {
    /// Serves the lighthouse if an address is configured. A replay-only controller has none.
    pub(crate) async fn start(
        settings: &Settings,
        clock: MonotonicClock,
        nodes: &mpsc::Sender<LoopInput>,
        health: &SharedHealth,
    ) -> Result<Option<Self>, ControllerError> {
        let Some(listen) = settings.torchft.listen.filter(|_| !settings.policy.replay_only) else {
            return Ok(None);
        };
        let terms = LighthouseTerms {
            replicas_min: settings.torchft.replicas_min as usize,
            join_timeout: settings.torchft.join_timeout,
            heartbeat_timeout: settings.torchft.heartbeat_timeout,
        };
        let ids = QuorumIds::open(&settings.state_dir).map_err(|source| ControllerError::StateDir {
            what: "read",
            path: settings.state_dir.join(QUORUM_IDS_FILE),
            source,
        })?;
        let (inputs, queue) = mpsc::channel(LIGHTHOUSE_INPUTS_MAX);
        let failed = |source| ControllerError::Torchft {
            address: listen,
            source,
        };
        let last = read_address_file(&settings.state_dir, TORCHFT_ADDRESS_FILE).ok();
        let listener = bind_again(listen, last).await.map_err(failed)?;
        let server = lighthouse_service::serve(listener, inputs).map_err(failed)?;
        write_address_file(&settings.state_dir, TORCHFT_ADDRESS_FILE, server.address)?;
        info!(address = %server.address, "the lighthouse for torchft listens");
        if !server.address.ip().to_canonical().is_loopback() {
            warn!(
                address = %server.address,
                "torchft has neither TLS nor authentication: every process that reaches this address can join or stall its quorums"
            );
        }
        Ok(Some(Self {
            task: LighthouseTask::new(clock, terms, ids, queue, nodes.clone(), health.clone()),
            _server: server,
        }))
    }

    /// Runs the lighthouse until it is dropped; without one, waits.
    pub(crate) async fn run(lighthouse: Option<Self>) -> Infallible {
        match lighthouse {
            Some(Self { task, _server }) => task.run().await,
            None => std::future::pending().await,
        }
    }
}
