//! What a setting is.

use super::value::Kind;

/// One setting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// Its place in the file: `agent.slots` is `slots` in `[agent]`.
    pub(crate) path: &'static str,
    /// What it may hold.
    pub(crate) kind: Kind,
    /// What it is for.
    pub(crate) doc: &'static str,
}

impl Key {
    /// Its name in the environment: `RANKGUARD_AGENT_SLOTS`. The address of the controller, which people type most,
    /// is `RANKGUARD_CONTROLLER`.
    pub(crate) fn env(&self) -> String {
        match self.path {
            "client.controller" => "RANKGUARD_CONTROLLER".to_owned(),
            path => format!("RANKGUARD_{}", path.replace('.', "_").to_uppercase()),
        }
    }
}
