//! Definition of a setting.

use super::value::Kind;

/// Setting of the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// Path in the file: `agent.slots` is `slots` in `[agent]`.
    pub(crate) path: &'static str,
    /// Type and range of its value.
    pub(crate) kind: Kind,
    /// Description for `config show`.
    pub(crate) doc: &'static str,
}

impl Key {
    /// Returns its environment variable: `RANKGUARD_AGENT_SLOTS`. The address of the controller, which people type
    /// most, is `RANKGUARD_CONTROLLER`.
    pub(crate) fn env(&self) -> String {
        match self.path {
            "client.controller" => "RANKGUARD_CONTROLLER".to_owned(),
            path => format!("RANKGUARD_{}", path.replace('.', "_").to_uppercase()),
        }
    }
}
