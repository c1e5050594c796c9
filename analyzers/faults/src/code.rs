//! Numbered driver events: XID of the GPU driver, SXid of the NVSwitch driver.

use std::collections::BTreeMap;

use rankguard_model::{ClassId, Role, SmolStr};
use serde::{Deserialize, Serialize};

/// Meaning of one numbered driver event.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverCode {
    /// Event number; filled in from `numbers` if several share a row.
    #[serde(default)]
    pub number: u32,
    #[serde(default)]
    pub(crate) numbers: Vec<u32>,
    /// The vendor's mnemonic (`NVLINK_ERROR`); empty if none is published.
    #[serde(default)]
    pub mnemonic: String,
    #[serde(default)]
    pub(crate) mnemonics: Vec<String>,
    /// Meaning, in this project's words.
    pub meaning: SmolStr,
    /// Failure class that the number indicates.
    pub class: ClassId,
    /// Role in a failure, as far as the number alone determines it.
    pub role: Role,
    /// Confidence from the number alone, 0 to 1.
    pub confidence: f64,
    /// The vendor's immediate action, then its investigation step.
    #[serde(default)]
    pub vendor_action: SmolStr,
    /// GPUs and drivers to which the row is limited; empty if it holds for all current ones.
    #[serde(default)]
    pub scope: String,
    /// Reach of a fatal event; for switches only.
    #[serde(default)]
    pub fatal: Option<FatalityScope>,
    /// Numbers of the findings that this event clears.
    #[serde(default)]
    pub clears: Vec<u32>,
    /// Escalation rules for repeated events.
    #[serde(default)]
    pub escalate: Vec<EscalationRule>,
    #[serde(default)]
    pub notes: String,
    /// Id of the source that describes it ([`crate::Catalogue::source`]).
    #[serde(default)]
    pub source: SmolStr,
}

/// Reach of a fatal switch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FatalityScope {
    /// Stops nothing by itself.
    NonFatal,
    /// Stops the partition that owns the port.
    Port,
    /// Stops all GPUs and switches of the fabric.
    Fabric,
}

/// Escalation rule: a number that repeats has a different meaning from each event alone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EscalationRule {
    /// Threshold, in events.
    pub times: u32,
    /// Window, in hours.
    pub hours: u32,
    /// Part on which the events are counted (`gpu`, `gpc-tpc`, `port`).
    pub same: String,
    /// Events closer together than this count once, seconds.
    #[serde(default)]
    pub burst_seconds: u32,
    /// Action when the threshold is reached.
    pub then: String,
}

/// All known event numbers of one driver.
#[derive(Debug, Clone, Default)]
pub struct CodeTable {
    codes: BTreeMap<u32, DriverCode>,
}

impl DriverCode {
    /// Expands a row into one code for each of its numbers.
    pub(crate) fn each(self) -> Vec<DriverCode> {
        if self.numbers.is_empty() {
            return vec![self];
        }
        let numbers = self.numbers.clone();
        let each = numbers.into_iter().enumerate().map(|(at, number)| DriverCode {
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
    /// Inserts a code and returns the previous code with its number.
    pub(crate) fn insert(&mut self, code: DriverCode) -> Option<DriverCode> {
        self.codes.insert(code.number, code)
    }

    /// Returns the code of a number, if known.
    pub fn get(&self, number: u32) -> Option<&DriverCode> {
        self.codes.get(&number)
    }

    /// Returns the number of the event that clears a finding of `number`.
    pub fn cleared_by(&self, number: u32) -> Option<u32> {
        self.codes
            .values()
            .find(|code| code.clears.contains(&number))
            .map(|code| code.number)
    }

    /// Returns all codes, ordered by number.
    pub fn iter(&self) -> impl Iterator<Item = &DriverCode> {
        self.codes.values()
    }
}
