//! Tests of the store: each request, waits, limits, and random sequences beside a plain model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{ClientId, ReplySink, RequestRefusal, StoreState};
use crate::StoreLimits;
use crate::wire::{RequestItems, StoreReply, StoreRequest};

/// Clients and the bytes of their replies, in the order in which they were sent.
type Replies = Vec<(u64, Vec<u8>)>;

const NONE: Replies = Vec::new();

/// Sink of replies.
#[derive(Default)]
struct Sent(Replies);

impl ReplySink for Sent {
    fn send(&mut self, to: ClientId, reply: &StoreReply<'_>) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(bytes.len(), reply.encoded_len());
        self.0.push((to.0, bytes));
    }
}

fn store() -> StoreState {
    StoreState::new(StoreLimits::default())
}

fn ask(store: &mut StoreState, client: u64, request: &StoreRequest<'_>) -> Replies {
    try_ask(store, client, request).expect("the request is carried out")
}

fn try_ask(store: &mut StoreState, client: u64, request: &StoreRequest<'_>) -> Result<Replies, RequestRefusal> {
    let mut sent = Sent::default();
    let result = store.execute(ClientId(client), request, &mut sent);
    store.audit().expect("consistent");
    result.map(|()| sent.0)
}

fn leave(store: &mut StoreState, client: u64) -> Replies {
    let mut sent = Sent::default();
    store.disconnect(ClientId(client), &mut sent);
    store.audit().expect("consistent");
    sent.0
}

fn set<'a>(key: &'a str, value: &'a str) -> StoreRequest<'a> {
    let (key, value) = (key.as_bytes(), value.as_bytes());
    StoreRequest::Set { key, value }
}

fn push<'a>(key: &'a str, value: &'a str) -> StoreRequest<'a> {
    let (key, value) = (key.as_bytes(), value.as_bytes());
    StoreRequest::QueuePush { key, value }
}

fn pop(key: &str) -> StoreRequest<'_> {
    StoreRequest::QueuePop { key: key.as_bytes() }
}

fn wait(store: &mut StoreState, client: u64, keys: &[&str]) -> Replies {
    let mut buffer = Vec::new();
    let keys = RequestItems::encode(keys.iter().map(|key| key.as_bytes()), &mut buffer);
    ask(store, client, &StoreRequest::Wait { keys })
}

fn bytes(reply: &StoreReply<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    bytes
}

fn only(client: u64, reply: &StoreReply<'_>) -> Replies {
    vec![(client, bytes(reply))]
}

fn popped(length: i64, value: Option<&str>) -> StoreReply<'_> {
    let value = value.map(str::as_bytes);
    StoreReply::Popped { length, value }
}

#[test]
fn values_are_set_read_counted_and_deleted() {
    let mut store = store();
    let key = b"a".as_slice();
    assert_eq!(
        ask(&mut store, 1, &StoreRequest::Get { key }),
        only(1, &StoreReply::Value(b""))
    );
    assert_eq!(ask(&mut store, 1, &set("a", "1")), NONE);
    assert_eq!(ask(&mut store, 1, &set("b", "")), NONE);
    assert_eq!(
        ask(&mut store, 1, &StoreRequest::Get { key }),
        only(1, &StoreReply::Value(b"1"))
    );
    assert_eq!(
        ask(&mut store, 1, &StoreRequest::CountKeys),
        only(1, &StoreReply::Number(2))
    );
    let list = only(1, &StoreReply::Keys(vec![b"a", b"b"]));
    assert_eq!(ask(&mut store, 1, &StoreRequest::ListKeys), list);
    assert_eq!(
        ask(&mut store, 1, &StoreRequest::Delete { key }),
        only(1, &StoreReply::Number(1))
    );
    assert_eq!(
        ask(&mut store, 1, &StoreRequest::Delete { key }),
        only(1, &StoreReply::Number(0))
    );
    let nonce = 0x0102_0304;
    assert_eq!(
        ask(&mut store, 1, &StoreRequest::Ping { nonce }),
        [(1, vec![4, 3, 2, 1])]
    );
}

