//! Notifications of the controller: cases and pattern alarms as messages to webhooks, Slack, Alertmanager, PagerDuty and
//! mailboxes.
//!
//! The event loop publishes [`ClusterFacts`] to a [`NotifyFeed`] and never waits. A thread of its own makes
//! [`Incident`]s of them, compares these with the [`DeliveryLedger`] of each receiver ([`plan`]), and sends what is due.
//!
//! Terms: an *incident* is a case or an alarm; its messages are one *thread* with one key, made of the cluster's name and
//! the case number. A message is due if stage, class or blamed node differ from those of the newest message.
//!
//! Invariants:
//! - There is no queue: a receiver that was away gets the present state of each incident, once (RG-9).
//! - A receiver that hangs or fails delays no other receiver and not the event loop; each request has a deadline.
//! - What is not sent is counted: suppressed by the rate limit, refused by the receiver, or missed, because the incident
//!   left the facts before the receiver could be reached.
//! - A restarted controller repeats nothing that its ledger has. A kill between a delivery and its record repeats one
//!   message, with the same key.
//! - Messages contain names, classes and numbers; no output, environment or secret of a job, and no secret of a receiver.
//!
//! The modules `alarms`, `format`, `incident`, `planner` and `quiet` read no clock and do no I/O.
//!
//! Not included: threads of Slack (incoming webhooks have none), quiet hours in local time, escalation.

mod alarms;
mod client;
mod facts;
mod format;
mod incident;
mod ledger;
mod mail;
mod planner;
mod quiet;
mod receiver;
mod sender;
mod service;
mod settings;

pub use alarms::{AlarmBoard, AlarmKind, AlarmLimits};
pub use client::DeliveryError;
pub use facts::{CaseFacts, ClusterFacts, ENDED_CASE_AGE, JobFacts, NodeCounts, ReportFacts};
pub use incident::{Incident, IncidentKey, IncidentStage, NoticeKind};
pub use ledger::{DeliveryLedger, DueMessage};
pub use mail::check_mailbox;
pub use planner::{DuePlan, IncidentSet, SendTimes, plan};
pub use quiet::{MaintenanceWindow, QuietHours};
pub use sender::{MessageSender, read_secret};
pub use service::{NotifyControl, NotifyCounts, NotifyError, NotifyFeed};
pub use settings::{NotifySettings, PAGERDUTY_URL, ReceiverKind, ReceiverSettings, ReceiverUrl};
