//! Column of texts with few repetitions.

/// Concatenated texts and the end of each. An empty text is absent.
#[derive(Debug, Default, Clone)]
pub(crate) struct PackedTexts {
    text: String,
    ends: Vec<usize>,
}

impl PackedTexts {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn grow_to(&mut self, rows: usize) {
        self.ends.resize(rows, self.text.len());
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    pub(crate) fn join<'a>(&mut self, behind: impl Iterator<Item = Option<&'a str>>) {
        behind.for_each(|text| self.push(text.unwrap_or_default()));
    }

    /// Compares the text of a row as bytes, which needs no character boundary check.
    pub(crate) fn is(&self, row: usize, text: &str) -> bool {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.as_bytes()[start..self.ends[row]] == *text.as_bytes()
    }

    /// Returns the text of each row.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Option<&str>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let texts = starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end]);
        texts.map(|text| Some(text).filter(|text| !text.is_empty()))
    }
}
