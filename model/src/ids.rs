//! Identifiers. Each is its own type, so that a rank can never be passed where a step is meant.
//!
//! A name is copied wherever a sign, a finding or a case speaks of it, so short ones lie in the value itself and long ones are
//! shared: no copy allocates.

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
            /// The name as text.
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
            /// The one after this one; the largest has none after it and is returned again.
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
    /// A machine of the cluster, by the name its operators use.
    NodeId
}
name_id! {
    /// A training job, unique in one controller's lifetime.
    JobId
}
name_id! {
    /// A run of training: random, 32 hexadecimal digits. All attempts of a run share one checkpoint folder.
    RunId
}
name_id! {
    /// A canonical failure class of the catalogue, kebab-case (`gpu-fallen-off-bus`), or `unknown-*`.
    ClassId
}
number_id! {
    /// Position of a process in the job's world, `0..world_size`.
    Rank(u32)
}
number_id! {
    /// One incarnation of a job's ranks; the fencing token of every order, seal and commit (RG-3). Starts at 1.
    Generation(u64)
}
number_id! {
    /// Optimizer steps completed.
    Step(u64)
}
number_id! {
    /// A case of one controller, counted from 1.
    CaseId(u64)
}
number_id! {
    /// A plan of one controller, counted from 1.
    PlanId(u64)
}
number_id! {
    /// An order of the controller, counted from 1; an agent executes each at most once.
    OrderId(u64)
}
number_id! {
    /// Position of a piece of evidence in its node's spool, counted from 1 without gaps.
    Sequence(u64)
}
