//! Times in JSON output: RFC 3339 in UTC with nanoseconds.
//!
//! Journals and the wire contain [`Timestamp`]s as integers of nanoseconds, which exceed 2^53: programs that read JSON
//! numbers as doubles lose digits. [`WithTimes`] serializes a value for output, with each timestamp as text.

use std::fmt::Display;

use rankguard_model::Timestamp;
use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// Name under which a [`Timestamp`] reaches a serializer.
const TIMESTAMP: &str = "Timestamp";
/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;
/// Characters of a time up to the seconds: `2026-11-21T03:44:28`.
const UP_TO_SECONDS: usize = 19;

/// Formats a time without loss: `2026-11-21T03:44:28.123456789Z`.
pub fn rfc3339(at: Timestamp) -> String {
    let millis = at.to_string();
    let seconds = millis.get(..UP_TO_SECONDS).unwrap_or(&millis);
    format!("{seconds}.{:09}Z", at.0.rem_euclid(SECOND))
}

/// A value that serializes its timestamps as RFC 3339.
#[derive(Debug, Clone, Copy)]
pub struct WithTimes<'a, T: ?Sized>(pub &'a T);

impl<T: Serialize + ?Sized> Serialize for WithTimes<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(TimeSerializer(serializer))
    }
}

/// Adapter of a serializer, or of its state within a sequence, map or structure.
struct TimeSerializer<S>(S);

/// Returns the integer of a timestamp.
fn nanoseconds<T: Serialize + ?Sized>(value: &T) -> Option<i64> {
    serde_json::to_value(value).ok()?.as_i64()
}

macro_rules! forward {
    ($($method:ident($kind:ty);)*) => {
        $(fn $method(self, value: $kind) -> Result<S::Ok, S::Error> {
            self.0.$method(value)
        })*
    };
}

impl<S: Serializer> Serializer for TimeSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = TimeSerializer<S::SerializeSeq>;
    type SerializeTuple = TimeSerializer<S::SerializeTuple>;
    type SerializeTupleStruct = TimeSerializer<S::SerializeTupleStruct>;
    type SerializeTupleVariant = TimeSerializer<S::SerializeTupleVariant>;
    type SerializeMap = TimeSerializer<S::SerializeMap>;
    type SerializeStruct = TimeSerializer<S::SerializeStruct>;
    type SerializeStructVariant = TimeSerializer<S::SerializeStructVariant>;

    forward! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_unit_struct(&'static str);
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.0.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&WithTimes(value))
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.0.serialize_unit()
    }

    fn serialize_unit_variant(self, name: &'static str, index: u32, variant: &'static str) -> Result<S::Ok, S::Error> {
        self.0.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<S::Ok, S::Error> {
        let time = if name == TIMESTAMP { nanoseconds(value) } else { None };
        match time {
            Some(time) => self.0.serialize_str(&rfc3339(Timestamp(time))),
            None => self.0.serialize_newtype_struct(name, &WithTimes(value)),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0
            .serialize_newtype_variant(name, index, variant, &WithTimes(value))
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.0.serialize_seq(length).map(TimeSerializer)
    }

    fn serialize_tuple(self, length: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.0.serialize_tuple(length).map(TimeSerializer)
    }

    fn serialize_tuple_struct(self, name: &'static str, length: usize) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.0.serialize_tuple_struct(name, length).map(TimeSerializer)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.0
            .serialize_tuple_variant(name, index, variant, length)
            .map(TimeSerializer)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.0.serialize_map(length).map(TimeSerializer)
    }

    fn serialize_struct(self, name: &'static str, length: usize) -> Result<Self::SerializeStruct, S::Error> {
        self.0.serialize_struct(name, length).map(TimeSerializer)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.0
            .serialize_struct_variant(name, index, variant, length)
            .map(TimeSerializer)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

impl<S: SerializeSeq> SerializeSeq for TimeSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_element(&WithTimes(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

impl<S: SerializeTuple> SerializeTuple for TimeSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_element(&WithTimes(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

impl<S: SerializeTupleStruct> SerializeTupleStruct for TimeSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_field(&WithTimes(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

impl<S: SerializeTupleVariant> SerializeTupleVariant for TimeSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_field(&WithTimes(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

impl<S: SerializeMap> SerializeMap for TimeSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.0.serialize_key(&WithTimes(key))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_value(&WithTimes(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

impl<S: SerializeStruct> SerializeStruct for TimeSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), S::Error> {
        self.0.serialize_field(key, &WithTimes(value))
    }

    fn skip_field(&mut self, key: &'static str) -> Result<(), S::Error> {
        self.0.skip_field(key)
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

impl<S: SerializeStructVariant> SerializeStructVariant for TimeSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), S::Error> {
        self.0.serialize_field(key, &WithTimes(value))
    }

    fn skip_field(&mut self, key: &'static str) -> Result<(), S::Error> {
        self.0.skip_field(key)
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    #[serde(tag = "kind", rename_all = "kebab-case")]
    enum Line {
        Span(Span),
    }

    #[derive(Serialize)]
    struct Span {
        from: Timestamp,
        to: Option<Timestamp>,
        #[serde(flatten)]
        inner: Inner,
        points: Vec<(Timestamp, u64)>,
        count: i64,
    }

    #[derive(Serialize)]
    struct Inner {
        since: Timestamp,
        by_name: BTreeMap<&'static str, Timestamp>,
    }

    #[test]
    fn every_time_of_a_document_is_rfc3339_and_other_numbers_stay_numbers() {
        let at = Timestamp(1_732_160_668_123_456_789);
        let line = Line::Span(Span {
            from: at,
            to: None,
            inner: Inner {
                since: at,
                by_name: BTreeMap::from([("a", at)]),
            },
            points: vec![(at, 7)],
            count: at.0,
        });
        let text = "\"2024-11-21T03:44:28.123456789Z\"";
        assert_eq!(
            serde_json::to_string(&WithTimes(&line)).expect("JSON"),
            format!(
                "{{\"kind\":\"span\",\"from\":{text},\"to\":null,\"since\":{text},\"by_name\":{{\"a\":{text}}},\
                 \"points\":[[{text},7]],\"count\":1732160668123456789}}"
            )
        );
    }

    #[test]
    fn a_time_before_1970_loses_nothing() {
        assert_eq!(rfc3339(Timestamp(-1)), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(rfc3339(Timestamp(0)), "1970-01-01T00:00:00.000000000Z");
    }
}
