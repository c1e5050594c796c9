//! Memory admission: checks whether the memory of a node holds what checkpointing needs, before anything is allocated.
//!
//! Need: `slots * S * (1 + copies of others + M / K) + buffers`, compared with available memory minus a reserve. `S` is
//! the state of all ranks of the node; M parities over K nodes are held by other nodes. The working image of the
//! trainer is not counted: it is already allocated.

use std::fmt;

use rankguard_model::CheckpointParity;
use serde::{Deserialize, Serialize};

/// Planned memory use of checkpointing on one node, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRequest {
    /// State of all ranks of the node.
    pub state: u64,
    /// Arena slots per rank.
    pub slots: u32,
    /// Copies of other nodes' state that the node holds (`m - 1`).
    pub copies: u32,
    /// Parity over images of other nodes; each node holds an equal share.
    pub parity: Option<CheckpointParity>,
    /// Buffers of transfers and writes in progress.
    pub buffers: u64,
}

/// Memory of a node, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMemory {
    /// Memory that is available now.
    pub available: u64,
    /// Memory that must remain free for the job and the system.
    pub reserve: u64,
}

/// Item of the memory need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryItem {
    /// Purpose of the memory.
    pub what: String,
    /// Size of the item, bytes.
    pub bytes: u64,
}

/// Memory need of the plan, compared with the headroom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryNeed {
    /// Items of the need.
    pub lines: Vec<MemoryItem>,
    /// Sum of the items, bytes.
    pub total: u64,
    /// Available memory minus the reserve, bytes.
    pub headroom: u64,
    /// Largest number of slots that would fit with an otherwise equal plan, at most the planned number.
    pub slots_that_fit: u32,
}

/// Reason why a plan is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionRefusal {
    /// The need exceeds the headroom.
    #[error("{}", refused(.0))]
    TooMuch(MemoryNeed),
    /// A parity group has no nodes.
    #[error("a parity group has at least one node")]
    Parity,
    /// The plan has no slot.
    #[error("at least one slot a rank is needed")]
    NoSlot,
}

fn refused(need: &MemoryNeed) -> String {
    let parts: Vec<String> = need
        .lines
        .iter()
        .map(|line| format!("{} {}", line.what, GibDisplay(line.bytes)))
        .collect();
    let way_out = match need.slots_that_fit {
        0 => "not even one slot fits: shard the state over more nodes, keep fewer copies, or save through windows \
              (run --checkpoint-window)"
            .to_owned(),
        1 => "1 slot a rank would fit".to_owned(),
        slots => format!("{slots} slots a rank would fit"),
    };
    format!(
        "checkpointing needs {} a node ({}) and {} may be taken; {way_out}",
        GibDisplay(need.total),
        parts.join(", "),
        GibDisplay(need.headroom)
    )
}

fn times(slots: u128) -> String {
    if slots == 1 {
        "1 slot".to_owned()
    } else {
        format!("{slots} slots")
    }
}

fn copies(copies: u32) -> String {
    if copies == 1 {
        "1 copy".to_owned()
    } else {
        format!("{copies} copies")
    }
}

/// Bytes formatted as GiB with three decimals, so that a sum can be checked by eye.
#[derive(Debug, Clone, Copy)]
pub struct GibDisplay(pub u64);

impl fmt::Display for GibDisplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} GiB", self.0 as f64 / f64::from(1 << 30))
    }
}

impl MemoryRequest {
    /// Returns the items for a number of slots, in u128 so that untrusted numbers cannot overflow.
    fn lines(&self, slots: u32) -> Vec<(String, u128)> {
        let state = u128::from(self.state);
        let slots = u128::from(slots);
        let mut lines = vec![(format!("{} of own state", times(slots)), slots * state)];
        if self.copies > 0 {
            let what = format!("{} of {} for peers", times(slots), copies(self.copies));
            lines.push((what, slots * state * u128::from(self.copies)));
        }
        if let Some(parity) = self.parity {
            let what = format!("{} of parity {}+{}", times(slots), parity.nodes, parity.parities);
            let sums = slots * state * u128::from(parity.parities);
            lines.push((what, sums.div_ceil(u128::from(parity.nodes.max(1)))));
        }
        if self.buffers > 0 {
            lines.push(("buffers under way".to_owned(), u128::from(self.buffers)));
        }
        lines
    }

