//! Fuzzes logs: no panic on any bytes, and block-wise and line-wise matching agree.
//!
//! The first byte cuts the stream into blocks and selects the collector; the rest is the log.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_faults::{SignatureMatcher, StreamContext, Triage};
use rankguard_model::{EvidenceSource, Timestamp};

fuzz_target!(|data: &[u8]| {
    let Some((&how, log)) = data.split_first() else { return };
    let source = if how & 1 == 0 {
        EvidenceSource::JobLog
    } else {
        EvidenceSource::KernelLog
    };
    let new = || Triage::new(SignatureMatcher::builtin(), StreamContext::new(source));

    let mut by_block = new();
    let mut blocks = Vec::new();
    for block in log.chunks(usize::from(how >> 1) + 1) {
        blocks.extend(by_block.push_block(block, Timestamp(0)));
    }
    blocks.extend(by_block.flush());
    for observation in &blocks {
        assert!(!observation.marks.is_empty());
        assert!(observation.line_no >= 1 && observation.line_no <= observation.last_line_no);
    }

    // Lines are text; bytes that are not UTF-8 were replaced differently above.
    let Ok(text) = std::str::from_utf8(log) else { return };
    let mut by_line = new();
    let mut lines = Vec::new();
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        lines.extend(by_line.push(line, Timestamp(0)));
    }
    lines.extend(by_line.flush());
    assert_eq!(blocks, lines);
});