#[test]
fn compare_set_compares_an_absent_key_with_the_empty_value() {
    let mut store = store();
    let compare = |expected: &'static str, desired: &'static str| StoreRequest::CompareSet {
        key: b"k",
        expected: expected.as_bytes(),
        desired: desired.as_bytes(),
    };
    assert_eq!(wait(&mut store, 2, &["k"]), NONE);
    // Nothing is set, and no wait ends.
    assert_eq!(
        ask(&mut store, 1, &compare("x", "y")),
        only(1, &StoreReply::Value(b"x"))
    );
    assert_eq!(
        ask(&mut store, 1, &StoreRequest::CountKeys),
        only(1, &StoreReply::Number(0))
    );
    let both = [(2, vec![0]), (1, bytes(&StoreReply::Value(b"one")))];
    assert_eq!(ask(&mut store, 1, &compare("", "one")), both);
    assert_eq!(
        ask(&mut store, 1, &compare("", "two")),
        only(1, &StoreReply::Value(b"one"))
    );
    assert_eq!(
        ask(&mut store, 1, &compare("one", "two")),
        only(1, &StoreReply::Value(b"two"))
    );
}

#[test]
fn sums_are_decimal_text_and_other_text_is_refused() {
    let mut store = store();
    let add = |amount| StoreRequest::Add { key: b"n", amount };
    assert_eq!(ask(&mut store, 1, &add(5)), only(1, &StoreReply::Number(5)));
    assert_eq!(ask(&mut store, 1, &add(-7)), only(1, &StoreReply::Number(-2)));
    assert_eq!(
        ask(&mut store, 1, &StoreRequest::Get { key: b"n" }),
        only(1, &StoreReply::Value(b"-2"))
    );
    ask(&mut store, 1, &set("n", " 40 apples"));
    assert_eq!(ask(&mut store, 1, &add(2)), only(1, &StoreReply::Number(42)));
    ask(&mut store, 1, &set("n", "9223372036854775807"));
    assert_eq!(ask(&mut store, 1, &add(1)), only(1, &StoreReply::Number(i64::MIN)));
    for text in ["", "apples", "9223372036854775808"] {
        ask(&mut store, 1, &set("n", text));
        let refused = try_ask(&mut store, 1, &add(1)).expect_err("no number");
        assert!(matches!(refused, RequestRefusal::NotANumber { .. }), "{refused}");
        assert_eq!(
            ask(&mut store, 1, &StoreRequest::Get { key: b"n" }),
            only(1, &StoreReply::Value(text.as_bytes())),
            "the value is unchanged"
        );
    }
}

#[test]
fn a_wait_ends_once_when_all_its_keys_have_been_set() {
    let mut store = store();
    assert_eq!(wait(&mut store, 1, &["a", "b", "a"]), NONE);
    assert_eq!(ask(&mut store, 2, &set("a", "")), NONE);
    ask(&mut store, 2, &StoreRequest::Delete { key: b"a" });
    assert_eq!(ask(&mut store, 2, &set("a", "")), NONE);
    assert_eq!(ask(&mut store, 2, &set("b", "")), [(1, vec![0])]);
    assert_eq!(ask(&mut store, 2, &set("b", "")), NONE);
    assert_eq!(wait(&mut store, 1, &["a", "b"]), [(1, vec![0])], "all are present");
    assert_eq!(wait(&mut store, 1, &[]), [(1, vec![0])]);
}

#[test]
fn each_writing_request_ends_waits() {
    let value = b"1".as_slice();
    let key = b"k".as_slice();
    let mut buffer = Vec::new();
    let pairs = RequestItems::encode([key, value], &mut buffer);
    let requests = [
        StoreRequest::Add { key, amount: 1 },
        StoreRequest::Append { key, value },
        StoreRequest::MultiSet { pairs },
        StoreRequest::QueuePush { key, value },
        StoreRequest::Barrier { key, world_size: 1 },
    ];
    for request in requests {
        let mut store = store();
        assert_eq!(wait(&mut store, 1, &["k"]), NONE);
        let sent = ask(&mut store, 2, &request);
        assert_eq!(sent.first(), Some(&(1, vec![0])), "{request:?}");
        assert_eq!(
            store.waits.bytes() == 0,
            !matches!(request, StoreRequest::QueuePush { .. })
        );
    }
}

