//! Definition of a setting.

use super::value::SettingKind;

/// Setting of the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SettingKey {
    /// Path in the file: `agent.slots` is `slots` in `[agent]`.
    pub(crate) path: &'static str,
    /// Type and range of its value.
    pub(crate) kind: SettingKind,
    /// Description for `config show`.
    pub(crate) doc: &'static str,
}

impl SettingKey {
    /// Returns its environment variable: `RANKGUARD_AGENT_SLOTS`. The address of the controller, which people type
    /// most, is `RANKGUARD_CONTROLLER`.
    pub(crate) fn env(&self) -> String {
        match self.path {
            "client.controller" => "RANKGUARD_CONTROLLER".to_owned(),
            path => format!("RANKGUARD_{}", path.replace('.', "_").to_uppercase()),
        }
    }
}
