//! State directories and journals that are restored from copies, in any order with crashes, joins and deliveries
//! (RG-4).

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rankguard_model::{ProcessExit, restored_spool};

use super::*;

/// Event of an agent and its controller.
#[derive(Debug, Clone, Copy)]
enum Move {
    /// Evidence is recorded.
    Record(u8),
    /// A session opens and delivers at most this many.
    Deliver(u8),
    /// The agent is killed and started again.
    Restart,
    CopySpool,
    RestoreSpool,
    CopyJournal,
    RestoreJournal,
}

/// Controller's part of the protocol: [`rankguard_model::restored_spool`] at joins, numbers in order, holes reported.
#[derive(Debug, Clone, Default)]
struct ControllerModel {
    acknowledged: u64,
    epochs: Vec<rankguard_model::SpoolEpoch>,
    /// Number of times each evidence is in the journal.
    journalled: BTreeMap<u32, u32>,
    /// Count of numbers that were reported as never arrived.
    named: u64,
    /// Count of gaps that report a restored directory.
    restored: u32,
    sessions: u32,
}

impl ControllerModel {
    /// Runs a session. Returns true if the spool was found to be a restored one.
    fn session(&mut self, spool: &Spool, most: usize) -> bool {
        self.sessions += 1;
        let mut is_restored = false;
        let epoch = loop {
            let epoch = spool.epoch();
            let reported = spool.report_epochs();
            let known = self.epochs.clone();
            if restored_spool(&reported, &known, Sequence(self.acknowledged)).is_none() {
                self.epochs = reported;
            }
            if spool.joined(Sequence(self.acknowledged), &known).unwrap() == SpoolJoin::Continues {
                break epoch;
            }
            is_restored = true;
        };
        for evidence in spool.send_after(epoch, Sequence(self.acknowledged), most).unwrap() {
            let seq = evidence.id.seq.0;
            assert!(seq > self.acknowledged, "a number came twice");
            self.named += seq - self.acknowledged - 1;
            self.acknowledged = seq;
            match evidence.body {
                EvidenceBody::RankExited { pid, .. } => *self.journalled.entry(pid).or_default() += 1,
                EvidenceBody::Gap { what, .. } if what.contains("state directory") => self.restored += 1,
                other => panic!("{other:?}"),
            }
        }
        spool.ack(Sequence(self.acknowledged), Some(1)).unwrap();
        is_restored
    }
}

/// Agent's state directory, its copy, and the known content of both.
struct World {
    dir: tempfile::TempDir,
    spool: Option<Spool>,
    controller: ControllerModel,
    journal_copy: Option<ControllerModel>,
    recorded: BTreeSet<u32>,
    /// Evidence in the copy of the spool.
    copied: Option<BTreeSet<u32>>,
    /// Evidence in a directory that was replaced by its copy.
    discarded: BTreeSet<u32>,
    /// True if each copy is restored once, and none is made of a restored directory that has not joined: see `epochs`.
    is_strict: bool,
    joined_since: bool,
    /// Sessions recorded in the directory, and in its copy.
    sessions: (u32, u32),
    next: u32,
}

impl World {
    fn new(is_strict: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spool = Some(open(dir.path()));
        Self {
            dir,
            spool,
            controller: ControllerModel::default(),
            journal_copy: None,
            recorded: BTreeSet::new(),
            copied: None,
            discarded: BTreeSet::new(),
            is_strict,
            joined_since: true,
            sessions: (0, 0),
            next: 1,
        }
    }

    fn make(&mut self, one: Move) {
        let file = self.dir.path().join("spool.redb");
        let copy = self.dir.path().join("copy.redb");
        let spool = self.spool.as_ref().expect("open between moves");
        match one {
            Move::Record(count) => {
                for _ in 0..count {
                    let pid = self.next;
                    self.next += 1;
                    let body = EvidenceBody::RankExited {
                        pid,
                        exit: ProcessExit::Code(1),
                        ended_by_agent: false,
                    };
                    let one = PendingEvidence::now(EvidenceSource::Ranks, Entity::Unknown, body);
                    spool.append(&[one], &[]).unwrap();
                    self.recorded.insert(pid);
                }
            }
            Move::Deliver(most) => {
                let is_behind = self.controller.sessions > self.sessions.0;
                let is_restored = self.controller.session(spool, most.into());
                // A journal that was restored too may know as little.
                if self.journal_copy.is_none() {
                    assert_eq!(is_restored, is_behind);
                }
                self.sessions.0 = self.controller.sessions;
                self.joined_since = true;
            }
            Move::Restart => self.reopen(|| {}),
            Move::CopySpool if self.is_strict && !self.joined_since => {}
            Move::CopySpool => {
                self.reopen(|| assert!(std::fs::copy(&file, &copy).is_ok()));
                self.copied = Some(self.recorded.clone());
                self.sessions.1 = self.sessions.0;
            }
            Move::RestoreSpool => {
                let Some(copied) = self.copied.clone() else { return };
                self.reopen(|| assert!(std::fs::copy(&copy, &file).is_ok()));
                self.discarded.extend(self.recorded.difference(&copied));
                self.recorded = copied;
                self.sessions.0 = self.sessions.1;
                self.joined_since = false;
                if self.is_strict {
                    self.copied = None;
                }
            }
            Move::CopyJournal => self.journal_copy = Some(self.controller.clone()),
            Move::RestoreJournal => {
                if let Some(copy) = &self.journal_copy {
                    self.controller = copy.clone();
                }
            }
        }
    }

