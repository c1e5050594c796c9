//! Serves a store on a free port of all interfaces until its standard input ends.
//!
//! It prints the port when it accepts connections, and the figures of the store at its end.

#![allow(clippy::print_stdout, reason = "the caller reads the port")]

use std::io::Read;
use std::net::TcpListener;

use rankguard_tcp_store::{StoreLimits, serve};

fn main() -> std::io::Result<()> {
    let store = serve(TcpListener::bind("0.0.0.0:0")?, StoreLimits::default())?;
    println!("{}", store.address().port());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{:?}", store.figures());
    store.shutdown();
    Ok(())
}
