//! Services for peers on the agent's port: link measurements and the output of ranks.

use rankguard_identity::{AlpnProtocol, PeerListener, PeerRole, RoleInterceptor};
use rankguard_proto::v1::links_server::LinksServer;
use rankguard_proto::v1::rank_logs_server::RankLogsServer;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;

use super::shared::SharedServices;
use crate::links::LinkService;
use crate::ranks::RankLogService;

/// Running server of the peer services.
pub(super) struct PeerServer {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl PeerServer {
    pub(super) fn start(services: &SharedServices, listener: TcpListener) -> Self {
        let settings = &services.settings;
        let network = &settings.network;
        let links = LinksServer::new(LinkService::new(
            settings.host.clone(),
            network.clone(),
            services.checkpoints.membership().clone(),
            services.lease.clone(),
        ));
        let link_callers = &[PeerRole::Agent, PeerRole::Operator];
        let link_roles = RoleInterceptor::new("the measuring of links", link_callers, network.refusals().clone());
        let logs = RankLogsServer::new(RankLogService::new(settings.state_dir.clone()));
        let log_callers = &[PeerRole::Operator];
        let log_roles = RoleInterceptor::new("the output of ranks", log_callers, network.refusals().clone());
        let server = Server::builder()
            .add_service(InterceptedService::new(links, link_roles))
            .add_service(InterceptedService::new(logs, log_roles));
        let incoming = PeerListener::new(listener, network, AlpnProtocol::grpc());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = server.serve_with_incoming_shutdown(incoming, async {
            let _ = stopped.await;
        });
        Self {
            stop,
            task: tokio::spawn(serving),
        }
    }

    pub(super) async fn end(self) {
        let _ = self.stop.send(());
        self.task.abort();
        let _ = self.task.await;
    }
}
