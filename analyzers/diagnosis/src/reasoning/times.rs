//! Times and numbers of the reasoning log, written without the cost of the formatter.

use std::fmt::Write;

use crate::Signal;
use crate::place_in_log::{millis_of_boot, older_until};

/// Writes a share with two decimals; the formatter would first test if two are enough.
pub(super) fn hundredths(text: &mut String, share: f64) {
    let hundredths = (share * 100.0).round() as u8;
    let digit = |number: u8| char::from(b'0' + number % 10);
    text.extend([digit(hundredths / 100), '.', digit(hundredths / 10), digit(hundredths)]);
}

/// Writes the time relative to the first cause; omits the order if the clocks are not comparable.
pub(super) fn moment(text: &mut String, sign: &Signal, first: &Signal) {
    if let Some(until) = older_until(sign, first) {
        text.push_str("by its place in the log before ");
        return until.push_to(text);
    }
    if let Some(millis) = millis_of_boot(sign, first) {
        return distance(text, millis);
    }
    if !sign.timed && !first.timed {
        return text.push_str("besides");
    }
    if !sign.timed || !first.timed {
        return text.push_str("at a time that cannot be compared");
    }
    distance(text, sign.at.millis_since(first.at));
}

/// Writes a time after the first cause, or before it if it is negative.
fn distance(text: &mut String, millis: i64) {
    if millis == 0 {
        return text.push_str("at the same moment");
    }
    length(text, millis.unsigned_abs());
    text.push_str(if millis < 0 { " earlier" } else { " later" });
}

/// Writes a length of time.
fn length(text: &mut String, millis: u64) {
    match millis {
        0..1_000 => {
            number(text, millis);
            text.push_str(" ms");
        }
        1_000..120_000 => {
            tenths(text, millis, 1_000);
            text.push_str(" s");
        }
        _ => {
            tenths(text, millis, 60_000);
            text.push_str(" min");
        }
    }
}

/// Writes the times of several ends relative to the first cause: from the first to the last of them.
pub(super) fn moments(text: &mut String, ends: &[&Signal], first: &Signal) {
    let is_timed = first.timed && ends.iter().all(|end| end.timed);
    let start = ends.iter().min_by_key(|end| end.at);
    let last = ends.iter().max_by_key(|end| end.at);
    let (Some(start), Some(last)) = (start, last) else {
        return;
    };
    let is_span = is_timed && start.at != last.at;
    if is_span && start.at == first.at {
        text.push_str("within ");
        return length(text, last.at.millis_since(first.at).unsigned_abs());
    }
    moment(text, start, first);
    if is_span {
        text.push_str(" to ");
        moment(text, last, first);
    }
}

/// Writes a quotient with one decimal. The formatter computes all digits first, so it is used only for an exact half
/// of a tenth.
fn tenths(text: &mut String, parts: u64, whole: u64) {
    let tenth = whole / 10;
    if parts % tenth == tenth / 2 {
        // Writing into a string does not fail.
        let _ = write!(text, "{:.1}", parts as f64 / whole as f64);
        return;
    }
    let tenths = (parts + tenth / 2) / tenth;
    number(text, tenths / 10);
    text.push('.');
    number(text, tenths % 10);
}

pub(super) fn number(text: &mut String, number: u64) {
    text.push_str(itoa::Buffer::new().format(number));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_written_as_their_formatter_writes_them(parts in prop_oneof![0..200_000_u64, any::<u32>().prop_map(u64::from)]) {
            for whole in [1_000, 60_000] {
                // Also at exactly half of a tenth.
                for parts in [parts, parts / whole * whole + whole / 20 * 3] {
                    let mut text = String::new();
                    tenths(&mut text, parts, whole);
                    prop_assert_eq!(text, format!("{:.1}", parts as f64 / whole as f64));
                }
            }
        }
    }
}
