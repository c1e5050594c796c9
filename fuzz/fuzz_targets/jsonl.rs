//! Fuzzes lines of a file of cases: any line gives an error with its cause, or an answer. The answer's quoted lines
//! exist, and the same case gives the same answer (RG-8, RG-11).

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_offline::CaseRecord;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let record = match CaseRecord::parse(text) {
        Ok(record) => record,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let lengths: Vec<u64> = record.sources.iter().map(|stream| stream.lines.len() as u64).collect();
    let again = record.clone();
    let case = record.classify();
    assert!(!case.class.is_empty() && !case.layer.is_empty() && !case.reasoning.is_empty());
    assert!((0.0..=1.0).contains(&case.confidence));
    assert!(
        case.alternatives
            .iter()
            .all(|other| (0.0..=1.0).contains(&other.confidence))
    );
    for key in &case.key_lines {
        let length = lengths.get(key.stream).copied();
        assert!(
            length.is_some_and(|length| (1..=length).contains(&key.line)),
            "{key:?} of {lengths:?}"
        );
    }
    let told = serde_json::to_string(&case);
    assert!(told.is_ok());
    assert_eq!(
        told.ok(),
        serde_json::to_string(&again.classify()).ok(),
        "one case, two answers"
    );
});
