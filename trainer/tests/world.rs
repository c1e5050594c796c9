//! Tests with all ranks of a world, each a thread with its own sockets.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rankguard_checkpoint_format::TensorBox;
use rankguard_model::{Generation, Rank, Step};
use rankguard_rank::{ClientError, RankEnv, RestoredTensors, SaveOutcome, SaveReport};
use rankguard_trainer::{
    CheckpointBackend, FailureCause, HelloVerdict, MeshError, NoCheckpoints, PARAMETERS_FILE, RankSeat, RunSummary,
    SAMPLES, SUMMARY_FILE, TrainError, TrainingSettings, ledger, run_as,
};
use serde_json::Value;

type Shards = BTreeMap<u32, (Vec<(TensorBox, Vec<u8>)>, Value)>;

/// Checkpoints in memory: by step, the shards of the generation that saved them, and the number of shards of a
/// complete one.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<BTreeMap<u64, (u32, Shards)>>>);

struct MemoryRank {
    memory: Memory,
    env: RankEnv,
    every: u64,
    /// Step to stop at, and the signal to continue.
    pause: Option<(u64, Receiver<()>)>,
}

impl CheckpointBackend for MemoryRank {
    fn due(&mut self, step: Step) -> bool {
        self.every > 0 && step.0.is_multiple_of(self.every)
    }

    fn restore(&mut self, wanted: &[TensorBox]) -> Result<Option<RestoredTensors>, ClientError> {
        let saved = self.memory.0.lock().unwrap();
        let whole = saved
            .iter()
            .rev()
            .find(|(_, (size, shards))| shards.len() == *size as usize);
        let Some((&step, (_, shards))) = whole else {
            return Ok(None);
        };
        // Rebuild every tensor whole, then cut the wanted rows out of it.
        let mut tensors: BTreeMap<&str, Vec<Option<u8>>> = BTreeMap::new();
        let row_bytes = |b: &TensorBox| 4 * b.global_shape[1..].iter().product::<u64>() as usize;
        for (part, bytes) in shards.values().flat_map(|(tensors, _)| tensors) {
            let row = row_bytes(part);
            let tensor = tensors
                .entry(&part.name)
                .or_insert_with(|| vec![None; row * part.global_shape[0] as usize]);
            for (i, byte) in bytes.iter().enumerate() {
                let place = &mut tensor[row * part.offset[0] as usize + i];
                assert!(place.replace(*byte).is_none(), "{} saved twice", part.name);
            }
        }
        let cut = |b: &TensorBox| {
            let row = row_bytes(b);
            let from = b.offset[0] as usize;
            let bytes = &tensors[b.name.as_str()][row * from..row * (from + b.shape[0] as usize)];
            bytes.iter().map(|byte| byte.expect("every row is saved")).collect()
        };
        Ok(Some(RestoredTensors {
            step: Step(step),
            tensors: wanted.iter().map(cut).collect(),
            states: shards
                .iter()
                .map(|(rank, (_, state))| (Rank(*rank), state.clone()))
                .collect(),
        }))
    }

    fn step(&mut self, step: Step, _: f64, _: f64) {
        if let Some((at, until)) = &self.pause
            && step.0 == *at
        {
            let _ = until.recv();
        }
    }

    fn save(&mut self, step: Step, tensors: &[(TensorBox, &[u8])], state: &Value) -> Result<SaveReport, ClientError> {
        let tensors = tensors.iter().map(|(b, bytes)| (b.clone(), bytes.to_vec())).collect();
        let mut saved = self.memory.0.lock().unwrap();
        let (size, shards) = saved.entry(step.0).or_default();
        if *size != self.env.world_size {
            shards.clear();
            *size = self.env.world_size;
        }
        shards.insert(self.env.rank.0, (tensors, state.clone()));
        Ok(SaveReport {
            stall: Duration::ZERO,
            outcome: SaveOutcome::Sealed,
        })
    }

    fn done(&mut self) -> Result<(), ClientError> {
        Ok(())
    }
}

fn small(out: &Path) -> TrainingSettings {
    TrainingSettings {
        epochs: 2,
        hidden: vec![32, 16],
        deadline: Duration::from_secs(20),
        out: out.to_owned(),
        ..TrainingSettings::default()
    }
}

