//! Start and end of a program: usage errors of `clap`, and the flush of standard output.

use crate::exit::CommandExit;
use crate::out;

/// Prints a parse result of `clap` that is not a command. Help and version go to standard output with [`CommandExit::Fine`];
/// every other problem goes to standard error with `hint`.
pub fn usage(problem: &clap::Error, hint: &str) -> CommandExit {
    let text = problem.render().to_string();
    if !problem.use_stderr() {
        out::text(&text);
        return CommandExit::Fine;
    }
    let text = text
        .trim_end()
        .trim_end_matches("For more information, try '--help'.")
        .trim_end();
    // An argument may contain line ends: none of its lines may look like one of ours.
    let text = text.replace("\nerror:", "\n  error:").replace("\nhint:", "\n  hint:");
    out::notes(&format!("{text}\nhint: {hint}"));
    CommandExit::Usage
}

/// Flushes standard output; returns `exit`, or [`Exit::Failure`] if a write failed.
pub fn last(exit: CommandExit) -> CommandExit {
    match out::finish() {
        Ok(()) => exit,
        Err(problem) => {
            out::notes(&format!(
                "error: cannot write to standard output: {problem}\nhint: check the free disk space"
            ));
            CommandExit::Failure
        }
    }
}
