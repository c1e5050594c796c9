//! `rankguard report`: the page of a running controller.

use crate::args::ReportArgs;
use crate::client::Client;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out;
use crate::report::{self, ReportInput};

pub(super) async fn run(args: &ReportArgs, client: &Client) -> Result<Exit, CliError> {
    let (status, cases) = (client.status().await?, client.cases().await?);
    let input = ReportInput::new(&args.title, status, cases, None);
    let written = std::fs::create_dir_all(&args.out).and_then(|()| report::write(&input, &args.out));
    written.map_err(|problem| {
        let what = format!("cannot write the report into {}", args.out.display());
        CliError::failure(what, "--out names another folder").because(problem)
    })?;
    out::line(&args.out.join("report.html").display().to_string());
    out::line(&args.out.join("report.json").display().to_string());
    Ok(Exit::Fine)
}
