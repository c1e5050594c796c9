//! Reader of the JSON form of a dump, into the same tree as a pickle.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::limits::{DumpLimits, ReadError};
use rankguard_pickle::{FALSE, NONE, PickleTree, PickledValue, TRUE, ValueId};

/// Reads one JSON text. The parser bounds the depth (128), `limits` the number of values.
pub(crate) fn read<'a>(input: &'a [u8], limits: &DumpLimits) -> Result<PickleTree<'a>, ReadError> {
    let mut tree = PickleTree::new(input);
    let mut parser = serde_json::Deserializer::from_slice(input);
    let mut room = limits.values;
    let seed = ValueSeed {
        tree: &mut tree,
        room: &mut room,
    };
    let read = seed
        .deserialize(&mut parser)
        .and_then(|root| parser.end().map(|()| root));
    match read {
        Ok(root) => {
            tree.root = root;
            Ok(tree)
        }
        Err(_) if room == 0 => Err(ReadError::Limit {
            what: "values",
            limit: limits.values,
        }),
        Err(error) => Err(ReadError::Json {
            what: error.to_string(),
        }),
    }
}

struct ValueSeed<'t, 'a> {
    tree: &'t mut PickleTree<'a>,
    room: &'t mut usize,
}

impl<'a> ValueSeed<'_, 'a> {
    fn again<'s>(&'s mut self) -> ValueSeed<'s, 'a> {
        ValueSeed {
            tree: self.tree,
            room: self.room,
        }
    }

    fn spend<E: serde::de::Error>(&mut self) -> Result<(), E> {
        *self.room = self.room.checked_sub(1).ok_or_else(|| E::custom("too many values"))?;
        Ok(())
    }

    fn add<E: serde::de::Error>(mut self, node: PickledValue) -> Result<ValueId, E> {
        self.spend()?;
        Ok(self.tree.add(node))
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = ValueId;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ValueId, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_> {
    type Value = ValueId;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a plain value")
    }

    fn visit_unit<E>(self) -> Result<ValueId, E> {
        Ok(NONE)
    }

    fn visit_bool<E>(self, value: bool) -> Result<ValueId, E> {
        Ok(if value { TRUE } else { FALSE })
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<ValueId, E> {
        self.add(PickledValue::Int(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<ValueId, E> {
        self.add(
            i64::try_from(value)
                .map(PickledValue::Int)
                .unwrap_or(PickledValue::Huge),
        )
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<ValueId, E> {
        self.add(PickledValue::Float(value))
    }

    fn visit_str<E: serde::de::Error>(mut self, value: &str) -> Result<ValueId, E> {
        self.spend()?;
        Ok(self.tree.text_aside(value.as_bytes()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<ValueId, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.again())? {
            items.push(item);
        }
        self.add(PickledValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<ValueId, A::Error> {
        let mut flat = Vec::new();
        while let Some(key) = map.next_key_seed(self.again())? {
            flat.push(key);
            flat.push(map.next_value_seed(self.again())?);
        }
        self.add(PickledValue::Dict(flat))
    }
}