#[test]
fn a_canceled_wait_and_a_wait_of_a_lost_client_get_no_reply() {
    let mut store = store();
    assert_eq!(wait(&mut store, 1, &["a"]), NONE);
    assert_eq!(ask(&mut store, 1, &StoreRequest::CancelWait), [(1, vec![1])]);
    assert_eq!(ask(&mut store, 1, &StoreRequest::CancelWait), [(1, vec![1])]);
    assert_eq!(wait(&mut store, 2, &["a"]), NONE);
    assert_eq!(leave(&mut store, 2), NONE);
    assert_eq!(wait(&mut store, 3, &["b"]), NONE);
    assert_eq!(wait(&mut store, 3, &["a"]), NONE, "it replaces the wait for b");
    assert_eq!(ask(&mut store, 9, &set("b", "")), NONE);
    assert_eq!(ask(&mut store, 9, &set("a", "")), [(3, vec![0])]);
    assert_eq!(store.waits.bytes(), 0);
}

#[test]
fn queues_are_first_in_first_out_and_no_keys() {
    let mut store = store();
    assert_eq!(ask(&mut store, 1, &pop("q")), only(1, &popped(0, None)));
    ask(&mut store, 1, &push("q", "one"));
    ask(&mut store, 1, &push("q", "two"));
    assert_eq!(
        ask(&mut store, 1, &StoreRequest::QueueLength { key: b"q" }),
        only(1, &StoreReply::Number(2))
    );
    assert_eq!(
        ask(&mut store, 1, &StoreRequest::CountKeys),
        only(1, &StoreReply::Number(0))
    );
    assert_eq!(wait(&mut store, 1, &["q"]), [(1, vec![0])]);
    assert_eq!(ask(&mut store, 1, &pop("q")), only(1, &popped(2, Some("one"))));
    assert_eq!(ask(&mut store, 1, &pop("q")), only(1, &popped(1, Some("two"))));
    assert_eq!(store.stored_bytes(), 0, "an empty queue is no entry");
}

#[test]
fn a_push_wakes_one_waiter_in_the_order_of_waits() {
    let mut store = store();
    for client in [3, 1, 2] {
        assert_eq!(wait(&mut store, client, &["q"]), NONE);
    }
    for client in [3, 1, 2] {
        assert_eq!(ask(&mut store, 9, &push("q", "v")), [(client, vec![0])]);
    }
    assert_eq!(ask(&mut store, 9, &push("q", "v")), NONE);
}

#[test]
fn a_value_that_a_woken_client_does_not_take_is_offered_again() {
    let mut store = store();
    for client in [1, 2, 3, 4] {
        assert_eq!(wait(&mut store, client, &["q"]), NONE);
    }
    assert_eq!(ask(&mut store, 9, &push("q", "v")), [(1, vec![0])]);
    assert_eq!(leave(&mut store, 1), [(2, vec![0])], "lost before its pop");
    let canceled = [(2, vec![1]), (3, vec![0])];
    assert_eq!(
        ask(&mut store, 2, &StoreRequest::CancelWait),
        canceled,
        "canceled too late"
    );
    assert_eq!(ask(&mut store, 3, &pop("q")), only(3, &popped(1, Some("v"))));
    assert_eq!(ask(&mut store, 3, &StoreRequest::CancelWait), [(3, vec![1])]);
    // Another client took the value in between.
    assert_eq!(ask(&mut store, 9, &push("q", "w")), [(4, vec![0])]);
    assert_eq!(wait(&mut store, 3, &["q"]), [(3, vec![0])]);
    assert_eq!(ask(&mut store, 3, &pop("q")), only(3, &popped(1, Some("w"))));
    assert_eq!(wait(&mut store, 3, &["q"]), NONE);
    assert_eq!(leave(&mut store, 4), NONE);
}

#[test]
fn a_barrier_counts_in_an_ordinary_key() {
    let mut store = store();
    let barrier = StoreRequest::Barrier {
        key: b"b",
        world_size: 3,
    };
    assert_eq!(ask(&mut store, 1, &barrier), NONE);
    assert_eq!(ask(&mut store, 2, &barrier), NONE);
    assert_eq!(
        ask(&mut store, 9, &StoreRequest::Get { key: b"b" }),
        only(9, &StoreReply::Value(b"2"))
    );
    assert_eq!(ask(&mut store, 3, &barrier), [(1, vec![0]), (2, vec![0]), (3, vec![0])]);
    assert_eq!(ask(&mut store, 4, &barrier), [(4, vec![0])], "later ones pass");
    ask(&mut store, 9, &set("b", "text"));
    assert!(try_ask(&mut store, 1, &barrier).is_err());
}

