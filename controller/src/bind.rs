//! Listener on the port of the last start.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// Binds the address. With port 0 it takes the port of the last start on the same IP address if that is free, so that
/// clients with the old address can connect again.
pub(crate) async fn bind_again(wanted: SocketAddr, last: Option<SocketAddr>) -> io::Result<TcpListener> {
    let last = last.filter(|last| wanted.port() == 0 && last.ip() == wanted.ip());
    if let Some(last) = last
        && let Ok(listener) = TcpListener::bind(last).await
    {
        return Ok(listener);
    }
    TcpListener::bind(wanted).await
}
