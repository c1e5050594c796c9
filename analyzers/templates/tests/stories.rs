//! Evidence that an operator should receive about a run, given healthy ones.

#![allow(clippy::unwrap_used)]

use rankguard_templates::{Miner, MinerLimits, NoveltyFinding, NoveltyKind, TemplateProfile, compare};

const RANKS: usize = 8;

/// A run in which each rank trains for `steps` steps and what `also` adds (rank, step) comes on top.
fn run(name: &str, steps: u64, also: &dyn Fn(usize, u64) -> Vec<String>) -> TemplateProfile {
    let mut miner = Miner::new(name, MinerLimits::default());
    for rank in 0..RANKS {
        let stream = miner.stream(&format!("rank {rank}"), "rank");
        let mut number = 0;
        let mut say = |text: &str| {
            number += 1;
            miner.learn(stream, number, text.as_bytes());
        };
        say(&format!("[rank{rank}]: NCCL version 2.21.5 on node-{rank}"));
        if rank == 0 {
            say("saving the config to /runs/1/config.json");
            say("tokenizer loaded with 32000 entries");
        }
        for step in 1..=steps {
            say(&format!("step {step} loss 2.{step} in 0.5 s"));
            if step % 10 == 0 {
                say(&format!("checkpoint {step} saved in 3.1 s"));
            }
            also(rank, step).iter().for_each(|text| say(text));
        }
    }
    miner.profile()
}

fn nothing(_: usize, _: u64) -> Vec<String> {
    Vec::new()
}

fn healthy() -> TemplateProfile {
    let mut healthy = run("a", 100, &nothing);
    healthy.merge(&run("b", 120, &nothing));
    healthy.merge(&run("c", 90, &nothing));
    healthy
}

fn kinds(found: &[NoveltyFinding]) -> Vec<(NoveltyKind, &str)> {
    found
        .iter()
        .map(|novelty| (novelty.kind, novelty.template.as_str()))
        .collect()
}

#[test]
fn a_healthy_run_is_not_news() {
    assert_eq!(kinds(&compare(&run("d", 110, &nothing), &healthy())), []);
    assert_eq!(kinds(&compare(&TemplateProfile::default(), &healthy())), []);
}

#[test]
fn a_new_error_on_one_rank_comes_first_with_its_place() {
    let failing = run("d", 100, &|rank, step| match (rank, step) {
        (5, 97) => vec!["frobnicator error: lane 3 is out of tune".to_owned()],
        (_, 50) => vec!["garbage collector ran for 12 ms".to_owned()],
        _ => Vec::new(),
    });
    let found = compare(&failing, &healthy());
    assert_eq!(
        kinds(&found),
        [
            (NoveltyKind::New, "frobnicator error: lane <*> is out of tune"),
            (NoveltyKind::New, "garbage collector ran for <*>"),
        ]
    );
    let first = &found[0];
    assert_eq!((first.stream.as_str(), first.line), ("rank 5", 109));
    assert_eq!(first.example, "frobnicator error: lane 3 is out of tune");
    assert_eq!(
        (first.failing, first.healthy, first.streams.as_slice()),
        (1, 0, ["rank 5".to_owned()].as_slice())
    );
    assert_eq!(
        first.sentence,
        "new: none of 3 healthy runs shows it; 1 line here on 1 stream, first at 96 % of its stream"
    );
    assert!(first.score > found[1].score);
}

#[test]
fn a_new_value_in_a_known_place_is_not_news() {
    let with = |user: &'static str| {
        move |_: usize, step: u64| {
            if step == 5 {
                vec![format!("session opened for user {user} now")]
            } else {
                vec![]
            }
        }
    };
    let mut healthy = healthy();
    healthy.merge(&run("x", 50, &with("ann")));
    healthy.merge(&run("y", 50, &with("bob")));
    assert_eq!(kinds(&compare(&run("d", 60, &with("cyd")), &healthy)), []);
}

