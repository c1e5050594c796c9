//! Same lines, same profile: in any order, and over any number of nodes that are merged in any order (RG-8).

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rankguard_templates::{Miner, MinerLimits, TemplateProfile, families};

/// Small bounds, so that nodes of the tree overflow; enough templates, so that the tree as a whole does not.
const LIMITS: MinerLimits = MinerLimits {
    line_bytes: 128,
    tokens: 8,
    template_bytes: 100,
    templates: 4096,
    fan_out: 3,
    streams: 3,
    runs: 3,
    example_bytes: 40,
};

#[derive(Clone, Debug)]
struct Line {
    stream: usize,
    number: u64,
    text: String,
}

fn lines() -> impl Strategy<Value = Vec<Line>> {
    let word = prop_oneof![
        Just("link"),
        Just("down"),
        Just("error"),
        Just("user"),
        Just("ann"),
        Just("bob"),
        Just("cyd"),
        Just("dan"),
        Just("eth0"),
        Just("eth1"),
        Just("10.0.0.1"),
        Just("<+>"),
        Just("<!>"),
        Just("a=b"),
        Just("[x]"),
        Just("/a/b"),
        Just("é"),
        Just("4"),
    ];
    let text = prop::collection::vec(word, 0..10).prop_map(|words| words.join(" "));
    prop::collection::vec((0..3_usize, 1..50_u64, text), 1..60).prop_map(|lines| {
        lines
            .into_iter()
            .map(|(stream, number, text)| Line { stream, number, text })
            .collect()
    })
}

const STREAMS: [&str; 3] = ["rank 0", "rank 1", "rank 2"];

fn mine<'a>(run: &str, lines: impl Iterator<Item = &'a Line>) -> TemplateProfile {
    let mut miner = Miner::new(run, LIMITS);
    for line in lines {
        let stream = miner.stream(STREAMS[line.stream], "rank");
        miner.learn(stream, line.number, line.text.as_bytes());
    }
    miner.profile()
}

fn ids(profile: &TemplateProfile) -> Vec<String> {
    let texts: Vec<&str> = profile
        .templates
        .iter()
        .map(|template| template.text.as_str())
        .collect();
    let templates = profile.templates.iter().map(|template| template.id().to_string());
    templates
        .chain(families(&texts).iter().map(|family| family.id().to_string()))
        .collect()
}

proptest! {
    #[test]
    fn any_order_gives_the_same_profile(lines in lines(), seed in any::<u64>()) {
        let mut turned = lines.clone();
        let length = turned.len();
        let mut state = seed;
        for n in (1..length).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            turned.swap(n, (state >> 33) as usize % (n + 1));
        }
        prop_assert_eq!(mine("run", lines.iter()), mine("run", turned.iter()));
    }

    #[test]
    fn any_division_over_nodes_gives_the_same_profile(lines in lines(), nodes in prop::collection::vec(0..4_usize, 60), swap in any::<bool>()) {
        let whole = mine("run", lines.iter());
        let mut parts: Vec<TemplateProfile> = (0..4)
            .map(|node| mine("run", lines.iter().zip(&nodes).filter(|(_, at)| **at == node).map(|(line, _)| line)))
            .collect();
        if swap {
            parts.reverse();
        }
        let mut merged = TemplateProfile::empty(LIMITS);
        parts.iter().for_each(|part| merged.merge(part));
        prop_assert_eq!(&merged.templates, &whole.templates);
        prop_assert_eq!(ids(&merged), ids(&whole));
        prop_assert_eq!(merged.check(), Ok(()));
        // And in pairs first.
        let mut left = parts[0].clone();
        let mut right = parts[2].clone();
        left.merge(&parts[1]);
        right.merge(&parts[3]);
        right.merge(&left);
        prop_assert_eq!(&right, &merged);
    }

    #[test]
    fn counts_add_up_and_a_profile_survives_being_written(lines in lines()) {
        let profile = mine("run", lines.iter());
        let counted: u64 = profile.templates.iter().map(|template| template.count).sum();
        prop_assert_eq!(counted + profile.shortfalls.blank, lines.len() as u64);
        prop_assert_eq!(profile.check(), Ok(()));
        let text = serde_json::to_string(&profile).unwrap();
        prop_assert_eq!(&serde_json::from_str::<TemplateProfile>(&text).unwrap(), &profile);
        let mut again = profile.clone();
        again.merge(&TemplateProfile::empty(LIMITS));
        prop_assert_eq!(again, profile);
    }
}

#[test]
fn runs_and_streams_of_many_profiles_are_counted_once_each() {
    let line = |stream| Line {
        stream,
        number: 1,
        text: "link down".to_owned(),
    };
    let mut all = TemplateProfile::empty(LIMITS);
    for run in ["a", "b", "a"] {
        all.merge(&mine(run, [line(0), line(2)].iter()));
    }
    assert_eq!(all.runs, ["a", "b"]);
    let [template] = all.templates.as_slice() else {
        panic!("one template, not {:?}", all.templates)
    };
    assert_eq!(
        (template.count, template.run_count(), template.stream_count()),
        (6, 2, 2)
    );
}
