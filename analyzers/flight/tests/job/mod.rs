//! Model of a job: ranks call operations, and its dumps are written as the recorder would.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;

use rankguard_flight::{AnalysisReport, RecorderDump, analyze};

/// Python value.
#[derive(Clone)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Text(String),
    List(Vec<Value>),
    Tuple(Vec<Value>),
    Dict(Vec<(&'static str, Value)>),
    Named(Vec<(String, Value)>),
}

pub(crate) fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// Encodes a value as a pickle of protocol 2.
pub(crate) fn pickle(value: &Value) -> Vec<u8> {
    let mut out = b"\x80\x02".to_vec();
    put(value, &mut out);
    out.push(b'.');
    out
}

fn put(value: &Value, out: &mut Vec<u8>) {
    let mut pairs = |pairs: Vec<(&str, &Value)>| {
        out.extend(b"}(");
        for (key, value) in pairs {
            put(&text(key), out);
            put(value, out);
        }
        out.push(b'u');
    };
    match value {
        Value::Dict(fields) => pairs(fields.iter().map(|(key, value)| (*key, value)).collect()),
        Value::Named(fields) => pairs(fields.iter().map(|(key, value)| (key.as_str(), value)).collect()),
        Value::None => out.push(b'N'),
        Value::Bool(value) => out.push(if *value { 0x88 } else { 0x89 }),
        Value::Int(value) => {
            out.extend([0x8a, 8]);
            out.extend(value.to_le_bytes());
        }
        Value::Text(text) => {
            out.push(b'X');
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.as_bytes());
        }
        Value::List(items) => {
            out.extend(b"](");
            items.iter().for_each(|item| put(item, out));
            out.push(b'e');
        }
        Value::Tuple(items) => {
            out.push(b'(');
            items.iter().for_each(|item| put(item, out));
            out.push(b't');
        }
    }
}

/// Encodes a value as JSON, the recorder's second form.
pub(crate) fn json(value: &Value) -> String {
    let object = |fields: Vec<String>| format!("{{{}}}", fields.join(","));
    match value {
        Value::None => "0".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Text(text) => format!("{text:?}"),
        Value::List(items) | Value::Tuple(items) => {
            format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(","))
        }
        Value::Dict(fields) => object(
            fields
                .iter()
                .map(|(key, value)| format!("{key:?}:{}", json(value)))
                .collect(),
        ),
        Value::Named(fields) => object(
            fields
                .iter()
                .map(|(key, value)| format!("{key:?}:{}", json(value)))
                .collect(),
        ),
    }
}

/// Call with defaults for fields that are usually irrelevant.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) op: String,
    pub(crate) state: &'static str,
    pub(crate) input: Vec<i64>,
    pub(crate) output: Vec<i64>,
    pub(crate) dtype: &'static str,
    pub(crate) frame: (&'static str, i64, &'static str),
    /// True if launched together with the previous call.
    pub(crate) joined: bool,
}

pub(crate) fn call(op: &str) -> Call {
    let op = if op.contains(':') {
        op.to_owned()
    } else {
        format!("nccl:{op}")
    };
    let frame = ("train.py", 10, "step");
    Call {
        op,
        state: "scheduled",
        input: vec![1024],
        output: vec![1024],
        dtype: "Float",
        frame,
        joined: false,
    }
}

impl Call {
    pub(crate) fn done(mut self) -> Call {
        self.state = "completed";
        self
    }

    pub(crate) fn started(mut self) -> Call {
        self.state = "started";
        self
    }

    pub(crate) fn sized(mut self, input: &[i64], output: &[i64]) -> Call {
        (self.input, self.output) = (input.to_vec(), output.to_vec());
        self
    }

    pub(crate) fn joined(mut self) -> Call {
        self.joined = true;
        self
    }

    pub(crate) fn of(mut self, dtype: &'static str) -> Call {
        self.dtype = dtype;
        self
    }

    pub(crate) fn at(mut self, file: &'static str, line: i64, function: &'static str) -> Call {
        self.frame = (file, line, function);
        self
    }
}

#[derive(Default)]
struct Rank {
    entries: Vec<Value>,
    /// Collectives, sends and receives, last enqueued and completed, by group.
    counts: BTreeMap<String, [i64; 4]>,
}

pub(crate) struct Job {
    groups: Vec<(String, String, Vec<u32>)>,
    ranks: BTreeMap<u32, Rank>,
    /// Capacity of the ring, in entries.
    pub(crate) ring: usize,
    pub(crate) version: &'static str,
}

impl Job {
    /// Creates a job from groups with name, description and members. Every member has a dump.
    pub(crate) fn new(groups: &[(&str, &str, &[u32])]) -> Job {
        let ranks = groups
            .iter()
            .flat_map(|(_, _, members)| members.iter().map(|rank| (*rank, Rank::default())));
        let named = groups
            .iter()
            .map(|(id, desc, ranks)| ((*id).to_owned(), (*desc).to_owned(), ranks.to_vec()));
        Job {
            groups: named.collect(),
            ranks: ranks.collect(),
            ring: usize::MAX,
            version: "2.9",
        }
    }

