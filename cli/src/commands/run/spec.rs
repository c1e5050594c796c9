//! Job specification of a submission, and its comparison with the cluster's capacity.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rankguard_model::{
    AGENT_STORE_VARIABLE, CheckpointPolicy, JobId, JobSpec, NodeRange, NodeState, NodeView, RESERVED_VARIABLES,
    StandbyCommand, StandbyPolicy, StatusView, TorchrunMemberState, TorchrunMemberView,
};

use super::RunArgs;
use super::args::{EnvPair, StandbyCount, StoreServer};
use super::launcher::{check_launcher, is_launcher};
use super::submitter::add_submitter_variables;
use crate::display_text::count;
use crate::error::CliError;

/// Module that standby processes import unless the job names others.
const STANDBY_IMPORT: &str = "torch";

/// Builds the job specification.
pub(super) fn spec(args: RunArgs) -> Result<JobSpec, CliError> {
    check_launcher(&args.command, args.ranks_per_node, args.allow_launcher)?;
    let standby = standby(&args)?;
    let here = |what: &str, path: &Path| {
        std::path::absolute(path)
            .map(|path| path.display().to_string())
            .map_err(|problem| {
                CliError::usage(
                    format!("cannot make {what} {} absolute", path.display()),
                    "use an absolute path",
                )
                .because(problem)
            })
    };
    let checkpoint = match (&args.checkpoint_dir, args.checkpoint_every) {
        (Some(dir), Some(every_steps)) => Some(CheckpointPolicy {
            every_steps,
            store: here("the checkpoint store", dir)?,
            keep: args.keep.keep,
            retention: args.keep.rules(),
            tiers: args.copies.wanted()?,
        }),
        _ => None,
    };
    let workdir = args.workdir.unwrap_or_else(|| ".".into());
    let workdir = Some(here("the working directory", &workdir)?);
    let id = JobId::from(args.name.unwrap_or_else(|| name_of(&args.command)));
    rankguard_checkpoint::format::check_job(&id).map_err(|problem| {
        CliError::usage("cannot use the job name", "use letters, digits, '.', '_' and '-'").because(problem)
    })?;
    check_names(&args.env)?;
    let named = args.env.into_iter().map(|pair| (pair.key, pair.value));
    let mut env = named.collect::<BTreeMap<_, _>>();
    add_submitter_variables(&mut env, |name| std::env::var_os(name));
    if args.store == StoreServer::Agent {
        env.insert(AGENT_STORE_VARIABLE.to_owned(), "True".to_owned());
    }
    Ok(JobSpec {
        id,
        command: args.command,
        env,
        workdir,
        nodes: NodeRange {
            min: args.nodes.min,
            max: args.nodes.max,
        },
        ranks_per_node: args.ranks_per_node,
        checkpoint,
        max_restarts: args.max_restarts,
        user: args.user,
        resume_from: None,
        standby,
    })
}

/// Returns the standby processes of each node; refuses a command that can have none.
fn standby(args: &RunArgs) -> Result<Option<StandbyPolicy>, CliError> {
    let count = match args.standby {
        StandbyCount::Auto => args.ranks_per_node,
        StandbyCount::Number(number) => number,
    };
    if count == 0 {
        return Ok(None);
    }
    let reason = match StandbyCommand::parse(&args.command) {
        Err(reason) => Some(reason),
        Ok(_) if is_launcher(&args.command) => Some("a launcher starts the ranks itself".to_owned()),
        Ok(_) => None,
    };
    if let Some(reason) = reason {
        return Err(CliError::usage(
            format!("cannot hold standby processes for this command: {reason}"),
            "use `python SCRIPT ...` or `python -m MODULE ...`, or leave --standby out",
        ));
    }
    let imports = args.standby_import.as_deref().unwrap_or(STANDBY_IMPORT);
    let names = imports.split(',').map(str::trim).filter(|name| !name.is_empty());
    Ok(Some(StandbyPolicy {
        count,
        imports: names.map(str::to_owned).collect(),
    }))
}

/// Rejects variables that the agent sets for every rank: they would be ignored.
fn check_names(env: &[EnvPair]) -> Result<(), CliError> {
    let is_reserved = |name: &&str| RESERVED_VARIABLES.contains(name);
    let names: Vec<&str> = env.iter().map(|pair| pair.key.as_str()).filter(is_reserved).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(CliError::usage(
        format!(
            "cannot set {} with --env: the agent sets it for every rank",
            names.join(", ")
        ),
        format!("reserved names: {}", RESERVED_VARIABLES.join(", ")),
    ))
}

/// Derives a job name: the program's name and the time in milliseconds.
fn name_of(command: &[String]) -> String {
    let program = command.first().map(Path::new).and_then(|path| path.file_stem());
    let program = program
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    let plain: String = program
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c))
        .take(40)
        .collect();
    let plain = if plain.is_empty() { "job".to_owned() } else { plain };
    let millis = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis());
    format!("{plain}-{millis}")
}

/// Describes copies of checkpoints that are not made, because each is on another node of the job; `None` if the job may have
/// enough nodes.
pub(super) fn missing_copies(spec: &JobSpec) -> Option<String> {
    let wanted = spec.checkpoint.as_ref()?.tiers.nodes;
    let nodes = spec.nodes.max;
    let possible = nodes.saturating_sub(1);
    (wanted > possible).then(|| {
        let made = match possible {
            0 => "none is made".to_owned(),
            1 => "only 1 is made".to_owned(),
            most => format!("only {most} are made"),
        };
        let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
        format!("warning: --checkpoint-copies {wanted}: each copy is on another node of the job, which has at most {nodes}; {made}")
    })
}

