//! Tests of the HTTP API, in one program.

mod attacks;
mod common;
mod measure;
mod routes;
mod schema;