fn env(listener: &TcpListener, generation: u64, rank: u32, world_size: u32) -> RankEnv {
    RankEnv {
        job: "digits".into(),
        generation: Generation(generation),
        node: "node-1".into(),
        rank: Rank(rank),
        local_rank: rank,
        world_size,
        master_addr: "127.0.0.1".to_owned(),
        master_port: listener.local_addr().unwrap().port(),
        socket: None,
    }
}

/// Runs a world in which each rank has the checkpointer that `of` returns; results by rank.
fn world(
    settings: &TrainingSettings,
    generation: u64,
    world_size: u32,
    mut of: impl FnMut(RankEnv) -> Box<dyn CheckpointBackend + Send>,
) -> Vec<Result<RunSummary, TrainError>> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let envs: Vec<_> = (0..world_size)
        .map(|rank| env(&listener, generation, rank, world_size))
        .collect();
    let mut listener = Some(listener);
    let ranks: Vec<_> = envs
        .into_iter()
        .map(|env| {
            let settings = settings.clone();
            let listener = listener.take();
            let mut checkpointer = of(env.clone());
            thread::spawn(move || {
                run_as(
                    &settings,
                    RankSeat { env, listener },
                    &mut *checkpointer,
                    &mut std::io::sink(),
                )
            })
        })
        .collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

fn alone(settings: &TrainingSettings, world_size: u32) -> Vec<RunSummary> {
    let results = world(settings, 1, world_size, |_| Box::new(NoCheckpoints));
    results.into_iter().map(|r| r.unwrap()).collect()
}

fn remembering(memory: &Memory, every: u64) -> impl FnMut(RankEnv) -> Box<dyn CheckpointBackend + Send> {
    move |env| {
        Box::new(MemoryRank {
            memory: memory.clone(),
            env,
            every,
            pause: None,
        })
    }
}

#[test]
fn the_same_bits_come_out_at_every_world_size() {
    let dir = tempfile::tempdir().unwrap();
    let want = alone(&small(dir.path()), 1).remove(0);
    let parameters = std::fs::read(dir.path().join(PARAMETERS_FILE)).unwrap();
    assert_eq!(blake3::hash(&parameters).to_hex().as_str(), want.parameters);
    for world_size in [2, 3, 4, 5, 6, 24] {
        let dir = tempfile::tempdir().unwrap();
        for summary in alone(&small(dir.path()), world_size) {
            assert_eq!(summary.parameters, want.parameters, "world size {world_size}");
            assert_eq!(summary.loss.to_bits(), want.loss.to_bits());
        }
        assert_eq!(std::fs::read(dir.path().join(PARAMETERS_FILE)).unwrap(), parameters);
        assert!(ledger::check(dir.path(), SAMPLES, 2).unwrap().exact);
    }
}

#[test]
fn other_settings_give_other_bits() {
    let dir = tempfile::tempdir().unwrap();
    let settings = small(dir.path());
    let other = TrainingSettings {
        seed: 2,
        ..settings.clone()
    };
    assert_ne!(alone(&settings, 1)[0].parameters, alone(&other, 1)[0].parameters);
}

#[test]
fn a_run_that_fails_and_goes_on_at_other_world_sizes_ends_with_the_same_bits_and_an_exact_ledger() {
    let undisturbed = tempfile::tempdir().unwrap();
    let want = alone(&small(undisturbed.path()), 1).remove(0);
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::default();
    // Each generation ends by the injected bug; the next continues from the newest complete checkpoint (every 4
    // steps).
    for (generation, (world_size, ends_at)) in (1..).zip([(4, 10), (3, 19), (5, 24)]) {
        let settings = TrainingSettings {
            bug_at_step: Some(ends_at),
            bug_rank: 1,
            ..small(dir.path())
        };
        for result in world(&settings, generation, world_size, remembering(&memory, 4)) {
            result.unwrap_err();
        }
    }
    for summary in world(&small(dir.path()), 4, 6, remembering(&memory, 4)) {
        let summary = summary.unwrap();
        assert_eq!((summary.started_at, summary.steps), (20, 38));
        assert_eq!(summary.parameters, want.parameters);
    }
    let report = ledger::check(dir.path(), SAMPLES, 2).unwrap();
    assert!(report.exact, "{report:?}");
    let told: RunSummary = serde_json::from_slice(&std::fs::read(dir.path().join(SUMMARY_FILE)).unwrap()).unwrap();
    assert_eq!((told.generation, told.parameters), (4, want.parameters));
}