    fn reopen(&mut self, meanwhile: impl FnOnce()) {
        drop(self.spool.take());
        meanwhile();
        self.spool = Some(open(self.dir.path()));
    }

    /// Delivers everything that is left, and something after it.
    fn end(&mut self) {
        self.make(Move::Deliver(u8::MAX));
        self.make(Move::Record(1));
        self.make(Move::Deliver(u8::MAX));
    }

    fn missing(&self) -> BTreeSet<u32> {
        let known = |pid: &&u32| !self.controller.journalled.contains_key(pid);
        self.recorded.iter().filter(known).copied().collect()
    }

    fn twice(&self) -> Vec<u32> {
        let more = self.controller.journalled.iter().filter(|(_, count)| **count > 1);
        more.map(|(pid, _)| *pid).collect()
    }
}

fn open(dir: &Path) -> Spool {
    Spool::open(&dir.join("spool.redb"), NodeId::from("n1"), 1 << 20).unwrap()
}

fn moves(journal: bool, spool: bool) -> impl Strategy<Value = Vec<Move>> {
    let spool_weight = if spool { 2 } else { 0 };
    let journal_weight = if journal { 2 } else { 0 };
    let one = prop_oneof![
        4 => (1_u8..4).prop_map(Move::Record),
        4 => (0_u8..5).prop_map(Move::Deliver),
        2 => Just(Move::Restart),
        spool_weight => Just(Move::CopySpool),
        spool_weight => Just(Move::RestoreSpool),
        journal_weight => Just(Move::CopyJournal),
        journal_weight => Just(Move::RestoreJournal),
    ];
    prop::collection::vec(one, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A restored spool: its evidence is delivered once, other evidence was delivered once or is lost, and no number is
    /// used twice.
    #[test]
    fn a_restored_spool_delivers_everything_once(moves in moves(false, true)) {
        let mut world = World::new(true);
        moves.into_iter().for_each(|one| world.make(one));
        world.end();
        prop_assert_eq!(world.missing(), BTreeSet::new());
        prop_assert_eq!(world.twice(), Vec::<u32>::new());
        prop_assert_eq!(world.controller.named, 0);
    }

    /// The same copy restored repeatedly, and copies of copies: no evidence that is present is lost.
    #[test]
    fn a_spool_that_is_restored_again_and_again_loses_nothing(moves in moves(false, true)) {
        let mut world = World::new(false);
        moves.into_iter().for_each(|one| world.make(one));
        world.end();
        prop_assert_eq!(world.missing(), BTreeSet::new());
        prop_assert_eq!(world.controller.named, 0);
    }

    /// A restored journal: the numbers that it lost are reported.
    #[test]
    fn a_restored_journal_names_what_it_lost(moves in moves(true, false)) {
        let mut world = World::new(true);
        moves.into_iter().for_each(|one| world.make(one));
        world.end();
        prop_assert_eq!(world.twice(), Vec::<u32>::new());
        prop_assert_eq!(world.controller.restored, 0);
        prop_assert_eq!(world.missing().len() as u64, world.controller.named);
    }

    /// Both restored, in any order: no evidence is journalled twice, and numbers only grow.
    #[test]
    fn both_restored_deliver_nothing_twice(moves in moves(true, true)) {
        let mut world = World::new(true);
        moves.into_iter().for_each(|one| world.make(one));
        world.end();
        prop_assert_eq!(world.twice(), Vec::<u32>::new());
    }
}

/// Evidence is recorded between the restoration and the join.
#[test]
fn evidence_recorded_before_the_join_is_delivered_and_the_loss_is_named() {
    let mut world = World::new(true);
    for one in [
        Move::Record(2),
        Move::Deliver(9),
        Move::CopySpool,
        Move::Record(4),
        Move::Deliver(3),
        Move::RestoreSpool,
        Move::Record(4),
    ] {
        world.make(one);
    }
    world.end();
    assert_eq!((world.missing(), world.twice()), (BTreeSet::new(), Vec::new()));
    assert_eq!(world.controller.restored, 1);
    let lost: Vec<_> = world
        .discarded
        .iter()
        .filter(|pid| !world.controller.journalled.contains_key(pid))
        .collect();
    assert_eq!(lost, [&6], "what the original had not delivered");
}

/// Numbers reassigned by a full spool are not those of the copy.
#[test]
fn a_copy_from_before_a_compaction_is_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let limit = 4_000;
    let open = || Spool::open(&dir.path().join("spool.redb"), NodeId::from("n1"), limit).unwrap();
    let step = |step| {
        let body = EvidenceBody::Progress {
            step: rankguard_model::Step(step),
            loss: None,
            step_ms: 1.0,
            own_ms: None,
        };
        PendingEvidence::now(EvidenceSource::Ranks, Entity::Unknown, body)
    };
    let spool = open();
    let known = spool.report_epochs();
    spool.joined(Sequence(0), &[]).unwrap();
    spool.append(&[step(1)], &[]).unwrap();
    let session = spool.epoch();
    for number in 2..200 {
        spool.append(&[step(number)], &[]).unwrap();
    }
    assert!(matches!(
        spool.send_after(session, Sequence(0), 9),
        Err(SpoolError::EpochEnded)
    ));
    let now = spool.report_epochs();
    assert_eq!(restored_spool(&now, &known, Sequence(0)), None);
    let copy: Vec<_> = known
        .iter()
        .map(|epoch| rankguard_model::SpoolEpoch {
            end: Sequence(20),
            ..*epoch
        })
        .collect();
    assert!(restored_spool(&copy, &now, Sequence(5)).is_some());
}
