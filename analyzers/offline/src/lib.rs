//! Offline diagnosis of logs without a cluster: engine of `rankguard diagnose` and `rankguard classify`.
//!
//! Lines become signs with their place (`reading`), through the same triage as live evidence; signs become incidents
//! by time and place (`incident`); incidents become cases (`verdicts`), through the same engines as live evidence. A
//! `record` is a case with streams that were already selected. `guess` determines the source of an unlabelled file.
//!
//! Invariants: pure and deterministic; the caller opens the files. Foreign text is a value, never an error: input
//! that cannot be read as intended is a problem line (RG-11).
//!
//! Wall clocks of different nodes are compared uncorrected unless a measured offset is given; the reasoning states
//! it.

mod aftermath;
mod announced;
mod attempts;
mod batch_host;
mod boots;
mod cause_lists;
mod certainty;
mod daemon_ends;
mod dead_actors;
mod error_file;
mod excuse;
mod exit_status;
mod explanation;
mod flight;
mod group;
pub mod guess;
mod incident;
mod last_lines;
mod named_logs;
mod named_machine;
mod node_names;
mod open_ends;
mod outage;
mod outcome;
mod outcome_records;
mod overcome;
mod pod_ends;
mod process_end;
mod process_hosts;
mod progress;
mod quotation;
mod reading;
mod record;
mod services;
mod stamps;
mod stated_level;
mod statement;
mod stream;
mod tasks;
mod verdicts;
mod worker_failures;

pub use error_file::{ErrorFile, error_file};
pub use flight::{NamedDump, join};
pub use group::{GroupDiagnosis, diagnose_group};
pub use incident::{Incident, incidents};
pub use node_names::{NodeNames, hosts_of};
pub use open_ends::OpenEnd;
pub use overcome::{OvercomeReport, machine_report};
pub use reading::{StreamOrigin, StreamReader};
pub use record::{CaseRecord, RecordError, RecordStream, StreamKind};
pub use stream::ReadStream;
pub use verdicts::{ClassAlternative, DecidingLine, OfflineCase, add, conclude, conclude_each, is_foreign_kill};
