//! The client against a small agent in the same process.
#![allow(clippy::unwrap_used)]

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rankguard_checkpoint::Arena;
use rankguard_checkpoint::arena::ImageOf;
use rankguard_checkpoint_format::{Dtype, TensorBox};
use rankguard_model::{CheckpointCall, Generation, JobId, Rank, Step};
use rankguard_proto::frame::{self, FrameReader};
use rankguard_proto::v1::from_rank::Kind as Heard;
use rankguard_proto::v1::to_rank::Kind as Said;
use rankguard_proto::v1::{self, FromRank, ToRank};
use rankguard_rank::{BackPressure, ClientError, Notes, Part, RankClient, RankEnv, SaveOutcome};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::json;

struct FakeAgent {
    stream: UnixStream,
    reader: FrameReader,
}

impl FakeAgent {
    /// `None` when the rank is gone.
    fn hear(&mut self) -> Option<Heard> {
        loop {
            if let Some(message) = self.reader.next::<FromRank>().unwrap() {
                return message.kind;
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes).unwrap() {
                0 => return None,
                n => self.reader.push(&bytes[..n]),
            }
        }
    }

    fn say(&mut self, kind: Said) {
        self.stream
            .write_all(&frame::encode(&ToRank { kind: Some(kind) }))
            .unwrap();
    }

    fn welcome(&mut self) {
        assert!(matches!(self.hear(), Some(Heard::Hello(hello)) if hello.job == "local" && hello.generation == 1));
        self.say(Said::Welcome(v1::RankWelcome {
            checkpoint_every: 5,
            without_store: false,
        }));
    }

    fn give_arena(&mut self, slots: u32) -> Arena {
        let Some(Heard::ArenaWanted(wanted)) = self.hear() else {
            panic!("an arena was to be asked for first");
        };
        let arena = Arena::create("test", slots, wanted.image_bytes).unwrap();
        let bytes = frame::encode(&ToRank {
            kind: Some(Said::ArenaReady(v1::ArenaReady {
                slots,
                slot_bytes: wanted.image_bytes,
                ..v1::ArenaReady::default()
            })),
        });
        let fds = [arena.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        // The frame in two pieces: the descriptor comes before the message is whole.
        let sent = sendmsg(
            &self.stream,
            &[IoSlice::new(&bytes[..3])],
            &mut control,
            SendFlags::empty(),
        )
        .unwrap();
        assert_eq!(sent, 3);
        self.stream.write_all(&bytes[3..]).unwrap();
        arena
    }
}

/// Runs `rank` against `agent`, each on its own thread.
fn check(agent: impl FnOnce(FakeAgent) + Send + 'static, rank: impl FnOnce(Result<RankClient, ClientError>)) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let agent = thread::spawn(move || {
        agent(FakeAgent {
            stream: theirs,
            reader: FrameReader::new(),
        });
    });
    rank(RankClient::over(ours, &env()));
    agent.join().unwrap();
}

fn env() -> RankEnv {
    RankEnv::from_vars(&Default::default()).unwrap()
}

fn boxes() -> Vec<TensorBox> {
    vec![
        TensorBox::rows("w", Dtype::F32, vec![8, 2], 2..5),
        TensorBox::whole("b", Dtype::U8, vec![7]),
    ]
}

#[test]
fn without_a_socket_there_is_no_client() {
    assert!(RankClient::connect(&env()).unwrap().is_none());
}

#[test]
fn an_agent_that_is_not_there_is_named_by_its_path() {
    let missing = RankEnv {
        socket: Some("/nonexistent/agent.sock".into()),
        ..env()
    };
    let error = RankClient::connect(&missing).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/agent.sock"), "{error}");
}

