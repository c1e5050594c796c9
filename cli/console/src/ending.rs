//! Start and end of a program: usage errors of `clap`, and the flush of standard output.

use crate::exit::Exit;
use crate::out;

/// Prints a parse result of `clap` that is not a command. Help and version go to standard output with [`Exit::Fine`];
/// every other problem goes to standard error with `hint`.
pub fn usage(problem: &clap::Error, hint: &str) -> Exit {
    let text = problem.render().to_string();
    if !problem.use_stderr() {
        out::text(&text);
        return Exit::Fine;
    }
    let text = text
        .trim_end()
        .trim_end_matches("For more information, try '--help'.")
        .trim_end();
    // An argument may contain line ends: none of its lines may look like one of ours.
    let text = text.replace("\nerror:", "\n  error:").replace("\nhint:", "\n  hint:");
    out::notes(&format!("{text}\nhint: {hint}"));
    Exit::Usage
}

/// Flushes standard output; returns `exit`, or [`Exit::Failure`] if a write failed.
pub fn last(exit: Exit) -> Exit {
    match out::finish() {
        Ok(()) => exit,
        Err(problem) => {
            out::notes(&format!(
                "error: cannot write to standard output: {problem}\nhint: is the disk full?"
            ));
            Exit::Failure
        }
    }
}
