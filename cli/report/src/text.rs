//! Escaping of text for the page. All foreign text goes through [`escape`], attributes included.

use rankguard_model::Timestamp;

/// Escapes markup. Control characters become the replacement character.
pub(super) fn escape(text: impl AsRef<str>) -> String {
    let mut safe = String::with_capacity(text.as_ref().len());
    for c in text.as_ref().chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            c => safe.push(c),
        }
    }
    safe
}

/// Formats the time since `start` for display next to an event.
pub(super) fn offset(at: Timestamp, start: Timestamp) -> String {
    let millis = at.millis_since(start);
    let (sign, millis) = if millis < 0 { ("−", -millis) } else { ("", millis) };
    match millis {
        short if short < 600_000 => format!("{sign}{}.{} s", short / 1000, short % 1000 / 100),
        long if long < 36_000_000 => format!("{sign}{}:{:02} min", long / 60_000, long / 1000 % 60),
        hours => format!("{sign}{}:{:02} h", hours / 3_600_000, hours / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_foreign_text_stays_text() {
        assert_eq!(escape("<script>\"a'&\u{1b}"), "&lt;script&gt;&quot;a&#39;&amp;\u{fffd}");
    }

    #[test]
    fn an_offset_has_the_unit_that_fits() {
        let at = |millis| offset(Timestamp::from_millis(millis), Timestamp(0));
        assert_eq!(
            [at(1_250), at(-300), at(3_601_000), at(90_000_000)],
            ["1.2 s", "−0.3 s", "60:01 min", "25:00 h"]
        );
    }
}
