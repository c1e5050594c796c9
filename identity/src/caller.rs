//! Identity of a connection's peer, and the check of its role.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use rankguard_model::NodeId;
use tonic::codegen::{Service as HttpService, http};
use tonic::server::NamedService;
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::certificate::CertificateFields;
use crate::name::{PeerName, PeerRole};
use crate::refusals::{RefusalCounters, RefusalReason};

/// Peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionPeer {
    pub address: Option<SocketAddr>,
    /// Name in its certificate; `None` on loopback without an identity, and for an anonymous client of a listener that
    /// admits such clients ([`PeerListener::with_optional_certificates`](crate::PeerListener)).
    pub name: Option<Arc<PeerName>>,
    /// Contents of its certificate; `None` where `name` is, and for a peer of a test.
    pub certificate: Option<Arc<CertificateFields>>,
    /// True if the connection is TLS. A peer without a name is a local process only if this is false.
    pub is_encrypted: bool,
}

impl ConnectionPeer {
    /// Returns the peer of a request that came over a [`Wire`](crate::Wire).
    pub fn of<T>(request: &Request<T>) -> Option<&Self> {
        request.extensions().get()
    }

    /// Returns a peer without TLS, which is a process of this machine.
    pub fn plain(address: Option<SocketAddr>) -> Self {
        Self {
            address,
            name: None,
            certificate: None,
            is_encrypted: false,
        }
    }

    /// Returns a peer of a TLS connection with the name of its certificate; `None` without a certificate.
    pub fn encrypted(address: SocketAddr, name: Option<PeerName>) -> Self {
        Self {
            address: Some(address),
            name: name.map(Arc::new),
            certificate: None,
            is_encrypted: true,
        }
    }

    /// Adds the contents of the peer's certificate.
    #[must_use]
    pub(crate) fn with_certificate(self, certificate: Option<CertificateFields>) -> Self {
        Self {
            certificate: certificate.map(Arc::new),
            ..self
        }
    }

    /// Returns true if the peer uses TLS and presented no certificate.
    pub fn is_anonymous(&self) -> bool {
        self.is_encrypted && self.name.is_none()
    }

    /// Returns true if the peer may act for this node: it is that node's agent, or on this machine, where no name is
    /// required.
    pub fn speaks_for(&self, node: &NodeId) -> bool {
        match &self.name {
            Some(name) => name.is_agent_of(node),
            None => !self.is_encrypted,
        }
    }

    /// Returns the peer's name for messages.
    pub fn words(&self) -> String {
        match &self.name {
            Some(name) => name.short(),
            None if self.is_encrypted => "a client without a certificate".to_owned(),
            None => "a local caller without a certificate".to_owned(),
        }
    }
}

/// Function that receives each refused peer with the reason. It must not block.
pub type RefusalObserver = Arc<dyn Fn(&ConnectionPeer, &str) + Send + Sync>;

/// Path of a gRPC request (`/rankguard.v1.Operator/CordonNode`), as an extension of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPath(String);

/// Service that adds the [`RequestPath`] to each request, for a [`RoleInterceptor`] below it.
#[derive(Debug, Clone)]
pub struct PathRecorder<S>(S);

impl<S> PathRecorder<S> {
    /// Wraps a service.
    pub fn new(service: S) -> Self {
        Self(service)
    }
}

impl<S, B> HttpService<http::Request<B>> for PathRecorder<S>
where
    S: HttpService<http::Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        let path = RequestPath(request.uri().path().to_owned());
        request.extensions_mut().insert(path);
        self.0.call(request)
    }
}

impl<S: NamedService> NamedService for PathRecorder<S> {
    const NAME: &'static str = S::NAME;
}

/// Function that returns the roles which a method of a service permits; `None` for an unknown method.
pub type MethodRoles = fn(&str) -> Option<&'static [PeerRole]>;

/// Interceptor that admits only some roles to a service. Without an identity it admits all peers, because that is
/// loopback.
#[derive(Clone)]
pub struct RoleInterceptor {
    service: &'static str,
    roles: &'static [PeerRole],
    refusals: RefusalCounters,
    observer: Option<RefusalObserver>,
    /// Roles of single methods, which may be fewer than those of the service.
    of_method: Option<MethodRoles>,
}

impl RoleInterceptor {
    /// Creates the interceptor of a service (`run operator commands`) for these roles.
    pub fn new(service: &'static str, roles: &'static [PeerRole], refusals: RefusalCounters) -> Self {
        Self {
            service,
            roles,
            refusals,
            observer: None,
            of_method: None,
        }
    }

    /// Names the roles of the called method in refusals, not those of the whole service. Needs a [`PathRecorder`] above it.
    #[must_use]
    pub fn naming_roles_of(self, of_method: MethodRoles) -> Self {
        Self {
            of_method: Some(of_method),
            ..self
        }
    }

    /// Returns the roles that a request permits.
    fn roles_of(&self, request: &Request<()>) -> &'static [PeerRole] {
        let path = request.extensions().get::<RequestPath>();
        let method = path.and_then(|path| path.0.rsplit('/').next());
        let of_method = method.zip(self.of_method);
        of_method
            .and_then(|(method, roles)| roles(method))
            .unwrap_or(self.roles)
    }

    /// Passes refused peers on to `observer`, too.
    #[must_use]
    pub fn observed_by(self, observer: RefusalObserver) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }
}

impl std::fmt::Debug for RoleInterceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("RoleInterceptor");
        shown
            .field("service", &self.service)
            .field("roles", &self.roles)
            .finish()
    }
}

impl Interceptor for RoleInterceptor {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(caller) = ConnectionPeer::of(&request) else {
            return Err(Status::internal("the caller of this request is unknown"));
        };
        let is_admitted = match &caller.name {
            Some(name) => self.roles.contains(&name.role()),
            None => !caller.is_encrypted,
        };
        if is_admitted {
            return Ok(request);
        }
        let roles: Vec<&str> = self.roles_of(&request).iter().map(|role| role.word()).collect();
        let service = self.service;
        let roles = roles.join(" or ");
        let what = format!(
            "{} may not {service}: use a certificate of role {roles}",
            caller.words()
        );
        self.refusals.record(RefusalReason::Role, caller.address, &what);
        if let Some(observer) = &self.observer {
            observer(caller, &what);
        }
        Err(Status::permission_denied(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RG-13: the rights of a local process are not those of a TLS client without a certificate.
    #[test]
    fn a_tls_client_without_a_certificate_has_no_rights() {
        let address: SocketAddr = "127.0.0.1:1".parse().expect("an address");
        let node = NodeId::from("n1");
        for (peer, may) in [
            (ConnectionPeer::plain(Some(address)), true),
            (ConnectionPeer::encrypted(address, None), false),
        ] {
            assert_eq!(peer.speaks_for(&node), may, "{peer:?}");
            let mut request = Request::new(());
            request.extensions_mut().insert(peer.clone());
            let mut gate = RoleInterceptor::new("act", &[PeerRole::Operator], RefusalCounters::default());
            assert_eq!(gate.call(request).is_ok(), may, "{peer:?}");
        }
    }
}
