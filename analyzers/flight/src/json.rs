//! Reader of the JSON form of a dump, into the same tree as a pickle.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::limits::{Limits, ReadError};
use rankguard_pickle::{FALSE, Id, NONE, Node, TRUE, Tree};

/// Reads one JSON text. The parser bounds the depth (128), `limits` the number of values.
pub(crate) fn read<'a>(input: &'a [u8], limits: &Limits) -> Result<Tree<'a>, ReadError> {
    let mut tree = Tree::new(input);
    let mut parser = serde_json::Deserializer::from_slice(input);
    let mut room = limits.values;
    let seed = Value {
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

struct Value<'t, 'a> {
    tree: &'t mut Tree<'a>,
    room: &'t mut usize,
}

impl<'a> Value<'_, 'a> {
    fn again<'s>(&'s mut self) -> Value<'s, 'a> {
        Value {
            tree: self.tree,
            room: self.room,
        }
    }

    fn spend<E: serde::de::Error>(&mut self) -> Result<(), E> {
        *self.room = self.room.checked_sub(1).ok_or_else(|| E::custom("too many values"))?;
        Ok(())
    }

    fn add<E: serde::de::Error>(mut self, node: Node) -> Result<Id, E> {
        self.spend()?;
        Ok(self.tree.add(node))
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = Id;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Id, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, '_> {
    type Value = Id;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a plain value")
    }

    fn visit_unit<E>(self) -> Result<Id, E> {
        Ok(NONE)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Id, E> {
        Ok(if value { TRUE } else { FALSE })
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Id, E> {
        self.add(Node::Int(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Id, E> {
        self.add(i64::try_from(value).map(Node::Int).unwrap_or(Node::Huge))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Id, E> {
        self.add(Node::Float(value))
    }

    fn visit_str<E: serde::de::Error>(mut self, value: &str) -> Result<Id, E> {
        self.spend()?;
        Ok(self.tree.text_aside(value.as_bytes()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Id, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.again())? {
            items.push(item);
        }
        self.add(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Id, A::Error> {
        let mut flat = Vec::new();
        while let Some(key) = map.next_key_seed(self.again())? {
            flat.push(key);
            flat.push(map.next_value_seed(self.again())?);
        }
        self.add(Node::Dict(flat))
    }
}
