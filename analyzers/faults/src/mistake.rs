//! Mistakes in a catalogue's files: where they are, what is wrong and what to do.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// One mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// The file, as its reader named it.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// The key that is wrong; `toml` where the text itself does not parse.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub help: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            key,
            what,
            help,
        } = self;
        write!(f, "{file}:{line}: {key}: {what}; {help}")
    }
}

/// All mistakes of a set of files, in the order of files and lines.
#[derive(Debug, Clone, Error)]
#[error("{}", .mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct CatalogueError {
    /// The mistakes; at least one.
    pub mistakes: Vec<Mistake>,
}

/// Where an entry stands, with the lines of its keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    file: Arc<str>,
    line: usize,
    keys: Vec<(Box<str>, usize)>,
}

impl Place {
    pub(crate) fn new(file: &Arc<str>, line: usize, keys: Vec<(Box<str>, usize)>) -> Self {
        Self {
            file: Arc::clone(file),
            line,
            keys,
        }
    }

    /// Whether lines are known: those of built-in files are not, outside of tests.
    pub(crate) fn is_exact(&self) -> bool {
        self.line > 0
    }

    /// Line of a key, else of the entry.
    pub(crate) fn line_of(&self, key: &str) -> usize {
        let found = self.keys.iter().find(|(name, _)| &**name == key);
        found.map_or(self.line, |(_, line)| *line)
    }

    pub(crate) fn mistake(&self, key: &str, what: String, help: String) -> Mistake {
        Mistake {
            file: self.file.to_string(),
            line: self.line_of(key),
            key: key.to_owned(),
            what,
            help,
        }
    }

    /// `file:line`, as a mistake elsewhere points to it.
    pub(crate) fn pointer(&self) -> String {
        if !self.is_exact() {
            return format!("the built-in {}", self.file);
        }
        format!("{}:{}", self.file, self.line)
    }
}

/// `did you mean "x"?`, when a known word is close enough to have been meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest_of(word, known, 1)
        .first()
        .map(|best| format!("did you mean {best:?}?"))
}

/// Known words close to one that is not known, the closest first.
pub(crate) fn nearest_of<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    // A word of hundreds of characters is no typing mistake, and the table below grows with it.
    if word.len() > 80 {
        return Vec::new();
    }
    let limit = 1 + word.chars().count() / 3;
    let mut close: Vec<(usize, &str)> = known
        .into_iter()
        .filter(|candidate| candidate.len() <= 80)
        .filter_map(|candidate| {
            let far = distance(word, candidate);
            // A part of a long name is how people ask for it.
            let part = word.len() >= 3 && candidate.contains(word);
            (far <= limit || part).then_some((if part { far.min(limit) } else { far }, candidate))
        })
        .collect();
    close.sort_unstable();
    close.dedup();
    close.truncate(most);
    close.into_iter().map(|(_, candidate)| candidate).collect()
}

/// How many characters must be added, removed or replaced to get from one word to the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_is_close_and_another_word_is_not() {
        let known = ["confidence", "class", "codes", "pattern"];
        assert_eq!(
            nearest("confidance", known),
            Some("did you mean \"confidence\"?".to_owned())
        );
        assert_eq!(nearest("clas", known), Some("did you mean \"class\"?".to_owned()));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(nearest_of("conf", known, 3), ["confidence"]);
    }

    #[test]
    fn distance_counts_changes() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("xid", "xid"), 0);
    }
}
