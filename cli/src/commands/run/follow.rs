//! Follows a job until it has ended, and prints changes of it and of its cases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rankguard_faults::classes;
use rankguard_model::{
    Case, CaseFinding, CaseId, CaseState, JobId, JobState, JobView, Role, RunStart, Verdict, is_cancellation,
};

use super::checkpoint_news::CheckpointNotes;
use crate::client::{ClientError, ControllerClient};
use crate::client_command::CommandOptions;
use crate::commands::logs::LogReader;
use crate::display_text::{case_progress, job_state};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;

use super::submitter::find_program;

/// Interval between polls.
const POLL: Duration = Duration::from_millis(300);
/// Interval between progress lines.
const PROGRESS: Duration = Duration::from_secs(20);
/// Maximum time without a controller before following ends with an error. The job continues without it.
const AWAY_MAX: Duration = Duration::from_secs(600);

/// Maximum wait for agents to report a job of which the controller has no record: agents join a restarted controller
/// within seconds.
const UNLISTED_MAX: Duration = Duration::from_secs(20);

/// Maximum wait for the commit of a finished job's last checkpoint. The agents continue afterwards.
const SAVING_MAX: Duration = Duration::from_secs(600);

/// Maximum wait for the verdict about a job that is over.
const VERDICT_MAX: Duration = Duration::from_secs(15);

/// State of a followed job, to print only changes.
pub(super) struct JobFollower {
    pub(super) job: JobId,
    line: String,
    /// Last printed state, with its progress.
    report: String,
    cases: BTreeMap<CaseId, (CaseState, &'static str)>,
    reported: Instant,
    away: Option<Instant>,
    /// True if it was reported that the controller records nothing.
    reported_degraded: bool,
    /// Time since which the controller does not list the job.
    unlisted: Option<Instant>,
    saving: Option<Instant>,
    settling: Option<Instant>,
    /// Reported start of the job.
    reported_start: Option<RunStart>,
    /// Number of reported checkpoints that the job passed over.
    reported_passed: usize,
    checkpoints: CheckpointNotes,
    finished: bool,
    /// Prints the output of the ranks, with `--output`.
    reader: Option<LogReader>,
}

impl JobFollower {
    pub(super) fn new(job: JobId, reader: Option<LogReader>) -> Self {
        Self {
            job,
            line: String::new(),
            report: String::new(),
            cases: BTreeMap::new(),
            reported: Instant::now(),
            away: None,
            reported_degraded: false,
            unlisted: None,
            saving: None,
            settling: None,
            reported_start: None,
            reported_passed: 0,
            checkpoints: CheckpointNotes::default(),
            finished: false,
            reader,
        }
    }

    /// True if every rank has ended successfully, so that only the commit of the last checkpoint is awaited.
    pub(super) fn has_finished(&self) -> bool {
        self.finished
    }

