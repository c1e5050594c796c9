//! Options that several commands share. Options of one command are in its own file.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
pub(crate) use rankguard_console::{DocumentFormat, DocumentFormatArgs, FormatArgs, OutputFormat};
use rankguard_files::ReadLimits;

use crate::client::ControllerClient;
use crate::client_command::CommandOptions;
use crate::config::{ConfigMistake, ConfigMistakes, FlagValue, ResolvedConfig};
use crate::error::CliError;

/// Options of every command.
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
    /// Log filter in the syntax of RUST_LOG: `info`, `rankguard_agent=debug` ... [setting log.filter]
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Everywhere")]
    pub(crate) log: Option<String>,
    /// Format of log lines on standard error: text or json [setting log.format]
    #[arg(long, global = true, value_name = "FORMAT", help_heading = "Everywhere")]
    pub(crate) log_format: Option<String>,
    /// Certificate of the cluster's authority (PEM) [setting identity.ca]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) identity_ca: Option<PathBuf>,
    /// Certificate to present to peers (PEM) [setting identity.certificate]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) identity_certificate: Option<PathBuf>,
    /// Private key of that certificate (PEM) [setting identity.key]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) identity_key: Option<PathBuf>,
}

impl CommonArgs {
    /// Loads the settings: configuration file, environment, the shared flags, and `flags` of the command. Mistakes
    /// become one error.
    pub(crate) fn settings(
        &self,
        flags: impl IntoIterator<Item = Option<FlagValue>>,
    ) -> Result<ResolvedConfig, CliError> {
        self.load(flags).map_err(|mistakes| {
            CliError::usage(
                mistakes.to_string(),
                "`rankguard config check` lists all mistakes, of files and addresses too; `rankguard config show` every setting with its meaning",
            )
        })
    }

    /// Loads the settings as [`Self::settings`] does, with each mistake as a value.
    pub(crate) fn load(
        &self,
        flags: impl IntoIterator<Item = Option<FlagValue>>,
    ) -> Result<ResolvedConfig, ConfigMistakes> {
        let flags = self.flags(flags);
        ResolvedConfig::load(self.config.as_deref(), std::env::vars_os(), &flags)
    }

    /// Reads the settings with all mistakes; a setting with a mistake has its default value.
    pub(crate) fn read(&self) -> (ResolvedConfig, Vec<ConfigMistake>) {
        let flags = self.flags([]);
        ResolvedConfig::read(self.config.as_deref(), std::env::vars_os(), &flags)
    }

    fn flags(&self, flags: impl IntoIterator<Item = Option<FlagValue>>) -> Vec<FlagValue> {
        let shared = [
            FlagValue::of("log.filter", "--log", self.log.as_deref()),
            FlagValue::of("log.format", "--log-format", self.log_format.as_deref()),
            FlagValue::of("identity.ca", "--identity-ca", self.identity_ca.as_deref()),
            FlagValue::of(
                "identity.certificate",
                "--identity-certificate",
                self.identity_certificate.as_deref(),
            ),
            FlagValue::of("identity.key", "--identity-key", self.identity_key.as_deref()),
        ];
        shared.into_iter().chain(flags).flatten().collect()
    }
}

/// Option that selects the controller.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ControllerAddress {
    /// Address of the controller [setting client.controller]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) controller: Option<String>,
}

impl ControllerAddress {
    /// Returns a client for the configured controller.
    pub(crate) fn client(&self, common: &CommonArgs) -> Result<ControllerClient, CliError> {
        let flag = FlagValue::of("client.controller", "--controller", self.controller.as_deref());
        let config = common.settings([flag])?;
        let options = CommandOptions::of(common, self.controller.as_deref());
        Ok(ControllerClient::new(&config.client_address(), config.network()).with_options(options))
    }
}

/// Limits on reading foreign files.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct LimitArgs {
    /// Maximum text to read from all files together, after unpacking: 500MiB, 2GiB ... [default: 64GiB; for each packed
    /// file 256 MiB or 100 times its size, whichever is larger]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) read_limit: Option<u64>,
    /// Maximum processing time for all files together, in seconds [default: 3600; for each file 20 plus 2 per MiB of
    /// processor time]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) time_limit: Option<u64>,
}

impl LimitArgs {
    /// Converts the options to the limits of the reader.
    pub(crate) fn limits(self) -> ReadLimits {
        ReadLimits {
            text_bytes: self.read_limit,
            time: self.time_limit.map(Duration::from_secs),
        }
    }
}

/// Parses a size: `500MiB`, `2GiB`, or a number of bytes.
fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err("write bytes, or an integer of KiB, MiB, GiB or TiB: 500MiB".to_owned()),
    };
    let bytes = number.parse::<u64>().ok().filter(|number| *number > 0);
    let bytes = bytes.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("{text:?} is not a size; write 500MiB, 2GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            (size("7"), size("500MiB"), size("2g")),
            (Ok(7), Ok(500 << 20), Ok(2 << 30))
        );
        for wrong in ["", "0", "GiB", "-1", "1.5GiB", "99999999999TiB", "1 parsec"] {
            assert!(size(wrong).is_err(), "{wrong:?}");
        }
    }
}
