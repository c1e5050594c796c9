//! Any bytes are read, and memory stays within its bounds (RG-11).

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rankguard_templates::{
    Miner, MinerLimits, OTHERS, ProfileError, TemplateProfile, compare, families, shape, template_id,
};

fn mine(limits: MinerLimits, lines: impl Iterator<Item = Vec<u8>>) -> TemplateProfile {
    let mut miner = Miner::new("run", limits);
    let stream = miner.stream("log", "log");
    for (n, line) in lines.enumerate() {
        miner.learn(stream, n as u64 + 1, &line);
    }
    let profile = miner.profile();
    profile.check().unwrap();
    let counted: u64 = profile.templates.iter().map(|template| template.count).sum();
    assert_eq!(counted + profile.shortfalls.blank, profile.lines, "no line is lost");
    profile
}

fn size(profile: &TemplateProfile) -> usize {
    serde_json::to_string(profile).unwrap().len()
}

/// Bytes that masks look at, more often than others.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(b"0123456789abcdefxZ .:-/,@+%~#*$\\()[]{}\"'=;|<>!?&`^_\x1b\xe2\x96\x88\r\t".to_vec()),
    ];
    prop::collection::vec(byte, 0..300)
}

proptest! {
    #[test]
    fn any_bytes_have_a_bounded_shape(line in bytes(), tokens in 1..70_usize, template_bytes in 16..600_usize) {
        let limits = MinerLimits { tokens, template_bytes, ..MinerLimits::default() };
        if let Some(shape) = shape(&line, limits) {
            prop_assert!(!shape.is_empty() && shape.len() <= template_bytes);
            prop_assert!(shape.split(' ').count() <= tokens);
            prop_assert!(shape.split(' ').all(|token| !token.is_empty() && token != "<+>" && token != "<!>"));
            prop_assert_eq!(template_id(&line, limits).is_some(), true);
        }
    }

    #[test]
    fn any_lines_make_a_sound_profile(lines in prop::collection::vec(bytes(), 0..40)) {
        let limits = MinerLimits { fan_out: 2, templates: 1, tokens: 4, ..MinerLimits::default() };
        let profile = mine(limits, lines.clone().into_iter());
        let wide = mine(MinerLimits::default(), lines.into_iter());
        let found = compare(&wide, &profile);
        prop_assert!(found.iter().all(|novelty| (0.0..=1.0).contains(&novelty.score)));
        let mut both = wide.clone();
        both.merge(&profile);
        prop_assert_eq!(both.check(), Ok(()));
        prop_assert_eq!(both.lines, wide.lines + profile.lines);
    }

    #[test]
    fn any_texts_fall_into_families_once_each(texts in prop::collection::vec("[ab =.(\"<*>é]{0,12}", 0..30)) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut members: Vec<usize> = families(&texts).into_iter().flat_map(|family| family.members).collect();
        members.sort_unstable();
        prop_assert_eq!(members, (0..texts.len()).collect::<Vec<_>>());
    }
}

/// A word without digits, different for every number.
fn word(mut number: usize) -> String {
    let mut word = String::from("w");
    while number > 0 {
        word.push((b'g' + (number % 20) as u8) as char);
        number /= 20;
    }
    word
}

#[test]
fn a_flood_of_unique_words_at_one_place_becomes_one_template() {
    let line = |n| format!("Invalid user {} from 10.0.0.1", word(n)).into_bytes();
    let profile = mine(MinerLimits::default(), (0..50_000).map(line));
    let texts: Vec<&str> = profile
        .templates
        .iter()
        .map(|template| template.text.as_str())
        .collect();
    assert_eq!(texts, ["Invalid user <!> from <*>"]);
    assert_eq!(profile.shortfalls.pressure, 0);
}

