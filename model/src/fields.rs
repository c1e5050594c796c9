//! Fields: the few values that a signature takes out of a text.

use std::collections::BTreeMap;
use std::ops::Index;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Values by name, in the order of the names. There are few of one line and they are short: one piece of memory holds them, and
/// a copy of them costs one more.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<SmolStr, SmolStr>", into = "BTreeMap<SmolStr, SmolStr>")]
pub struct Fields(Vec<(SmolStr, SmolStr)>);

impl Fields {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for as many.
    pub fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Where a name stands, or belongs: behind all others, where they are given in their order.
    fn place(&self, name: &str) -> Result<usize, usize> {
        match self.0.last() {
            Some((last, _)) if last.as_str() >= name => self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)),
            _ => Err(self.0.len()),
        }
    }

    fn value(&self, name: &str) -> Option<&SmolStr> {
        // Most names differ in their length already.
        let mut all = self.0.iter();
        all.find_map(|(known, value)| (known.as_str() == name).then_some(value))
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.value(name).map(SmolStr::as_str)
    }

    /// Whether a name has a value.
    pub fn contains_key(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Gives a name a value, whatever it had before.
    pub fn insert(&mut self, name: impl Into<SmolStr>, value: impl Into<SmolStr>) {
        let name = name.into();
        match self.place(&name) {
            Ok(place) => self.0[place].1 = value.into(),
            Err(place) => self.0.insert(place, (name, value.into())),
        }
    }

    /// Gives a name a value where it has none.
    pub fn fill(&mut self, name: impl Into<SmolStr>, value: impl Into<SmolStr>) {
        let name = name.into();
        if let Err(place) = self.place(&name) {
            self.0.insert(place, (name, value.into()));
        }
    }

    /// Names and values, in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Index<&str> for Fields {
    type Output = SmolStr;

    fn index(&self, name: &str) -> &SmolStr {
        self.value(name).expect("a field that is asked for by index is there")
    }
}

impl std::fmt::Debug for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<N: Into<SmolStr>, V: Into<SmolStr>> Extend<(N, V)> for Fields {
    fn extend<I: IntoIterator<Item = (N, V)>>(&mut self, fields: I) {
        let fields = fields.into_iter();
        self.0.reserve(fields.size_hint().0);
        fields.for_each(|(name, value)| self.insert(name, value));
    }
}

impl<N: Into<SmolStr>, V: Into<SmolStr>> FromIterator<(N, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        let mut all = Self::new();
        all.extend(fields);
        all
    }
}

impl<N: Into<SmolStr>, V: Into<SmolStr>, const COUNT: usize> From<[(N, V); COUNT]> for Fields {
    fn from(fields: [(N, V); COUNT]) -> Self {
        fields.into_iter().collect()
    }
}

impl From<BTreeMap<SmolStr, SmolStr>> for Fields {
    fn from(fields: BTreeMap<SmolStr, SmolStr>) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl From<Fields> for BTreeMap<SmolStr, SmolStr> {
    fn from(fields: Fields) -> Self {
        fields.0.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_in_the_order_of_their_names_and_the_newest_value_holds() {
        let mut fields = Fields::from([("xid", "79"), ("pid", "7")]);
        fields.extend([("bdf", "0000:3b:00"), ("pid", "8")]);
        assert_eq!(
            format!("{fields:?}"),
            r#"{"bdf": "0000:3b:00", "pid": "8", "xid": "79"}"#
        );
        assert_eq!((fields.get("pid"), fields.get("name")), (Some("8"), None));
    }
}
