//! Part of the cluster that a token reaches.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Jobs and nodes that a token reaches. Without both parts it reaches the whole cluster; with one part it reaches nothing
/// of the other kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenScope {
    /// Beginning of the names of the jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_prefix: Option<String>,
    /// Names of the nodes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub nodes: BTreeSet<String>,
}

impl TokenScope {
    /// Returns true if the scope is the whole cluster.
    pub fn is_whole(&self) -> bool {
        self.job_prefix.is_none() && self.nodes.is_empty()
    }

    /// Returns true if the scope has this job.
    pub fn has_job(&self, job: &str) -> bool {
        self.is_whole()
            || self
                .job_prefix
                .as_ref()
                .is_some_and(|prefix| job.starts_with(prefix.as_str()))
    }

    /// Returns true if the scope has this node.
    pub fn has_node(&self, node: &str) -> bool {
        self.is_whole() || self.nodes.contains(node)
    }

    /// Returns true if the scope has a case: its job, or all nodes that it names.
    pub fn has_case<'n>(&self, job: Option<&str>, nodes: impl IntoIterator<Item = &'n str>) -> bool {
        if self.is_whole() || job.is_some_and(|job| self.has_job(job)) {
            return true;
        }
        let mut nodes = nodes.into_iter().peekable();
        nodes.peek().is_some() && nodes.all(|node| self.has_node(node))
    }

    /// Describes the scope for messages.
    pub fn words(&self) -> String {
        let jobs = self.job_prefix.as_ref().map(|prefix| format!("jobs {prefix}*"));
        let nodes = || self.nodes.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let nodes = (!self.nodes.is_empty()).then(|| format!("nodes {}", nodes()));
        match (jobs, nodes) {
            (None, None) => "the whole cluster".to_owned(),
            (Some(one), None) | (None, Some(one)) => one,
            (Some(jobs), Some(nodes)) => format!("{jobs}; {nodes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(prefix: Option<&str>, nodes: &[&str]) -> TokenScope {
        TokenScope {
            job_prefix: prefix.map(str::to_owned),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        }
    }

    #[test]
    fn a_part_that_is_absent_gives_nothing_beside_the_other() {
        let whole = scope(None, &[]);
        assert!(whole.has_job("a") && whole.has_node("n") && whole.has_case(None, []));
        let jobs = scope(Some("vision-"), &[]);
        assert!(jobs.has_job("vision-1") && !jobs.has_job("vision") && !jobs.has_job("Vision-1"));
        assert!(!jobs.has_node("n1"));
        let nodes = scope(None, &["n1"]);
        assert!(nodes.has_node("n1") && !nodes.has_node("n10") && !nodes.has_node("N1") && !nodes.has_job("n1"));
    }

    #[test]
    fn a_case_belongs_to_its_job_or_to_all_of_its_nodes() {
        let nodes = scope(None, &["n1", "n2"]);
        assert!(nodes.has_case(None, ["n1"]) && nodes.has_case(Some("job"), ["n2", "n1"]));
        assert!(!nodes.has_case(None, ["n1", "n3"]) && !nodes.has_case(Some("job"), []));
        let jobs = scope(Some("a"), &[]);
        assert!(jobs.has_case(Some("ab"), ["n9"]) && !jobs.has_case(Some("b"), ["n9"]) && !jobs.has_case(None, []));
    }
}