    /// Polls until the job has ended and its last checkpoint is committed.
    pub(super) async fn follow(&mut self, client: &ControllerClient) -> Result<CommandExit, CliError> {
        loop {
            if let Some(exit) = self.poll(client).await? {
                return Ok(exit);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Prints the output that ranks wrote while they ended.
    pub(super) async fn print_rest(&mut self, client: &ControllerClient) {
        let (Some(reader), Ok(status)) = (&mut self.reader, client.status().await) else {
            return;
        };
        if let Some(view) = status.jobs.iter().find(|view| view.spec.id == self.job) {
            reader.print_new(view, &status.nodes, client.network()).await;
            reader.finish();
        }
    }

    async fn poll(&mut self, client: &ControllerClient) -> Result<Option<CommandExit>, CliError> {
        let seen = async { Ok::<_, ClientError>((client.status().await?, client.cases().await?)) };
        let (status, cases) = match seen.await {
            Ok(seen) => seen,
            Err(problem) if problem.is_away() => {
                let since = *self.away.get_or_insert_with(|| {
                    out::note(&format!(
                        "{problem}; the job is not cancelled: ranks that run go on without the controller; waiting for it"
                    ));
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
            out::note("connected to the controller again");
        }
        let Some(view) = status.jobs.iter().find(|view| view.spec.id == self.job) else {
            return self.await_listing(client).map(|()| None);
        };
        self.unlisted = None;
        self.report_degraded(status.degraded.as_deref());
        self.report_cases(&cases, view);
        self.report_start(view);
        self.checkpoints.print(view);
        self.report_state(view);
        if let Some(reader) = &mut self.reader {
            reader.print_new(view, &status.nodes, client.network()).await;
            if matches!(view.state, JobState::Finished | JobState::Stopped) {
                reader.finish();
            }
        }
        self.finished = view.state == JobState::Finished;
        match view.state {
            JobState::Finished if !self.has_saved(view) || self.awaits_verdict(view, &cases) => Ok(None),
            JobState::Finished => {
                if let Some(hint) = open_case_hint(view, &cases, client.options()) {
                    out::note(&hint);
                }
                Ok(Some(CommandExit::Fine))
            }
            JobState::Stopped if self.awaits_verdict(view, &cases) => Ok(None),
            JobState::Stopped => Err(stopped(view, &cases, client.options())),
            _ => Ok(None),
        }
    }

    /// Waits for the agents' reports of a job of which the controller has no record, for at most [`UNLISTED_MAX`].
    fn await_listing(&mut self, client: &ControllerClient) -> Result<(), CliError> {
        let job = &self.job;
        let since = *self.unlisted.get_or_insert_with(|| {
            out::note(&format!(
                "the controller at {} has no record of job {job}; waiting for agents to report its ranks, which are not \
                 affected",
                client.address()
            ));
            Instant::now()
        });
        if since.elapsed() < UNLISTED_MAX {
            return Ok(());
        }
        Err(CliError::failure(
            format!(
                "the controller at {} has no record of job {job}, and no agent reports ranks of it",
                client.address()
            ),
            "check whether its state directory was replaced; `rankguard agent status` on a node lists the ranks that run \
             there",
        ))
    }

    /// True if evidence about a job that is over is still being gathered, for at most [`VERDICT_MAX`].
    fn awaits_verdict(&mut self, view: &JobView, cases: &[Case]) -> bool {
        if view.reason.as_deref().is_some_and(is_cancellation) || open_case(view, cases).is_none() {
            return false;
        }
        let since = *self.settling.get_or_insert_with(Instant::now);
        since.elapsed() < VERDICT_MAX
    }

    /// True if no checkpoint of a finished job is being written, or [`SAVING_MAX`] is over.
    fn has_saved(&mut self, view: &JobView) -> bool {
        let Some(step) = view.saving else { return true };
        let since = *self.saving.get_or_insert_with(|| {
            out::note(&format!("waiting for the commit of the checkpoint of step {step}"));
            Instant::now()
        });
        let over = since.elapsed() > SAVING_MAX;
        if over {
            out::note(&format!(
                "the checkpoint of step {step} is not committed after {} s; run `rankguard agent status` on its nodes",
                SAVING_MAX.as_secs()
            ));
        }
        over
    }

    /// Reports the checkpoint that the job resumes from, and another one if that cannot be used.
    fn report_start(&mut self, view: &JobView) {
        let start = view.resumed_from.as_ref();
        if let Some(start) = start.filter(|start| self.reported_start.as_ref() != Some(start)) {
            out::note(&format!("job {} resumes from {start}", view.spec.id));
            self.reported_start = Some(start.clone());
        }
        for passed_over in view.passed_over.iter().skip(self.reported_passed) {
            out::note(&format!("warning: job {} passed over {passed_over}", view.spec.id));
        }
        self.reported_passed = view.passed_over.len();
    }

    fn report_state(&mut self, view: &JobView) {
        let line = describe(view);
        let report = format!("{line}{}", progress_text(view));
        if self.is_news(&line, &report, self.reported.elapsed()) {
            out::note(&report);
            (self.line, self.report, self.reported) = (line, report, Instant::now());
        }
    }

    fn report_degraded(&mut self, why: Option<&str>) {
        match why {
            Some(why) if !self.reported_degraded => out::note(&format!(
                "warning: the controller records and decides nothing, and the job runs on without it: {why}"
            )),
            None if self.reported_degraded => out::note("the controller records and decides again"),
            _ => {}
        }
        self.reported_degraded = why.is_some();
    }

    /// Returns true if a state differs from the printed one. `line` changes with events; `report` also has the progress,
    /// which is printed every [`PROGRESS`].
    fn is_news(&self, line: &str, report: &str, since: Duration) -> bool {
        line != self.line || since > PROGRESS && report != self.report
    }

    fn report_cases(&mut self, cases: &[Case], view: &JobView) {
        for case in cases.iter().filter(|case| view.is_of_attempt(case)) {
            let state = (case.state, case_progress(case));
            if self.cases.insert(case.id, state) != Some(state) {
                let class = &case.verdict.class;
                let blamed = case.blamed_text();
                let verdict = match case.state {
                    CaseState::Open => "evidence is being collected".to_owned(),
                    CaseState::Closed => {
                        // The end of a job is printed with its reason.
                        let is_over = matches!(view.state, JobState::Finished | JobState::Stopped);
                        let outcome = case.outcome.as_ref().filter(|_| !is_over);
                        let outcome = outcome.map(|outcome| format!("; {outcome}")).unwrap_or_default();
                        format!("{class}, blamed: {blamed}{}{outcome}", drill_marker(case))
                    }
                    _ => format!("{class}, blamed: {blamed}{}", drill_marker(case)),
                };
                out::note(&format!("case {} {}: {verdict}", case.id, case_progress(case)));
            }
        }
    }
}

/// Returns the newest case of a job without a verdict.
fn open_case<'a>(view: &JobView, cases: &'a [Case]) -> Option<&'a Case> {
    let mut cases = cases.iter();
    cases.rfind(|case| view.is_of_attempt(case) && case.state == CaseState::Open)
}

/// Names the command that shows the verdict of a case for which evidence is still being collected.
fn open_case_hint(view: &JobView, cases: &[Case], options: &CommandOptions) -> Option<String> {
    let case = open_case(view, cases)?;
    let show = options.command("cases show", Some(&case.id.to_string()));
    Some(format!(
        "case {} has no verdict yet: {show} shows it once the evidence is collected",
        case.id
    ))
}

/// Returns the words that mark the case of a drill; empty for a real failure.
fn drill_marker(case: &Case) -> &'static str {
    if case.is_synthetic() {
        " (synthetic: based on simulated or injected evidence)"
    } else {
        ""
    }
}

/// Formats the newest step with the newest known loss. Progress points are thinned, so the loss may be of an earlier
/// step, which is then named.
fn progress_text(view: &JobView) -> String {
    let Some(step) = view.current_step() else {
        return String::new();
    };
    // Points of an earlier generation may be of later steps.
    let mut points = view
        .progress
        .iter()
        .rev()
        .filter(|point| point.generation == view.generation);
    let point = points.find(|point| point.loss.is_some());
    let loss = point.and_then(|point| Some((point.step, point.loss?)));
    match loss {
        // The reason has the loss of now.
        _ if has_loss_reason(view) => format!(", step {step}"),
        Some((of, loss)) if of == step => format!(", step {step}, loss {loss:.4}"),
        Some((of, loss)) => format!(", step {step}; loss {loss:.4} at step {of}"),
        None => format!(", step {step}"),
    }
}

/// Returns true if the reason of a job states its loss, because that is not finite: progress points lack such losses.
fn has_loss_reason(view: &JobView) -> bool {
    let mut parts = view.reason.iter().flat_map(|reason| reason.split("; "));
    parts.any(|part| part.starts_with("loss ") && part.contains(" since step "))
}

/// Formats the state of a job; the line changes only with an event.
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

/// Builds the error of a stopped job: the verdict, the lines of the root finding, and advice.
fn stopped(view: &JobView, cases: &[Case], options: &CommandOptions) -> CliError {
    let reason = view.reason.as_deref().unwrap_or("no reason");
    let mut what = format!("job {} was stopped: {reason}", view.spec.id);
    // The earlier cases of a cancelled job are not the cause of its end.
    if is_cancellation(reason) {
        let job = &view.spec.id;
        let hint = match view.checkpoints.last() {
            Some(newest) => format!(
                "the same command with `--resume-from={job}` goes on from its checkpoint of step {}",
                newest.step
            ),
            None if cases.iter().any(|case| view.is_of_attempt(case)) => {
                let list = options.command(&format!("cases list --job={job}"), None);
                format!("{list} lists its cases")
            }
            None => {
                let logs = options.command(&format!("logs {job}"), None);
                format!("{logs} shows the output of its ranks")
            }
        };
        return CliError::failure(what, hint).exiting(CommandExit::JobCancelled);
    }
    let is_concluded = |case: &&Case| case.job.as_ref() == Some(&view.spec.id) && case.state != CaseState::Open;
    // A failure beside the one that stopped the job has a case of its own.
    let is_end = |case: &&Case| is_concluded(case) && reason.ends_with(&format!("(case {})", case.id));
    let case = cases.iter().rfind(is_end).or_else(|| cases.iter().rfind(is_concluded));
    let Some(case) = case else {
        let hint = open_case_hint(view, cases, options).unwrap_or_else(|| {
            let status = options.command("status", None);
            format!("{status} lists the nodes and why one takes no work")
        });
        return CliError::failure(what, hint).exiting(CommandExit::JobFailed);
    };
    let verdict = &case.verdict;
    what.push_str(&format!(
        "\n  verdict: {}{}, blamed: {}{}",
        verdict.class,
        layer_text(verdict),
        case.blamed_text(),
        drill_marker(case)
    ));
    let root = case.findings.iter().find(|finding| finding.role == Role::Root);
    let message = root.and_then(|root| native_message(root, &case.findings));
    let quoted = root.into_iter().chain(message);
    for line in quoted.flat_map(|finding| finding.text.lines()) {
        what.push_str(&format!("\n  > {line}"));
    }
    let advice = match missing_module(view, root) {
        Some(advice) => advice,
        None => verdict.mitigation.advice.trim_end_matches('.').to_owned(),
    };
    let show = options.command("cases show", Some(&case.id.to_string()));
    let hint = format!("{advice}; {show} shows details");
    CliError::failure(what, hint).exiting(CommandExit::JobFailed)
}

/// Formats the layer of a verdict; empty if only an exit without a cause is known, which shows no layer.
fn layer_text(verdict: &Verdict) -> String {
    if [classes::UNKNOWN, classes::RANK_EXIT_UNKNOWN].contains(&verdict.class.as_str()) {
        return String::new();
    }
    format!(" ({})", verdict.layer)
}

/// Returns the message of a C++ exception that ended a rank: the runtime prints it below the line that names its type.
fn native_message<'a>(root: &CaseFinding, findings: &'a [CaseFinding]) -> Option<&'a CaseFinding> {
    let is_message = |finding: &&CaseFinding| {
        finding.entity == root.entity && finding.role != Role::Root && finding.text.trim_start().starts_with("what():")
    };
    findings.iter().find(is_message)
}

/// Returns advice for a module that Python did not find: names the interpreter.
fn missing_module(view: &JobView, root: Option<&CaseFinding>) -> Option<String> {
    let text = &root?.text;
    let module = text.split("No module named ").nth(1)?.split_whitespace().next()?;
    let program = view.spec.command.first()?;
    if !program.rsplit('/').next()?.starts_with("python") {
        return None;
    }
    let interpreter = match find_program(program, &view.spec.env) {
        Some(path) if path.as_os_str() != program.as_str() => format!("`{program}`, here {}", path.display()),
        _ => format!("`{program}`"),
    };
    Some(format!(
        "The ranks ran {interpreter}, which has no module {module}: activate its environment before `rankguard run`, or \
         use its interpreter in the command"
    ))
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Step, cancellation_reason};

