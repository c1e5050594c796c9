//! Mistakes in catalogue files, with position, problem and hint.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// Mistake in a catalogue file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CatalogueMistake {
    /// File name, as the caller gave it.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Key with the mistake; `toml` if the text does not parse.
    pub key: String,
    /// Description of the problem.
    pub what: String,
    /// Hint for the correction.
    pub help: String,
}

impl fmt::Display for CatalogueMistake {
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

/// All mistakes of a set of files, ordered by file and line.
#[derive(Debug, Clone, Error)]
#[error("{}", .mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct CatalogueError {
    /// Mistakes; at least one.
    pub mistakes: Vec<CatalogueMistake>,
}

/// Position of an entry, with the lines of its keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct EntryPosition {
    file: Arc<str>,
    line: usize,
    keys: Vec<(Box<str>, usize)>,
}

impl EntryPosition {
    pub(crate) fn new(file: &Arc<str>, line: usize, keys: Vec<(Box<str>, usize)>) -> Self {
        Self {
            file: Arc::clone(file),
            line,
            keys,
        }
    }

    /// Returns true if lines are known; for built-in files only tests record them.
    pub(crate) fn is_exact(&self) -> bool {
        self.line > 0
    }

    /// Returns the line of a key, or of the entry if the key is absent.
    pub(crate) fn line_of(&self, key: &str) -> usize {
        let found = self.keys.iter().find(|(name, _)| &**name == key);
        found.map_or(self.line, |(_, line)| *line)
    }

    pub(crate) fn mistake(&self, key: &str, what: String, help: String) -> CatalogueMistake {
        CatalogueMistake {
            file: self.file.to_string(),
            line: self.line_of(key),
            key: key.to_owned(),
            what,
            help,
        }
    }

    /// Returns `file:line`, for a mistake elsewhere that refers to this entry.
    pub(crate) fn pointer(&self) -> String {
        if !self.is_exact() {
            return format!("the built-in {}", self.file);
        }
        format!("{}:{}", self.file, self.line)
    }
}

/// Returns `did you mean "x"?` if a known word is similar.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest_of(word, known, 1)
        .first()
        .map(|best| format!("did you mean {best:?}?"))
}

/// Returns up to `most` known words similar to an unknown one, the closest first.
pub(crate) fn nearest_of<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    // A word of hundreds of characters is not a typing mistake, and the distance table grows with it.
    if word.len() > 80 {
        return Vec::new();
    }
    let limit = 1 + word.chars().count() / 3;
    let mut close: Vec<(usize, &str)> = known
        .into_iter()
        .filter(|candidate| candidate.len() <= 80)
        .filter_map(|candidate| {
            let far = distance(word, candidate);
            // Users often type a part of a long name.
            let part = word.len() >= 3 && candidate.contains(word);
            (far <= limit || part).then_some((if part { far.min(limit) } else { far }, candidate))
        })
        .collect();
    close.sort_unstable();
    close.dedup();
    close.truncate(most);
    close.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Returns the Levenshtein distance: characters to add, remove or replace to turn one word into the other.
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
