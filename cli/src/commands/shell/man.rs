//! Values of options in the synopsis of manual pages, where the generator writes the names alone.

use std::collections::BTreeMap;
use std::path::Path;

/// Start of a name in the source of a page.
const BOLD: &str = "\\fB";
/// End of a name or a value.
const PLAIN: &str = "\\fR";

/// Adds the values to the synopsis of each page in a folder.
pub(super) fn add_values(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "1") {
            let page = std::fs::read_to_string(&path)?;
            std::fs::write(&path, with_values(&page))?;
        }
    }
    Ok(())
}

/// Returns the page with the values of its options in the synopsis, as the list of options names them.
fn with_values(page: &str) -> String {
    let values: BTreeMap<&str, &str> = page.lines().filter_map(option_value).collect();
    let mut is_synopsis = false;
    let lines = page.lines().map(|line| {
        if line.starts_with(".SH ") {
            is_synopsis = line == ".SH SYNOPSIS";
        }
        if !is_synopsis {
            return line.to_owned();
        }
        let parts = line.split(PLAIN).map(|part| {
            let value = part.rfind(BOLD).and_then(|at| values.get(&part[at..]));
            (part, value)
        });
        let parts: Vec<String> = parts
            .map(|(part, value)| match value {
                Some(value) => format!("{part}{PLAIN} {}", value.trim_end_matches(PLAIN)),
                None => part.to_owned(),
            })
            .collect();
        parts.join(PLAIN)
    });
    lines.map(|line| line + "\n").collect()
}

/// Returns the long name of an option and its value, both in the source of the page.
fn option_value(line: &str) -> Option<(&str, &str)> {
    let (names, value) = line.split_once(" \\fI")?;
    let name = names.rsplit(", ").next()?.strip_suffix(PLAIN)?;
    let end = value.find(PLAIN)?;
    let from = line.len() - value.len() - "\\fI".len();
    let value = &line[from..from + "\\fI".len() + end + PLAIN.len()];
    name.starts_with(&format!("{BOLD}\\-\\-")).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_synopsis_have_their_values() {
        let page = ".SH SYNOPSIS\n\\fBrankguard x\\fR [\\fB\\-\\-out\\fR] <\\fB\\-\\-all\\fR> [\\fB\\-h\\fR|\\fB\\-\\-help\\fR]\n\
                    .SH OPTIONS\n.TP\n\\fB\\-o\\fR, \\fB\\-\\-out\\fR \\fI<DIR>\\fR\nFolder\n.TP\n\\fB\\-\\-all\\fR\n";
        let expected = page.replacen("[\\fB\\-\\-out\\fR]", "[\\fB\\-\\-out\\fR \\fI<DIR>\\fR]", 1);
        assert_eq!(with_values(page), expected);
    }
}
