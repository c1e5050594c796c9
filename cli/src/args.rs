//! Words that many commands share. The words of one command stand with it.

use std::path::PathBuf;

use clap::Args;
pub(crate) use rankguard_console::{Format, FormatArgs};

use crate::client::Client;
use crate::config::{Config, Flag, Mistakes};
use crate::error::CliError;

/// What every command understands.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommonArgs {
    /// Configuration file (TOML)
    #[arg(
        long,
        global = true,
        env = "RANKGUARD_CONFIG",
        value_name = "FILE",
        help_heading = "Everywhere"
    )]
    pub(crate) config: Option<PathBuf>,
    /// Which log lines to show, as in RUST_LOG: `info`, `rankguard_agent=debug` ... [setting log.filter]
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Everywhere")]
    pub(crate) log: Option<String>,
    /// How log lines look on standard error: text or json [setting log.format]
    #[arg(long, global = true, value_name = "FORMAT", help_heading = "Everywhere")]
    pub(crate) log_format: Option<String>,
    /// Certificate of the cluster's authority (PEM) [setting identity.ca]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) identity_ca: Option<PathBuf>,
    /// The own certificate (PEM) [setting identity.certificate]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) identity_certificate: Option<PathBuf>,
    /// Its key (PEM) [setting identity.key]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) identity_key: Option<PathBuf>,
}

impl CommonArgs {
    /// Settings, with the flags that a command adds to these.
    pub(crate) fn settings(&self, flags: impl IntoIterator<Item = Option<Flag>>) -> Result<Config, CliError> {
        self.load(flags).map_err(|mistakes| {
            CliError::usage(
                mistakes.to_string(),
                "`rankguard config show` lists every setting with its meaning",
            )
        })
    }

    /// The same, with every mistake as a value.
    pub(crate) fn load(&self, flags: impl IntoIterator<Item = Option<Flag>>) -> Result<Config, Mistakes> {
        let shared = [
            Flag::of("log.filter", "--log", self.log.as_deref()),
            Flag::of("log.format", "--log-format", self.log_format.as_deref()),
            Flag::of("identity.ca", "--identity-ca", self.identity_ca.as_deref()),
            Flag::of(
                "identity.certificate",
                "--identity-certificate",
                self.identity_certificate.as_deref(),
            ),
            Flag::of("identity.key", "--identity-key", self.identity_key.as_deref()),
        ];
        let flags: Vec<Flag> = shared.into_iter().chain(flags).flatten().collect();
        Config::load(self.config.as_deref(), std::env::vars_os(), &flags)
    }
}

/// Where the controller is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ControllerAddress {
    /// Address of the controller [setting client.controller]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) controller: Option<String>,
}

impl ControllerAddress {
    /// The controller that a command speaks to.
    pub(crate) fn client(&self, common: &CommonArgs) -> Result<Client, CliError> {
        let flag = Flag::of("client.controller", "--controller", self.controller.as_deref());
        let config = common.settings([flag])?;
        Ok(Client::new(&config.client_address(), config.network()))
    }
}