    pub(crate) fn call(&mut self, ranks: &[u32], group: &str, call: Call) -> &mut Job {
        let place = self.groups.iter().position(|(id, _, _)| id == group).unwrap();
        let (_, desc, _) = self.groups[place].clone();
        for rank in ranks {
            let rank = self.ranks.get_mut(rank).unwrap();
            let counts = rank.counts.entry(group.to_owned()).or_insert([0, 0, -1, -1]);
            let p2p = call.op.contains("send ") || call.op.contains("recv ");
            let number = &mut counts[usize::from(p2p)];
            *number += i64::from(!call.joined);
            let number = *number;
            counts[2] = number;
            if call.state == "completed" {
                counts[3] = number;
            }
            let moment = |seen: bool| {
                if seen {
                    Value::Int(1_700_000_000_000_000_000)
                } else {
                    Value::None
                }
            };
            let sizes = |sizes: &[i64]| Value::List(vec![Value::List(sizes.iter().map(|n| Value::Int(*n)).collect())]);
            let frame = Value::Dict(vec![
                ("name", text(call.frame.2)),
                ("filename", text(call.frame.0)),
                ("line", Value::Int(call.frame.1)),
            ]);
            let inner = Value::Dict(vec![
                ("name", text("all_reduce")),
                ("filename", text("/usr/lib/torch/distributed/distributed_c10d.py")),
                ("line", Value::Int(2806)),
            ]);
            let record = rank.entries.len() as i64;
            rank.entries.push(Value::Dict(vec![
                ("frames", Value::List(vec![inner, frame])),
                ("record_id", Value::Int(record)),
                ("pg_id", Value::Int(place as i64)),
                ("process_group", Value::Tuple(vec![text(group), text(&desc)])),
                ("collective_seq_id", Value::Int(counts[0])),
                ("p2p_seq_id", Value::Int(counts[1])),
                ("op_id", Value::Int(counts[0] + counts[1])),
                ("profiling_name", text(&call.op)),
                ("time_created_ns", Value::Int(1_700_000_000_000_000_000 + record)),
                ("input_sizes", sizes(&call.input)),
                ("input_dtypes", Value::List(vec![text(call.dtype)])),
                ("output_sizes", sizes(&call.output)),
                ("output_dtypes", Value::List(vec![text(call.dtype)])),
                ("state", text(call.state)),
                ("time_discovered_started_ns", moment(call.state != "scheduled")),
                ("time_discovered_completed_ns", moment(call.state == "completed")),
                ("retired", Value::Bool(call.state == "completed")),
                ("timeout_ms", Value::Int(600_000)),
                ("is_p2p", Value::Bool(p2p)),
            ]));
        }
        self
    }

    /// Removes the rank's dump, as if the rank had died.
    pub(crate) fn lose(&mut self, rank: u32) -> &mut Job {
        self.ranks.remove(&rank);
        self
    }

    /// Limits the rank's dump to incomplete operations.
    pub(crate) fn active_only(&mut self, rank: u32) -> &mut Job {
        let pending = |entry: &Value| match entry {
            Value::Dict(fields) => !fields
                .iter()
                .any(|(key, value)| *key == "state" && matches!(value, Value::Text(text) if text == "completed")),
            _ => true,
        };
        self.ranks.get_mut(&rank).unwrap().entries.retain(pending);
        self
    }

    /// Returns the value that a rank dumps.
    pub(crate) fn value(&self, rank: u32) -> Value {
        let record = &self.ranks[&rank];
        let mine = || self.groups.iter().filter(|(_, _, members)| members.contains(&rank));
        let config = mine().map(|(id, desc, members)| {
            let info = vec![
                ("name", text(id)),
                ("desc", text(desc)),
                ("ranks", text(&format!("{members:?}"))),
            ];
            (id.clone(), Value::Dict(info))
        });
        let status = self.groups.iter().enumerate().filter_map(|(place, (id, _, _))| {
            let counts = record.counts.get(id)?;
            let status = vec![
                ("last_enqueued_collective", Value::Int(counts[2])),
                ("last_started_collective", Value::Int(-1)),
                ("last_completed_collective", Value::Int(counts[3])),
            ];
            Some((place.to_string(), Value::Dict(status)))
        });
        let lost = record.entries.len().saturating_sub(self.ring);
        Value::Dict(vec![
            ("version", text(self.version)),
            ("pg_config", Value::Named(config.collect())),
            ("nccl_version", text("2.27.3")),
            ("pg_status", Value::Named(status.collect())),
            ("entries", Value::List(record.entries[lost..].to_vec())),
        ])
    }

    pub(crate) fn dumps(&self) -> Vec<RecorderDump> {
        self.ranks
            .keys()
            .map(|rank| read(*rank, &pickle(&self.value(*rank))))
            .collect()
    }

    pub(crate) fn report(&self) -> AnalysisReport {
        let dumps = self.dumps();
        let report = analyze(&dumps, None);
        assert_eq!(report.problems, []);
        // The excerpt of a dump must give the same result.
        let briefs: Vec<RecorderDump> = dumps
            .iter()
            .map(|dump| read(dump.rank.unwrap(), dump.brief(1 << 20).unwrap().text.as_bytes()))
            .collect();
        let brief = analyze(&briefs, None);
        assert_eq!(brief.groups, report.groups);
        assert_eq!(brief.culprits, report.culprits);
        assert_eq!((&brief.suspects, &brief.cycles), (&report.suspects, &report.cycles));
        report
    }
}

pub(crate) fn read(rank: u32, bytes: &[u8]) -> RecorderDump {
    let (dump, problems) = RecorderDump::read(Some(rank), bytes).unwrap();
    assert_eq!(problems, []);
    dump
}

/// Returns the culprits, the most certain first.
pub(crate) fn culprits(report: &AnalysisReport) -> Vec<u32> {
    report.culprits.iter().map(|culprit| culprit.rank).collect()
}
