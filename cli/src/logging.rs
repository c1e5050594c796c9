//! Log lines: to standard error, as text or JSON.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::Config;

/// Starts logging; a second start is without effect. Only the daemons log: other commands say what they have to say.
pub(crate) fn start(config: &Config) {
    // The directives were checked when they were read.
    let filter = EnvFilter::new(config.log_filter());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let _ = match config.log_is_json() {
        true => lines.json().flatten_event(true).try_init(),
        false => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
}
