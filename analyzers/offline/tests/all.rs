//! Tests of the diagnosis of logs, in one program: each program of tests is compiled and linked anew.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod folders;
#[allow(clippy::disallowed_methods, reason = "it reads the logs of a test")]
mod live;

mod between_ranks;
mod blamed_parts;
mod by_class;
mod cases;
mod catalogue_examples;
mod causal_order;
mod chains;
mod choice;
mod circumstances;
mod independent;
mod launcher_words;
mod logger_records;
mod machine_causes;
mod machine_states;
mod named_hosts;
mod open_ends;
mod outcomes;
mod overcome;
mod periods;
mod quoted_values;
mod raising_code;
mod reported_parts;
mod run_structure;
mod same_bytes;
mod stated_causes;
mod stated_losses;
mod stated_states;
mod statements;
mod survived;
mod true_statements;
mod unexplained;
mod vendor_rules;