#[test]
fn a_save_is_read_back_by_the_agent_and_a_full_arena_skips() {
    let (weights, bias) = (vec![1_u8; 24], vec![2_u8; 7]);
    let (weights_seen, bias_seen) = (weights.clone(), bias.clone());
    check(
        move |mut agent| {
            agent.welcome();
            let arena = agent.give_arena(1);
            let Some(Heard::SlotSealed(sealed)) = agent.hear() else {
                panic!("a sealed slot was to be told");
            };
            assert_eq!(sealed.step, 5);
            let image = arena.sealed(sealed.slot).unwrap();
            assert_eq!(image.index().step, Step(5));
            assert_eq!(image.index().state, json!({"epoch": 1}));
            // Each tensor begins a chunk of its own.
            assert_eq!(image.chunk(0).unwrap().unwrap(), weights_seen);
            assert_eq!(image.chunk(1).unwrap().unwrap(), bias_seen);
            assert!(matches!(agent.hear(), Some(Heard::Done(_))));
            assert!(agent.hear().is_none());
        },
        |client| {
            let mut client = client.unwrap();
            assert_eq!(client.checkpoint_every(), 5);
            let data: Vec<_> = boxes().into_iter().zip([&weights[..], &bias]).collect();
            let saved = client.checkpoint(Step(5), &data, &json!({"epoch": 1})).unwrap();
            assert_eq!(saved.outcome, SaveOutcome::Sealed);
            let saved = client.checkpoint(Step(10), &data, &json!({"epoch": 1})).unwrap();
            assert_eq!(saved.outcome, SaveOutcome::SkippedNoFreeSlot);
            client.done().unwrap();
        },
    );
}

#[test]
fn a_restore_gives_the_boxes_in_the_order_asked_and_frees_the_slot() {
    check(
        |mut agent| {
            agent.welcome();
            let arena = agent.give_arena(2);
            let Some(Heard::RestoreWanted(wanted)) = agent.hear() else {
                panic!("a restore was to be asked for");
            };
            assert_eq!(wanted.boxes[0].name, "w");
            assert_eq!((wanted.boxes[0].offset[0], wanted.boxes[0].shape[0]), (2, 3));
            let image: Vec<u8> = (0..31).collect();
            let rank = rankguard_model::JobId::from("local");
            let of =
                rankguard_checkpoint::arena::ImageOf::new(&rank, Step(9), rankguard_model::Generation(1), Rank(0), 1);
            let whole = TensorBox::whole("image", Dtype::U8, vec![31]);
            let filled = arena.fill(1, &of, &[(whole, &image)], &json!(null)).unwrap();
            agent.say(Said::RestoreReady(v1::RestoreReady {
                step: 9,
                slot: filled.slot,
                bytes: 31,
                states: vec![v1::ShardState {
                    rank: 1,
                    state: r#"{"epoch":0}"#.to_owned(),
                }],
                ..v1::RestoreReady::default()
            }));
            assert!(agent.hear().is_none());
            assert_eq!(arena.empty_slots(), [0, 1]);
        },
        |client| {
            let restored = client.unwrap().restore(&boxes()).unwrap().unwrap();
            assert_eq!(restored.step, Step(9));
            assert_eq!(restored.tensors[0], (0..24).collect::<Vec<u8>>());
            assert_eq!(restored.tensors[1], (24..31).collect::<Vec<u8>>());
            assert_eq!(restored.states, [(Rank(1), json!({"epoch": 0}))]);
        },
    );
}

#[test]
fn nothing_to_restore_is_a_fresh_start() {
    check(
        |mut agent| {
            agent.welcome();
            agent.give_arena(1);
            agent.hear();
            agent.say(Said::NothingToRestore(v1::NothingToRestore {}));
        },
        |client| assert_eq!(client.unwrap().restore(&boxes()).unwrap(), None),
    );
}

#[test]
fn rg2_a_restore_of_another_size_is_refused() {
    check(
        |mut agent| {
            agent.welcome();
            agent.give_arena(1);
            agent.hear();
            agent.say(Said::RestoreReady(v1::RestoreReady {
                step: 9,
                slot: 0,
                bytes: 30,
                ..v1::RestoreReady::default()
            }));
        },
        |client| {
            let error = client.unwrap().restore(&boxes()).unwrap_err();
            assert!(
                matches!(error, ClientError::RestoredBytes { wanted: 31, got: 30 }),
                "{error}"
            );
        },
    );
}

