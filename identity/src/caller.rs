//! Identity of a connection's peer, and the check of its role.

use std::net::SocketAddr;
use std::sync::Arc;

use rankguard_model::NodeId;
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::name::{PeerName, PeerRole};
use crate::refusals::{RefusalCounters, RefusalReason};

/// Peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionPeer {
    pub address: Option<SocketAddr>,
    /// Name in its certificate; `None` on loopback without an identity.
    pub name: Option<Arc<PeerName>>,
}

impl ConnectionPeer {
    /// Returns the peer of a request that came over a [`Wire`](crate::Wire).
    pub fn of<T>(request: &Request<T>) -> Option<&Self> {
        request.extensions().get()
    }

    /// Returns true if the peer may act for this node: it is that node's agent, or on this machine, where no name is
    /// required.
    pub fn speaks_for(&self, node: &NodeId) -> bool {
        self.name.as_ref().is_none_or(|name| name.is_agent_of(node))
    }

    /// Returns the peer's name for messages.
    pub fn words(&self) -> String {
        match &self.name {
            Some(name) => name.short(),
            None => "a local caller without a certificate".to_owned(),
        }
    }
}

/// Interceptor that admits only some roles to a service. Without an identity it admits all peers, because that is
/// loopback.
#[derive(Debug, Clone)]
pub struct RoleInterceptor {
    service: &'static str,
    roles: &'static [PeerRole],
    refusals: RefusalCounters,
}

impl RoleInterceptor {
    /// Creates the interceptor of a service (`run operator commands`) for these roles.
    pub fn new(service: &'static str, roles: &'static [PeerRole], refusals: RefusalCounters) -> Self {
        Self {
            service,
            roles,
            refusals,
        }
    }
}

impl Interceptor for RoleInterceptor {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(caller) = ConnectionPeer::of(&request) else {
            return Err(Status::internal("the caller of this request is unknown"));
        };
        match &caller.name {
            Some(name) if !self.roles.contains(&name.role()) => {
                let roles: Vec<&str> = self.roles.iter().map(|role| role.word()).collect();
                let service = self.service;
                let roles = roles.join(" or ");
                let what = format!("{} may not {service}: use a certificate of role {roles}", name.short());
                self.refusals.record(RefusalReason::Role, caller.address, &what);
                Err(Status::permission_denied(what))
            }
            _ => Ok(request),
        }
    }
}
