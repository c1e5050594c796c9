//! Log lines: to standard error, as text or JSON.
//!
//! Fields and messages hold text of nodes, ranks and files. Control characters in them are escaped here, for every line of
//! every daemon: foreign text can neither move the cursor of a terminal nor begin a line of its own.

use std::fmt;
use std::io::IsTerminal as _;

use rankguard_model::Printable;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use crate::config::Config;

/// Starts logging; a second start is without effect. Only the daemons log: other commands say what they have to say.
pub(crate) fn start(config: &Config) {
    // The directives were checked when they were read.
    let filter = EnvFilter::new(config.log_filter());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let _ = if config.log_is_json() {
        // JSON escapes control characters by itself.
        lines.json().flatten_event(true).try_init()
    } else {
        let fields = debug_fn(write_field).delimited(" ");
        lines
            .fmt_fields(fields)
            .with_ansi(std::io::stderr().is_terminal())
            .try_init()
    };
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    if field.name() != "message" {
        write!(writer, "{}=", field.name().trim_start_matches("r#"))?;
    }
    write!(writer, "{}", Printable::new(&text))
}