    /// Computes the need and compares it with the memory of the node.
    pub fn admit(&self, has: &NodeMemory) -> Result<MemoryNeed, AdmissionRefusal> {
        if self.slots == 0 {
            return Err(AdmissionRefusal::NoSlot);
        }
        if self.parity.is_some_and(|parity| parity.nodes == 0) {
            return Err(AdmissionRefusal::Parity);
        }
        let headroom = has.available.saturating_sub(has.reserve);
        let total_of = |slots: u32| self.lines(slots).iter().map(|(_, bytes)| bytes).sum::<u128>();
        let total = total_of(self.slots);
        let fits = |slots: u32| total_of(slots) <= u128::from(headroom);
        let clamp = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        let need = MemoryNeed {
            lines: self
                .lines(self.slots)
                .into_iter()
                .map(|(what, bytes)| MemoryItem {
                    what,
                    bytes: clamp(bytes),
                })
                .collect(),
            total: clamp(total),
            headroom,
            slots_that_fit: (1..=self.slots).rev().find(|slots| fits(*slots)).unwrap_or(0),
        };
        if fits(self.slots) {
            Ok(need)
        } else {
            Err(AdmissionRefusal::TooMuch(need))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn wanted() -> MemoryRequest {
        MemoryRequest {
            state: 100 * GIB,
            slots: 2,
            copies: 1,
            parity: None,
            buffers: GIB,
        }
    }

    #[test]
    fn the_sum_is_the_formula() {
        let has = NodeMemory {
            available: 500 * GIB,
            reserve: 50 * GIB,
        };
        let need = wanted().admit(&has).expect("fits");
        assert_eq!((need.total, need.headroom), (401 * GIB, 450 * GIB));
        // 8+2 costs a quarter more instead of doubling the memory.
        let parity = MemoryRequest {
            copies: 0,
            parity: Some(CheckpointParity { nodes: 8, parities: 2 }),
            ..wanted()
        };
        let need = parity.admit(&has).expect("fits");
        assert_eq!(need.total, (200 + 50 + 1) * GIB);
    }

    #[test]
    fn a_refusal_names_every_part_and_the_way_out() {
        let has = NodeMemory {
            available: 260 * GIB,
            reserve: 50 * GIB,
        };
        let refusal = wanted().admit(&has).expect_err("too much").to_string();
        assert_eq!(
            refusal,
            "checkpointing needs 401.000 GiB a node (2 slots of own state 200.000 GiB, 2 slots of 1 copy for peers \
             200.000 GiB, buffers under way 1.000 GiB) and 210.000 GiB may be taken; 1 slot a rank would fit"
        );
        let none = wanted()
            .admit(&NodeMemory {
                available: 150 * GIB,
                reserve: 0,
            })
            .expect_err("too much");
        assert!(
            none.to_string()
                .ends_with("keep fewer copies, or save through windows (run --checkpoint-window)")
        );
        let parity = MemoryRequest {
            parity: Some(CheckpointParity { nodes: 0, parities: 2 }),
            ..wanted()
        };
        assert_eq!(parity.admit(&has), Err(AdmissionRefusal::Parity));
        assert_eq!(
            MemoryRequest { slots: 0, ..wanted() }.admit(&has),
            Err(AdmissionRefusal::NoSlot)
        );
    }

    proptest! {
        #[test]
        fn what_is_admitted_fits_and_no_number_wraps(
            state in any::<u64>(), slots in 1..4_u32, copies in any::<u32>(), buffers in any::<u64>(), available in any::<u64>(), reserve in any::<u64>(),
        ) {
            let wanted = MemoryRequest { state, slots, copies, parity: Some(CheckpointParity { nodes: 8, parities: 3 }), buffers };
            match wanted.admit(&NodeMemory { available, reserve }) {
                Ok(need) => prop_assert!(need.total <= need.headroom && need.headroom <= available && need.slots_that_fit == slots),
                Err(AdmissionRefusal::TooMuch(need)) => prop_assert!(need.total > need.headroom || need.total == u64::MAX),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
