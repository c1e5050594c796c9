//! Host lists of Slurm: `gpu-[03,07-09],login1`.

use std::collections::{BTreeMap, BTreeSet};

/// Most digits of a number in brackets; longer ones are written out.
const DIGITS_MAX: usize = 18;

/// Returns the names as one host list; empty without names. Numbers of one range have the same count of digits, so that
/// every version of Slurm expands it to the same names.
pub fn host_list<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let mut plain: BTreeSet<&str> = BTreeSet::new();
    let mut numbered: BTreeMap<(&str, usize), BTreeSet<u64>> = BTreeMap::new();
    for name in names {
        let prefix = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let digits = &name[prefix.len()..];
        let number = digits.parse::<u64>().ok();
        match number.filter(|_| digits.len() <= DIGITS_MAX && !prefix.is_empty()) {
            Some(number) => drop(numbered.entry((prefix, digits.len())).or_default().insert(number)),
            None => drop(plain.insert(name)),
        }
    }
    let mut parts: Vec<String> = plain.into_iter().map(str::to_owned).collect();
    for ((prefix, width), numbers) in numbered {
        let ranges = ranges(&numbers);
        let is_single = numbers.len() == 1;
        let texts: Vec<String> = ranges.into_iter().map(|range| range_text(range, width)).collect();
        let text = texts.join(",");
        parts.push(if is_single {
            format!("{prefix}{text}")
        } else {
            format!("{prefix}[{text}]")
        });
    }
    parts.sort();
    parts.join(",")
}

fn ranges(numbers: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    ranges
}

fn range_text((first, last): (u64, u64), width: usize) -> String {
    if first == last {
        format!("{first:0width$}")
    } else {
        format!("{first:0width$}-{last:0width$}")
    }
}
