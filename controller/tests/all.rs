//! Tests of the controller, in one program: each program of tests is compiled and linked anew.

mod common;

mod authority;
mod bounds;
mod grpc_services;
mod life;
mod rendezvous;
mod replay;
mod session;