#[test]
fn several_keys_are_read_and_set_in_their_order() {
    let mut store = store();
    let mut buffer = Vec::new();
    let items: [&[u8]; 4] = [b"a", b"1", b"b", b"2"];
    let pairs = RequestItems::encode(items, &mut buffer);
    assert_eq!(ask(&mut store, 1, &StoreRequest::MultiSet { pairs }), NONE);
    let mut buffer = Vec::new();
    let names: [&[u8]; 3] = [b"b", b"none", b"a"];
    let keys = RequestItems::encode(names, &mut buffer);
    let values = only(1, &StoreReply::Values(vec![b"2", b"", b"1"]));
    assert_eq!(ask(&mut store, 1, &StoreRequest::MultiGet { keys }), values);
    assert_eq!(ask(&mut store, 1, &StoreRequest::Check { keys }), [(1, vec![1])]);
    ask(&mut store, 1, &push("none", "queued"));
    assert_eq!(ask(&mut store, 1, &StoreRequest::Check { keys }), [(1, vec![0])]);
}

#[test]
fn a_prefix_is_removed_with_its_queues_and_nothing_else() {
    let mut store = store();
    for key in ["/g1/a", "/g1/b", "/g2/a", "/g", "/g1"] {
        ask(&mut store, 1, &set(key, "v"));
    }
    ask(&mut store, 1, &push("/g1/q", "v"));
    assert_eq!(store.remove_prefix(b"/g1/"), 3);
    store.audit().expect("consistent");
    let rest = only(1, &StoreReply::Keys(vec![b"/g", b"/g1", b"/g2/a"]));
    assert_eq!(ask(&mut store, 1, &StoreRequest::ListKeys), rest);
    assert_eq!(store.remove_prefix(b""), 3);
    assert_eq!(store.stored_bytes(), 0);
}

#[test]
fn limits_refuse_what_would_exceed_them() {
    let limits = StoreLimits {
        keys: 2,
        stored_bytes: 2_000,
        value_bytes: 600,
        reply_bytes: 100,
        ..StoreLimits::default()
    };
    let mut store = StoreState::new(limits);
    ask(&mut store, 1, &set("a", "v"));
    ask(&mut store, 1, &push("q", "v"));
    for request in [set("c", ""), push("r", "")] {
        let refused = try_ask(&mut store, 1, &request).expect_err("a third key");
        assert_eq!(refused, RequestRefusal::TooManyKeys { keys: 2 });
    }
    let long = "x".repeat(500);
    let append = StoreRequest::Append {
        key: b"a",
        value: long.as_bytes(),
    };
    ask(&mut store, 1, &append);
    let refused = try_ask(&mut store, 1, &append).expect_err("too long");
    assert_eq!(refused, RequestRefusal::ValueTooLong { bytes: 1_001 });
    let pushes = (0..10).find_map(|_| try_ask(&mut store, 1, &push("q", &long)).err());
    assert!(matches!(pushes, Some(RequestRefusal::StoreFull { .. })), "{pushes:?}");
    let mut buffer = Vec::new();
    let keys = RequestItems::encode([b"a".as_slice()], &mut buffer);
    let refused = try_ask(&mut store, 1, &StoreRequest::MultiGet { keys }).expect_err("a long reply");
    assert_eq!(refused, RequestRefusal::ReplyTooLong { bytes: 509 });
}

#[test]
fn waits_count_against_the_limit_of_the_store() {
    let limits = StoreLimits {
        stored_bytes: 10_000,
        ..StoreLimits::default()
    };
    let mut store = StoreState::new(limits);
    let names: Vec<String> = (0..100).map(|number| format!("key {number}")).collect();
    let mut buffer = Vec::new();
    let keys = RequestItems::encode(names.iter().map(String::as_bytes), &mut buffer);
    let refused = try_ask(&mut store, 1, &StoreRequest::Wait { keys }).expect_err("too many keys");
    assert!(matches!(refused, RequestRefusal::StoreFull { .. }), "{refused}");
    assert_eq!(store.stored_bytes(), 0, "nothing is left of it");
}