#[test]
fn a_run_that_was_complete_is_complete_again_without_a_step() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::default();
    let first = world(&small(dir.path()), 1, 2, remembering(&memory, 19));
    let again = world(&small(dir.path()), 2, 3, remembering(&memory, 19));
    let first = first[0].as_ref().unwrap();
    let again = again[0].as_ref().unwrap();
    assert_eq!((again.started_at, again.step_ms), (38, None));
    assert_eq!(again.parameters, first.parameters);
    assert!(ledger::check(dir.path(), SAMPLES, 2).unwrap().exact);
}

#[test]
fn rg2_a_checkpoint_of_other_settings_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::default();
    world(&small(dir.path()), 1, 1, remembering(&memory, 10));
    let other = TrainingSettings {
        batch: 48,
        ..small(dir.path())
    };
    let error = world(&other, 2, 1, remembering(&memory, 10)).remove(0).unwrap_err();
    assert!(error.to_string().contains("other settings"), "{error}");
}

#[test]
fn loss_falls_and_most_digits_are_named_rightly() {
    let dir = tempfile::tempdir().unwrap();
    let settings = |epochs| TrainingSettings {
        epochs,
        out: dir.path().to_owned(),
        ..TrainingSettings::default()
    };
    let early = alone(&settings(1), 2).remove(0);
    let late = alone(&settings(6), 2).remove(0);
    assert!(late.loss < early.loss / 4.0, "{} then {}", early.loss, late.loss);
    assert!(late.accuracy > 0.97, "{}", late.accuracy);
}

#[test]
fn the_planted_bug_is_the_shape_checks_own_error_and_the_others_lose_a_peer_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let settings = TrainingSettings {
        bug_at_step: Some(3),
        bug_rank: 1,
        hidden: vec![256, 128],
        deadline: Duration::from_secs(60),
        ..small(dir.path())
    };
    let results = world(&settings, 1, 4, |_| Box::new(NoCheckpoints));
    for (rank, result) in results.into_iter().enumerate() {
        let error = result.unwrap_err();
        let waited_for = matches!(error.failure, FailureCause::Mesh(MeshError::Late { .. }));
        assert!(!waited_for, "the deadline was waited for: {error}");
        let report = error.report();
        if rank == 1 {
            let lines: Vec<&str> = report.lines().collect();
            assert_eq!(lines[0], "Traceback (most recent call last):");
            assert!(
                lines[1].starts_with("  File \"trainer/src/train.rs\", line "),
                "{report}"
            );
            assert!(lines[1].ends_with(", in advance"));
            let want = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x65 and 64x256)";
            assert_eq!(*lines.last().unwrap(), want);
        } else {
            let want = format!("[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ");
            assert!(report.contains(&want), "{report}");
        }
    }
    assert!(!dir.path().join(SUMMARY_FILE).exists());
}

#[test]
fn rg9_a_rank_that_falls_silent_is_waited_for_until_the_deadline_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let settings = TrainingSettings {
        deadline: Duration::from_millis(1500),
        ..small(dir.path())
    };
    let (release, held) = channel();
    let mut held = Some(held);
    let silent = 2;
    // The silent rank is released when the first of the others gives up.
    let release = Arc::new(Mutex::new(Some(release)));
    struct Releasing(MemoryRank, Arc<Mutex<Option<std::sync::mpsc::Sender<()>>>>);
    impl CheckpointBackend for Releasing {
        fn due(&mut self, _: Step) -> bool {
            false
        }
        fn restore(&mut self, _: &[TensorBox]) -> Result<Option<RestoredTensors>, ClientError> {
            Ok(None)
        }
        fn step(&mut self, step: Step, loss: f64, step_ms: f64) {
            self.0.step(step, loss, step_ms);
        }
        fn save(&mut self, _: Step, _: &[(TensorBox, &[u8])], _: &Value) -> Result<SaveReport, ClientError> {
            unreachable!("no checkpoints here")
        }
        fn done(&mut self) -> Result<(), ClientError> {
            Ok(())
        }
    }
    impl Drop for Releasing {
        fn drop(&mut self) {
            self.1.lock().unwrap().take();
        }
    }
    let results = world(&settings, 1, 3, |env| {
        let pause = (env.rank.0 == silent).then(|| (5, held.take().unwrap()));
        let rank = MemoryRank {
            memory: Memory::default(),
            env,
            every: 0,
            pause,
        };
        Box::new(Releasing(rank, release.clone()))
    });
    let late = results.iter().flatten_err().find_map(|e| match &e.failure {
        FailureCause::Mesh(MeshError::Late { ranks, waited_ms, .. }) => Some((ranks.clone(), *waited_ms)),
        _ => None,
    });
    let (ranks, waited_ms) = late.unwrap();
    assert_eq!(ranks, [silent]);
    assert!(waited_ms >= 1500, "{waited_ms}");
    assert!(results.iter().all(Result::is_err));
}

