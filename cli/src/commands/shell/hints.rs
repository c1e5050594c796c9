//! Test that the commands in messages and advice are commands of this program.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::program::Cli;

/// Folders with texts for operators.
const FOLDERS: [&str; 12] = [
    "agent/src",
    "analyzers/diagnosis/src",
    "analyzers/faults/data",
    "analyzers/offline/src",
    "checkpoint",
    "cli",
    "controller",
    "identity/src",
    "integrations",
    "model/src",
    "python/rankguard",
    "rank/src",
];
const ENDINGS: [&str; 3] = ["rs", "toml", "py"];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if ENDINGS
            .iter()
            .any(|ending| path.extension().is_some_and(|of| of == *ending))
        {
            found.push(path);
        }
    }
}

/// Returns the commands in backticks, with the words of a text over several lines on one.
fn commands(text: &str) -> Vec<String> {
    let parts = text.split("`rankguard ").skip(1);
    let quoted = parts.filter_map(|part| Some(part.split_once('`')?.0.to_owned()));
    let joined = quoted.map(|command| {
        let words: Vec<&str> = command.split_whitespace().filter(|word| *word != "\\").collect();
        words.join(" ")
    });
    // Alternatives and open ends are no commands; neither are words with marks of the shell.
    joined
        .filter(|command| !command.contains(['|', '[', '\'', '"', '/']) && !command.contains("..."))
        .collect()
}

/// Returns the words of a command, with a number for each placeholder, and true if it has a value or placeholder.
fn words(command: &str) -> (Vec<String>, bool) {
    let mut has_value = false;
    let mut after_option = false;
    let mut words = vec!["rankguard".to_owned()];
    for word in command.split(' ') {
        let is_placeholder =
            word.contains('{') || word.len() > 1 && !word.chars().any(|c| c.is_lowercase() || c == '-');
        let is_placeholder = is_placeholder || word == "N";
        let is_option = word.starts_with("--");
        has_value |= is_placeholder || after_option && !is_option;
        after_option = is_option;
        words.push(if is_placeholder {
            "7".to_owned()
        } else {
            word.to_owned()
        });
    }
    (words, has_value)
}

/// Returns the option that lacks a value of its set.
fn enumerated(error: &clap::Error) -> Option<String> {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument,
        _ => return None,
    };
    let values = error.get(ContextKind::ValidValue);
    let has_values = matches!(values, Some(ContextValue::Strings(values)) if !values.is_empty());
    has_values.then(|| argument.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Returns the error of a command that cannot be run as printed. A command that is only named may lack arguments.
fn fault(command: &str) -> Option<String> {
    let (mut words, has_value) = words(command);
    let mut error = Cli::command().try_get_matches_from(&words).err()?;
    // A value of a fixed set would hide that another argument is missing.
    while let Some(at) = enumerated(&error).and_then(|option| words.iter().position(|word| *word == option)) {
        let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue) else {
            break;
        };
        if words.get(at + 1).is_none_or(|word| values.contains(word)) {
            break;
        }
        words[at + 1] = values[0].clone();
        error = Cli::command().try_get_matches_from(&words).err()?;
    }
    let is_wrong = match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::ArgumentConflict => true,
        ErrorKind::InvalidSubcommand => !has_value,
        // The command of a job is that of its owner.
        ErrorKind::MissingRequiredArgument => has_value && !command.starts_with("run "),
        _ => false,
    };
    is_wrong.then(|| format!("`rankguard {command}`: {:?}", error.kind()))
}

#[test]
fn commands_in_texts_can_be_run_as_printed() {
    assert!(fault("token create --role ROLE").is_some(), "the name is missing");
    assert!(fault("status --nothing").is_some() && fault("checkpoint gc").is_none());
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut sources = Vec::new();
    FOLDERS
        .iter()
        .for_each(|folder| files(&root.join(folder), &mut sources));
    let mut faults = Vec::new();
    let mut count = 0;
    for path in sources.iter().filter(|path| !path.ends_with("shell/hints.rs")) {
        let text = fs::read_to_string(path).expect("text");
        let is_text = |line: &&str| !line.trim_start().starts_with("//");
        let text = text.lines().filter(is_text).collect::<Vec<_>>().join("\n");
        for command in commands(&text) {
            count += 1;
            faults.extend(fault(&command).map(|fault| format!("{}: {fault}", path.display())));
        }
    }
    assert!(count > 50, "{count} commands were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
