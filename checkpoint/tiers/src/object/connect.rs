//! HTTP connector that does not retry an endpoint that has never answered: its name, port or network is wrong, and 20 s
//! of retries only delay the message. Once the endpoint has answered, the client's retries cover restarts of the store.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use rankguard_model::with_causes;

/// Error text of the HTTP client for a connection that was not made, time-outs included.
const NOT_CONNECTED: &str = "(Connect)";

/// Connector that creates clients that record whether their endpoint has answered.
#[derive(Debug, Default)]
pub(super) struct FailFastConnector;

/// Error: no connection was ever made to this endpoint.
#[derive(Debug, thiserror::Error)]
#[error("the endpoint has never answered")]
pub(super) struct UnreachedEndpoint(#[source] HttpError);

#[derive(Debug)]
struct FailFastClient {
    inner: HttpClient,
    has_answered: AtomicBool,
}

impl HttpConnector for FailFastConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // The HTTP client panics without a crypto provider of the process.
        rankguard_identity::install_crypto_provider();
        Ok(HttpClient::new(FailFastClient {
            inner: ReqwestConnector::default().connect(options)?,
            has_answered: AtomicBool::new(false),
        }))
    }
}

impl HttpService for FailFastClient {
    fn call<'life, 'call>(
        &'life self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'call>>
    where
        'life: 'call,
        Self: 'call,
    {
        Box::pin(async move {
            match self.inner.execute(request).await {
                Ok(response) => {
                    self.has_answered.store(true, Ordering::Relaxed);
                    Ok(response)
                }
                Err(problem) if !self.has_answered.load(Ordering::Relaxed) && is_unconnected(&problem) => {
                    Err(HttpError::new(HttpErrorKind::Unknown, UnreachedEndpoint(problem)))
                }
                Err(problem) => Err(problem),
            }
        })
    }
}

fn is_unconnected(problem: &HttpError) -> bool {
    let kind = problem.kind();
    kind == HttpErrorKind::Connect || kind == HttpErrorKind::Timeout && with_causes(problem).contains(NOT_CONNECTED)
}