trait FlattenErr<'a> {
    fn flatten_err(self) -> impl Iterator<Item = &'a TrainError>;
}

impl<'a, I: Iterator<Item = &'a Result<RunSummary, TrainError>>> FlattenErr<'a> for I {
    fn flatten_err(self) -> impl Iterator<Item = &'a TrainError> {
        self.filter_map(|r| r.as_ref().err())
    }
}

#[test]
fn rg3_strangers_and_stale_ranks_are_refused_and_the_ranks_find_each_other_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let settings = small(dir.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // A silent caller, one with another protocol, and one of an older generation, all before the ranks.
    let silent = TcpStream::connect(address).unwrap();
    let mut foreign = TcpStream::connect(address).unwrap();
    foreign.write_all(&[b'G'; 48]).unwrap();
    let run = |env: RankEnv, listener: Option<TcpListener>, settings: TrainingSettings| {
        thread::spawn(move || {
            run_as(
                &settings,
                RankSeat { env, listener },
                &mut NoCheckpoints,
                &mut std::io::sink(),
            )
        })
    };
    let stale = run(env(&listener, 1, 1, 2), None, settings.clone());
    let other = TrainingSettings {
        seed: 9,
        ..settings.clone()
    };
    let second = env(&listener, 2, 1, 2);
    let differs = run(second.clone(), None, other);
    let first = run(env(&listener, 2, 0, 2), Some(listener), settings.clone());
    let refusal = |joined: thread::JoinHandle<Result<RunSummary, TrainError>>| match joined.join().unwrap() {
        Err(TrainError {
            failure: FailureCause::Mesh(MeshError::Refused { verdict, .. }),
            ..
        }) => verdict,
        other => panic!("want a refusal, got {other:?}"),
    };
    assert_eq!(refusal(stale), HelloVerdict::OtherGeneration);
    assert_eq!(refusal(differs), HelloVerdict::OtherSettings);
    let second = run(second, None, settings);
    assert!(first.join().unwrap().is_ok());
    assert!(second.join().unwrap().is_ok());
    let mut answer = Vec::new();
    foreign.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[4], HelloVerdict::Stranger as u8);
    drop(silent);
}

#[test]
fn rg9_a_rank_that_never_comes_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let settings = TrainingSettings {
        deadline: Duration::from_millis(200),
        ..small(dir.path())
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let env = env(&listener, 1, 0, 3);
    let seat = RankSeat {
        env,
        listener: Some(listener),
    };
    let error = run_as(&settings, seat, &mut NoCheckpoints, &mut std::io::sink()).unwrap_err();
    assert!(error.report().contains("1/3 clients joined"), "{}", error.report());
    assert!(error.to_string().contains("[1, 2] did not come"), "{error}");
}

#[test]
fn rg9_a_rank_0_that_never_comes_is_waited_for_until_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let settings = TrainingSettings {
        deadline: Duration::from_millis(200),
        ..small(dir.path())
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let env = RankEnv {
        // Nothing listens there; a port that was free a moment ago may be in use by another test.
        master_port: 1,
        ..env(&listener, 1, 1, 2)
    };
    let seat = RankSeat { env, listener: None };
    let error = run_as(&settings, seat, &mut NoCheckpoints, &mut std::io::sink()).unwrap_err();
    assert!(
        matches!(error.failure, FailureCause::Mesh(MeshError::Unreachable { .. })),
        "{error}"
    );
}

#[test]
fn impossible_settings_are_refused_before_anyone_waits() {
    let settings = TrainingSettings {
        virtual_ranks: 2,
        ..small(Path::new("/nonexistent"))
    };
    let results = world(&settings, 1, 3, |_| Box::new(NoCheckpoints));
    for result in results {
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("virtual_ranks is 2, want at least the world size 3"),
            "{error}"
        );
    }
}
