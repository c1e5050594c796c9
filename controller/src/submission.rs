//! Validation of job submissions.

use rankguard_checkpoint::arena::MIN_WINDOW_BYTES;
use rankguard_checkpoint::format::check_job;
use rankguard_core::DecisionState;
use rankguard_model::{JobId, JobSpec, RESERVED_VARIABLES, ResumePlace, StandbyCommand};

use crate::input::CommandRefusal;

/// Returns all problems of a submission, as sentences; empty if it is valid.
///
/// A job larger than the cluster is valid: it waits for nodes and reports that.
pub(crate) fn problems(spec: &JobSpec) -> Vec<String> {
    let mut problems = Vec::new();
    if let Err(problem) = check_job(&spec.id) {
        problems.push(problem.to_string());
    }
    match spec.command.first() {
        None => problems.push("command: empty; name a program after `--`".to_owned()),
        Some(program) if program.is_empty() => problems.push("command: the program's name is empty".to_owned()),
        Some(_) => {}
    }
    let nul = |text: &String| text.contains('\0');
    if spec.command.iter().any(nul) || spec.env.iter().any(|(name, value)| nul(name) || nul(value)) {
        problems.push("command and environment: a NUL character cannot be passed to a program".to_owned());
    }
    if let Some(name) = spec.env.keys().find(|name| name.is_empty() || name.contains('=')) {
        problems.push(format!("environment: `{name}` cannot be the name of a variable"));
    }
    let is_reserved = |name: &&String| RESERVED_VARIABLES.contains(&name.as_str());
    let reserved: Vec<&str> = spec.env.keys().filter(is_reserved).map(String::as_str).collect();
    if !reserved.is_empty() {
        problems.push(format!(
            "environment: the agent sets {} for every rank; reserved are {}",
            reserved.join(", "),
            RESERVED_VARIABLES.join(", ")
        ));
    }
    let min = spec.nodes.min;
    let max = spec.nodes.max;
    if min == 0 {
        problems.push("nodes: at least 1 is needed".to_owned());
    }
    if min > max {
        problems.push(format!("nodes: the least, {min}, is more than the most, {max}"));
    }
    if spec.ranks_per_node == 0 {
        problems.push("ranks per node: at least 1 is needed".to_owned());
    }
    if max.checked_mul(spec.ranks_per_node).is_none() {
        problems.push(format!(
            "{max} nodes of {} ranks are more ranks than can be counted",
            spec.ranks_per_node
        ));
    }
    if let Some(standby) = &spec.standby {
        let reason = StandbyCommand::parse(&spec.command).err();
        problems.extend(reason.map(|reason| format!("standby: the command can have no standby processes: {reason}")));
        if standby.count == 0 {
            problems.push("standby: 0 processes are none; leave the setting out instead".to_owned());
        }
    }
    if let Some(source) = &spec.resume_from {
        if spec.checkpoint.is_none() {
            problems.push("resume-from: a job without a checkpoint store restores nothing; name its store".to_owned());
        }
        match &source.place {
            ResumePlace::Job(job) => {
                problems.extend(check_job(job).err().map(|problem| format!("resume-from: {problem}")))
            }
            ResumePlace::Path(path) if !path.starts_with('/') => {
                problems.push(format!("resume-from: {path:?} is no absolute path"));
            }
            ResumePlace::Path(_) => {}
        }
    }
    if let Some(checkpoint) = &spec.checkpoint {
        if checkpoint.every_steps == 0 {
            problems.push("checkpoint: every 0 steps is never; leave the checkpoint out instead".to_owned());
        }
        if checkpoint.store.is_empty() {
            problems.push("checkpoint: no directory of the store".to_owned());
        }
        if checkpoint.keep == 0 {
            problems.push("checkpoint: at least 1 must be kept".to_owned());
        }
        let window = checkpoint.tiers.window;
        if let Some(window) = window.filter(|window| window.get() < MIN_WINDOW_BYTES) {
            problems.push(format!(
                "checkpoint: no image passes through a window of {window} bytes; give it {MIN_WINDOW_BYTES} or more"
            ));
        }
        problems.extend(
            checkpoint
                .tiers
                .problem()
                .map(|problem| format!("checkpoint: {problem}")),
        );
    }
    problems
}