    use super::*;
    use rankguard_report::sample;

    #[test]
    fn a_loss_is_shown_with_the_step_that_it_belongs_to() {
        let (status, _) = sample::cluster();
        let mut view = status.jobs[0].clone();
        let point = |step, loss| rankguard_model::ProgressPoint {
            at: status.at,
            generation: view.generation,
            step: Step(step),
            loss,
            step_ms: 1.0,
        };
        let points = vec![point(7, Some(0.5)), point(8, None)];
        view.progress = points;
        view.generation_step = Some(Step(9));
        assert_eq!(progress_text(&view), ", step 9; loss 0.5000 at step 7");
        view.generation_step = Some(Step(7));
        assert_eq!(progress_text(&view), ", step 7, loss 0.5000");
        view.reason = Some("1 of its 2 ranks has ended with exit code 0; loss nan since step 8 (rank 1)".to_owned());
        assert_eq!(progress_text(&view), ", step 7");
        view.reason = None;
        // After a restart the job is behind its furthest step.
        view.generation = view.generation.next();
        view.generation_step = Some(Step(5));
        assert_eq!(progress_text(&view), ", step 5");
        view.generation_step = Some(Step(7));
        view.progress.clear();
        assert_eq!(progress_text(&view), ", step 7");
    }

    #[test]
    fn a_state_without_progress_is_printed_once() {
        let mut follower = JobFollower::new(JobId::from("m"), None);
        let [soon, late] = [Duration::from_secs(1), PROGRESS * 2];
        assert!(follower.is_news("job m pending", "job m pending", soon));
        (follower.line, follower.report) = ("job m pending".to_owned(), "job m pending".to_owned());
        assert!(!follower.is_news("job m pending", "job m pending", late));
        assert!(follower.is_news("job m running", "job m running", soon));
        (follower.line, follower.report) = ("job m running".to_owned(), "job m running, step 4".to_owned());
        assert!(!follower.is_news("job m running", "job m running, step 5", soon));
        assert!(follower.is_news("job m running", "job m running, step 5", late));
    }

