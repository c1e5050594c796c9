//! Markdown tables of a program's commands, generated from its clap definitions.
//!
//! [`command_tables`] writes one table per [`CommandGroup`]: command, one-line help, example. Every command that can
//! run and is not hidden needs exactly one example, so that a new command cannot be left out of the reference.
//! [`CommandReference`] holds the two parts of the reference file: one of each program, with a marker between them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::Command;

/// Line of the reference file between the commands of `rankguard` and those of `rankguard-history`.
pub const HISTORY_MARKER: &str = "<!-- rankguard-history -->\n";

/// Commands of one purpose.
#[derive(Debug, Clone, Copy)]
pub struct CommandGroup {
    /// Heading of the table.
    pub title: &'static str,
    /// One example per command, with the name of the program; the words after it select the command.
    pub examples: &'static [&'static str],
}

/// Writes the tables of `groups` for the commands of `program`, except the top-level commands in `omitted`.
///
/// # Errors
///
/// Returns the examples that select no command or a command that has one already, and the commands without an
/// example.
pub fn command_tables(program: &Command, groups: &[CommandGroup], omitted: &[&str]) -> Result<String, String> {
    let mut open = BTreeSet::new();
    for command in program.get_subcommands() {
        if !omitted.contains(&command.get_name()) {
            collect_runnable(command, program.get_name(), &mut open);
        }
    }
    let mut text = String::new();
    let mut mistakes = Vec::new();
    for group in groups {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n## {}\n\n| command | purpose | example |\n|---|---|---|\n",
            group.title
        );
        for example in group.examples {
            let (path, command) = select(program, example);
            if !open.remove(&path) {
                mistakes.push(format!("`{example}` selects no command without an example"));
                continue;
            }
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "| `{path}` | {} | `{example}` |", cell(&about));
        }
    }
    mistakes.extend(open.iter().map(|path| format!("`{path}` has no example")));
    if mistakes.is_empty() {
        Ok(text)
    } else {
        Err(mistakes.join("\n"))
    }
}

/// Adds the paths of `command` and of the commands below it that can run and are not hidden.
fn collect_runnable(command: &Command, parent: &str, paths: &mut BTreeSet<String>) {
    if command.is_hide_set() {
        return;
    }
    let path = format!("{parent} {}", command.get_name());
    for below in command.get_subcommands() {
        collect_runnable(below, &path, paths);
    }
    if !command.has_subcommands() || !command.is_subcommand_required_set() {
        paths.insert(path);
    }
}

/// Returns the command that the words of an example select, and its path.
fn select<'a>(program: &'a Command, example: &str) -> (String, &'a Command) {
    let mut path = program.get_name().to_owned();
    let mut command = program;
    for word in example_words(example).into_iter().skip(1) {
        let Some(below) = command.find_subcommand(word) else {
            break;
        };
        path = format!("{path} {word}");
        command = below;
    }
    (path, command)
}

/// Divides an example into its arguments: at white space, except between single quotes.
pub fn example_words(example: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (at, part) in example.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part);
        } else {
            words.extend(part.split_whitespace());
        }
    }
    words
}

/// Escapes text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

/// The reference file, divided at [`HISTORY_MARKER`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandReference {
    /// Text before the marker: written by `rankguard`.
    pub main: String,
    /// Text after the marker: written by `rankguard-history`.
    pub history: String,
}

impl CommandReference {
    /// Divides a reference file. A file without the marker has no history part.
    pub fn parse(text: &str) -> Self {
        let (main, history) = text.split_once(HISTORY_MARKER).unwrap_or((text, ""));
        Self {
            main: main.to_owned(),
            history: history.to_owned(),
        }
    }

    /// Returns the whole file.
    pub fn render(&self) -> String {
        format!("{}{HISTORY_MARKER}{}", self.main, self.history)
    }
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn program() -> Command {
        let list = Command::new("ls").about("List shelves | boxes");
        let show = Command::new("show").about("Show one").arg(Arg::new("name"));
        let shelf = Command::new("shelf")
            .subcommand_required(true)
            .subcommand(list)
            .subcommand(show);
        let worker = Command::new("worker").hide(true);
        Command::new("store").subcommand(shelf).subcommand(worker)
    }

    fn tables(examples: &'static [&'static str]) -> Result<String, String> {
        let group = CommandGroup {
            title: "Shelves",
            examples,
        };
        command_tables(&program(), &[group], &[])
    }

    #[test]
    fn every_visible_command_has_a_row() {
        let text = tables(&["store shelf ls", "store shelf show top"]).expect("all commands have examples");
        let expected = "\n## Shelves\n\n| command | purpose | example |\n|---|---|---|\n\
            | `store shelf ls` | List shelves \\| boxes | `store shelf ls` |\n\
            | `store shelf show` | Show one | `store shelf show top` |\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_missing_and_a_repeated_example_are_reported() {
        let missing = tables(&["store shelf ls"]).expect_err("show has no example");
        assert_eq!(missing, "`store shelf show` has no example");
        let repeated = tables(&["store shelf ls", "store shelf ls", "store shelf show top"]).expect_err("ls twice");
        assert_eq!(repeated, "`store shelf ls` selects no command without an example");
    }

    #[test]
    fn quoted_words_are_one_argument() {
        assert_eq!(
            example_words("store show 'a b' --all"),
            ["store", "show", "a b", "--all"]
        );
    }

    #[test]
    fn a_reference_file_has_two_parts() {
        let reference = CommandReference {
            main: "a\n".to_owned(),
            history: "b\n".to_owned(),
        };
        assert_eq!(CommandReference::parse(&reference.render()), reference);
        assert_eq!(CommandReference::parse("a\n").history, "");
    }
}
