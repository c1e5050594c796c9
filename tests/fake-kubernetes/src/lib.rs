//! API server of Kubernetes for tests, on a free port of loopback, with TLS.
//!
//! It has the semantics that the client depends on: bearer tokens, rights of RBAC, lists in pages with tokens that expire,
//! watches with bookmarks that end and expire (410), conditional updates (409), merge patches with owners of fields,
//! server-side apply to the status of a node, evictions with budgets (429), leases. Every request is recorded with its verb
//! and resource, so that a test can compare them with the rights of a manifest.
//!
//! Absent: admission, other objects, other content types, validation of the objects beyond taints and condition times.

#![allow(clippy::missing_panics_doc, reason = "a test server panics into the test")]

mod cluster;
mod connection;
mod http;
mod manifest;
mod merge;
mod rules;
mod server;

pub use cluster::FakeCluster;
pub use manifest::yaml_documents;
pub use rules::AccessRules;
pub use server::{FakeServer, RecordedRequest};
