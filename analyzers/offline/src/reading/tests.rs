use proptest::prelude::*;

use super::*;

const LINES: [&str; 16] = [
    "step 12: loss 0.31",
    "step 13: loss is nan",
    "epoch 3, iter 40: loss 0.7",
    "100%|##########| 227/227 [1:02:04<00:00, 16.41s/it]",
    " 10%|#  | 1/10\r 20%|## | 2/10\r100%|###| 10/10 [00:10<00:00, 1.0it/s]",
    "[after training is done] datetime: 2025-03-04 11:22:33",
    "Training completed. Do not forget to share your model",
    "RuntimeError: training done before it began, step 3 failed",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "Traceback (most recent call last):",
    "  File \"/job/train.py\", line 10, in <module>",
    "KeyError: 'weight'",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0",
    "nothing to see here\r",
    "",
    "[rank3]: loss is nan at iteration 7",
];

fn log() -> impl Strategy<Value = Vec<String>> {
    let known = proptest::sample::select(&LINES[..]).prop_map(|line| vec![line.to_owned()]);
    let dull = (0_usize..2500, proptest::sample::select(&LINES[..3])).prop_map(|(times, line)| {
        let quiet = line.contains("nan");
        let text = if quiet {
            "all ranks are here and nothing happens"
        } else {
            line
        };
        vec![text.to_owned(); times]
    });
    proptest::collection::vec(prop_oneof![8 => known, 1 => dull], 0..40).prop_map(|parts| parts.concat())
}

/// Returns the properties of a stream that incidents use.
fn asked(stream: &ReadStream) -> impl PartialEq + std::fmt::Debug + use<> {
    let went_on = |seen: &PlacedObservation| {
        let later = stream.progress.iter().filter(|work| work.line > seen.last_line).count();
        later >= PROGRESS || stream.completed.last().is_some_and(|line| *line > seen.last_line)
    };
    let finite = |seen: &PlacedObservation| stream.finite_loss.is_some_and(|line| line > seen.last_line);
    let seen: Vec<_> = stream
        .seen
        .iter()
        .map(|seen| {
            let later = stream.progress.iter().filter(|work| work.line > seen.last_line).count();
            (
                format!("{seen:?}"),
                later.min(PROGRESS),
                went_on(seen),
                went_on(seen) || finite(seen),
                stream.records.success_before(seen.first_line),
            )
        })
        .collect();
    let first = stream.seen.first().map_or(u64::MAX, |seen| seen.first_line);
    (seen, stream.lines, stream.records.stated_after(first))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_tell_what_lines_tell(
        lines in log(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
    ) {
        let mut by_line = StreamReader::new(StreamOrigin::default());
        lines.iter().for_each(|line| by_line.push(line.strip_suffix('\r').unwrap_or(line)));
        let bytes: Vec<u8> = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.push(bytes.len());
        ends.sort_unstable();
        let mut by_block = StreamReader::new(StreamOrigin::default());
        let mut from = 0;
        for end in ends {
            by_block.push_block(&bytes[from..end]);
            from = end;
        }
        prop_assert_eq!(asked(&by_block.finish()), asked(&by_line.finish()));
    }
}
