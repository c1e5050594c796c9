//! Lists of possible causes with one cause a line: `Possible causes:`, and below it lines with a bullet or a number. None of them is
//! evidence of what it names.

use rankguard_faults::introduces_causes;

use crate::stream::PlacedObservation;

/// Maximum number of lines of a list.
const LINES: u64 = 24;
/// Maximum number of recorded lines.
const KEPT: usize = 4_096;

/// Lines of one stream that are parts of such lists.
#[derive(Debug, Default)]
pub(crate) struct CauseLists {
    /// Line with the introduction of the open list, 0 without one.
    open: u64,
    /// Numbers of the lines of lists, ascending.
    parts: Vec<u64>,
}

impl CauseLists {
    /// Reads the next line of a log and remembers it if it is part of a list of possible causes.
    pub(crate) fn read(&mut self, number: u64, line: &str) {
        let text = line.trim();
        if text.ends_with(':') && introduces_causes(text) {
            self.open = number;
        } else if self.open > 0 && number <= self.open + LINES && is_part(text) {
            if self.parts.len() < KEPT {
                self.parts.push(number);
            }
        } else if !text.is_empty() {
            self.open = 0;
        }
    }

    /// Removes the observations of parts of lists.
    pub(crate) fn remove_from(&self, seen: &mut Vec<PlacedObservation>) {
        if !self.parts.is_empty() {
            seen.retain(|seen| self.parts.binary_search(&seen.key_line).is_err());
        }
    }
}

/// Returns true for a line with a bullet or a number: `- text`, `* text`, `1. text`, `(2) text`.
fn is_part(text: &str) -> bool {
    let number = text.trim_start_matches('(');
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = rest.len() < number.len() && number.len() - rest.len() <= 2;
    let is_numbered = is_number && (rest.starts_with(". ") || rest.starts_with(") "));
    is_numbered || ["- ", "* ", "\u{2022} "].iter().any(|bullet| text.starts_with(bullet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_with_the_first_line_without_a_bullet() {
        let mut lists = CauseLists::default();
        let log = "Possible causes:\n  - out of memory\n\n  2. a crash\nCUDA out of memory\n- not a part\nfound causes:\n- one\n";
        for (number, line) in (1..).zip(log.lines()) {
            lists.read(number, line);
        }
        assert_eq!(lists.parts, [2, 4]);
    }
}
