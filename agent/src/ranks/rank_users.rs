//! Users that ranks may run as (RG-13).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::allowed_environment::list_matches;
use crate::settings::AgentSettings;
use crate::supervisor::has_set_user_capability;

/// User rules of one agent.
#[derive(Debug, Clone)]
pub(crate) struct RankUserRules {
    /// User of ranks if the job names none; `None` for the agent's own.
    usual: Option<String>,
    /// Users that jobs may name; a name that ends in `*` matches all names with that prefix.
    of_jobs: Vec<String>,
    /// True if this process may change to another user.
    can_change_user: bool,
    /// Owners of the agent's key and directory, and root.
    refused: Vec<u32>,
}

impl RankUserRules {
    pub(crate) fn of(settings: &AgentSettings) -> Self {
        let owner = |path: &Path| fs::metadata(path).ok().map(|found| found.uid());
        let key = settings
            .network
            .identity()
            .and_then(|identity| owner(&identity.files().key));
        let mut refused = vec![0, rustix::process::geteuid().as_raw()];
        refused.extend(key.into_iter().chain(owner(&settings.state_dir)));
        refused.sort_unstable();
        refused.dedup();
        Self {
            usual: settings.rank_user.clone(),
            of_jobs: settings.job_users.clone(),
            can_change_user: has_set_user_capability(),
            refused,
        }
    }

    /// Returns the name of the user to run ranks as; `None` for the agent's own.
    pub(crate) fn choose(&self, wanted: Option<&str>) -> Result<Option<String>, String> {
        if let Some(name) = wanted.filter(|name| !list_matches(&self.of_jobs, name)) {
            return Err(format!(
                "this node lets no job run as {name} (add the name to agent.job_users, or submit without --user)"
            ));
        }
        let chosen = wanted.map(str::to_owned).or_else(|| self.usual.clone());
        if chosen.is_some() && !self.can_change_user {
            let text = "the agent may not change users (run it as root or with CAP_SETUID and CAP_SETGID, or unset agent.rank_user)";
            return Err(text.to_owned());
        }
        Ok(chosen)
    }

    /// Returns the user of ranks if the job names none; `None` for the agent's own.
    pub(crate) fn usual(&self) -> Option<&str> {
        self.usual.as_deref()
    }

    /// Returns the ids of users that no rank may run as.
    pub(crate) fn refused_numbers(&self) -> Vec<u32> {
        self.refused.clone()
    }

    /// Returns true if ranks run as another user than the agent by default.
    pub(crate) fn are_separate(&self) -> bool {
        self.can_change_user && self.usual.is_some()
    }

    /// Returns true if a rank may run as another user than the agent.
    pub(crate) fn may_be_separate(&self) -> bool {
        self.can_change_user && (self.usual.is_some() || !self.of_jobs.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(usual: Option<&str>, of_jobs: &[&str], can_change_user: bool) -> RankUserRules {
        RankUserRules {
            usual: usual.map(str::to_owned),
            of_jobs: of_jobs.iter().map(|name| (*name).to_owned()).collect(),
            can_change_user,
            refused: vec![0],
        }
    }

    #[test]
    fn a_job_may_name_only_users_that_the_node_allows() {
        let shared = rules(Some("rankguard-job"), &["alice", "train-*"], true);
        assert_eq!(shared.choose(None), Ok(Some("rankguard-job".to_owned())));
        assert_eq!(shared.choose(Some("alice")), Ok(Some("alice".to_owned())));
        assert_eq!(shared.choose(Some("train-7")), Ok(Some("train-7".to_owned())));
        let problem = shared.choose(Some("bob")).expect_err("not allowed");
        assert!(problem.contains("agent.job_users"), "{problem}");
    }

    #[test]
    fn an_agent_without_privileges_runs_ranks_as_itself_and_refuses_others() {
        assert_eq!(rules(None, &[], false).choose(None), Ok(None));
        assert!(rules(None, &[], false).choose(Some("alice")).is_err());
        let problem = rules(None, &["*"], false)
            .choose(Some("alice"))
            .expect_err("no capability");
        assert!(problem.contains("CAP_SETUID"), "{problem}");
        assert!(rules(Some("x"), &[], false).choose(None).is_err());
    }
}
