//! Width of the terminal, and text that is wrapped to it.

use std::io::IsTerminal as _;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Smallest width that output is fitted to; narrower terminals wrap the lines themselves.
const MIN_WIDTH: usize = 20;
/// Spaces that continue a wrapped line of a page without a value column.
const HANG: usize = 2;

/// Returns the width of the terminal on standard output: `COLUMNS`, else the size of the terminal. `None` if standard
/// output is a file or pipe: such output is not wrapped.
pub fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let set = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let size = || {
        rustix::termios::tcgetwinsize(&stdout)
            .ok()
            .map(|size| usize::from(size.ws_col))
    };
    let width = set.filter(|width| *width > 0).or_else(size)?;
    (width > 0).then_some(width.max(MIN_WIDTH))
}

/// True unless the variable `NO_COLOR` is set to a value (<https://no-color.org>).
pub fn allows_color() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns the number of terminal cells of a text.
pub fn cells(text: &str) -> usize {
    text.width()
}

/// Splits a text into lines of at most `width` cells: between words, else after punctuation and the date of a time, else
/// anywhere.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let gap = usize::from(!line.is_empty());
        if cells(&line) + gap + cells(word) <= width {
            if gap > 0 {
                line.push(' ');
            }
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        let mut rest = word;
        while cells(rest) > width {
            let cut = cut_point(rest, width);
            lines.push(rest[..cut].to_owned());
            rest = &rest[cut..];
        }
        line.push_str(rest);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Returns the byte at which a word that is wider than `width` is cut.
fn cut_point(word: &str, width: usize) -> usize {
    let mut used = 0;
    let mut anywhere = None;
    let mut good = None;
    let mut before_date_end = false;
    for (at, letter) in word.char_indices() {
        used += letter.width().unwrap_or(0);
        let end = at + letter.len_utf8();
        if used > width {
            break;
        }
        anywhere = Some(end);
        let is_date_end = letter == 'T' && before_date_end;
        before_date_end = letter.is_ascii_digit() && at == "2026-11-2".len();
        if is_date_end {
            return end;
        }
        if "-/:._,;=&?".contains(letter) {
            good = Some(end);
        }
    }
    // A letter that is wider than the whole line still makes progress.
    let first = word.chars().next().map_or(word.len(), char::len_utf8);
    good.or(anywhere).unwrap_or(first)
}

/// Wraps the lines of a page of facts. A continued line begins in the column of the value (`  name   value`), else
/// below the text.
pub fn wrap_page(page: &str, width: usize) -> String {
    let mut out = String::with_capacity(page.len());
    for line in page.lines() {
        if cells(line) <= width {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let hang = value_column(line).filter(|column| *column <= width / 2);
        let indent = line.len() - line.trim_start_matches(' ').len();
        let hang = hang.unwrap_or_else(|| (indent + HANG).min(width / 2));
        // The first line keeps its own indentation and name: both are within the value column or the indentation.
        let split = match value_column(line).filter(|column| *column <= width / 2) {
            Some(column) => column,
            None => indent,
        };
        let (head, text) = line.split_at(split);
        let mut wrapped = wrap(text, width - hang.max(cells(head))).into_iter();
        out.push_str(head);
        out.push_str(&wrapped.next().unwrap_or_default());
        out.push('\n');
        for more in wrapped {
            out.extend(std::iter::repeat_n(' ', hang));
            out.push_str(&more);
            out.push('\n');
        }
    }
    out
}

/// Returns the byte at which the value of `  name   value` begins: after the first gap of two or more spaces. The name
/// is ASCII, so that bytes are cells.
fn value_column(line: &str) -> Option<usize> {
    let start = line.find(|letter| letter != ' ')?;
    let gap = start + line[start..].find("  ")?;
    if !line[..gap].is_ascii() {
        return None;
    }
    let value = line[gap..].find(|letter| letter != ' ')?;
    Some(gap + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_between_words_then_after_punctuation_then_anywhere() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(
            wrap("gpu-fallen-off-bus", 10),
            ["gpu-", "fallen-", "off-bus"].as_slice().to_vec()
        );
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("2026-11-27T22:37:46.152Z", 14), ["2026-11-27T", "22:37:46.152Z"]);
        assert_eq!(wrap("", 3), [""]);
        assert_eq!(wrap("\u{1F643}\u{1F643}", 1), ["\u{1F643}", "\u{1F643}"]);
    }

    #[test]
    fn a_page_is_continued_below_its_values() {
        let page =
            "case 1: x\n  outcome     the job was restarted on other nodes\n  see the reasons below for all details\n";
        assert_eq!(
            wrap_page(page, 30),
            "case 1: x\n  outcome     the job was\n              restarted on\n              other nodes\n  see the reasons below for\n    all details\n"
        );
        assert_eq!(wrap_page(page, 100), page);
    }
}
