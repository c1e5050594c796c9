//! A TCP proxy that can be cut as a network is: connections stay open and nothing passes until it is healed.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest time that a thread of the proxy blocks.
const TICK: Duration = Duration::from_millis(20);

/// Forwards to one address; ends with the test.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    is_cut: AtomicBool,
    is_over: AtomicBool,
}

impl Proxy {
    /// Begins to forward.
    pub(crate) fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        listener
            .set_nonblocking(true)
            .expect("it can be asked without blocking");
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let accepting = std::thread::spawn(move || accept(&listener, target, &shared));
        Self {
            address,
            state,
            accepting: Some(accepting),
        }
    }

    /// Nothing passes any more, in either direction; connections stay open.
    pub(crate) fn cut(&self) {
        self.state.is_cut.store(true, Ordering::SeqCst);
    }

    /// What waited passes, and everything after it.
    pub(crate) fn heal(&self) {
        self.state.is_cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, target: SocketAddr, state: &Arc<State>) {
    let mut copies = Vec::new();
    while !state.is_over.load(Ordering::SeqCst) {
        let Ok((agent, _)) = listener.accept() else {
            std::thread::sleep(TICK);
            continue;
        };
        let Ok(controller) = TcpStream::connect(target) else {
            continue;
        };
        let both = agent.try_clone().and_then(|there| Ok((there, controller.try_clone()?)));
        let Ok((to_agent, from_controller)) = both else {
            continue;
        };
        for (from, to) in [(agent, controller), (from_controller, to_agent)] {
            let state = Arc::clone(state);
            copies.push(std::thread::spawn(move || copy(from, to, &state)));
        }
    }
    copies.into_iter().for_each(|copy| drop(copy.join()));
}

fn copy(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let _ = from.set_nonblocking(false);
    let _ = from.set_read_timeout(Some(TICK));
    let mut buffer = [0; 16 << 10];
    while !state.is_over.load(Ordering::SeqCst) {
        if state.is_cut.load(Ordering::SeqCst) {
            std::thread::sleep(TICK);
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) if to.write_all(&buffer[..read]).is_err() => break,
            Ok(_) => {}
            Err(problem) if matches!(problem.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}