#[test]
fn a_flood_of_unique_words_everywhere_stays_within_the_bounds_and_does_not_hide_an_error() {
    let limits = MinerLimits {
        templates: 500,
        ..MinerLimits::default()
    };
    let line = |n: usize| {
        let words: Vec<String> = (0..2 + n % 9).map(|at| word(n * 31 + at * 7_919)).collect();
        words.join(" ").into_bytes()
    };
    let error = b"RuntimeError: the data loader has died".to_vec();
    let profile = mine(limits, (0..50_000).map(line).chain([error]));
    assert!(profile.templates.len() <= 500);
    assert!(size(&profile) < 500 * 1024);
    assert!(
        profile
            .templates
            .iter()
            .any(|template| template.text.starts_with("RuntimeError:"))
    );
}

#[test]
fn a_flood_that_each_node_of_the_tree_can_bear_presses_the_whole() {
    let limits = MinerLimits {
        templates: 500,
        ..MinerLimits::default()
    };
    let line = |n: usize| format!("{} {} {}", word(n % 50), word(n / 50 % 50), word(n / 2_500)).into_bytes();
    let profile = mine(limits, (0..50_000).map(line));
    assert!(profile.templates.len() <= 500);
    assert!(profile.shortfalls.pressure > 0);
}

#[test]
fn a_line_of_ten_megabytes_costs_no_more_than_its_bound() {
    let long: Vec<u8> = (0..10_000_000_usize).map(|n| b"key value "[n % 10]).collect();
    let profile = mine(
        MinerLimits::default(),
        [
            long.clone(),
            vec![b'x'; 10_000_000],
            vec![b'"'; 10_000_000],
            vec![0xff; 10_000_000],
        ]
        .into_iter(),
    );
    assert_eq!(profile.shortfalls.cut, 4);
    assert_eq!(profile.shortfalls.not_utf8, 1);
    assert!(size(&profile) < 8_192);
}

#[test]
fn streams_beyond_the_bound_share_a_name_and_are_counted() {
    let mut miner = Miner::new(
        "run",
        MinerLimits {
            streams: 2,
            ..MinerLimits::default()
        },
    );
    for n in 0..5 {
        let stream = miner.stream(&format!("rank {n}"), "rank");
        miner.learn(stream, 1, b"hello");
    }
    let profile = miner.profile();
    let names: Vec<&str> = profile.streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, [OTHERS, "rank 0", "rank 1"]);
    assert_eq!((profile.templates[0].count, profile.shortfalls.stream_unnamed), (5, 3));
}

#[test]
fn a_profile_that_lies_is_refused_with_the_place() {
    let good = mine(MinerLimits::default(), [b"a b".to_vec(), b"c d".to_vec()].into_iter());
    let check = |change: &dyn Fn(&mut TemplateProfile), expect| {
        let mut bad = good.clone();
        change(&mut bad);
        assert_eq!(bad.check(), Err(expect));
    };
    check(&|p| p.version = 2, ProfileError::Version(2));
    check(&|p| p.templates.reverse(), ProfileError::NotSorted("templates"));
    check(
        &|p| p.runs = vec!["a".into(), "a".into()],
        ProfileError::NotSorted("runs"),
    );
    check(&|p| p.streams.clear(), ProfileError::Template(0, "no such stream"));
    check(
        &|p| p.templates[1].text = "e".repeat(600),
        ProfileError::Template(1, "the text is empty or too long"),
    );
}

#[test]
fn a_mark_longer_than_its_word_leaves_a_sound_profile() {
    let limits = MinerLimits {
        fan_out: 2,
        template_bytes: 16,
        ..MinerLimits::default()
    };
    let profile = mine(
        limits,
        (b'g'..b'p').map(|first| [&[first], &b" qrstuvwxyzklmn"[..]].concat()),
    );
    assert!(
        profile
            .templates
            .iter()
            .any(|template| template.text == "<+> qrstuvwxyzklmn")
    );
    let mut twice = profile.clone();
    twice.merge(&profile);
    assert_eq!(twice.check(), Ok(()));
}
