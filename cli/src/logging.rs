//! Log lines on standard error, as text or JSON.
//!
//! Fields and messages contain text of nodes, ranks and files. Control characters in them are escaped here, for every
//! line of every daemon: foreign text can neither move the cursor of a terminal nor begin a line of its own.

use std::fmt;
use std::io::IsTerminal as _;

use rankguard_console::width::allows_color;
use rankguard_model::PrintableText;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use crate::config::ResolvedConfig;

/// Starts logging; a second call has no effect. Only the daemons log; other commands write to standard output and
/// error.
pub(crate) fn start(config: &ResolvedConfig) {
    // The directives were validated when the configuration was read.
    let filter = EnvFilter::new(config.log_filter());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let _ = if config.log_is_json() {
        // The JSON formatter escapes control characters.
        lines.json().flatten_event(true).try_init()
    } else {
        let fields = debug_fn(write_field).delimited(" ");
        lines
            .fmt_fields(fields)
            .with_ansi(std::io::stderr().is_terminal() && allows_color())
            .try_init()
    };
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    if field.name() != "message" {
        write!(writer, "{}=", field.name().trim_start_matches("r#"))?;
    }
    write!(writer, "{}", PrintableText::new(&text))
}
