//! Numbered driver events: XID of the GPU driver, SXid of the NVSwitch driver.

use std::collections::BTreeMap;

use rankguard_model::{ClassId, Role};
use serde::Deserialize;

/// What one number means.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Code {
    /// The number; filled in from `numbers` where several share a row.
    #[serde(default)]
    pub number: u32,
    #[serde(default)]
    pub(crate) numbers: Vec<u32>,
    /// Meaning, in our words.
    pub meaning: String,
    /// The class it speaks for.
    pub class: ClassId,
    /// Its part in a failure, as far as the number alone can tell.
    pub role: Role,
    /// How sure the number alone makes us, 0 to 1.
    pub confidence: f64,
    /// What the vendor says to do first and then to look into.
    #[serde(default)]
    pub vendor_action: String,
}

/// All known numbers of one driver.
#[derive(Debug, Clone, Default)]
pub struct CodeTable {
    codes: BTreeMap<u32, Code>,
}

impl CodeTable {
    /// From the rows of a file; a number that occurs twice is reported.
    pub(crate) fn new(rows: Vec<Code>) -> Result<Self, u32> {
        let mut codes = BTreeMap::new();
        for row in rows {
            let mut numbers = row.numbers.clone();
            if numbers.is_empty() {
                numbers.push(row.number);
            }
            for number in numbers {
                let code = Code {
                    number,
                    numbers: Vec::new(),
                    ..row.clone()
                };
                if codes.insert(number, code).is_some() {
                    return Err(number);
                }
            }
        }
        Ok(Self { codes })
    }

    /// What a number means, where that is known.
    pub fn get(&self, number: u32) -> Option<&Code> {
        self.codes.get(&number)
    }

    /// All known numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = &Code> {
        self.codes.values()
    }
}
