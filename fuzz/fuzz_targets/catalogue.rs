//! Fuzzes catalogue files: any text gives mistakes with their place, or a catalogue with a working matcher that matches
//! the example of every added signature. Never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_faults::{Catalogue, LINE_LIMIT, SignatureMatcher};
use rankguard_model::EvidenceSource;

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
    // Building a matcher of all signatures takes most of a second here; without a new signature it equals the built-in
    // one.
    if !text.contains("signature") {
        return;
    }
    let matcher = SignatureMatcher::new(&catalogue);
    // Added signatures come last; an entry that replaces a built-in one has its position.
    let known = Catalogue::builtin().signatures().len();
    for signature in catalogue.signatures().iter().skip(known).take(4) {
        let source = signature.sources.first().copied().unwrap_or(EvidenceSource::JobLog);
        let found = !matcher.marks(source, &signature.example).is_empty();
        assert!(
            found || !is_plain(&signature.example),
            "the example of {} is not found",
            signature.id
        );
    }
});

/// Returns true if a text has the form of a cleaned line. The scanner drops letters and digits beyond ASCII that stand
/// for ASCII ones, and control characters beside a word: an example with them passes the loader and is not matched.
fn is_plain(text: &str) -> bool {
    text.len() <= LINE_LIMIT && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}
