//! `rankguard bench agent`.

use std::time::Duration;

use rankguard_bench::agent::{self, AgentFigure, ControllerReader};
use rankguard_identity::PeerTransport;
use rankguard_model::{Case, StatusView};

use super::BenchAgentArgs;
use crate::client::ControllerClient;
use crate::commands::gpu_calls;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;
use crate::runtime::block_on;

const COLUMNS: &[TableColumn<AgentFigure>] = &[
    ("subject", |it| it.subject.to_owned()),
    ("figure", |it| it.figure.to_owned()),
    ("value", |it| format!("{:.3}", it.value)),
    ("unit", |it| it.unit.to_owned()),
    ("below", |it| {
        it.below.map_or(String::new(), |target| target.to_string())
    }),
    ("reached", |it| match it.reached() {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => String::new(),
    }),
];

impl ControllerReader for ControllerClient {
    async fn status(&self) -> Option<StatusView> {
        self.status().await.ok()
    }

    async fn cases(&self) -> Option<Vec<Case>> {
        self.cases().await.ok()
    }
}

pub(super) fn run(args: &BenchAgentArgs) -> Result<CommandExit, CliError> {
    let library = gpu_calls::stand_in()?;
    if cfg!(debug_assertions) {
        out::note("this is a debug build: its figures are not those of a release build");
    }
    let time = Duration::from_secs(u64::from(args.seconds));
    let connect = |address: &str| ControllerClient::new(address, PeerTransport::loopback());
    let measured = block_on(agent::measure(&library, time, connect))?;
    let found = measured.map_err(|problem| {
        CliError::failure(
            "could not be measured",
            "is there room in the folder for temporary files, and may processes be started?",
        )
        .because(problem)
    })?;
    for note in &found.notes {
        out::note(note);
    }
    listing::print(args.format.format, &found.figures, COLUMNS);
    let missed = found.figures.iter().any(|figure| figure.reached() == Some(false));
    Ok(if missed {
        CommandExit::Finding
    } else {
        CommandExit::Fine
    })
}
