//! Fields: values that the pattern of a signature extracts from a line, and values that are derived from them.

use std::collections::BTreeMap;
use std::ops::Index;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Values by name, in the order of the names. A sorted vector suffices because a line has few fields. Clones share one
/// allocation until one of them changes (copy on write), because classifications and evidence copy them.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(from = "BTreeMap<SmolStr, SmolStr>", into = "BTreeMap<SmolStr, SmolStr>")]
pub struct FieldValues(Option<Arc<Vec<(SmolStr, SmolStr)>>>);

impl FieldValues {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty set with memory for `count` fields; none is allocated for 0.
    pub fn with_capacity(count: usize) -> Self {
        Self((count > 0).then(|| Arc::new(Vec::with_capacity(count))))
    }

    /// Returns the fields as a slice, sorted by name.
    fn all(&self) -> &[(SmolStr, SmolStr)] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Returns the fields for modification; clones them if the allocation is shared.
    fn own(&mut self) -> &mut Vec<(SmolStr, SmolStr)> {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    /// Returns the position of a name (`Ok`), or the position at which to insert it (`Err`). A name after the last one
    /// needs no search.
    fn place(&self, name: &str) -> Result<usize, usize> {
        let all = self.all();
        match all.last() {
            Some((last, _)) if last.as_str() >= name => all.binary_search_by(|(known, _)| known.as_str().cmp(name)),
            _ => Err(all.len()),
        }
    }

    fn value(&self, name: &str) -> Option<&SmolStr> {
        // Most names differ in length, so a linear scan compares few bytes.
        let mut all = self.all().iter();
        all.find_map(|(known, value)| (known.as_str() == name).then_some(value))
    }

    /// Returns the value of a name; `None` if there is none.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.value(name).map(SmolStr::as_str)
    }

    /// Returns true if a name has a value.
    pub fn contains_key(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Sets the value of a name, replacing an earlier one.
    pub fn insert(&mut self, name: impl Into<SmolStr>, value: impl Into<SmolStr>) {
        let name = name.into();
        match self.place(&name) {
            Ok(place) => self.own()[place].1 = value.into(),
            Err(place) => self.own().insert(place, (name, value.into())),
        }
    }

    /// Sets the value of a name that has none; an existing value is retained.
    pub fn fill(&mut self, name: impl Into<SmolStr>, value: impl Into<SmolStr>) {
        let name = name.into();
        if let Err(place) = self.place(&name) {
            self.own().insert(place, (name, value.into()));
        }
    }

    /// Returns names and values, in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.all().iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// Returns true if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
}

impl PartialEq for FieldValues {
    fn eq(&self, other: &Self) -> bool {
        let one = self.all();
        let other = other.all();
        std::ptr::eq(one, other) || one == other
    }
}

impl Index<&str> for FieldValues {
    type Output = SmolStr;

    /// Returns the value of a name; panics if there is none.
    fn index(&self, name: &str) -> &SmolStr {
        self.value(name).expect("a field that is asked for by index is there")
    }
}

impl std::fmt::Debug for FieldValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<N: Into<SmolStr>, V: Into<SmolStr>> Extend<(N, V)> for FieldValues {
    fn extend<I: IntoIterator<Item = (N, V)>>(&mut self, fields: I) {
        let fields = fields.into_iter();
        if fields.size_hint().0 > 0 {
            self.own().reserve(fields.size_hint().0);
        }
        fields.for_each(|(name, value)| self.insert(name, value));
    }
}

impl<N: Into<SmolStr>, V: Into<SmolStr>> FromIterator<(N, V)> for FieldValues {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        let mut all = Self::new();
        all.extend(fields);
        all
    }
}

impl<N: Into<SmolStr>, V: Into<SmolStr>, const COUNT: usize> From<[(N, V); COUNT]> for FieldValues {
    fn from(fields: [(N, V); COUNT]) -> Self {
        fields.into_iter().collect()
    }
}

impl From<BTreeMap<SmolStr, SmolStr>> for FieldValues {
    fn from(fields: BTreeMap<SmolStr, SmolStr>) -> Self {
        Self((!fields.is_empty()).then(|| Arc::new(fields.into_iter().collect())))
    }
}

impl From<FieldValues> for BTreeMap<SmolStr, SmolStr> {
    fn from(fields: FieldValues) -> Self {
        fields.0.map(Arc::unwrap_or_clone).into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_in_the_order_of_their_names_and_the_newest_value_holds() {
        let mut fields = FieldValues::from([("xid", "79"), ("pid", "7")]);
        fields.extend([("bdf", "0000:3b:00"), ("pid", "8")]);
        assert_eq!(
            format!("{fields:?}"),
            r#"{"bdf": "0000:3b:00", "pid": "8", "xid": "79"}"#
        );
        assert_eq!((fields.get("pid"), fields.get("name")), (Some("8"), None));
    }

    #[test]
    fn what_is_said_of_a_copy_is_not_said_of_the_first_one() {
        let fields = FieldValues::from([("xid", "79")]);
        let mut copy = fields.clone();
        assert_eq!(copy, fields);
        copy.insert("xid", "48");
        copy.fill("pid", "7");
        assert_eq!(
            (fields.get("xid"), fields.get("pid"), fields.len()),
            (Some("79"), None, 1)
        );
        assert_eq!(FieldValues::with_capacity(4), FieldValues::new());
    }
}
