//! A stream divided into blocks at any offset gives the same observations as its lines one by one.

use proptest::prelude::*;
use rankguard_faults::{LogObservation, SignatureMatcher, StreamContext, Triage};
use rankguard_model::{EvidenceSource, Timestamp};

/// Lines that match, lines that open a multi-line unit or continue one, and mostly unremarkable
/// lines.
const LINES: [&str; 40] = [
    "step 100 loss 2.31 lr 3e-4",
    "iteration 12 | lm loss: 2.3E+00 | number of nan iterations:   0 |",
    "node-3:1234:1301 [0] NCCL INFO Connected all rings",
    "",
    "   ",
    "[rank3]: epoch 3 begins",
    "[rank3]: Traceback (most recent call last):",
    "[rank3]:   File \"/job/train.py\", line 10, in <module>",
    "[rank3]:     main()",
    "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered",
    "[rank5]: Traceback (most recent call last):",
    "[rank5]:   File \"/job/train.py\", line 10, in <module>",
    "[rank5]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
    "Traceback (most recent call last):",
    "  File \"/job/data.py\", line 5, in load",
    "    return table[key]",
    "KeyError: 'weight'",
    "During handling of the above exception, another exception occurred:",
    "  File \"/job/train.py\", line 3",
    "SyntaxError: invalid syntax",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "\u{1b}[31mtorch.OutOfMemoryError: CUDA \u{1b}[1mout of memory\u{1b}[0m",
    "\u{1b}[32mall is well\u{1b}[0m",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0",
    " 10%|#  | 1/10\r 20%|## | 2/10\r 30%|###| 3/10",
    " 10%|#  | 1/10\rRuntimeError: CUDA error: device-side assert triggered\r 30%|###| 3/10",
    "[    5.000001] dataloader invoked oom-killer: gfp_mask=0x140cca, order=0, oom_score_adj=0",
    "[    5.000002] Mem-Info: many numbers",
    "[    5.000003] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python3,pid=4242,uid=0",
    "[    5.000004] Out of memory: Killed process 4242 (python3) total-vm:9kB, anon-rss:61234567kB",
    "[   10.000001] NVRM: The NVIDIA GPU 0000:4e:00.0 (PCI ID: 10de:2330)",
    "[   10.000002] NVRM: installed in this system has",
    "[   10.000003] NVRM: fallen off the bus and is not responding to commands.",
    "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:9b:00): 45, pid=4242, name=python3, Ch 00000008",
    "2025-01-21T04:41:44.5Z stderr F [rank2]: loss is nan",
    "{\"log\":\"[rank2]: \\u001b[31mCUDA out of memory\\u001b[0m\\n\",\"stream\":\"stderr\",\"time\":\"2025-01-21T04:41:44.5Z\"}",
    "{\"log\":\"all is well\\n\",\"stream\":\"stdout\",\"time\":\"2025-01-21T04:41:44.5Z\"}",
    "nan",
    "\r\r",
];

fn text() -> impl Strategy<Value = Vec<String>> {
    let known = proptest::sample::select(&LINES[..]).prop_map(str::to_owned);
    let dull = (0_u32..9000).prop_map(|step| format!("step {step} done in 3.1 s, all ranks are here"));
    let long = (0_usize..40_000, proptest::sample::select(&LINES[..]))
        .prop_map(|(pad, line)| format!("{} {line}", "x".repeat(pad)));
    let odd = "[^\n]{0,40}";
    let line = prop_oneof![12 => known, 20 => dull, 1 => long, 2 => odd];
    proptest::collection::vec(line, 0..160)
}

fn by_line(lines: &[String], source: EvidenceSource, now: impl Fn(usize) -> Timestamp) -> Vec<LogObservation> {
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(source));
    let mut seen = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        seen.extend(triage.push(line, now(number)));
    }
    seen.extend(triage.flush());
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_say_what_lines_say(
        lines in text(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
        ended in any::<bool>(),
        kernel in any::<bool>(),
    ) {
        let source = if kernel { EvidenceSource::KernelLog } else { EvidenceSource::JobLog };
        let mut bytes = lines.join("\n").into_bytes();
        // Without a newline after it, an empty last line cannot be distinguished from none.
        if !lines.is_empty() && (ended || lines.last().is_some_and(String::is_empty)) {
            bytes.push(b'\n');
        }
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.push(bytes.len());
        ends.sort_unstable();
        let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(source));
        let mut seen = Vec::new();
        let mut from = 0;
        for end in ends {
            seen.extend(triage.push_block(&bytes[from..end], Timestamp(0)));
            from = end;
        }
        seen.extend(triage.flush());
        prop_assert_eq!(seen, by_line(&lines, source, |_| Timestamp(0)));
    }

    #[test]
    fn blocks_read_at_different_moments_say_what_lines_say(lines in text(), size in 1_usize..40, step_ms in 0_i64..400) {
        let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(EvidenceSource::JobLog));
        let at = |number: usize| Timestamp::from_millis(i64::try_from(number / size).unwrap_or(0) * step_ms);
        let mut seen = Vec::new();
        for (number, chunk) in lines.chunks(size).enumerate() {
            let block: String = chunk.iter().map(|line| format!("{line}\n")).collect();
            seen.extend(triage.push_block(block.as_bytes(), at(number * size)));
        }
        seen.extend(triage.flush());
        prop_assert_eq!(seen, by_line(&lines, EvidenceSource::JobLog, at));
    }
}

fn read(block: &[u8]) -> Vec<LogObservation> {
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(EvidenceSource::JobLog));
    let mut seen = triage.push_block(block, Timestamp(0));
    seen.extend(triage.flush());
    seen
}

fn check(block: &[u8], class: &str, line_no: u64) -> LogObservation {
    let seen = read(block);
    let found = seen.iter().find(|o| o.marks[0].class.as_str() == class);
    let found = found.unwrap_or_else(|| panic!("no {class} in {seen:?}"));
    assert_eq!(found.line_no, line_no);
    found.clone()
}

#[test]
fn a_message_far_inside_a_line_of_ten_megabytes_is_found() {
    let mut block = b"step 1\n[rank3]: ".to_vec();
    block.resize(6_000_000, b'x');
    block.extend(b" torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB ");
    block.resize(10_000_000, b'y');
    block.extend(b"\nstep 2\n");
    check(&block, "cuda-oom", 2);
}

#[test]
fn a_message_that_a_bar_was_drawn_over_is_found_and_keeps_its_rank() {
    let seen = check(
        b"[rank7]: 10%|#  |\rRuntimeError: CUDA error: device-side assert triggered\r 30%|###|\n",
        "cuda-device-assert",
        1,
    );
    assert_eq!(seen.rank.map(|rank| rank.0), Some(7));
}

#[test]
fn bytes_that_are_no_text_hide_nothing() {
    let mut block = vec![0xff; 70_000];
    block.extend(b" torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB \xc3\x28\n");
    check(&block, "cuda-oom", 1);
}

#[test]
fn lines_before_and_behind_are_context_though_nobody_looked_at_them() {
    let block =
        b"one\ntwo\nthree\nfour\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\nfive\nsix\n";
    let seen = check(block, "cuda-oom", 5);
    assert_eq!(seen.context, ["two", "three", "four", "five", "six"]);
}
