//! Error counts by type: the types in one sysfs file that have grown. Pure.

use std::collections::BTreeMap;

/// Most types of one file; the kernel has fewer.
const TYPES: usize = 32;
/// Longest name of a type, bytes; the kernel's are shorter.
const NAME: usize = 32;

/// Error counts of one file by type, such as `BadTLP 3`.
#[derive(Debug, Default)]
pub(super) struct ErrorCounts {
    /// Sum of all types at the last read; none before.
    sum: Option<f64>,
    now: BTreeMap<String, u64>,
    /// Counts at the last call of [`ErrorCounts::grown`], or at the first read.
    base: BTreeMap<String, u64>,
}

impl ErrorCounts {
    /// Takes the text of the file and its sum; the text is parsed only if the sum has changed.
    pub(super) fn take(&mut self, sum: f64, text: &str) {
        let before = self.sum.replace(sum);
        if before == Some(sum) {
            return;
        }
        self.now = counts(text);
        // Errors of unknown age are not reported, and a counter that was reset starts again.
        if before.is_none() || before.is_some_and(|before| sum < before) {
            self.base.clone_from(&self.now);
        }
    }

    /// Returns the growth since the last call, greatest first: `BadTLP 12, RxErr 3`.
    pub(super) fn grown(&mut self) -> Option<String> {
        let base = std::mem::replace(&mut self.base, self.now.clone());
        let grown = self.now.iter().map(|(name, count)| {
            let before = base.get(name).copied().unwrap_or_default();
            (count.saturating_sub(before), name)
        });
        let mut grown: Vec<(u64, &String)> = grown.filter(|(count, _)| *count > 0).collect();
        grown.sort_by(|(one, _), (two, _)| two.cmp(one));
        let words: Vec<String> = grown.iter().map(|(count, name)| format!("{name} {count}")).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Parses the types of a file, without the sums.
fn counts(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (name, count) = line.rsplit_once(' ')?;
        let is_name = name.len() <= NAME && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let is_type = is_name && !name.is_empty() && !name.starts_with("TOTAL_");
        is_type.then_some((name.to_owned(), count.trim().parse().ok()?))
    };
    text.lines().filter_map(line).take(TYPES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats `aer_dev_correctable` as Linux does.
    fn text(receiver: u64, tlp: u64) -> String {
        format!(
            "RxErr {receiver}\nBadTLP {tlp}\nBadDLLP 0\nRollover 0\nTOTAL_ERR_COR {}\n",
            receiver + tlp
        )
    }

    #[test]
    fn what_has_grown_is_named_once_and_the_most_comes_first() {
        let mut types = ErrorCounts::default();
        types.take(7.0, &text(7, 0));
        assert_eq!(types.grown(), None);
        types.take(22.0, &text(10, 12));
        types.take(23.0, &text(10, 13));
        assert_eq!(types.grown().as_deref(), Some("BadTLP 13, RxErr 3"));
        assert_eq!(types.grown(), None);
        // The counters start again with the driver.
        types.take(2.0, &text(2, 0));
        assert_eq!(types.grown(), None);
        types.take(3.0, &text(3, 0));
        assert_eq!(types.grown().as_deref(), Some("RxErr 1"));
    }

    #[test]
    fn lines_that_are_no_counts_are_left_out_and_there_are_not_too_many() {
        let mut odd = "\u{0}x 1\nRxErr\nRxErr -1\nRxErr 18446744073709551616\n 5\nTOTAL_ERR_COR 9\n".to_owned();
        assert!(counts(&odd).is_empty());
        (0..100).for_each(|number| odd.push_str(&format!("T{number} {number}\n")));
        assert_eq!(counts(&odd).len(), TYPES);
    }
}
