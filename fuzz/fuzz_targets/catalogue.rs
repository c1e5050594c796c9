//! Any text as a file that a person adds to the catalogue: mistakes that name their place, or a catalogue that a matcher
//! can be made of and that finds the example of every added signature. Never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_faults::{Catalogue, LINE_LIMIT, Matcher};
use rankguard_model::Source;

const FILE: &str = "fuzz.toml";

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let catalogue = match Catalogue::with_files(&[(FILE, text)]) {
        Ok(catalogue) => catalogue,
        Err(error) => {
            assert!(!error.mistakes.is_empty(), "refused without a reason");
            let lines = text.split('\n').count();
            for mistake in &error.mistakes {
                assert_eq!(mistake.file, FILE, "the built-in files hold no mistake: {mistake}");
                assert!((1..=lines + 1).contains(&mistake.line), "{mistake}");
                assert!(!mistake.to_string().is_empty());
            }
            return;
        }
    };
    // A matcher of all signatures takes most of a second in this build; without a new one it is the built-in one.
    if !text.contains("signature") {
        return;
    }
    let matcher = Matcher::new(&catalogue);
    // What was added comes last; an entry that replaces a built-in one stands in its place.
    let known = Catalogue::builtin().signatures().len();
    for signature in catalogue.signatures().iter().skip(known).take(4) {
        let source = signature.sources.first().copied().unwrap_or(Source::JobLog);
        let found = !matcher.marks(source, &signature.example).is_empty();
        assert!(
            found || !is_plain(&signature.example),
            "the example of {} is not found",
            signature.id
        );
    }
});

/// Whether a text is as lines are after cleaning. The scanner leaves out letters and digits beyond ASCII that stand for
/// ASCII ones, and control characters beside a word: an example with them passes the loader and is not found.
fn is_plain(text: &str) -> bool {
    text.len() <= LINE_LIMIT && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}
