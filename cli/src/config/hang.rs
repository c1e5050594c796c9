//! Check of the silence after which a job is restarted against the silence that agents report.

use super::ResolvedConfig;

const HANG: &str = "controller.policy.hang_ms";
const STALL: &str = "agent.intervals.stall_ms";

impl ResolvedConfig {
    /// Returns a warning if agents report the silence of a rank later than the controller is to act on it; `None` if the
    /// settings fit, or if hang detection is disabled.
    pub(crate) fn late_hang_warning(&self) -> Option<String> {
        let hang = self.count(HANG);
        let stall = self.count(STALL);
        if hang == 0 || hang >= stall {
            return None;
        }
        Some(format!(
            "warning: {HANG} is {hang}, less than {STALL} ({stall}): agents report no shorter silence, so a hang of {hang} ms \
             is seen after {stall} ms at the earliest; set a longer {HANG}, or a shorter {STALL} on the nodes"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn check(hang: &str, stall: &str, expect: bool) {
        let variables = [
            ("RANKGUARD_CONTROLLER_POLICY_HANG_MS", hang),
            ("RANKGUARD_AGENT_INTERVALS_STALL_MS", stall),
        ];
        let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let loaded = ResolvedConfig::load(None, variables, &[]).expect("both are valid");
        assert_eq!(loaded.late_hang_warning().is_some(), expect, "{hang} {stall}");
    }

    #[test]
    fn a_hang_is_not_seen_before_agents_report_silence() {
        check("20000", "30000", true);
        check("30000", "30000", false);
        check("20000", "20000", false);
        check("0", "30000", false);
    }
}
