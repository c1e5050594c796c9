//! Commands that ask the agent of this node, without a controller.

mod cases;
mod status;

use std::path::Path;
use std::time::Duration;

use rankguard_agent::{AgentQueryError, AgentView, CatalogueHandle, ask_agent};

pub(super) use cases::cases;
pub(super) use status::{AgentStatusArgs, status};

use crate::args::CommonArgs;
use crate::config::FlagValue;
use crate::error::CliError;

/// Maximum wait for the agent's answer.
const DEADLINE: Duration = Duration::from_secs(10);

fn agent_view(state_dir: Option<&Path>, common: &CommonArgs) -> Result<AgentView, CliError> {
    let flag = FlagValue::of("agent.state_dir", "--state-dir", state_dir);
    let state_dir = common.settings([flag])?.agent().state_dir;
    ask_agent(&state_dir, DEADLINE).map_err(|problem| {
        let hint = match &problem {
            AgentQueryError::Absent { .. } => {
                "is `rankguard agent` running, and with this state directory? --state-dir names another"
            }
            AgentQueryError::Broken { .. } => "only its own user and root may ask it; does it still run?",
            AgentQueryError::Foreign { .. } => "are `rankguard` and the agent of the same version?",
        };
        CliError::failure("the agent of this node was not heard", hint).because(problem)
    })
}

/// Reads the current files of `agent.catalogue`.
pub(super) fn read_catalogue(knowledge: &CatalogueHandle) -> Result<(), CliError> {
    knowledge.reload().map_err(|problem| {
        CliError::usage(
            format!("the catalogue files of this node cannot be used\n{problem}"),
            "the setting agent.catalogue names them; each line names file, line and key",
        )
    })
}
