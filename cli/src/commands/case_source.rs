//! Source of cases: a controller, its journal, or the agent of this node.

use std::path::{Path, PathBuf};

use clap::Args;
use rankguard_console::waiting::WorkNote;
use rankguard_controller::journal;
use rankguard_model::{Case, CaseId, StatusView, Timestamp, with_causes};

use super::case_filter::now;
use super::local;
use crate::args::{CommonArgs, ControllerAddress};
use crate::client::ClientError;
use crate::display_text;
use crate::error::CliError;
use crate::out;
use crate::runtime::block_on;

/// Source of the cases: a controller, its journal or the agent of this node.
#[derive(Debug, Clone, Args)]
pub(crate) struct CaseSourceArgs {
    #[command(flatten)]
    address: ControllerAddress,
    /// Read the cases from the journal of a controller: `journal.redb`, a copy of it, or its directory. It has the cases that
    /// have left the controller's memory, and the controller need not run
    #[arg(long, value_name = "PATH", conflicts_with_all = ["controller", "local"])]
    journal: Option<PathBuf>,
    /// Conclude cases from the newest findings of this node's agent instead of a controller
    #[arg(long, conflicts_with = "controller")]
    local: bool,
    /// With --local, state directory of the agent [setting agent.state_dir]
    #[arg(long, value_name = "DIR", requires = "local")]
    state_dir: Option<PathBuf>,
}

/// Source of jobs: a controller or its journal.
#[derive(Debug, Clone, Args)]
pub(crate) struct JobSourceArgs {
    #[command(flatten)]
    address: ControllerAddress,
    /// Read the jobs from the journal of a controller: `journal.redb`, a copy of it, or its directory. The controller need
    /// not run
    #[arg(long, value_name = "PATH", conflicts_with = "controller")]
    journal: Option<PathBuf>,
}

impl JobSourceArgs {
    /// Reads the status of the controller, or that at the end of its journal, with its time. A journal without entries has
    /// none.
    pub(super) fn status(&self, common: &CommonArgs) -> Result<Option<(StatusView, Timestamp)>, CliError> {
        if let Some(path) = &self.journal {
            let SourcedCases { status, end, .. } = journal_cases(path)?;
            return Ok(status.map(|status| (status, end)));
        }
        let client = self.address.client(common)?;
        let status = block_on(client.status())??;
        Ok(Some((status, now())))
    }
}

/// Returns the number of closed cases that the controller no longer lists; case numbers have no gaps.
fn removed_cases(cases: &[Case]) -> Option<u64> {
    let newest = cases.iter().map(|case| case.id.0).max()?;
    let removed = newest.saturating_sub(cases.len() as u64);
    (removed > 0).then_some(removed)
}

/// Cases of a source.
pub(super) struct SourcedCases {
    pub(super) cases: Vec<Case>,
    /// Status of the controller, at the end of its journal with `--journal`; `None` with `--local`.
    pub(super) status: Option<StatusView>,
    /// Time until which the source knows cases: now, or the last entry of a journal.
    pub(super) end: Timestamp,
}

impl CaseSourceArgs {
    /// Reads all cases.
    pub(super) fn cases(&self, common: &CommonArgs) -> Result<SourcedCases, CliError> {
        if self.local {
            return Ok(SourcedCases {
                cases: local::cases(self.state_dir.as_deref(), common)?,
                status: None,
                end: now(),
            });
        }
        if let Some(path) = &self.journal {
            let read = journal_cases(path)?;
            if let Some(removed) = removed_cases(&read.cases) {
                let removed = display_text::count(usize::try_from(removed).unwrap_or(usize::MAX), "older closed case");
                out::note(&format!(
                    "{removed} of this controller left its journal before its first entry"
                ));
            }
            return Ok(read);
        }
        let client = self.address.client(common)?;
        let (cases, status) =
            block_on(async { Ok::<_, ClientError>((client.cases().await?, client.status().await?)) })??;
        if let Some(removed) = removed_cases(&cases) {
            out::note(&format!(
                "{} left the controller's memory; its journal retains {} for controller.journal.retain_days and \
                 retain_bytes (`--journal PATH` reads it)",
                display_text::count(usize::try_from(removed).unwrap_or(usize::MAX), "older closed case"),
                if removed == 1 { "it" } else { "them" }
            ));
        }
        Ok(SourcedCases {
            cases,
            status: Some(status),
            end: now(),
        })
    }

    /// Returns the controller that has the cases; `None` with `--journal` and `--local`.
    pub(super) fn controller(&self) -> Option<&ControllerAddress> {
        (!self.local && self.journal.is_none()).then_some(&self.address)
    }

    /// Reads the case of a number, or states where it is missing.
    pub(super) fn case(&self, id: CaseId, common: &CommonArgs) -> Result<Case, CliError> {
        if self.local || self.journal.is_some() {
            let found = self.cases(common)?.cases.into_iter().find(|case| case.id == id);
            let (place, hint) = match &self.journal {
                Some(path) => (
                    format!("the journal {}", path.display()),
                    "`rankguard cases --journal PATH` lists the cases",
                ),
                None => (
                    "the findings of the agent of this node".to_owned(),
                    "`rankguard cases --local` lists the cases",
                ),
            };
            return found.ok_or_else(|| CliError::failure(format!("there is no case {id} in {place}"), hint));
        }
        let client = self.address.client(common)?;
        Ok(block_on(client.case(id))??)
    }
}

/// Replays a journal; entries that cannot be read are reported, and the cases are those of the others.
fn journal_cases(path: &Path) -> Result<SourcedCases, CliError> {
    let wait = WorkNote::start("replaying the journal");
    let mut problems = Vec::new();
    let read = journal::history(path, |problem| problems.push(problem));
    drop(wait);
    let history = read.map_err(|problem| {
        let hint = "name journal.redb in the state directory of a controller, or a copy of it";
        CliError::failure(format!("cannot read the journal {}", path.display()), hint).because(problem)
    })?;
    for problem in problems.iter().take(PROBLEMS_SHOWN) {
        out::note(&with_causes(problem));
    }
    if problems.len() > PROBLEMS_SHOWN {
        out::note(&format!("{} more such entries", problems.len() - PROBLEMS_SHOWN));
    }
    let end = history.last.unwrap_or_else(now);
    let Some(state) = history.state else {
        return Ok(SourcedCases {
            cases: Vec::new(),
            status: None,
            end,
        });
    };
    Ok(SourcedCases {
        cases: state.cases().values().cloned().collect(),
        status: Some(state.status(end)),
        end,
    })
}

/// Entries of a journal that could not be read and are named.
const PROBLEMS_SHOWN: usize = 3;
