//! Resources that an agent opens before it starts anything.

use std::net::SocketAddr;
use std::path::absolute;
use std::sync::Arc;

use tokio::net::TcpListener;
use tonic::transport::Endpoint;

use crate::error::AgentError;
use crate::fences::FenceTable;
use crate::identity;
use crate::ranks::RankUserRules;
use crate::settings::AgentSettings;
use crate::spool::Spool;
use crate::state_dir::{prepare_state_dir, tighten_files};

/// Opened files, checked settings and the bound address for peers. A failure here leaves nothing behind.
pub(super) struct AgentFoundation {
    /// The state directory in them is absolute.
    pub(super) settings: AgentSettings,
    /// True if ranks may run as users other than the agent's.
    pub(super) are_users_separate: bool,
    pub(super) spool: Arc<Spool>,
    pub(super) fences: FenceTable,
    pub(super) controller: Endpoint,
    pub(super) peer_listener: TcpListener,
    pub(super) peer_address: SocketAddr,
}

impl AgentFoundation {
    pub(super) async fn open(mut settings: AgentSettings) -> Result<Self, AgentError> {
        // Ranks receive paths of the socket and of their dumps, and have working directories of their own.
        settings.state_dir = absolute(&settings.state_dir).map_err(|source| AgentError::StateDir {
            path: settings.state_dir.clone(),
            source,
        })?;
        let state_dir = settings.state_dir.clone();
        let state_dir_failed = |source| AgentError::StateDir {
            path: state_dir.clone(),
            source,
        };
        let are_users_separate = RankUserRules::of(&settings).may_be_separate();
        prepare_state_dir(&state_dir, are_users_separate).map_err(state_dir_failed)?;
        load_catalogue(&settings).await?;
        identity::is_own(&settings).await?;
        let spool_path = state_dir.join("spool.redb");
        let opened = Spool::open(&spool_path, settings.node.clone(), settings.spool_bytes);
        let spool = Arc::new(opened.map_err(|source| AgentError::Spool {
            path: state_dir.clone(),
            source,
        })?);
        tighten_files(&state_dir).map_err(state_dir_failed)?;
        let fences_path = state_dir.join("fences.json");
        let fences = FenceTable::open(&fences_path).map_err(|source| AgentError::Fences {
            path: fences_path,
            source,
        })?;
        let controller = controller_endpoint(&settings)?;
        let (peer_listener, peer_address) = listen_for_peers(&settings).await?;
        Ok(Self {
            settings,
            are_users_separate,
            spool,
            fences,
            controller,
            peer_listener,
            peer_address,
        })
    }
}

/// Loads the catalogue before anything is opened: an agent with a silently incomplete catalogue is worse than none.
async fn load_catalogue(settings: &AgentSettings) -> Result<(), AgentError> {
    let knowledge = settings.knowledge.clone();
    tokio::task::spawn_blocking(move || knowledge.reload())
        .await
        .map_err(|problem| AgentError::PartEnded {
            part: "catalogue",
            problem: problem.to_string(),
        })?
        .map_err(|source| AgentError::Catalogue { source })
}

fn controller_endpoint(settings: &AgentSettings) -> Result<Endpoint, AgentError> {
    Endpoint::from_shared(format!("http://{}", settings.controller)).map_err(|source| AgentError::ControllerAddress {
        address: settings.controller.clone(),
        source,
    })
}

async fn listen_for_peers(settings: &AgentSettings) -> Result<(TcpListener, SocketAddr), AgentError> {
    let bound = TcpListener::bind(&settings.peer_listen).await;
    let listening = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = listening.map_err(|source| AgentError::PeerListen {
        address: settings.peer_listen.clone(),
        source,
    })?;
    settings.network.may_use(address.ip())?;
    Ok((listener, address))
}
