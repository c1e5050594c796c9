//! Fuzzes the template miner: no line is lost, limits hold, and a division over nodes that are merged in any order
//! gives the same profile (RG-8, RG-11). Input that begins with `{` is also read as a written profile.
//!
//! The first byte selects the limits and the assignment of lines to streams and nodes; the rest is the log.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_templates::{MinerLimits, Miner, TemplateProfile, compare, families};

/// Small limits, so that nodes of the tree overflow; enough templates, so that the tree as a whole does not.
const NARROW: MinerLimits = MinerLimits {
    line_bytes: 128,
    tokens: 8,
    template_bytes: 100,
    templates: 4096,
    fan_out: 3,
    streams: 3,
    runs: 3,
    example_bytes: 40,
};

/// Limits that any log exceeds.
const TIGHT: MinerLimits = MinerLimits {
    templates: 1,
    tokens: 4,
    fan_out: 2,
    streams: 2,
    runs: 1,
    ..NARROW
};

const STREAMS: [&str; 3] = ["rank 0", "rank 1", "kernel"];

fn mine(run: &str, limits: MinerLimits, log: &[u8], wants: impl Fn(usize) -> bool, step: usize) -> TemplateProfile {
    let mut miner = Miner::new(run, limits);
    for (index, line) in log
        .split(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(index, _)| wants(*index))
    {
        let name = STREAMS[index / step % STREAMS.len()];
        let stream = miner.stream(name, if name == "kernel" { "kernel" } else { "rank" });
        miner.learn(stream, index as u64 + 1, line);
    }
    let profile = miner.profile();
    sound(&profile);
    profile
}

/// Runs the check of a reader, with room for a word of one byte that became `<+>`, which lengthens a text by two bytes.
fn checked(profile: &TemplateProfile) {
    let mut wide = profile.clone();
    wide.limits.template_bytes += 2 * wide.limits.tokens;
    assert_eq!(wide.check(), Ok(()));
}

fn sound(profile: &TemplateProfile) {
    checked(profile);
    let counted: u64 = profile.templates.iter().map(|template| template.count).sum();
    assert_eq!(counted + profile.shortfalls.blank, profile.lines, "no line is lost");
    let texts: Vec<&str> = profile
        .templates
        .iter()
        .map(|template| template.text.as_str())
        .collect();
    let mut members: Vec<usize> = families(&texts).into_iter().flat_map(|family| family.members).collect();
    members.sort_unstable();
    assert!(
        members.into_iter().eq(0..texts.len()),
        "every template is in one family"
    );
}

fn scored(failing: &TemplateProfile, healthy: &TemplateProfile) {
    let found = compare(failing, healthy);
    assert!(found.iter().all(|novelty| (0.0..=1.0).contains(&novelty.score)));
}

fuzz_target!(|data: &[u8]| {
    if data.first() == Some(&b'{') {
        written(data);
        return;
    }
    let Some((&how, log)) = data.split_first() else { return };
    let limits = [MinerLimits::default(), NARROW, NARROW, TIGHT][usize::from(how & 3)];
    let step = usize::from(how >> 2 & 3) + 1;
    let node = |index: usize| index.wrapping_mul(usize::from(how >> 4) * 2 + 7) / 3 % 2 == 0;

    let whole = mine("run", limits, log, |_| true, step);
    let one = mine("run", limits, log, node, step);
    let other = mine("run", limits, log, |index| !node(index), step);
    let mut left = one.clone();
    let mut right = other.clone();
    left.merge(&other);
    right.merge(&one);
    sound(&left);
    assert_eq!(left.lines, whole.lines);
    if [&whole, &one, &other, &left, &right]
        .iter()
        .all(|profile| profile.shortfalls.pressure == 0)
    {
        assert_eq!(left, right, "merging depends on the order");
        if limits != TIGHT {
            assert_eq!(left.templates, whole.templates, "two nodes see other than one");
        }
    }
    let next = mine("next run", limits, log, node, 1);
    let mut both = next.clone();
    both.merge(&whole);
    sound(&both);
    scored(&one, &both);
    scored(&whole, &other);
    scored(&next, &TemplateProfile::empty(limits));

    let text = serde_json::to_vec(&both).expect("a profile can be written");
    assert_eq!(
        serde_json::from_slice::<TemplateProfile>(&text).ok(),
        Some(both),
        "what was written is read"
    );
});

/// Checks a foreign profile: it is refused, or behaves like one of ours. Its counts are not checked.
fn written(data: &[u8]) {
    let Ok(profile) = serde_json::from_slice::<TemplateProfile>(data) else {
        return;
    };
    if profile.check().is_err() {
        return;
    }
    let mut twice = profile.clone();
    twice.merge(&profile);
    checked(&twice);
    let ours = mine("run", NARROW, data, |_| true, 1);
    scored(&profile, &ours);
    scored(&ours, &profile);
    scored(&profile, &twice);
    let mut joined = ours;
    joined.merge(&profile);
    checked(&joined);
}