#[test]
fn rg3_a_refused_generation_hears_the_reason() {
    check(
        |mut agent| {
            agent.hear();
            let reason = "generation 1 is fenced off by 2".to_owned();
            agent.say(Said::Refused(v1::Refused { reason }));
        },
        |client| {
            let error = client.unwrap_err();
            assert!(
                matches!(&error, ClientError::Refused { reason } if reason.contains("fenced")),
                "{error}"
            );
        },
    );
}

#[test]
fn rg5_a_lost_agent_is_counted_by_step_and_an_error_for_restore() {
    check(
        |mut agent| agent.welcome(),
        |client| {
            let mut client = client.unwrap();
            // The agent's end closes at some moment; from then on each mark is counted.
            while client.marks_dropped() < 3 {
                client.step(Step(1), Some(0.5), 1.0);
            }
            assert!(matches!(
                client.restore(&boxes()).unwrap_err(),
                ClientError::Lost { .. }
            ));
            assert!(client.checkpoint(Step(2), &[], &json!(null)).is_err());
        },
    );
}

#[test]
fn rg9_a_step_never_waits_for_an_agent_that_does_not_read() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    check(
        move |mut agent| {
            agent.welcome();
            held.recv().unwrap();
            let mut marks = 0;
            while let Some(Heard::StepDone(_)) = agent.hear() {
                marks += 1;
            }
            assert!(marks > 100, "what fits into the socket arrives whole: {marks}");
        },
        |client| {
            let mut client = client.unwrap();
            let mut step = 0;
            while client.marks_dropped() == 0 {
                step += 1;
                client.step(Step(step), None, 1.0);
            }
            release.send(()).unwrap();
        },
    );
}

#[test]
fn a_save_beside_the_training_is_told_when_it_is_finished() {
    let (weights, bias) = (vec![3_u8; 24], vec![4_u8; 7]);
    check(
        |mut agent| {
            agent.welcome();
            let arena = agent.give_arena(1);
            let Some(Heard::SlotSealed(sealed)) = agent.hear() else {
                panic!("a sealed slot was to be told");
            };
            let image = arena.sealed(sealed.slot).unwrap();
            assert_eq!(image.index().schema, "test/1");
            assert_eq!(image.index().tensors[1].replica, 2);
            assert_eq!(image.chunk(1).unwrap().unwrap(), [4; 7]);
            assert!(agent.hear().is_none());
        },
        |client| {
            let mut client = client.unwrap();
            let data: [Arc<dyn AsRef<[u8]> + Send + Sync>; 2] = [Arc::new(weights), Arc::new(bias)];
            let parts = boxes().into_iter().zip(data).map(|(boxed, data)| Part { boxed, data });
            let notes = Notes {
                schema: "test/1".to_owned(),
                replicas: vec![0, 2],
                ledger: None,
            };
            let begun = client.begin(Step(2), parts.collect(), json!(null), notes).unwrap();
            assert_eq!(begun, None);
            let saved = client.finish().unwrap().expect("one was begun");
            assert_eq!(saved.outcome, SaveOutcome::Sealed);
            assert_eq!(client.finish().unwrap(), None);
        },
    );
}

