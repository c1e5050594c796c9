//! Stories of file systems: unused by the job, used by it, and recovered.

use crate::world::{World, mark, on_node, rank_of, with};
use rankguard_diagnosis::{ConcludedDraft, DraftChange};
use rankguard_model::{Classification, Entity, EvidenceBody, EvidenceSource, ProcessExit, Role, Step};

/// Returns the mark of node 1's agent for a read-only /scratch; `used_by` as far as the agent could
/// determine it.
fn read_only(used_by: Option<&str>) -> Classification {
    let fields: Vec<(&str, &str)> = [("mount", "/scratch")]
        .into_iter()
        .chain(used_by.map(|users| ("used_by", users)))
        .collect();
    with(mark("filesystem-io-error", Role::Root, 0.6), &fields)
}

fn unwritable(world: &mut World, ms: i64, used_by: Option<&str>) {
    let body = EvidenceBody::Sample {
        metric: "host.writable /scratch".to_owned(),
        value: 0.0,
        unit: "bool".to_owned(),
    };
    world.at(ms, EvidenceSource::Host, on_node(1), body, vec![read_only(used_by)]);
}

fn stands(case: &ConcludedDraft) -> bool {
    case.verdict.class.as_str().starts_with("hang-")
}

fn says(case: &ConcludedDraft, words: &str) -> bool {
    case.reasoning.iter().any(|reason| reason.text.contains(words))
}

#[test]
fn a_disk_that_the_job_does_not_use_explains_no_hang() {
    for used_by in ["none", "other/0, other/1"] {
        let mut world = World::new();
        unwritable(&mut world, 1_000, Some(used_by));
        let case = world.stalls(2_000, 40_000).settle();
        assert!(stands(&case), "{used_by}: {}", case.verdict.class);
        let others = &case.verdict.alternatives;
        assert!(others.iter().any(|(class, _)| class.as_str() == "filesystem-io-error"));
    }
}

#[test]
fn a_disk_that_the_job_uses_or_may_use_explains_a_hang() {
    for used_by in [Some("other/3, train/0, train/1"), Some("other/3, ?"), None] {
        let mut world = World::new();
        unwritable(&mut world, 1_000, used_by);
        let case = world.stalls(2_000, 40_000).settle();
        assert_eq!(case.verdict.class.as_str(), "filesystem-io-error", "{used_by:?}");
        assert_eq!(case.verdict.blamed, on_node(1));
        assert_eq!(
            says(&case, "used here by rank 0, 1"),
            used_by.is_some_and(|users| users.contains("train"))
        );
    }
}

#[test]
fn a_rank_that_dies_writing_there_ties_the_disk_to_the_job_whatever_was_seen_before() {
    for (text, tied) in [
        ("OSError: [Errno 30] Read-only file system: '/scratch/step-9.pt'", true),
        ("OSError: [Errno 5] Input/output error: '/data/shard-3'", false),
        ("OSError: [Errno 5] Input/output error: '/scratch2/shard-3'", false),
    ] {
        let mut world = World::new();
        unwritable(&mut world, 1_000, Some("none"));
        world.says(2_000, 1, text, mark("storage-io-error", Role::Root, 0.5));
        let case = world.exits(2_100, 1, ProcessExit::Code(1)).settle();
        let expected = if tied {
            "filesystem-io-error"
        } else {
            "storage-io-error"
        };
        assert_eq!(case.verdict.class.as_str(), expected, "{text}");
    }
}

#[test]
fn a_rank_that_ends_without_a_word_is_not_explained_by_a_disk_that_nobody_uses() {
    let mut world = World::new();
    unwritable(&mut world, 1_000, Some("none"));
    let case = world.exits(2_000, 1, ProcessExit::Code(3)).settle();
    assert_eq!(case.verdict.class.as_str(), "rank-exit-unknown");
}

#[test]
fn a_full_shm_beside_the_job_explains_no_hang() {
    let mut world = World::new();
    let full = with(
        mark("shm-exhausted", Role::Confirmation, 0.5),
        &[("mount", "/dev/shm"), ("used_by", "none")],
    );
    let body = EvidenceBody::Sample {
        metric: "host.disk_available /dev/shm".to_owned(),
        value: 0.0,
        unit: "ratio".to_owned(),
    };
    world.at(1_000, EvidenceSource::Host, on_node(1), body, vec![full]);
    assert!(stands(&world.stalls(2_000, 40_000).settle()));
}

const NFS: &str = "nfs: server nas01 not responding, still trying";

fn silent_server() -> Classification {
    let mut mark = with(mark("filesystem-hang", Role::Root, 0.94), &[("server", "nas01")]);
    mark.signature = "nfs-not-responding".into();
    mark
}

fn answers(server: &str) -> Classification {
    let mut mark = with(mark("none", Role::Noise, 0.95), &[("server", server)]);
    mark.signature = "nfs-ok".into();
    mark
}

#[test]
fn a_server_that_answered_again_before_the_ranks_went_on_explains_nothing_later() {
    for (answered, class) in [("nas01", "hang-no-error"), ("nas02", "filesystem-hang")] {
        let mut world = World::new();
        world.kernel(1_000, on_node(1), NFS, silent_server());
        let text = format!("nfs: server {answered} OK");
        world.kernel(10_000, on_node(1), &text, answers(answered));
        world.steps(15_000, 1, 7);
        let case = world.stalls(15_000, 50_000).settle();
        assert_eq!(case.verdict.class.as_str(), class);
    }
}

