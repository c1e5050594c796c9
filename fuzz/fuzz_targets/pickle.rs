//! Fuzzes flight-recorder dumps, pickle or JSON: any bytes give an error with its cause, or a dump that can be
//! analysed, alone and with others. Nothing is executed, nothing panics, and the same dumps give the same report in any
//! order (RG-8, RG-11).

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_flight::{RecorderDump, analyze};

fuzz_target!(|data: &[u8]| {
    let (dump, problems) = match RecorderDump::read(None, data) {
        Ok(read) => read,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(
        problems
            .iter()
            .all(|problem| !problem.place.is_empty() && !problem.what.is_empty())
    );

    let alone = analyze(std::slice::from_ref(&dump), None);
    let known = usize::from(dump.rank.is_some());
    assert_eq!(alone.dumps, known, "a dump of an unknown rank is left out");
    assert!(!alone.lines().is_empty());
    assert!(serde_json::to_string(&alone).is_ok());

    // Two more ranks with the same content, one of them half as long: groups, waits and mismatches across ranks.
    let first = RecorderDump {
        rank: Some(0),
        ..dump.clone()
    };
    let whole = RecorderDump {
        rank: Some(1),
        ..dump.clone()
    };
    let mut half = RecorderDump { rank: Some(2), ..dump };
    half.entries.truncate(half.entries.len() / 2);
    let job = [first, whole, half];
    let turned = [job[2].clone(), job[0].clone(), job[1].clone()];
    let one = analyze(&job, Some(4));
    let other = analyze(&turned, Some(4));
    assert!(!one.lines().is_empty());
    assert_eq!(one, other, "the order of dumps changes the report");
});