#[test]
fn what_is_gone_is_missed_once_the_run_got_that_far() {
    let mut miner = Miner::new("d", MinerLimits::default());
    let stream = miner.stream("rank 0", "rank");
    for step in 1..=100 {
        miner.learn(stream, step, format!("step {step} loss 2.{step} in 0.5 s").as_bytes());
    }
    let found = compare(&miner.profile(), &healthy());
    let missing = found
        .iter()
        .find(|novelty| novelty.template.starts_with("checkpoint"))
        .unwrap();
    assert_eq!((missing.kind, missing.failing), (NoveltyKind::Missing, 0));
    assert_eq!(
        missing.sentence,
        "missing: 3 of 3 healthy runs show it, about 9 lines would be expected here and there is none"
    );
    assert_eq!(
        kinds(&compare(&run("e", 5, &nothing), &healthy())),
        [],
        "the tenth step never came"
    );
}

#[test]
fn a_burst_is_measured_by_share_of_lines() {
    let retry = |every: u64| {
        move |_: usize, step: u64| {
            if step.is_multiple_of(every) {
                vec![format!("retrying read of shard {step}")]
            } else {
                vec![]
            }
        }
    };
    let mut healthy = run("a", 200, &retry(50));
    healthy.merge(&run("b", 200, &retry(50)));
    let found = compare(&run("c", 60, &retry(2)), &healthy);
    assert_eq!(kinds(&found), [(NoveltyKind::Burst, "retrying read of shard <*>")]);
    assert!(
        found[0].sentence.starts_with("burst: 240 lines, "),
        "{}",
        found[0].sentence
    );
    assert_eq!(
        kinds(&compare(&run("d", 800, &retry(50)), &healthy)),
        [],
        "a longer run has more lines of each"
    );
}

#[test]
fn one_rank_that_says_what_others_do_not_and_one_that_is_silent_are_seen_without_a_healthy_run() {
    let failing = run("d", 40, &|rank, step| match (rank, step) {
        (3, 20) => vec!["link flap, error count 7".to_owned()],
        (6, _) => Vec::new(),
        (_, 39) => vec!["entering allreduce 39".to_owned()],
        _ => Vec::new(),
    });
    let found = compare(&failing, &TemplateProfile::default());
    assert_eq!(
        kinds(&found),
        [
            (NoveltyKind::OnlyHere, "link flap, error count <*>"),
            (NoveltyKind::SilentHere, "entering allreduce <*>"),
            (NoveltyKind::OnlyHere, "saving the config to <*>"),
        ]
    );
    assert_eq!(
        (found[0].streams[0].as_str(), found[1].streams[0].as_str()),
        ("rank 3", "rank 6")
    );
    assert_eq!(
        found[1].sentence,
        "silent here: 1 stream of 8 do not show what the others show"
    );
    assert_eq!(
        found[2].sentence, "only here: 1 stream of 8 alone shows it; so with 1 other template",
        "rank 0 speaks for all: weak evidence, told once"
    );
}

#[test]
fn a_steady_line_that_stops_early_has_gone_quiet() {
    let beat = |until: u64| {
        move |_: usize, step: u64| {
            if step <= until {
                vec!["heartbeat ok".to_owned()]
            } else {
                vec![]
            }
        }
    };
    let mut healthy = run("a", 100, &beat(1000));
    healthy.merge(&run("b", 100, &beat(1000)));
    let found = compare(&run("c", 100, &beat(30)), &healthy);
    assert_eq!(kinds(&found), [(NoveltyKind::WentQuiet, "heartbeat ok")]);
}

#[test]
fn evidence_is_json_for_programs() {
    let failing = run("d", 20, &|rank, step| {
        if (rank, step) == (1, 2) {
            vec!["odd thing".to_owned()]
        } else {
            vec![]
        }
    });
    let found = compare(&failing, &healthy());
    let json = serde_json::to_value(&found[0]).unwrap();
    assert_eq!(
        (json["kind"].as_str(), json["template"].as_str()),
        (Some("new"), Some("odd thing"))
    );
    assert_eq!(json["id"].as_str().unwrap().len(), "tpl-9f3a1c07b2e4".len());
}