/// Describes missing capacity for the job's minimum size; `None` if there is enough. The job is submitted anyway: nodes
/// may be about to join.
pub(super) fn missing_capacity(spec: &JobSpec, status: &StatusView) -> Option<String> {
    let usable = |node: &&NodeView| node.state == NodeState::Healthy;
    let fit = status
        .nodes
        .iter()
        .filter(usable)
        .filter(|node| node.slots >= spec.ranks_per_node)
        .count();
    (fit < spec.nodes.min as usize).then(|| {
        let min = spec.nodes.min;
        let ranks = spec.ranks_per_node;
        format!(
            "job {} waits for capacity: it needs at least {} with {} each; {fit} of {} qualify",
            spec.id,
            count(min as usize, "node"),
            count(ranks as usize, "slot"),
            count(status.nodes.len(), "node"),
        )
    })
}

/// Returns a warning about nodes on which a run of torchrun has workers: the placement of jobs does not know them.
pub(super) fn shared_nodes(status: &StatusView) -> Option<String> {
    let has_workers = |member: &&TorchrunMemberView| member.state == TorchrunMemberState::Running;
    let used = status.torchruns.iter().filter_map(|run| {
        let nodes: BTreeSet<&str> = run
            .members
            .iter()
            .filter(has_workers)
            .map(|member| member.node.as_str())
            .collect();
        let names: Vec<&str> = nodes.into_iter().collect();
        (!names.is_empty()).then(|| format!("torchrun {} on {}", run.run, names.join(" ")))
    });
    let used: Vec<String> = used.collect();
    (!used.is_empty()).then(|| {
        format!(
            "warning: workers of {} run there, and jobs of `run` may be placed on the same nodes; give each its own nodes \
             (docs/torchrun.md)",
            used.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use rankguard_model::{TorchrunState, TorchrunView};

    use super::*;
    use rankguard_report::sample;

    fn spec(min: u32, ranks_per_node: u32) -> JobSpec {
        let (status, _) = sample::cluster();
        JobSpec {
            nodes: NodeRange { min, max: min },
            ranks_per_node,
            ..status.jobs[0].spec.clone()
        }
    }

    #[test]
    fn copies_beyond_the_other_nodes_are_named() {
        let copies = |nodes: u32, copies: u32| {
            let mut spec = spec(nodes, 2);
            let policy = spec.checkpoint.as_mut().expect("the sample has a store");
            policy.tiers.nodes = copies;
            missing_copies(&spec)
        };
        assert_eq!(copies(3, 2), None);
        assert_eq!(copies(1, 0), None);
        let warned = copies(2, 3).expect("a third node is missing");
        assert!(
            warned.ends_with("which has at most 2 nodes; only 1 is made"),
            "{warned}"
        );
        let alone = copies(1, 1).expect("there is no other node");
        assert!(alone.ends_with("which has at most 1 node; none is made"), "{alone}");
    }

    #[test]
    fn missing_capacity_is_reported_with_both_numbers() {
        let (status, _) = sample::cluster();
        assert_eq!(missing_capacity(&spec(2, 2), &status), None);
        let too_many = missing_capacity(&spec(9, 2), &status).expect("nine nodes are not there");
        assert!(too_many.contains("at least 9 nodes with 2 slots each"), "{too_many}");
        let too_wide = missing_capacity(&spec(1, 64), &status).expect("no node has 64 slots");
        assert!(
            too_wide.contains("at least 1 node with 64 slots each; 0 of 4 nodes"),
            "{too_wide}"
        );
    }

    #[test]
    fn nodes_with_workers_of_torchrun_are_named() {
        let (mut status, _) = sample::cluster();
        assert_eq!(shared_nodes(&status), None);
        let member = |node: &str, state| TorchrunMemberView {
            node: node.into(),
            rank: None,
            state,
            reason: None,
        };
        status.torchruns.push(TorchrunView {
            run: "llm".to_owned(),
            owner: None,
            state: TorchrunState::Running,
            round: Some(1),
            nodes_min: 1,
            nodes_max: 2,
            members: vec![
                member("node-2", TorchrunMemberState::Running),
                member("node-1", TorchrunMemberState::Running),
                member("node-3", TorchrunMemberState::Spare),
            ],
            changed_at: status.at,
            reason: String::new(),
            ended_at: None,
        });
        let warning = shared_nodes(&status).expect("a run has workers");
        assert!(
            warning.contains("workers of torchrun llm on node-1 node-2 run there"),
            "{warning}"
        );
        assert_eq!(status.torchruns_on(&"node-1".into()), ["llm"]);
        assert!(
            status.torchruns_on(&"node-3".into()).is_empty(),
            "a spare has no workers"
        );
    }

    #[test]
    fn a_default_name_is_one_that_the_store_accepts() {
        for program in ["python3", "/opt/my train!.py", "--", ""] {
            let name = name_of(&[program.to_owned()]);
            assert!(
                rankguard_checkpoint::format::check_job(&JobId::from(name.clone())).is_ok(),
                "{name}"
            );
        }
    }
}
