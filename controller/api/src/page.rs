//! Pages: a cursor names the last entry of the page before, so that entries which appear or go meanwhile move no other.

use crate::problem::{Problem, quoted};
use crate::query::{CURSOR, Query};

/// Version of the form of a cursor.
const VERSION: &str = "1";

/// Page of entries with the cursor of the next one.
#[derive(Debug)]
pub(crate) struct PageSlice<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

/// Lists that have pages; a cursor is valid for one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PagedList {
    Jobs,
    Checkpoints,
    Nodes,
    Cases,
    Plans,
    Audit,
}

impl PagedList {
    fn letter(self) -> &'static str {
        match self {
            Self::Jobs => "j",
            Self::Checkpoints => "k",
            Self::Nodes => "n",
            Self::Cases => "c",
            Self::Plans => "p",
            Self::Audit => "a",
        }
    }

    /// Returns the key of the last entry of the page before; `None` for the first page.
    pub(crate) fn after(self, query: &Query) -> Result<Option<String>, Problem> {
        let Some(cursor) = query.text(CURSOR.name) else {
            return Ok(None);
        };
        let key = decode(cursor).and_then(|text| {
            let key = text.strip_prefix(VERSION)?.strip_prefix(self.letter())?;
            Some(key.to_owned())
        });
        key.map(Some).ok_or_else(|| invalid(cursor))
    }

    /// Returns the number of the last entry of the page before.
    pub(crate) fn number_after(self, query: &Query) -> Result<Option<u64>, Problem> {
        let Some(key) = self.after(query)? else {
            return Ok(None);
        };
        let number = key
            .parse()
            .map_err(|_| invalid(query.text(CURSOR.name).unwrap_or_default()))?;
        Ok(Some(number))
    }

    /// Takes a page of entries that begin after the cursor; `key` returns the key of an entry.
    pub(crate) fn page<T>(
        self,
        query: &Query,
        entries: impl Iterator<Item = T>,
        key: impl Fn(&T) -> String,
    ) -> PageSlice<T> {
        let limit = query.limit();
        let mut items: Vec<T> = entries.take(limit + 1).collect();
        let has_more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().filter(|_| has_more);
        let next = last.map(|last| self.cursor(&key(last)));
        PageSlice { items, next }
    }

    /// Returns the cursor after the entry with a key.
    pub(crate) fn cursor(self, key: &str) -> String {
        encode(&format!("{VERSION}{}{key}", self.letter()))
    }
}

fn invalid(cursor: &str) -> Problem {
    let detail = format!("cursor is {}, which this list has not given", quoted(cursor));
    Problem::invalid(CURSOR.name, detail)
        .hint("use the value of `next` of the page before, or leave it out to begin anew")
}

fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(cursor: &str) -> Option<String> {
    let pairs = cursor.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| {
            let is_digit = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
            let pair = std::str::from_utf8(pair).ok().filter(|_| is_digit)?;
            u8::from_str_radix(pair, 16).ok()
        })
        .collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::LIMIT;

    #[test]
    fn a_cursor_leads_to_the_next_page_of_its_own_list_only() {
        let query = |text: &str| Query::parse(Some(text), &[LIMIT, CURSOR]).expect("good values");
        let names = ["a", "b", "ü", "z"];
        let first = PagedList::Jobs.page(&query("limit=3"), names.iter(), ToString::to_string);
        assert_eq!(first.items.len(), 3);
        let next = query(&format!("cursor={}", first.next.expect("one more")));
        assert_eq!(PagedList::Jobs.after(&next).expect("valid").as_deref(), Some("ü"));
        assert!(PagedList::Nodes.after(&next).is_err());
        let all = PagedList::Jobs.page(&query("limit=4"), names.iter(), ToString::to_string);
        assert_eq!(all.next, None);
    }

    #[test]
    fn foreign_cursors_are_refused() {
        for cursor in ["a", "zz", "31", "316", "ff", "32".repeat(255).as_str(), "3163"] {
            let query = Query::parse(Some(&format!("cursor={cursor}")), &[CURSOR]).expect("text");
            assert!(PagedList::Cases.number_after(&query).is_err(), "{cursor}");
        }
    }
}
