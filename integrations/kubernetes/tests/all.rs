//! Tests of the comparison, and of the client against a server on loopback.

mod agreement;
mod conditions;
mod followed;
mod manifests;
mod pods;
mod real_server;
mod rights;
mod support;
mod writes;
