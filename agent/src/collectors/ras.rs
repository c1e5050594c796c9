//! NCCL RAS client: processes that are dead or do not answer, ranks that have launched fewer operations than the
//! others, errors of communicators.
//!
//! From version 2.24 on every process that uses NCCL has a RAS thread. They form a network of their own, and each
//! listens at a port of its node. They are queried when a rank is silent, once a hang, and by the job's first two nodes
//! only: a query makes all processes of the job answer, so that a thousand nodes must not send one at once (RG-12).
//!
//! A port without a listener is not reported, because not every job uses NCCL; an incomplete or missing answer is a
//! gap.
//!
//! The text form is read and not JSON: it lists only ranks that differ, where JSON lists every rank of every
//! communicator, and the job's own process has to print it. Sources: NVIDIA/nccl, `src/ras/client.cc` and
//! `client_support.cc`.
//!
//! Absent: RAS over TLS or at other nodes' addresses (NCCL has neither), its monitor mode, its diagnostics.

mod address;
mod answer;
mod client;
mod evidence;
mod schedule;

pub(crate) use schedule::RasClient;