/// One step of a random sequence; keys and values are small numbers.
#[derive(Debug, Clone)]
enum Step {
    Set(u8, u8),
    CompareSet(u8, u8, u8),
    Get(u8),
    Add(u8, i8),
    Delete(u8),
    Append(u8, u8),
    Wait(Vec<u8>),
    Cancel,
    Push(u8, u8),
    Pop(u8),
    Leave,
    RemovePrefix(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..4_u8;
    let value = || 0..3_u8;
    prop_oneof![
        (key(), value()).prop_map(|(key, value)| Step::Set(key, value)),
        (key(), value(), value()).prop_map(|(key, old, new)| Step::CompareSet(key, old, new)),
        key().prop_map(Step::Get),
        (key(), any::<i8>()).prop_map(|(key, amount)| Step::Add(key, amount)),
        key().prop_map(Step::Delete),
        (key(), value()).prop_map(|(key, value)| Step::Append(key, value)),
        prop::collection::vec(key(), 0..4).prop_map(Step::Wait),
        Just(Step::Cancel),
        (key(), value()).prop_map(|(key, value)| Step::Push(key, value)),
        key().prop_map(Step::Pop),
        Just(Step::Leave),
        key().prop_map(Step::RemovePrefix),
    ]
}

/// Plain model of the values and queues.
#[derive(Default)]
struct Model {
    values: BTreeMap<u8, Vec<u8>>,
    queues: BTreeMap<u8, Vec<Vec<u8>>>,
    /// Keys that each waiting client still lacks.
    waits: BTreeMap<u64, Vec<u8>>,
}

impl Model {
    fn is_ready(&self, key: u8) -> bool {
        self.values.contains_key(&key) || self.queues.get(&key).is_some_and(|queue| !queue.is_empty())
    }

