//! Identifiers. Each has its own type, so that the compiler rejects a rank in place of a step.
//!
//! Evidence, findings and cases clone names often. Short names are stored inline and long ones are shared, so no clone
//! allocates.

use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(SmolStr);

        impl $name {
            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// Returns the successor; saturates at the largest number.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

name_id! {
    /// Name of a node, as its operators use it.
    NodeId
}
name_id! {
    /// Name of a training job, unique in one controller's lifetime.
    JobId
}
name_id! {
    /// Id of a training run: random, 32 hexadecimal digits. All attempts of a run share one checkpoint folder.
    RunId
}
name_id! {
    /// Canonical failure class of the catalogue, kebab-case (`gpu-fallen-off-bus`), or `unknown-*`.
    ClassId
}
number_id! {
    /// Position of a process in the job's world, `0..world_size`.
    Rank(u32)
}
number_id! {
    /// Incarnation of a job's ranks; the fencing token of every order, seal and commit (RG-3). Starts at 1.
    Generation(u64)
}
number_id! {
    /// Number of completed optimizer steps.
    Step(u64)
}
number_id! {
    /// Case number of one controller, counted from 1.
    CaseId(u64)
}
number_id! {
    /// Plan number of one controller, counted from 1.
    PlanId(u64)
}
number_id! {
    /// Order number of one controller, counted from 1; an agent executes each order at most once.
    OrderId(u64)
}
number_id! {
    /// Position of evidence in its node's spool, counted from 1 without gaps.
    Sequence(u64)
}
