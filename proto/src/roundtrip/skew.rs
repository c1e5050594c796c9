//! Version skew on the wire: the protocol of 2026-11-23 (`tests/older`) beside that of today, both ways.

use std::path::Path;

use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, Value,
};

use super::*;

const PACKAGE: &str = "rankguard.v1";
/// Text of every field: a name, and a digest where one is wanted.
const TEXT: &str = "abababababababababababababababababababababababababababababababab";

/// Returns the descriptors of the older version.
fn older() -> DescriptorPool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/older");
    let files = ["agent", "evidence", "job", "operator", "order", "rank"];
    let files = files.map(|name| format!("rankguard/v1/{name}.proto"));
    let compiled = protox::Compiler::new([folder]).and_then(|mut compiler| {
        compiler.open_files(files)?;
        Ok(compiler.descriptor_pool())
    });
    compiled.expect("the older files compile")
}

fn today() -> DescriptorPool {
    DescriptorPool::decode(crate::FILE_DESCRIPTOR_SET).expect("our own descriptors")
}

fn message(pool: &DescriptorPool, name: &str) -> MessageDescriptor {
    let found = pool.get_message_by_name(&format!("{PACKAGE}.{name}"));
    found.unwrap_or_else(|| panic!("there is no message {name}"))
}

/// Returns the type of a field as the wire sees it.
fn wire_type(field: &FieldDescriptor) -> String {
    let kind = match field.kind() {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(values) => values.full_name().to_owned(),
        scalar => format!("{scalar:?}"),
    };
    let oneof = field
        .containing_oneof()
        .filter(|_| !field.field_descriptor_proto().proto3_optional());
    format!(
        "{:?} {kind} in {:?}",
        field.cardinality(),
        oneof.map(|oneof| oneof.name().to_owned())
    )
}

/// Adds what the newer version of a message changed in a way that the other side misreads.
fn compare_messages(older: &MessageDescriptor, newer: &MessageDescriptor, wrong: &mut Vec<String>) {
    for field in older.fields() {
        let name = field.full_name().to_owned();
        match newer.get_field(field.number()) {
            Some(other) if other.name() != field.name() => {
                wrong.push(format!("{name}: number {} is now {}", field.number(), other.name()));
            }
            Some(other) if wire_type(&other) != wire_type(&field) => {
                wrong.push(format!("{name}: {} is now {}", wire_type(&field), wire_type(&other)));
            }
            Some(_) => {}
            None if newer.reserved_ranges().any(|range| range.contains(&field.number())) => {}
            None => wrong.push(format!("{name}: number {} is free for another use", field.number())),
        }
    }
}

fn compare_enums(older: &EnumDescriptor, newer: &EnumDescriptor, wrong: &mut Vec<String>) {
    for value in older.values() {
        let is_same = newer
            .get_value(value.number())
            .is_some_and(|other| other.name() == value.name());
        if !is_same {
            wrong.push(format!(
                "{}: value {} is another one",
                value.full_name(),
                value.number()
            ));
        }
    }
}