#[test]
fn rg9_a_wait_for_a_slot_gets_the_one_that_the_agent_frees_and_ends_in_time() {
    let (weights, bias) = (vec![1_u8; 24], vec![2_u8; 7]);
    check(
        |mut agent| {
            agent.welcome();
            let arena = agent.give_arena(1);
            for _ in 0..2 {
                let Some(Heard::SlotSealed(sealed)) = agent.hear() else {
                    panic!("a sealed slot was to be told");
                };
                // The second one stays where it is.
                if sealed.step == 1 {
                    arena.release(sealed.slot).unwrap();
                }
            }
            assert!(agent.hear().is_none());
        },
        |client| {
            let mut client = client.unwrap();
            let data: Vec<_> = boxes().into_iter().zip([&weights[..], &bias]).collect();
            client.set_policy(BackPressure::Wait(Duration::from_secs(60)));
            for step in [1, 2] {
                let saved = client.checkpoint(Step(step), &data, &json!(null)).unwrap();
                assert_eq!(saved.outcome, SaveOutcome::Sealed);
            }
            client.set_policy(BackPressure::Wait(Duration::from_millis(20)));
            let saved = client.checkpoint(Step(3), &data, &json!(null)).unwrap();
            assert_eq!(saved.outcome, SaveOutcome::SkippedNoFreeSlot);
            let counts = client.counts();
            assert_eq!((counts.sealed, counts.skipped), (2, 1));
            assert!(counts.waited >= 1);
        },
    );
}

/// The one that the agent has begun to write stays; one that is durable is filled over without being counted.
#[test]
fn the_oldest_image_that_nobody_has_begun_to_write_gives_way_and_is_counted() {
    let (weights, bias) = (vec![1_u8; 24], vec![2_u8; 7]);
    let (begun, may_replace) = channel();
    let (durable, is_durable) = channel();
    let (asked, goes_on) = channel();
    check(
        move |mut agent| {
            agent.welcome();
            let arena = agent.give_arena(2);
            for expected in [(1, 0), (2, 1), (3, 1), (4, 0)] {
                let Some(Heard::SlotSealed(sealed)) = agent.hear() else {
                    panic!("a sealed slot was to be told");
                };
                assert_eq!((sealed.step, sealed.slot), expected);
                if sealed.step == 2 {
                    assert!(arena.begin_write(0, Generation(1)).unwrap());
                    begun.send(()).unwrap();
                }
                if sealed.step == 3 {
                    let () = goes_on.recv().unwrap();
                    assert!(arena.make_durable(0, Generation(1)).unwrap());
                    durable.send(()).unwrap();
                }
            }
            assert!(agent.hear().is_none());
        },
        move |client| {
            let mut client = client.unwrap();
            let data: Vec<_> = boxes().into_iter().zip([&weights[..], &bias]).collect();
            client.set_policy(BackPressure::ReplaceOldest);
            let mut save = |step: u64| {
                let saved = client.checkpoint(Step(step), &data, &json!(null)).unwrap();
                assert_eq!(saved.outcome, SaveOutcome::Sealed);
                client.counts().replaced
            };
            assert_eq!((save(1), save(2)), (0, 0));
            may_replace.recv().unwrap();
            assert_eq!(save(3), 1);
            asked.send(()).unwrap();
            is_durable.recv().unwrap();
            assert_eq!(save(4), 1);
        },
    );
}

/// As it was saved, tensors at their alignment and in another order: the image stays for the next failure.
#[test]
fn a_restore_in_place_copies_each_box_from_where_it_lies_and_leaves_the_image() {
    check(
        |mut agent| {
            agent.welcome();
            let arena = agent.give_arena(1);
            assert!(matches!(agent.hear(), Some(Heard::RestoreWanted(_))));
            let job = JobId::from("local");
            let of = ImageOf::new(&job, Step(9), Generation(1), Rank(0), 1);
            let (weights, bias): (Vec<u8>, Vec<u8>) = ((0..24).collect(), (24..31).collect());
            let [w, b] = <[TensorBox; 2]>::try_from(boxes()).unwrap();
            arena.fill(0, &of, &[(b, &bias), (w, &weights)], &json!(null)).unwrap();
            agent.say(Said::RestoreReady(v1::RestoreReady {
                step: 9,
                bytes: 31,
                places: vec![64, 0],
                stays: true,
                ..v1::RestoreReady::default()
            }));
            assert!(agent.hear().is_none());
            assert_eq!(arena.sealed_images().len(), 1);
        },
        |client| {
            let restored = client.unwrap().restore(&boxes()).unwrap().unwrap();
            assert_eq!(restored.tensors, [(0..24).collect::<Vec<u8>>(), (24..31).collect()]);
        },
    );
}

