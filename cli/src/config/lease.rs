//! Check of the ranks' lease against the agent's heartbeats: answers to heartbeats renew it.

use super::ResolvedConfig;
use super::mistake::{ConfigMistake, ValueOrigin};

const LEASE: &str = "agent.lease_ms";
const HEARTBEAT: &str = "agent.intervals.heartbeat_ms";
/// Minimum number of heartbeats in a lease: agents compare the ages of their newest answers, which differ by one
/// heartbeat.
const HEARTBEATS: u64 = 6;

impl ResolvedConfig {
    /// Checks the length of the lease: one that covers too few heartbeats would end ranks while the controller answers.
    pub(super) fn short_lease(&self) -> Option<ConfigMistake> {
        let lease = self.count(LEASE);
        let heartbeat = self.count(HEARTBEAT);
        if lease >= heartbeat.saturating_mul(HEARTBEATS) {
            return None;
        }
        let set = [LEASE, HEARTBEAT]
            .into_iter()
            .filter_map(|setting| self.values.get(setting));
        let at = set.map(|(_, at)| at).find(|at| **at != ValueOrigin::Default)?;
        Some(ConfigMistake {
            at: at.clone(),
            what: format!(
                "{LEASE} is {lease}, less than {HEARTBEATS} times {HEARTBEAT} ({heartbeat}); set a longer lease or a \
                 shorter heartbeat"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn check(lease: &str, heartbeat: &str, expect: bool) {
        let variables = [
            ("RANKGUARD_AGENT_LEASE_MS", lease),
            ("RANKGUARD_AGENT_INTERVALS_HEARTBEAT_MS", heartbeat),
        ];
        let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let loaded = ResolvedConfig::load(None, variables, &[]);
        assert_eq!(loaded.is_ok(), expect, "{lease} {heartbeat}: {:?}", loaded.err());
    }

    #[test]
    fn a_lease_covers_several_heartbeats() {
        check("3000", "500", true);
        check("3000", "501", false);
        check("100", "300", false);
        check("600", "20", true);
    }
}