/// An older peer finds every method, and reads and writes every field with the number and the type that it knows.
#[test]
fn every_message_of_the_older_version_has_its_numbers_and_types() {
    let (older, today) = (older(), today());
    let mut wrong = Vec::new();
    let mut fields = 0;
    for one in older.all_messages().filter(|one| !one.is_map_entry()) {
        fields += one.fields().len();
        match today.get_message_by_name(one.full_name()) {
            Some(now) => compare_messages(&one, &now, &mut wrong),
            None => wrong.push(format!("{} is gone", one.full_name())),
        }
    }
    for one in older.all_enums() {
        match today.get_enum_by_name(one.full_name()) {
            Some(now) => compare_enums(&one, &now, &mut wrong),
            None => wrong.push(format!("{} is gone", one.full_name())),
        }
    }
    for service in older.services() {
        let now = today.get_service_by_name(service.full_name());
        for method in service.methods() {
            let same = now
                .as_ref()
                .and_then(|now| now.methods().find(|other| other.name() == method.name()));
            let Some(same) = same else {
                wrong.push(format!("{} is gone", method.full_name()));
                continue;
            };
            // A message may have another name, which is not on the wire.
            compare_messages(&method.input(), &same.input(), &mut wrong);
            compare_messages(&method.output(), &same.output(), &mut wrong);
            let streams = (method.is_client_streaming(), method.is_server_streaming());
            if streams != (same.is_client_streaming(), same.is_server_streaming()) {
                wrong.push(format!("{} streams otherwise", method.full_name()));
            }
        }
    }
    assert!(fields > 150, "{fields}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns a message of the older version with every field set; of each choice the one with the number `pick`.
fn filled(descriptor: &MessageDescriptor, pick: usize, depth: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        let oneof = field
            .containing_oneof()
            .filter(|_| !field.field_descriptor_proto().proto3_optional());
        let is_chosen = oneof.is_none_or(|oneof| {
            let choices: Vec<u32> = oneof.fields().map(|choice| choice.number()).collect();
            choices[pick % choices.len()] == field.number()
        });
        if !is_chosen || field.is_map() || depth > 6 {
            continue;
        }
        let value = sample(&field, pick, depth);
        let value = if field.is_list() {
            Value::List(vec![value])
        } else {
            value
        };
        message.set_field(&field, value);
    }
    message
}

fn sample(field: &FieldDescriptor, pick: usize, depth: usize) -> Value {
    match field.kind() {
        Kind::Message(inner) => Value::Message(filled(&inner, pick, depth + 1)),
        Kind::Enum(values) => {
            let known: Vec<i32> = values
                .values()
                .map(|value| value.number())
                .filter(|number| *number != 0)
                .collect();
            Value::EnumNumber(known[pick % known.len()])
        }
        Kind::String => Value::String(TEXT.to_owned()),
        Kind::Bytes => Value::Bytes(vec![7; 16].into()),
        Kind::Bool => Value::Bool(true),
        Kind::Double => Value::F64(0.5),
        Kind::Float => Value::F32(0.5),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(3),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(3),
        // A rank lies within its world.
        Kind::Uint32 | Kind::Fixed32 if field.name().starts_with("world") => Value::U32(8),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(3),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(3),
    }
}

/// What an older agent sends, today's controller reads: joins, heartbeats, and evidence of every kind about every entity.
#[test]
fn today_reads_every_message_of_an_older_agent() {
    let older = older();
    let read = |pick: usize| {
        let sent = filled(&message(&older, "FromAgent"), pick, 0).encode_to_vec();
        v1::FromAgent::decode(sent.as_slice()).expect("today's controller decodes it")
    };
    let joined = (0..3).find_map(|pick| match read(pick).kind {
        Some(v1::from_agent::Kind::Join(info)) => Some(info),
        _ => None,
    });
    let info = NodeInfo::try_from(joined.expect("a join")).expect("a join of an older agent");
    assert_eq!(info.node, NodeId::from(TEXT));

    let body = message(&older, "Body");
    let kinds: Vec<usize> = body.oneofs().map(|oneof| oneof.fields().len()).collect();
    let count = kinds.into_iter().max().expect("kinds of evidence");
    assert!(count > 10, "{count}");
    let mut wrong = Vec::new();
    for pick in 0..count {
        let sent = filled(&message(&older, "Evidence"), pick, 0).encode_to_vec();
        let read = v1::Evidence::decode(sent.as_slice()).expect("today's controller decodes it");
        let read = Evidence::try_from(read);
        match read {
            Ok(evidence) => assert_eq!(evidence.id.node, NodeId::from(TEXT)),
            Err(problem) => wrong.push(format!("evidence {pick}: {problem}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

proptest! {
    /// What today's controller sends, an older agent decodes, and finds every field that it knows.
    #[test]
    fn an_older_agent_decodes_every_order(value in order()) {
        let older = older();
        let bytes = v1::Order::from(&value).encode_to_vec();
        let read = DynamicMessage::decode(message(&older, "Order"), bytes.as_slice());
        let read = read.map_err(|problem| TestCaseError::fail(problem.to_string()))?;
        // Its bytes are the same again: nothing was read as another field.
        let again = v1::Order::decode(read.encode_to_vec().as_slice()).expect("it decodes");
        let back = AgentOrder::try_from(again).map_err(|problem| TestCaseError::fail(problem.to_string()))?;
        prop_assert_eq!(back, value);
    }

    #[test]
    fn an_older_controller_decodes_every_join_and_all_evidence(info in node_info(), value in evidence()) {
        let older = older();
        let bytes = v1::NodeInfo::from(&info).encode_to_vec();
        let read = DynamicMessage::decode(message(&older, "NodeInfo"), bytes.as_slice());
        let read = read.map_err(|problem| TestCaseError::fail(problem.to_string()))?;
        prop_assert_eq!(read.get_field_by_name("node").and_then(|node| node.as_str().map(str::to_owned)), Some(info.node.to_string()));
        let bytes = v1::Evidence::from(&value).encode_to_vec();
        let read = DynamicMessage::decode(message(&older, "Evidence"), bytes.as_slice());
        let read = read.map_err(|problem| TestCaseError::fail(problem.to_string()))?;
        let again = v1::Evidence::decode(read.encode_to_vec().as_slice()).expect("it decodes");
        let back = Evidence::try_from(again).map_err(|problem| TestCaseError::fail(problem.to_string()))?;
        prop_assert_eq!(back, value);
    }
}
