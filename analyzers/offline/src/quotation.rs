//! Texts that a line only quotes or describes: samples that a model generates, descriptions of options.

use rankguard_faults::LogObservation;
use rankguard_faults::SignatureMatcher;
use rankguard_model::EvidenceSource;

/// Maximum number of words before the description of an option: its short and its long form, each with a value.
const OPTION_WORDS: usize = 4;

/// Parts of words beside a quotation of an error by the program that met it: `Cuda failure 'out of memory'`.
const ALARMS: [&str; 7] = ["critical", "err", "exception", "fail", "fatal", "panic", "warn"];

/// Returns true if a line has its class only by the text that it quotes below a plain label: `sample 3: "..."`.
pub(crate) fn is_quoted(matcher: &SignatureMatcher, source: EvidenceSource, observation: &LogObservation) -> bool {
    let best = observation.marks.first();
    let Some(best) = best.filter(|mark| !mark.fields.contains_key("exception")) else {
        return false;
    };
    let Some(rest) = unquoted(&observation.text) else {
        return false;
    };
    (is_label(&rest) || is_sample(&observation.text))
        && !matcher.marks(source, &rest).iter().any(|mark| mark.class == best.class)
}

/// Returns true for a name with a colon or an equals sign, and no word of an alarm.
fn is_label(text: &str) -> bool {
    let lower = text.trim().to_ascii_lowercase();
    let name = lower.strip_suffix([':', '=']);
    let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || " _-[]#/".contains(c));
    name.is_some_and(|name| is_plain(name) && !ALARMS.iter().any(|word| name.contains(word)))
}

/// Returns true for a text that begins with a quotation after a plain label and goes on without a field: `sample 3: "..." she
/// wrote`.
fn is_sample(text: &str) -> bool {
    let Some((label, rest)) = text.split_once('"') else {
        return false;
    };
    let after = rest.rsplit_once('"').map_or("", |(_, after)| after);
    is_label(label) && !after.is_empty() && !after.contains('=')
}

/// Returns a text without what stands in quotes; none if it has no quotation. An apostrophe in a word is no quote.
fn unquoted(text: &str) -> Option<String> {
    let mut rest = String::new();
    let mut open = None;
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    let mut has_quotation = false;
    while let Some(c) = chars.next() {
        let is_edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
        match open {
            None if c == '"' || c == '\'' && is_edge(Some(before)) => open = Some(c),
            Some(quote) if c == quote && (c == '"' || is_edge(chars.peek().copied())) => {
                open = None;
                has_quotation = true;
            }
            None => rest.push(c),
            Some(_) => {}
        }
        before = c;
    }
    has_quotation.then_some(rest)
}

/// Returns true for the description of an option in the help text of a program: `--retries N   retries after an error`.
pub(crate) fn describes_option(text: &str) -> bool {
    let text = text.trim_start();
    let name = text.trim_start_matches('-');
    let dashes = text.len() - name.len();
    let is_option = (1..=2).contains(&dashes) && name.starts_with(|c: char| c.is_ascii_alphabetic());
    let columns = text
        .split_once("  ")
        .map(|(option, _)| option.split_whitespace().count());
    is_option && columns.is_some_and(|words| words <= OPTION_WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_are_left_out_and_apostrophes_are_not() {
        assert_eq!(unquoted("says: \"CUDA out of memory\"!").as_deref(), Some("says: !"));
        assert_eq!(unquoted("says: 'CUDA out of memory'.").as_deref(), Some("says: ."));
        assert_eq!(unquoted("it's 'a' shard's name").as_deref(), Some("it's  shard's name"));
        assert_eq!(unquoted("it's the rank's"), None);
        assert_eq!(unquoted("an open \"quotation"), None);
    }

    #[test]
    fn a_sample_goes_on_in_words() {
        assert!(is_sample(
            "sample 3: \"CUDA out of memory\" she wrote, and the kernel panicked."
        ));
        for text in [
            "msg=\"CUDA out of memory\" level=error",
            "error: \"CUDA out of memory\" was raised",
            "sample 3: CUDA out of memory",
        ] {
            assert!(!is_sample(text), "{text}");
        }
    }

    #[test]
    fn a_label_is_a_name_without_an_alarm() {
        for text in ["sample[3]: ", "generated =", "step 7 completion: "] {
            assert!(is_label(text), "{text}");
        }
        for text in ["NCCL WARN Cuda failure ", "level=error msg=", "what(): ", "error: ", ""] {
            assert!(!is_label(text), "{text}");
        }
    }
}
