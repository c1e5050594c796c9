//! Decoder of numbered driver messages: from number and text to fields, class, role and a sentence.
//!
//! [`decode`] is a pure function. The code table gives the meaning of the number; the text of the message refines it:
//! link and error bits (XID 74), unit and severity of an NVLink 5 (144 to 150, in the layout of the driver's
//! version), requested recovery (154), row or page (63, 64), engine (13, 31), call of the system processor (119,
//! 120), port of a switch (SXid).
//!
//! A message without such text retains the meaning of the table, and a number that is not in the table passes through
//! as `unknown-xid-N` (RG-10).
//!
//! It does not join messages: other evidence decides if a `sympathetic` error is alone and which device is at the
//! other end of a link.

mod driver;
mod engine;
mod memory;
mod nvlink4;
mod nvlink5;
mod nvlink5_rules;
mod recovery;
mod switch;
mod text;

use std::collections::BTreeMap;

use rankguard_model::{ClassId, Role, SmolStr};
use serde::Serialize;

use crate::code::CodeTable;
use crate::signature::CodeKind;

pub use driver::DriverVersion;

/// Maximum length of the decoded text, bytes: a driver's message is one line of a kernel log.
const TEXT_LIMIT: usize = 2048;

/// Decoded content of a numbered driver message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecodedMessage {
    /// Fields of the message by name (`link`, `unit`, `error_status`, `pending` ...).
    pub fields: BTreeMap<String, String>,
    /// Failure class that the message indicates.
    pub class: ClassId,
    /// Role in a failure, as far as one message determines it.
    pub role: Role,
    /// Confidence of class and role, 0 to 1.
    pub confidence: f64,
    /// The vendor's immediate action, then its investigation step; empty if the vendor gives none.
    pub vendor_action: SmolStr,
    /// Short description of the event.
    pub sentence: SmolStr,
    /// Id of the source ([`crate::Catalogue::source`]); empty for an unknown number.
    pub source: SmolStr,
}

impl DecodedMessage {
    fn set(&mut self, field: &str, value: impl ToString) {
        self.fields.insert(field.to_owned(), value.to_string());
    }
}

/// Decodes a message of the GPU driver or of the switch driver. `text` is the message from its number on, or the
/// whole line; `driver` is the result of [`DriverVersion::parse`], if known.
pub fn decode(
    codes: &CodeTable,
    kind: CodeKind,
    number: u32,
    text: &str,
    driver: Option<DriverVersion>,
) -> DecodedMessage {
    let text = &text[..text.floor_char_boundary(TEXT_LIMIT)];
    let word = match kind {
        CodeKind::Xid => "xid",
        CodeKind::Sxid => "sxid",
    };
    let mut decoded = match codes.get(number) {
        Some(code) => DecodedMessage {
            fields: BTreeMap::new(),
            class: code.class.clone(),
            role: code.role,
            confidence: code.confidence,
            vendor_action: code.vendor_action.clone(),
            sentence: code.meaning.clone(),
            source: code.source.clone(),
        },
        None => DecodedMessage {
            fields: BTreeMap::new(),
            class: ClassId::from(format!("unknown-{word}-{number}")),
            role: Role::Root,
            confidence: 0.4,
            vendor_action: SmolStr::default(),
            sentence: format!("event {number} of the driver, which the catalogue does not know").into(),
            source: SmolStr::default(),
        },
    };
    match (kind, number) {
        (CodeKind::Sxid, _) => switch::refine(text, codes.get(number), &mut decoded),
        (CodeKind::Xid, 45) => {
            engine::refine(number, text, &mut decoded);
            attribute(codes, text, &mut decoded);
        }
        (CodeKind::Xid, 13 | 31 | 43 | 119 | 120) => engine::refine(number, text, &mut decoded),
        (CodeKind::Xid, 48 | 63 | 64 | 92 | 94 | 95 | 171 | 172) => memory::refine(number, text, &mut decoded),
        (CodeKind::Xid, 74) => nvlink4::refine(text, &mut decoded),
        (CodeKind::Xid, 144..=150) => nvlink5::refine(number, text, driver, &mut decoded),
        (CodeKind::Xid, 154) => recovery::refine(text, &mut decoded),
        _ => {}
    }
    decoded
}

/// Decodes `Ch 00000001 caused by previous Xid 149`: the channel was torn down because of that event, so the message
/// takes the class of that event, even if the event's own line is lost.
fn attribute(codes: &CodeTable, text: &str, decoded: &mut DecodedMessage) {
    let cause = text::after(text, "caused by previous Xid ").and_then(text::number);
    let Some(code) = cause.and_then(|number| codes.get(u32::try_from(number).ok()?)) else {
        return;
    };
    decoded.set("caused_by", code.number);
    decoded.class = code.class.clone();
    decoded.role = code.role;
    // The evidence is indirect: the event's own line holds more.
    decoded.confidence = code.confidence * 0.9;
    decoded.sentence = format!(
        "a channel was torn down because of Xid {}: {}",
        code.number, code.meaning
    )
    .into();
}

#[cfg(test)]
mod tests;
