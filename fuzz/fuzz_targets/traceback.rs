//! Fuzzes tracebacks assembled from pieces: in any order, each observation is complete and bounded.
//!
//! Each byte selects one of [`PIECES`] or, above them, one byte of text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_faults::triage::CONTEXT;
use rankguard_faults::{SignatureMatcher, StreamContext, Triage};
use rankguard_model::{EvidenceSource, Timestamp};

const PIECES: [&str; 32] = [
    "\n",
    "\n[rank0]: ",
    "\n[rank1]: ",
    "\n[default3]:",
    "\n3: ",
    "\n2025-01-21T04:41:44.5Z stderr F ",
    "Traceback (most recent call last):\n",
    "  + Exception Group Traceback (most recent call last):\n",
    "  | ExceptionGroup: two (2 sub-exceptions)\n",
    "  +-+---------------- 1 ----------------\n",
    "    +------------------------------------\n",
    "    | ",
    "  File \"/job/train.py\", line 10, in main\n",
    "File \"a\", line 1\n",
    "    main()\n",
    "    ^^^^^^\n",
    "  [Previous line repeated 996 more times]\n",
    "KeyError: 'x'\n",
    "torch.OutOfMemoryError: CUDA out of memory. Tried\n",
    "RuntimeError: NCCL error\n",
    "\tsize mismatch for head.weight\n",
    "During handling of the above exception, another exception occurred:\n",
    "The above exception was the direct cause of the following exception:\n",
    "Root Cause (first observed failure):\n",
    "[0]:\n  time      : 2025-01-21_04:41:44\n",
    "  rank      : 3 (local_rank: 3)\n",
    "  exitcode  : -9 (pid: 77)\n",
    "============================================================\n",
    "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds\n",
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f in libc10.so)\n",
    "\u{1b}[31m",
    "\r",
];

fuzz_target!(|data: &[u8]| {
    let mut log = Vec::new();
    for &byte in data {
        match PIECES.get(usize::from(byte)) {
            Some(piece) => log.extend(piece.bytes()),
            None => log.push(byte),
        }
    }
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(EvidenceSource::JobLog));
    let mut seen = triage.push_block(&log, Timestamp(0));
    seen.extend(triage.flush());
    assert!(triage.flush().is_empty(), "a flushed stream holds nothing");
    let lines = log.split(|byte| *byte == b'\n').count() as u64;
    for observation in &seen {
        assert!(!observation.marks.is_empty());
        assert!(observation.context.len() <= CONTEXT);
        assert!(observation.line_no <= observation.last_line_no && observation.last_line_no <= lines);
    }
});
