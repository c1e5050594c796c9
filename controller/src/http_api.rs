//! Start of the HTTP API from the settings.

use std::sync::Arc;

use rankguard_api::{ApiAccess, ApiServer, ApiService, ControllerHealth, StateFeed, StateReader};
use rankguard_core::DecisionState;
use rankguard_model::Timestamp;
use tracing::info;

use crate::access_control::AccessControl;
use crate::address::{HTTP_ADDRESS_FILE, read_address_file, write_address_file};
use crate::bind::bind_again;
use crate::clock::MonotonicClock;
use crate::command_executor::CommandExecutor;
use crate::error::ControllerError;
use crate::health::SharedHealth;
use crate::settings::Settings;

/// HTTP API: its server, and the feed of the copy that it reads, which the event loop takes.
#[derive(Debug)]
pub(crate) struct HttpApi {
    pub(crate) feed: StateFeed,
    /// Ends the connections when it is dropped.
    pub(crate) server: ApiServer,
}

impl HttpApi {
    /// Serves the API if an address is configured. `state` is the state before the first event of this start, `last` the
    /// time of its newest event.
    pub(crate) async fn start(
        settings: &Settings,
        (state, last): (&DecisionState, Timestamp),
        executor: CommandExecutor,
        health: &SharedHealth,
    ) -> Result<Option<Self>, ControllerError> {
        let Some(address) = settings.http_listen else {
            return Ok(None);
        };
        let failed = |source| ControllerError::Http { address, source };
        let before = read_address_file(&settings.state_dir, HTTP_ADDRESS_FILE).ok();
        let listener = bind_again(address, before).await.map_err(failed)?;
        let start = rankguard_identity::secret().ok_or(ControllerError::Random)?;
        let (feed, reader) = StateFeed::start(state.clone(), last, u64::from_le_bytes(start)).map_err(failed)?;
        let server = serve(settings, listener, reader, executor, health).map_err(failed)?;
        write_address_file(&settings.state_dir, HTTP_ADDRESS_FILE, server.address)?;
        info!(address = %server.address, "the HTTP API is served");
        Ok(Some(Self { feed, server }))
    }
}

fn serve(
    settings: &Settings,
    listener: tokio::net::TcpListener,
    reader: StateReader,
    executor: CommandExecutor,
    health: &SharedHealth,
) -> std::io::Result<ApiServer> {
    let AccessControl {
        tokens, audit, clock, ..
    } = executor.access().clone();
    let health = ApiHealth {
        health: health.clone(),
        clock,
    };
    let refusals = settings.network.refusals().clone();
    let changes = Arc::new(executor);
    let access = ApiAccess { tokens, audit, changes };
    let service = ApiService::new(reader, Arc::new(health), refusals, access);
    ApiServer::start(listener, &settings.network, service)
}

/// Health and clock for the API.
struct ApiHealth {
    health: SharedHealth,
    clock: MonotonicClock,
}

impl ControllerHealth for ApiHealth {
    fn live(&self) -> Result<(), String> {
        self.health.live()
    }

    fn ready(&self) -> Result<(), String> {
        self.health.ready()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
