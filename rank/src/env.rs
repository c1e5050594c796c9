//! Place of a rank in the world, read from the environment that the agent (or torchrun) sets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rankguard_model::{Generation, JobId, NodeId, Rank};

/// Identity of this process among the job's ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankEnv {
    /// Job (`RANKGUARD_JOB`, else `TORCHELASTIC_RUN_ID`, else `local`).
    pub job: JobId,
    /// Generation (`RANKGUARD_GENERATION`, else `TORCHELASTIC_RESTART_COUNT` + 1, else 1).
    pub generation: Generation,
    /// Node name (`RANKGUARD_NODE`, else `localhost`).
    pub node: NodeId,
    /// Global rank (`RANK`, else 0).
    pub rank: Rank,
    /// Rank on the node (`LOCAL_RANK`, else `RANK`).
    pub local_rank: u32,
    /// Number of ranks (`WORLD_SIZE`, else 1).
    pub world_size: u32,
    /// Host of rank 0 (`MASTER_ADDR`, else `127.0.0.1`).
    pub master_addr: String,
    /// Port of rank 0 (`MASTER_PORT`); required for two or more ranks.
    pub master_port: u16,
    /// Path of the agent's socket (`RANKGUARD_SOCKET`); `None` without an agent.
    pub socket: Option<PathBuf>,
}

/// Error of an environment that defines no valid rank.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the rank's environment: {}", problems.join("; "))]
pub struct EnvError {
    /// All mistakes, each with the name of its variable.
    pub problems: Vec<String>,
}

impl RankEnv {
    /// Reads the environment of this process.
    pub fn from_env() -> Result<Self, EnvError> {
        // Lossy, because variables that are not UTF-8 are irrelevant here.
        let vars = std::env::vars_os()
            .map(|(name, value)| {
                (
                    name.to_string_lossy().into_owned(),
                    value.to_string_lossy().into_owned(),
                )
            })
            .collect();
        Self::from_vars(&vars)
    }

    /// Reads an environment given as a value. Reports all mistakes at once.
    pub fn from_vars(vars: &BTreeMap<String, String>) -> Result<Self, EnvError> {
        let mut read = EnvReader {
            vars,
            problems: Vec::new(),
        };
        let rank: u32 = read.number("RANK").unwrap_or(0);
        let world_size: u32 = read.number("WORLD_SIZE").unwrap_or(1);
        let local_rank = read.number("LOCAL_RANK").unwrap_or(rank);
        let generation = match read.number::<u64>("RANKGUARD_GENERATION") {
            Some(generation) => generation,
            None => read
                .number::<u64>("TORCHELASTIC_RESTART_COUNT")
                .unwrap_or(0)
                .saturating_add(1),
        };
        let master_port = read.number("MASTER_PORT").unwrap_or(0);
        if world_size == 0 {
            read.problems.push("WORLD_SIZE is 0, want at least 1".to_owned());
        } else if rank >= world_size {
            read.problems
                .push(format!("RANK is {rank}, want less than WORLD_SIZE {world_size}"));
        }
        if world_size > 1 && !vars.contains_key("MASTER_PORT") {
            read.problems
                .push(format!("MASTER_PORT is not set, but WORLD_SIZE is {world_size}"));
        }
        let text = |names: &[&str], fallback: &str| {
            let found = names.iter().find_map(|name| vars.get(*name).filter(|v| !v.is_empty()));
            found.map_or_else(|| fallback.to_owned(), Clone::clone)
        };
        let place = Self {
            job: JobId::from(text(&["RANKGUARD_JOB", "TORCHELASTIC_RUN_ID"], "local")),
            generation: Generation(generation),
            node: NodeId::from(text(&["RANKGUARD_NODE"], "localhost")),
            rank: Rank(rank),
            local_rank,
            world_size,
            master_addr: text(&["MASTER_ADDR"], "127.0.0.1"),
            master_port,
            socket: vars
                .get("RANKGUARD_SOCKET")
                .filter(|v| !v.is_empty())
                .map(PathBuf::from),
        };
        if read.problems.is_empty() {
            Ok(place)
        } else {
            Err(EnvError {
                problems: read.problems,
            })
        }
    }
}

struct EnvReader<'a> {
    vars: &'a BTreeMap<String, String>,
    problems: Vec<String>,
}

impl EnvReader<'_> {
    /// Parses a variable as a number; `None` if it is not set, and a recorded problem if it is not a number.
    fn number<T: std::str::FromStr>(&mut self, name: &str) -> Option<T> {
        let text = self.vars.get(name)?;
        let number = text.trim().parse().ok();
        if number.is_none() {
            self.problems.push(format!("{name} is `{text}`, want a whole number"));
        }
        number
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(vars: &[(&str, &str)]) -> Result<RankEnv, EnvError> {
        RankEnv::from_vars(&vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn an_empty_environment_is_a_world_of_one() {
        let env = check(&[]).unwrap();
        assert_eq!((env.rank, env.world_size, env.generation), (Rank(0), 1, Generation(1)));
        assert_eq!(env.socket, None);
    }

    #[test]
    fn torchrun_alone_is_enough() {
        let env = check(&[
            ("RANK", "3"),
            ("LOCAL_RANK", "1"),
            ("WORLD_SIZE", "6"),
            ("MASTER_ADDR", "node-1"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", "run-7"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
        ])
        .unwrap();
        assert_eq!((env.rank, env.local_rank, env.world_size), (Rank(3), 1, 6));
        assert_eq!((env.job.as_str(), env.generation), ("run-7", Generation(3)));
        assert_eq!((env.master_addr.as_str(), env.master_port), ("node-1", 29500));
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let problems = check(&[("RANK", "six"), ("WORLD_SIZE", "2"), ("RANKGUARD_GENERATION", "-1")])
            .unwrap_err()
            .problems;
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].starts_with("RANK is `six`"));
        assert!(problems[1].starts_with("RANKGUARD_GENERATION is `-1`"));
        assert!(problems[2].starts_with("MASTER_PORT is not set"));
    }

    #[test]
    fn a_rank_outside_its_world_is_refused() {
        let problems = check(&[("RANK", "2"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "1")])
            .unwrap_err()
            .problems;
        assert_eq!(problems, ["RANK is 2, want less than WORLD_SIZE 2"]);
    }
}