#[test]
fn a_buffer_of_another_size_is_refused_before_the_agent_is_asked() {
    check(
        |mut agent| {
            agent.welcome();
            assert!(agent.hear().is_none());
        },
        |client| {
            let mut short = [0; 6];
            let mut wanted = [(TensorBox::whole("b", Dtype::U8, vec![7]), &mut short[..])];
            let error = client.unwrap().restore_into(&mut wanted).unwrap_err();
            assert!(
                matches!(&error, ClientError::Buffer { name, has: 6, needs: 7 } if name == "b"),
                "{error}"
            );
        },
    );
}

/// The controller calls steps at any time, between a question and its answer too.
#[test]
fn a_called_step_is_due_and_one_that_cannot_be_kept_is_told() {
    let (told, ready) = channel();
    let at = |number, step| {
        Said::Called(v1::CheckpointCalled::from((
            number,
            CheckpointCall::At { step: Step(step) },
        )))
    };
    check(
        move |mut agent| {
            agent.welcome();
            let _arena = agent.give_arena(1);
            assert!(matches!(agent.hear(), Some(Heard::RestoreWanted(_))));
            agent.say(at(1, 7));
            agent.say(Said::NothingToRestore(v1::NothingToRestore {}));
            // It hears of 3 only when that lies behind it, and takes no image of 7.
            while !matches!(agent.hear(), Some(Heard::StepDone(done)) if done.step == 4) {}
            agent.say(at(2, 3));
            told.send(()).unwrap();
            let mut missed = Vec::new();
            while let Some(heard) = agent.hear() {
                if let Heard::Missed(miss) = heard {
                    missed.push((miss.step, miss.reason));
                }
            }
            let late = (3, "the call came too late".to_owned());
            let untaken = (7, "no image of it was taken".to_owned());
            assert_eq!(missed, [late, untaken]);
        },
        move |client| {
            let mut client = client.unwrap();
            assert!(client.restore(&boxes()).unwrap().is_none());
            let mut due = Vec::new();
            for step in 1..=4 {
                client.step(Step(step), None, 1.0);
                due.extend(client.due(Step(step)).then_some(step));
            }
            ready.recv().unwrap();
            for step in 5..=10 {
                client.step(Step(step), None, 1.0);
                due.extend(client.due(Step(step)).then_some(step));
            }
            assert_eq!(due, [5, 7, 10]);
        },
    );
}

/// Reports of void checkpoints come at any time, between a question and its answer too.
#[test]
fn void_checkpoints_are_counted_once_with_the_newest_reason() {
    let failed = |step, reason: &str| {
        Said::Failed(v1::CheckpointFailed {
            step,
            reason: reason.to_owned(),
        })
    };
    let (told, ready) = channel();
    check(
        move |mut agent| {
            agent.welcome();
            let _arena = agent.give_arena(1);
            assert!(matches!(agent.hear(), Some(Heard::RestoreWanted(_))));
            agent.say(failed(5, "no space left"));
            agent.say(Said::NothingToRestore(v1::NothingToRestore {}));
            agent.say(failed(5, "rank 1 did not keep its shard: no space left"));
            agent.say(failed(10, "the store is read-only"));
            told.send(()).unwrap();
            while agent.hear().is_some() {}
        },
        move |client| {
            let mut client = client.unwrap();
            assert_eq!((client.failed(), client.last_failure()), (0, None));
            assert!(client.restore(&boxes()).unwrap().is_none());
            ready.recv().unwrap();
            client.step(Step(11), None, 1.0);
            assert_eq!(client.failed(), 2);
            let newest = (Step(10), "the store is read-only".to_owned());
            assert_eq!(client.last_failure(), Some(&newest));
            let taken = client.take_failures();
            assert_eq!(taken, [(Step(5), "no space left".to_owned()), newest]);
            assert!(client.take_failures().is_empty());
        },
    );
}
