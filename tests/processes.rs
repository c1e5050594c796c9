//! Tests with real processes, in one program: they wait more than they compute, so that several run at a time.

mod support;

mod adopt;
mod authority;
mod checkpoint_tiers;
mod cli;
mod cluster;
mod copies;
mod demo;
mod documents;
mod ends;
mod exchange;
mod failed_generation;
mod http_api;
mod identity;
mod inject;
mod launch;
mod launcher;
mod mirror_processes;
mod mirror_restore;
mod naming;
mod notifications;
mod older_version;
mod orphans;
mod packaging;
mod partition;
mod progress;
mod readers;
mod reload;
mod rights;
mod rollback;
mod runs;
mod standby;
mod walk;
mod walk_jobs;
mod walk_nodes;
