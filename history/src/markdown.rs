//! Command reference of the documents: the part of `docs/cli.md` with the history commands.

use clap::Command;
use rankguard_console::command_table::{CommandGroup, command_tables};

/// One example of every command.
const GROUPS: &[CommandGroup] = &[CommandGroup {
    title: "History (program rankguard-history)",
    examples: &[
        "rankguard dataset ls",
        "rankguard dataset info mapped",
        "rankguard dataset check /data/failures",
        "rankguard dataset import /data/failures --out tables",
        "rankguard dataset export /data/failures --table failures --as csv",
        "rankguard study ls",
        "rankguard study run mtbf --data /var/lib/rankguard",
        "rankguard study reproduce --data /data/failures",
        "rankguard study report --data /var/lib/rankguard --out study.html",
        "rankguard replay /var/log/old-incident",
        "rankguard simulate --synthetic 16384 --policy young --policy multi-level",
        "rankguard simulate calibrate --data /var/lib/rankguard",
    ],
}];

/// Returns the tables of these commands.
pub(crate) fn reference(program: &Command) -> Result<String, String> {
    command_tables(program, GROUPS, &[])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::CommandFactory as _;
    use rankguard_console::command_table::{CommandReference, example_words};

    use super::*;
    use crate::Cli;

    #[test]
    fn examples_of_the_reference_parse() {
        for example in GROUPS.iter().flat_map(|group| group.examples) {
            let parsed = Cli::command().try_get_matches_from(example_words(example));
            assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
        }
    }

    #[test]
    fn reference_equals_the_commands() {
        let history = reference(&Cli::command()).expect("every command has one example");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
        let present = fs::read_to_string(path).unwrap_or_default();
        let wanted = CommandReference {
            history,
            ..CommandReference::parse(&present)
        };
        if std::env::var_os("RANKGUARD_BLESS").is_some() {
            fs::write(path, wanted.render()).expect("the file can be written");
            return;
        }
        assert_eq!(
            present,
            wanted.render(),
            "docs/cli.md differs; RANKGUARD_BLESS=1 cargo test -p rankguard-history reference writes it"
        );
    }
}
