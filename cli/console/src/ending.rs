//! How a program begins to end: with words that are no command, and with the last of what it printed.

use crate::exit::Exit;
use crate::out;

/// What becomes of words that `clap` did not take. Help and version are data that was asked for; everything else is a mistake,
/// which is told with `hint`.
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
    // A word of the caller may have line ends: none of its lines may look like one of ours.
    let text = text.replace("\nerror:", "\n  error:").replace("\nhint:", "\n  hint:");
    out::notes(&format!("{text}\nhint: {hint}"));
    Exit::Usage
}

/// Writes what is still to be written; gives `exit` where that could be.
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
