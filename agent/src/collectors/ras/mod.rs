//! What NCCL's own RAS threads say of a job: processes that are dead or do not answer, ranks that have launched fewer
//! operations than the others, errors of communicators.
//!
//! From version 2.24 on every process that uses NCCL has such a thread. They form a network of their own, and each listens
//! for questions at a port of its node. They are asked when a rank is found silent, once a hang, and by the job's first two
//! nodes only: a question makes all processes of the job answer, so a thousand nodes must not ask at once (RG-12). Nobody at
//! the port is no news, for not every job uses NCCL; an answer that breaks off or never comes is a gap.
//!
//! The text form is read, not JSON: it holds whoever differs, where JSON holds every rank of every communicator, and the
//! job's own process has to print it. Sources: NVIDIA/nccl, `src/ras/client.cc` and `client_support.cc`.
//!
//! Absent: RAS over TLS or at other nodes' addresses (NCCL has neither), its monitor mode, its diagnostics.

mod address;
mod answer;
mod asker;
mod client;
mod evidence;

pub(crate) use asker::Asker;
