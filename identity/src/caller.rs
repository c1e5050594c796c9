//! Who is at the other end of a connection, and whether it may ask for something.

use std::net::SocketAddr;
use std::sync::Arc;

use rankguard_model::NodeId;
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::name::{Name, Role};
use crate::refusals::{Refusal, Refusals};

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Where it is.
    pub address: Option<SocketAddr>,
    /// Who it is; nobody knows on loopback without an identity.
    pub name: Option<Arc<Name>>,
}

impl Caller {
    /// Who makes a request that came over a [`Wire`](crate::Wire).
    pub fn of<T>(request: &Request<T>) -> Option<&Self> {
        request.extensions().get()
    }

    /// Whether it may speak for this node: it is that node's agent, or within this machine, where nobody is asked for a name.
    pub fn speaks_for(&self, node: &NodeId) -> bool {
        self.name.as_ref().is_none_or(|name| name.is_agent_of(node))
    }

    /// For messages.
    pub fn words(&self) -> String {
        match &self.name {
            Some(name) => name.short(),
            None => "somebody on this machine".to_owned(),
        }
    }
}

/// Lets a service be used by some roles only. Where there is no identity it lets everybody through: that is loopback.
#[derive(Debug, Clone)]
pub struct Gate {
    service: &'static str,
    roles: &'static [Role],
    refusals: Refusals,
}

impl Gate {
    /// A gate before a service (`the operators' door`) for these roles.
    pub fn new(service: &'static str, roles: &'static [Role], refusals: Refusals) -> Self {
        Self {
            service,
            roles,
            refusals,
        }
    }
}

impl Interceptor for Gate {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(caller) = Caller::of(&request) else {
            return Err(Status::internal("nobody knows who makes this request"));
        };
        match &caller.name {
            Some(name) if !self.roles.contains(&name.role()) => {
                let roles: Vec<&str> = self.roles.iter().map(|role| role.word()).collect();
                let (service, roles) = (self.service, roles.join(" or "));
                let what = format!(
                    "{} may not use {service}: it takes a certificate of role {roles}",
                    name.short()
                );
                self.refusals.tell(Refusal::Role, caller.address, &what);
                Err(Status::permission_denied(what))
            }
            _ => Ok(request),
        }
    }
}
