//! State of all ranks of a checkpoint as one tree of Python values, with a reference for every tensor.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_checkpoint::Checkpoint;
use rankguard_checkpoint::format::{ShardIndex, TensorBox};
use serde_json::{Map, Value};

use crate::ExchangeError;
use crate::export::NameSelection;
use crate::problem::ProblemList;
use crate::python_value::{self, PythonValue};

/// Encoding name of states that the Python package saves.
const PYTHON: &str = "rankguard.python/1";

/// Encoding name of states that the package's DCP writer saves.
const DCP: &str = "rankguard.dcp/1";

/// Selected part of a checkpoint.
#[derive(Debug)]
pub(crate) struct StateTree {
    /// Dict, unless a single value of another type was saved as the whole state.
    pub(crate) value: PythonValue,
    /// All tensors in `value` at their global shape, by name.
    pub(crate) tensors: BTreeMap<String, TensorBox>,
}

impl StateTree {
    /// Builds the tree and selects a part of it; fails if the selection matches no name.
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        selection: &NameSelection,
        problems: &mut ProblemList,
    ) -> Result<Self, ExchangeError> {
        let known = whole_tensors(&checkpoint.indexes);
        let mut value = merged(&checkpoint.indexes, problems)?;
        add_missing(&mut value, &known);
        let value = python_value::select(value, selection)
            .ok_or_else(|| selection.no_match(known.keys().map(String::as_str)))?;
        let mut wanted = BTreeSet::new();
        value.visit_tensors(&mut |name| {
            wanted.insert(name.to_owned());
        });
        if let Some(absent) = wanted.iter().find(|name| !known.contains_key(*name)) {
            let what = format!("the state names tensor {absent:?}, which no rank saved");
            return Err(ExchangeError::Unfit { what });
        }
        let tensors = known.into_iter().filter(|(name, _)| wanted.contains(name)).collect();
        Ok(Self { value, tensors })
    }
}

/// Returns every tensor of the checkpoint at its global shape, by name.
pub(crate) fn whole_tensors(indexes: &[ShardIndex]) -> BTreeMap<String, TensorBox> {
    let mut found = BTreeMap::new();
    for entry in indexes.iter().flat_map(|index| &index.tensors) {
        let boxed = &entry.boxed;
        if !found.contains_key(&boxed.name) {
            let whole = TensorBox::whole(&boxed.name, boxed.dtype, boxed.global_shape.clone());
            found.insert(boxed.name.clone(), whole);
        }
    }
    found
}

fn merged(indexes: &[ShardIndex], problems: &mut ProblemList) -> Result<PythonValue, ExchangeError> {
    let mut all: Option<PythonValue> = None;
    for index in indexes {
        let own = tree_of(index)?;
        match &mut all {
            Some(all) => python_value::merge(all, own, "", problems),
            None => all = Some(own),
        }
    }
    Ok(all.unwrap_or(PythonValue::Dict(Vec::new())))
}

fn tree_of(index: &ShardIndex) -> Result<PythonValue, ExchangeError> {
    let rank = index.rank.0;
    let unfit = |problem: python_value::DecodeError| ExchangeError::Unfit {
        what: format!("rank {rank}: {problem}; --prefix and --format safetensors do without the plain state"),
    };
    let schema = index.state.get("schema").and_then(Value::as_str);
    let state = index.state.get("state").unwrap_or(&Value::Null);
    match (schema, &index.state) {
        (Some(PYTHON), _) => python_value::decode(state, rank).map_err(unfit),
        (Some(DCP), _) => dcp_tree(state, rank).map_err(unfit),
        // State of imported files: values by name.
        (None, Value::Object(values)) => {
            let pair = |(name, value): (&String, &Value)| (PythonValue::text(name), python_value::from_json(value));
            Ok(PythonValue::Dict(values.iter().map(pair).collect()))
        }
        (None, Value::Null) => Ok(PythonValue::Dict(Vec::new())),
        _ => {
            let ranks = PythonValue::PerRank(BTreeMap::from([(rank, python_value::from_json(&index.state))]));
            Ok(PythonValue::Dict(vec![(PythonValue::text("state"), ranks)]))
        }
    }
}

/// Builds the nested state of DCP from names, their paths and values.
fn dcp_tree(state: &Value, rank: u32) -> Result<PythonValue, python_value::DecodeError> {
    let empty = Map::new();
    let part = |name: &str| state.get(name).and_then(Value::as_object).unwrap_or(&empty);
    let mut root = PythonValue::Dict(Vec::new());
    for name in part("tensors").keys() {
        let path = path_of(part("paths").get(name), name);
        set(&mut root, &path, PythonValue::Tensor(name.clone()));
    }
    for (name, value) in part("objects") {
        let path = path_of(part("paths").get(name), name);
        set(&mut root, &path, python_value::decode(value, rank)?);
    }
    Ok(root)
}

fn path_of(path: Option<&Value>, name: &str) -> Vec<PythonValue> {
    match path.and_then(Value::as_array) {
        Some(parts) if !parts.is_empty() => parts.iter().map(python_value::from_json).collect(),
        _ => vec![PythonValue::text(name)],
    }
}

/// Sets a value at a path of dict keys (text) and list indexes (numbers).
fn set(at: &mut PythonValue, path: &[PythonValue], value: PythonValue) {
    let Some((first, rest)) = path.split_first() else {
        *at = value;
        return;
    };
    if let PythonValue::Int(place) = first {
        if !matches!(at, PythonValue::List(_)) {
            *at = PythonValue::List(Vec::new());
        }
        let (PythonValue::List(items), Ok(place)) = (at, usize::try_from(*place)) else {
            return;
        };
        // A rank may save only later items of a list. The bound limits the memory that a large index
        // can allocate.
        if place < (1 << 20) {
            while items.len() <= place {
                items.push(PythonValue::None);
            }
            set(&mut items[place], rest, value);
        }
        return;
    }
    if !matches!(at, PythonValue::Dict(_)) {
        *at = PythonValue::Dict(Vec::new());
    }
    let PythonValue::Dict(pairs) = at else { return };
    match pairs.iter_mut().find(|(key, _)| key == first) {
        Some((_, known)) => set(known, rest, value),
        None => {
            let mut inner = PythonValue::None;
            set(&mut inner, rest, value);
            pairs.push((first.clone(), inner));
        }
    }
}

/// Adds tensors that no state references, such as those of imported files, under their names.
fn add_missing(value: &mut PythonValue, known: &BTreeMap<String, TensorBox>) {
    let mut named = BTreeSet::new();
    value.visit_tensors(&mut |name| {
        named.insert(name.to_owned());
    });
    let missing = known.keys().filter(|name| !named.contains(*name));
    let pairs: Vec<_> = missing
        .map(|name| (PythonValue::text(name), PythonValue::Tensor(name.clone())))
        .collect();
    match value {
        PythonValue::Dict(own) => own.extend(pairs),
        _ if pairs.is_empty() => {}
        other => {
            let state = std::mem::replace(other, PythonValue::None);
            let all = pairs.into_iter().chain([(PythonValue::text("state"), state)]);
            *other = PythonValue::Dict(all.collect());
        }
    }
}
