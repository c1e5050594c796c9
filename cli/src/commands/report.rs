//! `rankguard report`: writes the HTML page of a running controller.

use std::path::PathBuf;

use clap::Args;
use rankguard_report::ReportInput;

use crate::args::ControllerAddress;
use crate::client::ControllerClient;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;

#[derive(Debug, Clone, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
    /// Output directory for report.html and report.json
    #[arg(long, value_name = "DIR", default_value = "rankguard-report")]
    pub(crate) out: PathBuf,
    /// Title of the page
    #[arg(long, default_value = "Rankguard report")]
    pub(crate) title: String,
}

pub(crate) async fn run(args: &ReportArgs, client: &ControllerClient) -> Result<CommandExit, CliError> {
    let status = client.status().await?;
    let cases = client.cases().await?;
    let input = ReportInput::new(&args.title, status, cases, None);
    let written = std::fs::create_dir_all(&args.out).and_then(|()| rankguard_report::write(&input, &args.out));
    written.map_err(|problem| {
        let what = format!("cannot write the report into {}", args.out.display());
        CliError::failure(what, "select another folder with --out").because(problem)
    })?;
    out::line(&args.out.join("report.html").display().to_string());
    out::line(&args.out.join("report.json").display().to_string());
    Ok(CommandExit::Fine)
}
