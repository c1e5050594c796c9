//! Tests of the HTTP API, in one program.

mod access;
mod attacks;
mod common;
mod console;
mod console_site;
mod measure;
mod routes;
mod schema;
