//! Commands that ask the agent of this node, without a controller.

mod cases;
mod status;

use std::path::Path;
use std::time::Duration;

use rankguard_agent::{AgentQueryError, AgentView, CatalogueHandle, ask_agent};
use rankguard_console::waiting::WorkNote;

pub(super) use cases::cases;
pub(super) use status::{AgentStatusArgs, status};

use crate::args::CommonArgs;
use crate::config::FlagValue;
use crate::error::CliError;

/// Note while the agent does not answer.
pub(super) const AGENT_WAIT: &str = "waiting for the agent of this node";
/// Maximum wait for the agent's answer.
const DEADLINE: Duration = Duration::from_secs(10);

fn agent_view(state_dir: Option<&Path>, common: &CommonArgs) -> Result<AgentView, CliError> {
    let flag = FlagValue::of("agent.state_dir", "--state-dir", state_dir);
    let state_dir = common.settings([flag])?.agent().state_dir;
    let _wait = WorkNote::start(AGENT_WAIT);
    ask_agent(&state_dir, DEADLINE).map_err(|problem| {
        let hint = match &problem {
            AgentQueryError::Absent { .. } => {
                "check that `rankguard agent` runs with this state directory; select another with --state-dir"
            }
            AgentQueryError::Broken { .. } => {
                "run the command as the user of the agent or as root, and check that the agent still runs"
            }
            AgentQueryError::Foreign { .. } => "use the same version of `rankguard` and the agent",
        };
        CliError::failure("cannot reach the agent of this node", hint).because(problem)
    })
}

/// Reads the current files of `agent.catalogue`.
pub(super) fn read_catalogue(knowledge: &CatalogueHandle) -> Result<(), CliError> {
    knowledge.reload().map_err(|problem| {
        CliError::usage(
            format!("cannot use the files of agent.catalogue\n{problem}"),
            "correct the listed lines",
        )
    })
}
