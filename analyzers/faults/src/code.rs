//! Numbered driver events: XID of the GPU driver, SXid of the NVSwitch driver.

use std::collections::BTreeMap;

use rankguard_model::{ClassId, Role, SmolStr};
use serde::{Deserialize, Serialize};

/// What one number means.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Code {
    /// The number; filled in from `numbers` where several share a row.
    #[serde(default)]
    pub number: u32,
    #[serde(default)]
    pub(crate) numbers: Vec<u32>,
    /// The vendor's symbol for it (`NVLINK_ERROR`); empty where none is published.
    #[serde(default)]
    pub mnemonic: String,
    #[serde(default)]
    pub(crate) mnemonics: Vec<String>,
    /// Meaning, in our words.
    pub meaning: SmolStr,
    /// The class it speaks for.
    pub class: ClassId,
    /// Its part in a failure, as far as the number alone can tell.
    pub role: Role,
    /// How sure the number alone makes us, 0 to 1.
    pub confidence: f64,
    /// What the vendor says to do first and then to look into.
    #[serde(default)]
    pub vendor_action: SmolStr,
    /// GPUs and drivers it is limited to; empty where it holds for all current ones.
    #[serde(default)]
    pub scope: String,
    /// What it stops; for switches only.
    #[serde(default)]
    pub fatal: Option<Fatality>,
    /// Numbers whose finding it ends.
    #[serde(default)]
    pub clears: Vec<u32>,
    /// What its repetition means.
    #[serde(default)]
    pub escalate: Vec<Escalation>,
    /// A remark.
    #[serde(default)]
    pub notes: String,
    /// Id of the source where it is described ([`crate::Catalogue::source`]).
    #[serde(default)]
    pub source: SmolStr,
}

/// What an event of a switch stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fatality {
    /// Nothing by itself.
    NonFatal,
    /// The partition that owns the port.
    Port,
    /// All GPUs and switches of the fabric.
    Fabric,
}

/// A number that comes again means more than each time alone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Escalation {
    /// So many times ...
    pub times: u32,
    /// ... within so many hours ...
    pub hours: u32,
    /// ... on the same part (`gpu`, `gpc-tpc`, `port`).
    pub same: String,
    /// Events that follow each other within so many seconds count once.
    #[serde(default)]
    pub burst_seconds: u32,
    /// What to do then.
    pub then: String,
}

/// All known numbers of one driver.
#[derive(Debug, Clone, Default)]
pub struct CodeTable {
    codes: BTreeMap<u32, Code>,
}

impl Code {
    /// One code for each number of a row.
    pub(crate) fn each(self) -> Vec<Code> {
        if self.numbers.is_empty() {
            return vec![self];
        }
        let numbers = self.numbers.clone();
        let each = numbers.into_iter().enumerate().map(|(at, number)| Code {
            number,
            numbers: Vec::new(),
            mnemonic: self.mnemonics.get(at).unwrap_or(&self.mnemonic).clone(),
            mnemonics: Vec::new(),
            ..self.clone()
        });
        each.collect()
    }
}

impl CodeTable {
    /// Adds a code; the one that had the number before comes back.
    pub(crate) fn insert(&mut self, code: Code) -> Option<Code> {
        self.codes.insert(code.number, code)
    }

    /// What a number means, where that is known.
    pub fn get(&self, number: u32) -> Option<&Code> {
        self.codes.get(&number)
    }

    /// The number whose event ends a finding of this one, if there is one.
    pub fn cleared_by(&self, number: u32) -> Option<u32> {
        self.codes
            .values()
            .find(|code| code.clears.contains(&number))
            .map(|code| code.number)
    }

    /// All known numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = &Code> {
        self.codes.values()
    }
}