/// Returns the reason to refuse the name of a submission, or `None`.
pub(crate) fn name_refusal(state: &DecisionState, spec: &JobSpec) -> Option<CommandRefusal> {
    if spec.resume_from.is_none()
        && let Some(node) = state.foreign_nodes(&spec.id).first()
    {
        let id = &spec.id;
        return Some(CommandRefusal::Exists(format!(
            "job {id} runs on node {node}, begun by a controller with another journal; `rankguard cancel {id}` ends its \
             ranks; if it has a checkpoint store, `--resume-from {id}` replaces them and goes on from its checkpoints"
        )));
    }
    if !state.has_job_name(&spec.id) || state.may_replace(spec) {
        return None;
    }
    let resumes_itself = spec.resume_from.as_ref().is_some_and(|source| match &source.place {
        ResumePlace::Job(job) => *job == spec.id,
        // It may be the job's own folder.
        ResumePlace::Path(_) => true,
    });
    let Some(job) = state.jobs().get(&spec.id).filter(|_| resumes_itself) else {
        return Some(name_taken(state, &spec.id));
    };
    let id = &spec.id;
    Some(CommandRefusal::Exists(if job.is_over() {
        format!("cannot resume job {id}: its last checkpoint is being committed; submit it again in a moment")
    } else {
        format!(
            "cannot resume job {id}: it is active, at generation {}; end it with `rankguard cancel {id}`",
            job.generation()
        )
    }))
}

/// Returns the refusal of a name that is in use.
pub(crate) fn name_taken(state: &DecisionState, id: &JobId) -> CommandRefusal {
    let known = state.jobs().get(id);
    let has_store = known.is_some_and(|job| job.spec.checkpoint.is_some());
    let alternative = match known {
        Some(_) if has_store => format!(", or continue from its checkpoints with `--resume-from {id}`"),
        Some(_) => "; that job has no checkpoint store, so there is nothing to continue from".to_owned(),
        None => format!(", or, if that job has a checkpoint store, continue with `--resume-from {id}`"),
    };
    CommandRefusal::Exists(format!("job name {id} is already used; choose another{alternative}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rankguard_model::{CheckpointPolicy, NodeRange};

    use super::*;

    fn spec() -> JobSpec {
        JobSpec {
            id: JobId::from("digits"),
            command: vec!["train".to_owned()],
            env: BTreeMap::new(),
            workdir: None,
            nodes: NodeRange { min: 1, max: 3 },
            ranks_per_node: 2,
            checkpoint: None,
            max_restarts: 3,
            user: None,
            resume_from: None,
            standby: None,
        }
    }

    #[test]
    fn a_sound_job_has_no_mistakes_even_if_no_cluster_is_that_large() {
        let mut spec = spec();
        spec.nodes.max = 100_000;
        assert_eq!(problems(&spec), Vec::<String>::new());
    }

    #[test]
    fn standby_processes_require_a_python_command() {
        let mut spec = spec();
        spec.standby = Some(rankguard_model::StandbyPolicy {
            count: 1,
            imports: Vec::new(),
        });
        spec.command = ["python3", "train.py"].map(str::to_owned).to_vec();
        assert_eq!(problems(&spec), Vec::<String>::new());
        spec.command = ["bash", "train.sh"].map(str::to_owned).to_vec();
        assert_eq!(
            problems(&spec),
            ["standby: the command can have no standby processes: `bash` is not a Python interpreter"]
        );
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let mut spec = spec();
        spec.id = JobId::from("../up");
        spec.command = Vec::new();
        spec.env.insert("A=B".to_owned(), String::new());
        spec.env.insert("RANK".to_owned(), "5".to_owned());
        spec.nodes = NodeRange { min: 4, max: 3 };
        spec.ranks_per_node = 0;
        spec.checkpoint = Some(CheckpointPolicy {
            every_steps: 0,
            store: String::new(),
            keep: 0,
            retention: rankguard_model::RetentionPolicy::default(),
            tiers: rankguard_model::CheckpointTiers {
                nodes: 1,
                window: std::num::NonZero::new(1000),
                ..rankguard_model::CheckpointTiers::default()
            },
        });
        assert_eq!(problems(&spec).len(), 11, "{:#?}", problems(&spec));
    }
}