    #[test]
    fn a_stopped_job_shows_the_verdict_and_the_users_own_line() {
        let (status, cases) = sample::cluster();
        let buggy = status
            .jobs
            .iter()
            .find(|view| view.state == JobState::Stopped)
            .expect("the sample has one");
        let lines = stopped(buggy, &cases, &CommandOptions::default()).lines();
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
    fn a_stopped_job_shows_the_message_of_a_native_exception() {
        let (status, mut cases) = sample::cluster();
        let buggy = status.jobs.iter().find(|view| view.state == JobState::Stopped);
        let buggy = buggy.expect("the sample has one");
        let is_of_job = |case: &&mut Case| case.job.as_ref() == Some(&buggy.spec.id);
        let case = cases.iter_mut().rfind(is_of_job).expect("it has a case");
        let mut message = case.findings[0].clone();
        message.role = Role::Confirmation;
        message.text = "what():  shard 9 has no header".to_owned();
        case.findings.push(message);
        let lines = stopped(buggy, &cases, &CommandOptions::default()).lines();
        assert!(lines.contains("> what():  shard 9 has no header"), "{lines}");
    }

    #[test]
    fn the_end_of_a_job_waits_for_the_verdict_and_names_the_command_that_shows_it() {
        let (status, mut cases) = sample::cluster();
        let buggy = status.jobs.iter().find(|view| view.state == JobState::Stopped);
        let mut view = buggy.expect("the sample has one").clone();
        cases.retain(|case| case.job.as_ref() == Some(&view.spec.id));
        cases.truncate(1);
        let options = CommandOptions::default();
        assert_eq!(open_case_hint(&view, &cases, &options), None);
        cases[0].state = CaseState::Open;
        let command = format!("`rankguard cases show {}`", cases[0].id);
        let lines = stopped(&view, &cases, &options).lines();
        assert!(
            lines.contains("has no verdict yet") && lines.contains(&command),
            "{lines}"
        );
        (view.state, view.reason) = (JobState::Finished, None);
        let mut follower = JobFollower::new(view.spec.id.clone(), None);
        assert!(follower.awaits_verdict(&view, &cases));
        follower.settling = Instant::now().checked_sub(VERDICT_MAX);
        assert!(!follower.awaits_verdict(&view, &cases), "the wait is limited");
        let hint = open_case_hint(&view, &cases, &options).expect("it is open");
        assert!(hint.contains(&command), "{hint}");
    }

    #[test]
    fn a_cancelled_job_shows_the_cancel_and_no_verdict_of_an_earlier_case() {
        let (status, cases) = sample::cluster();
        let mut view = status
            .jobs
            .iter()
            .find(|view| view.state == JobState::Stopped)
            .expect("the sample has one")
            .clone();
        view.reason = Some(cancellation_reason(None));
        let lines = stopped(&view, &cases, &CommandOptions::default()).lines();
        assert!(
            lines.contains("job buggy was stopped: cancelled by an operator's request"),
            "{lines}"
        );
        assert!(!lines.contains("verdict"), "{lines}");
        // A hint names what there is.
        let hint = |view: &JobView, cases: &[Case]| stopped(view, cases, &CommandOptions::default()).lines();
        view.checkpoints.clear();
        let lines = hint(&view, &cases);
        assert!(lines.contains("cases list --job=buggy` lists its cases"), "{lines}");
        let lines = hint(&view, &[]);
        assert!(lines.contains("logs buggy` shows the output of its ranks"), "{lines}");
    }
}