#[test]
fn a_server_that_answers_again_while_the_job_still_stands_is_no_cause_by_itself() {
    let mut world = World::new();
    world.steps(500, 1, 6);
    world.kernel(1_000, on_node(1), NFS, silent_server());
    world.kernel(10_000, on_node(1), "nfs: server nas01 OK", answers("nas01"));
    let case = world.stalls(500, 50_000).settle();
    assert!(stands(&case), "{}", case.verdict.class);
    let others = &case.verdict.alternatives;
    assert!(others.iter().any(|(class, _)| class.as_str() == "filesystem-hang"));
}

#[test]
fn an_answer_that_comes_after_the_conclusion_follows_from_nothing() {
    let mut world = World::new();
    world.kernel(1_000, on_node(1), NFS, silent_server());
    let case = world.stalls(500, 40_000).settle();
    assert_eq!(case.verdict.class.as_str(), "filesystem-hang");
    let before = world.changes.len();
    world.kernel(46_000, on_node(1), "nfs: server nas01 OK", answers("nas01"));
    let joined = |change: &DraftChange| {
        matches!(
            change,
            DraftChange::Late { .. } | DraftChange::Revised(_) | DraftChange::Opened { .. }
        )
    };
    assert!(
        !world.changes[before..].iter().any(joined),
        "{:?}",
        world.changes.last()
    );
}

fn shard_fails(world: &mut World, ms: i64, rank: u32) {
    let body = EvidenceBody::ShardFailed {
        step: Step(10),
        reason: "no space for 320000 bytes of /ckpt/train/000000000010-g1/rank-00000.shard; free space, or keep fewer \
                 checkpoints"
            .to_owned(),
    };
    let mut full = mark("disk-full", Role::Root, 0.95);
    full.signature = "checkpoint-store".into();
    world.at(ms, EvidenceSource::Checkpoint, rank_of(rank), body, vec![full]);
}

/// The nodes of a job share its checkpoint store, whichever rank finds it full first.
#[test]
fn a_full_checkpoint_store_is_blamed_and_no_rank() {
    for ranks in [vec![2], vec![2, 3], vec![0, 2, 4]] {
        let mut world = World::new();
        for rank in &ranks {
            shard_fails(&mut world, 1_000, *rank);
        }
        let case = world.settle();
        assert_eq!(case.verdict.class.as_str(), "disk-full");
        assert_eq!(
            (
                case.verdict.blamed.clone(),
                case.verdict.blamed_part.as_deref(),
                case.verdict.root_rank
            ),
            (Entity::Unknown, Some("the checkpoint store /ckpt"), None),
            "{ranks:?}"
        );
    }
    // The store of a job on one node may be a disk of that node.
    let mut world = World::new();
    world.job(|job| job.placements.retain(|rank, _| rank.0 < 2));
    shard_fails(&mut world, 1_000, 0);
    shard_fails(&mut world, 1_000, 1);
    assert_eq!(world.settle().verdict.blamed, on_node(1));
}

fn writes_fail(world: &mut World, ranks: &[u32], text: &str) -> ConcludedDraft {
    for rank in ranks {
        let body = EvidenceBody::Line {
            text: text.to_owned(),
            context: Vec::new(),
            repeats: 1,
        };
        let full = mark("disk-full", Role::Root, 0.9);
        world.at(1_000, EvidenceSource::JobLog, rank_of(*rank), body, vec![full]);
    }
    for rank in ranks {
        world.exits(1_100, *rank, ProcessExit::Code(1));
    }
    world.settle()
}

#[test]
fn a_full_disk_is_one_of_the_node_of_the_ranks_that_report_it() {
    const FULL: &str = "OSError: [Errno 28] No space left on device: '/scratch/cache.bin'";
    for ranks in [vec![2], vec![2, 3]] {
        let case = writes_fail(&mut World::new(), &ranks, FULL);
        assert_eq!(
            (case.verdict.class.as_str(), &case.verdict.blamed),
            ("disk-full", &on_node(2)),
            "{ranks:?}"
        );
        assert!(
            says(&case, "Only node n2 reports it. Nothing shows"),
            "{:?}",
            case.reasoning
        );
    }
    // The ranks of a job on one node show nothing about other nodes.
    let mut world = World::new();
    world.job(|job| job.placements.retain(|rank, _| rank.0 < 2));
    let case = writes_fail(&mut world, &[0], FULL);
    assert_eq!(case.verdict.blamed, on_node(1));
    assert!(
        says(&case, "All ranks of the job ran on node n1"),
        "{:?}",
        case.reasoning
    );
    assert!(!says(&case, "Only node n1"), "{:?}", case.reasoning);
    let case = writes_fail(&mut World::new(), &[0, 2], FULL);
    let part = case.verdict.blamed_part.as_deref();
    assert_eq!(part, Some("a file system that the nodes of the job share"));
    // A quota is of the user, on every node.
    let quota = "OSError: [Errno 122] Disk quota exceeded: '/home/ada/cache.bin'";
    let case = writes_fail(&mut World::new(), &[2], quota);
    assert_eq!(case.verdict.blamed, rank_of(2));
}
