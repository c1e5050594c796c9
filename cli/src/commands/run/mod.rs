//! `rankguard run`: submit a job and follow it. Ctrl-C cancels it.

mod args;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rankguard_model::{
    Case, CaseId, CaseState, CheckpointPolicy, JobId, JobSpec, JobState, JobView, NodeRange, NodeState, Role,
    StatusView,
};

pub(crate) use args::RunArgs;

use crate::client::Client;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out;
use crate::signals::Stop;
use crate::words::{case_state, job_state};

/// Between two looks at the job.
const POLL: Duration = Duration::from_millis(300);
/// Between two words about progress.
const PROGRESS: Duration = Duration::from_secs(20);
/// How long a controller may be away before following it makes no sense any more. The job goes on without it.
const AWAY_MAX: Duration = Duration::from_secs(600);
/// How long a cancelled job may take to end.
const CANCEL_MAX: Duration = Duration::from_secs(60);

pub(crate) async fn run(args: RunArgs, client: &Client) -> Result<Exit, CliError> {
    let detach = args.detach;
    let mut stop = Stop::catch().map_err(|problem| {
        CliError::failure("cannot catch signals", "is this process short of file descriptors?").because(problem)
    })?;
    let spec = spec(args)?;
    if let Some(lack) = lack(&spec, &client.status().await?) {
        out::note(&lack);
    }
    let job = client.submit(&spec).await?;
    out::line(job.as_str());
    if detach {
        out::note(&format!(
            "submitted; `rankguard status` shows it, `rankguard cancel {job}` stops it"
        ));
        return Ok(Exit::Fine);
    }
    let mut follower = Follower::new(job.clone());
    tokio::select! {
        ended = follower.follow(client) => ended,
        signal = stop.wait() => {
            out::note(&format!("{signal}: job {job} is being cancelled; once more leaves it as it is"));
            tokio::select! {
                ended = cancel(&mut follower, client) => ended,
                _ = stop.wait() => Err(CliError::failure(
                    format!("job {job} may still run"),
                    format!("`rankguard cancel {job}` stops it"),
                )),
            }
        }
    }
}

async fn cancel(follower: &mut Follower, client: &Client) -> Result<Exit, CliError> {
    client.cancel(&follower.job).await?;
    match tokio::time::timeout(CANCEL_MAX, follower.follow(client)).await {
        Ok(ended) => ended,
        Err(_) => Err(CliError::failure(
            format!(
                "job {} was cancelled but has not ended within {} s",
                follower.job,
                CANCEL_MAX.as_secs()
            ),
            "`rankguard status` shows what it waits for",
        )),
    }
}

