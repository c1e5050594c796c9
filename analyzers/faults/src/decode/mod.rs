//! What stands inside a numbered driver message: from the number and its text to fields, class, role and a sentence.
//!
//! [`decode`] is a function of its arguments. The table gives what the number alone says; the words of the message then refine
//! it: which link and which error bits (XID 74), which unit of an NVLink 5 and how bad (144 to 150, in the layout of the
//! driver's version), which recovery the driver asks for (154), which row or page (63, 64), which engine (13, 31), which call of
//! the system processor (119, 120), which port of a switch (SXid). A message without such words keeps what the table says, and
//! a number that the table does not know passes through as `unknown-xid-N` (RG-10).
//!
//! Absent: joins. Whether a `sympathetic` error is alone, and who sits at the other end of a link, other evidence must tell.

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

/// Longest text that is looked at, bytes: a driver's message is one line of a kernel log.
const TEXT_LIMIT: usize = 2048;

/// What a numbered message says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decoded {
    /// What its words hold, by name (`link`, `unit`, `error_status`, `pending` ...).
    pub fields: BTreeMap<String, String>,
    /// The class it speaks for.
    pub class: ClassId,
    /// Its part in a failure, as far as one message can tell.
    pub role: Role,
    /// How sure that is, 0 to 1.
    pub confidence: f64,
    /// What the vendor says to do first and then to look into; empty where the vendor says nothing.
    pub vendor_action: SmolStr,
    /// What happened, in a few words.
    pub sentence: SmolStr,
    /// Id of the source ([`crate::Catalogue::source`]); empty for a number that is not known.
    pub source: SmolStr,
}

impl Decoded {
    fn set(&mut self, field: &str, value: impl ToString) {
        self.fields.insert(field.to_owned(), value.to_string());
    }
}

/// Decodes a message of the GPU driver or of the switch driver. `text` is the message from its number on, or the whole line;
/// `driver` is what [`DriverVersion::parse`] read, where that is known.
pub fn decode(codes: &CodeTable, kind: CodeKind, number: u32, text: &str, driver: Option<DriverVersion>) -> Decoded {
    let text = &text[..text.floor_char_boundary(TEXT_LIMIT)];
    let word = match kind {
        CodeKind::Xid => "xid",
        CodeKind::Sxid => "sxid",
    };
    let mut decoded = match codes.get(number) {
        Some(code) => Decoded {
            fields: BTreeMap::new(),
            class: code.class.clone(),
            role: code.role,
            confidence: code.confidence,
            vendor_action: code.vendor_action.clone(),
            sentence: code.meaning.clone(),
            source: code.source.clone(),
        },
        None => Decoded {
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

/// `Ch 00000001 caused by previous Xid 149`: a channel was torn down because of that event, so it is what failed, even
/// where its own line is lost.
fn attribute(codes: &CodeTable, text: &str, decoded: &mut Decoded) {
    let cause = text::after(text, "caused by previous Xid ").and_then(text::number);
    let Some(code) = cause.and_then(|number| codes.get(u32::try_from(number).ok()?)) else {
        return;
    };
    decoded.set("caused_by", code.number);
    decoded.class = code.class.clone();
    decoded.role = code.role;
    // It is told second-hand: the event's own line says more.
    decoded.confidence = code.confidence * 0.9;
    decoded.sentence = format!(
        "a channel was torn down because of Xid {}: {}",
        code.number, code.meaning
    )
    .into();
}

#[cfg(test)]
mod tests;