    /// Clients with a wait that ends if the key becomes ready for all.
    fn wake_all(&mut self, key: u8) -> Vec<u64> {
        let mut ended = Vec::new();
        self.waits.retain(|client, missing| {
            missing.retain(|missing| *missing != key);
            if missing.is_empty() {
                ended.push(*client);
            }
            !missing.is_empty()
        });
        ended
    }
}

/// Text of a small number: the empty value for 0, otherwise a digit.
fn text(value: u8) -> Vec<u8> {
    if value == 0 {
        Vec::new()
    } else {
        value.to_string().into_bytes()
    }
}

proptest! {
    /// After any sequence the values are those of the model, the figures are right, and no wait is lost: a waiting client lacks a
    /// key, and every client that the model wakes is woken once.
    #[test]
    fn random_sequences_agree_with_a_plain_model(steps in prop::collection::vec((0..4_u64, step()), 0..80)) {
        let mut store = store();
        let mut model = Model::default();
        for (client, step) in steps {
            let mut ended = Vec::new();
            let mut buffer = Vec::new();
            let mut own = None;
            let names: Vec<[u8; 1]> = match &step {
                Step::Wait(keys) => keys.iter().map(|key| [*key]).collect(),
                _ => Vec::new(),
            };
            let (key, value, other) = match &step {
                Step::Set(key, value) | Step::Append(key, value) | Step::Push(key, value) => ([*key], text(*value), Vec::new()),
                Step::CompareSet(key, old, new) => ([*key], text(*old), text(*new)),
                Step::Get(key) | Step::Delete(key) | Step::Pop(key) | Step::Add(key, _) | Step::RemovePrefix(key) => ([*key], Vec::new(), Vec::new()),
                Step::Wait(_) | Step::Cancel | Step::Leave => ([0], Vec::new(), Vec::new()),
            };
            let at = key[0];
            let request = match step {
                Step::Set(..) => {
                    model.values.insert(at, value.clone());
                    ended = model.wake_all(at);
                    StoreRequest::Set { key: &key, value: &value }
                }
                Step::CompareSet(..) => {
                    let is_set = model.values.get(&at).map_or(value.is_empty(), |present| *present == value);
                    own = Some(match (is_set, model.values.get(&at)) {
                        (true, _) => other.clone(),
                        (false, Some(present)) => present.clone(),
                        (false, None) => value.clone(),
                    });
                    if is_set {
                        model.values.insert(at, other.clone());
                        ended = model.wake_all(at);
                    }
                    StoreRequest::CompareSet { key: &key, expected: &value, desired: &other }
                }
                Step::Get(_) => {
                    own = Some(model.values.get(&at).cloned().unwrap_or_default());
                    StoreRequest::Get { key: &key }
                }
                Step::Add(_, amount) => {
                    let present = model.values.get(&at).cloned().unwrap_or_else(|| b"0".to_vec());
                    let present = String::from_utf8(present).expect("text").parse::<i64>();
                    let request = StoreRequest::Add { key: &key, amount: i64::from(amount) };
                    let Ok(present) = present else {
                        prop_assert!(try_ask(&mut store, client, &request).is_err());
                        continue;
                    };
                    model.values.insert(at, (present + i64::from(amount)).to_string().into_bytes());
                    ended = model.wake_all(at);
                    request
                }
                Step::Delete(_) => {
                    model.values.remove(&at);
                    StoreRequest::Delete { key: &key }
                }
                Step::Append(..) => {
                    // A sum must stay within its type.
                    if model.values.get(&at).is_some_and(|present| present.len() > 8) {
                        continue;
                    }
                    model.values.entry(at).or_default().extend_from_slice(&value);
                    ended = model.wake_all(at);
                    StoreRequest::Append { key: &key, value: &value }
                }
                Step::Wait(keys) => {
                    let mut missing: Vec<u8> = keys.into_iter().filter(|key| !model.is_ready(*key)).collect();
                    missing.dedup();
                    model.waits.remove(&client);
                    if missing.is_empty() {
                        ended.push(client);
                    } else {
                        model.waits.insert(client, missing);
                    }
                    let keys = RequestItems::encode(names.iter().map(|name| name.as_slice()), &mut buffer);
                    StoreRequest::Wait { keys }
                }
                Step::Cancel => {
                    model.waits.remove(&client);
                    StoreRequest::CancelWait
                }
                Step::Push(..) => {
                    model.queues.entry(at).or_default().push(value.clone());
                    StoreRequest::QueuePush { key: &key, value: &value }
                }
                Step::Pop(_) => {
                    let queue = model.queues.entry(at).or_default();
                    if !queue.is_empty() {
                        own = Some(queue.remove(0));
                    }
                    StoreRequest::QueuePop { key: &key }
                }
                Step::Leave => {
                    model.waits.remove(&client);
                    let sent = leave(&mut store, client);
                    prop_assert!(sent.iter().all(|(to, reply)| *to != client && *reply == [0]));
                    for (to, _) in sent {
                        prop_assert!(model.waits.remove(&to).is_some());
                    }
                    continue;
                }
                Step::RemovePrefix(_) => {
                    model.values.remove(&at);
                    model.queues.remove(&at);
                    store.remove_prefix(&key);
                    store.audit().expect("consistent");
                    continue;
                }
            };
            let sent = ask(&mut store, client, &request);
            if let Some(own) = own {
                // A client's own request may end its wait first, by a reply of one byte.
                let reply = sent.iter().find(|(to, reply)| *to == client && reply.len() > 1);
                prop_assert!(reply.is_some_and(|(_, reply)| reply.ends_with(&own)));
            }
            // The end of a wait is the only reply of one byte 0.
            let woken: Vec<u64> = sent.iter().filter(|(_, reply)| *reply == [0]).map(|(to, _)| *to).collect();
            prop_assert!(ended.iter().all(|client| woken.contains(client)), "{:?} of {:?}", woken, ended);
            // Others are waiters of a queue: woken by this push, by a value offered again, or after a push marked a key.
            for to in woken.iter().filter(|to| !ended.contains(to)) {
                prop_assert!(model.waits.remove(to).is_some());
            }
            for (key, value) in &model.values {
                prop_assert_eq!(store.entries.get(&[*key]), Some(value.as_slice()));
            }
            prop_assert_eq!(store.entries.values(), model.values.len());
        }
    }
}
