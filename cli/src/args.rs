//! Words that many commands share. The words of one command stand with it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
pub(crate) use rankguard_console::{Format, FormatArgs};
use rankguard_files::ReadLimits;

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

/// How much of the files of others is read.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct LimitArgs {
    /// Most text that is read of all files together, after unpacking: 500MiB, 2GiB ... [default: 64GiB, and of a packed file
    /// 256 MiB or 100 times its size, whichever is more]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) read_limit: Option<u64>,
    /// Seconds of work on all files together [default: 3600, and for each file 20 and 2 more for each MiB of it]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) time_limit: Option<u64>,
}

impl LimitArgs {
    /// The limits that were given.
    pub(crate) fn limits(self) -> ReadLimits {
        ReadLimits {
            text_bytes: self.read_limit,
            time: self.time_limit.map(Duration::from_secs),
        }
    }
}

/// `500MiB`, `2GiB`, or bytes.
fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err("write bytes, or a whole number of KiB, MiB, GiB or TiB: 500MiB".to_owned()),
    };
    let bytes = number.parse::<u64>().ok().filter(|number| *number > 0);
    let bytes = bytes.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("{text:?} is no size; write 500MiB, 2GiB"))
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