/// The job as it is submitted.
fn spec(args: RunArgs) -> Result<JobSpec, CliError> {
    let here = |what: &str, path: &std::path::Path| {
        std::path::absolute(path)
            .map(|path| path.display().to_string())
            .map_err(|problem| {
                CliError::usage(
                    format!("cannot make {what} {} absolute", path.display()),
                    "name an absolute path",
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
            copies: args.copies.wanted()?,
        }),
        _ => None,
    };
    let workdir = args.workdir.unwrap_or_else(|| ".".into());
    let workdir = Some(here("the working directory", &workdir)?);
    let id = JobId(args.name.unwrap_or_else(|| name_of(&args.command)));
    rankguard_checkpoint::format::check_job(&id).map_err(|problem| {
        CliError::usage(
            "the name of the job cannot be used",
            "letters, digits, '.', '_' and '-' make a name",
        )
        .because(problem)
    })?;
    Ok(JobSpec {
        id,
        command: args.command,
        env: args
            .env
            .into_iter()
            .map(|pair| (pair.key, pair.value))
            .collect::<BTreeMap<_, _>>(),
        workdir,
        nodes: NodeRange {
            min: args.nodes.min,
            max: args.nodes.max,
        },
        ranks_per_node: args.ranks_per_node,
        checkpoint,
        max_restarts: args.max_restarts,
    })
}

/// The program's name and a number that nobody had before.
fn name_of(command: &[String]) -> String {
    let program = command
        .first()
        .map(std::path::Path::new)
        .and_then(|path| path.file_stem());
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

/// Says what the cluster lacks for the job's smallest size, if it lacks something. The job is submitted all the same:
/// nodes may be about to join.
fn lack(spec: &JobSpec, status: &StatusView) -> Option<String> {
    let usable = |node: &&rankguard_model::NodeView| node.state == NodeState::Healthy;
    let fit = status
        .nodes
        .iter()
        .filter(usable)
        .filter(|node| node.slots >= spec.ranks_per_node)
        .count();
    let slots: u32 = status.nodes.iter().filter(usable).map(|node| node.slots).sum();
    (fit < spec.nodes.min as usize).then(|| {
        let (min, ranks) = (spec.nodes.min, spec.ranks_per_node);
        format!(
            "job {} asks for more than there is: at least {min} nodes with {ranks} slots each ({} slots); {fit} of {} nodes \
             are healthy and have that ({slots} slots on all healthy nodes). It waits for more nodes",
            spec.id,
            u64::from(min) * u64::from(ranks),
            status.nodes.len(),
        )
    })
}

/// What was told already, so that only news is.
struct Follower {
    job: JobId,
    line: String,
    cases: BTreeMap<CaseId, CaseState>,
    told: Instant,
    away: Option<Instant>,
}

impl Follower {
    fn new(job: JobId) -> Self {
        Self {
            job,
            line: String::new(),
            cases: BTreeMap::new(),
            told: Instant::now(),
            away: None,
        }
    }

    /// Until the job has ended.
    async fn follow(&mut self, client: &Client) -> Result<Exit, CliError> {
        loop {
            if let Some(exit) = self.look(client).await? {
                return Ok(exit);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn look(&mut self, client: &Client) -> Result<Option<Exit>, CliError> {
        let seen = async { Ok::<_, crate::client::ClientError>((client.status().await?, client.cases().await?)) };
        let (status, cases) = match seen.await {
            Ok(seen) => seen,
            Err(problem) if problem.is_away() => {
                let since = *self.away.get_or_insert_with(|| {
                    out::note(&format!("{problem}; the job goes on, waiting for the controller"));
                    Instant::now()
                });
                return if since.elapsed() > AWAY_MAX {
                    Err(problem.into())
                } else {
                    Ok(None)
                };
            }
            Err(problem) => return Err(problem.into()),
        };
        if self.away.take().is_some() {
            out::note("the controller is back");
        }
        self.tell_cases(&cases);
        let Some(view) = status.jobs.iter().find(|view| view.spec.id == self.job) else {
            let what = format!("the controller at {} does not know job {}", client.address(), self.job);
            return Err(CliError::failure(what, "was its state directory replaced?"));
        };
        self.tell(view);
        match view.state {
            JobState::Finished => Ok(Some(Exit::Fine)),
            JobState::Stopped => Err(stopped(view, &cases)),
            _ => Ok(None),
        }
    }

    fn tell(&mut self, view: &JobView) {
        let line = describe(view);
        let news = line != self.line;
        if news || self.told.elapsed() > PROGRESS {
            let step = view.step.map(|step| format!(", step {step}")).unwrap_or_default();
            let loss = view
                .progress
                .last()
                .and_then(|point| point.loss)
                .map(|loss| format!(", loss {loss:.4}"));
            out::note(&format!("{line}{step}{}", loss.unwrap_or_default()));
            (self.line, self.told) = (line, Instant::now());
        }
    }

    fn tell_cases(&mut self, cases: &[Case]) {
        for case in cases.iter().filter(|case| case.job.as_ref() == Some(&self.job)) {
            if self.cases.insert(case.id, case.state) != Some(case.state) {
                let (class, blamed) = (&case.verdict.class, &case.verdict.blamed);
                let verdict = match case.state {
                    CaseState::Open => "evidence is being gathered".to_owned(),
                    _ => format!("{class}, blamed: {blamed}"),
                };
                out::note(&format!("case {} {}: {verdict}", case.id, case_state(case.state)));
            }
        }
    }
}

/// One job's state in a line that changes only when something has happened.
fn describe(view: &JobView) -> String {
    let mut line = format!("job {} {}", view.spec.id, job_state(view.state));
    if !view.placements.is_empty() {
        let nodes: BTreeSet<&str> = view.placements.iter().map(|at| at.node.as_str()).collect();
        let nodes: Vec<&str> = nodes.into_iter().collect();
        let ranks = match view.placements.len() {
            1 => "1 rank".to_owned(),
            many => format!("{many} ranks"),
        };
        line.push_str(&format!(
            ": {ranks} on {}, generation {}",
            nodes.join(" "),
            view.generation
        ));
    }
    if let Some(reason) = &view.reason {
        line.push_str(&format!(": {reason}"));
    }
    line
}

/// The verdict and the user's own line.
fn stopped(view: &JobView, cases: &[Case]) -> CliError {
    let reason = view.reason.as_deref().unwrap_or("no reason was given");
    let mut what = format!("job {} was stopped: {reason}", view.spec.id);
    let case = cases.iter().rfind(|case| case.job.as_ref() == Some(&view.spec.id));
    let Some(case) = case else {
        return CliError::failure(what, "`rankguard cases` lists what was seen");
    };
    let verdict = &case.verdict;
    what.push_str(&format!(
        "\n  verdict: {} ({}), blamed: {}",
        verdict.class, verdict.layer, verdict.blamed
    ));
    let root = case.findings.iter().find(|finding| finding.role == Role::Root);
    for line in root.into_iter().flat_map(|finding| finding.text.lines()) {
        what.push_str(&format!("\n  > {line}"));
    }
    let hint = format!(
        "{}; `rankguard cases show {}` tells all",
        verdict.mitigation.advice.trim_end_matches('.'),
        case.id
    );
    CliError::failure(crate::listing::plain(&what), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn spec(min: u32, ranks_per_node: u32) -> JobSpec {
        let (status, _) = sample::cluster();
        JobSpec {
            nodes: NodeRange { min, max: min },
            ranks_per_node,
            ..status.jobs[0].spec.clone()
        }
    }

    #[test]
    fn a_job_that_asks_for_more_than_there_is_hears_both_numbers() {
        let (status, _) = sample::cluster();
        assert_eq!(lack(&spec(2, 2), &status), None);
        let too_many = lack(&spec(9, 2), &status).expect("nine nodes are not there");
        assert!(
            too_many.contains("at least 9 nodes with 2 slots each (18 slots)"),
            "{too_many}"
        );
        let too_wide = lack(&spec(1, 64), &status).expect("no node has 64 slots");
        assert!(too_wide.contains("0 of 4 nodes"), "{too_wide}");
    }

    #[test]
    fn a_stopped_job_shows_the_verdict_and_the_users_own_line() {
        let (status, cases) = sample::cluster();
        let buggy = status
            .jobs
            .iter()
            .find(|view| view.state == JobState::Stopped)
            .expect("the sample has one");
        let lines = stopped(buggy, &cases).lines();
        for part in [
            "job buggy was stopped",
            "verdict: ",
            "> RuntimeError: mat1 and mat2",
            "train.py",
            "\nhint: ",
        ] {
            assert!(lines.contains(part), "{part:?} is not in:\n{lines}");
        }
    }

    #[test]
    fn a_default_name_is_one_that_the_store_accepts() {
        for program in ["python3", "/opt/my train!.py", "--", ""] {
            let name = name_of(&[program.to_owned()]);
            assert!(
                rankguard_checkpoint::format::check_job(&JobId(name.clone())).is_ok(),
                "{name}"
            );
        }
    }
}
