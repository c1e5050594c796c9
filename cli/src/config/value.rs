//! Values of settings, and the kinds that validate them.

use std::net::{Ipv4Addr, Ipv6Addr};

use rankguard_agent::{OtlpEndpoint, PluginCheck, is_log_path};
use rankguard_identity::AuthorityFingerprint;
use rankguard_notify::ReceiverSettings;
use serde::Serialize;

/// The value of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum SettingValue {
    /// Name, address, path or choice.
    Text(String),
    /// Unsigned integer value.
    Count(u64),
    /// Boolean switch value.
    Switch(bool),
    /// List of paths or names.
    List(Vec<String>),
    /// Plug-in checks of the agent.
    Checks(Vec<PluginCheck>),
    /// Receivers of notifications.
    Receivers(Vec<ReceiverSettings>),
}

impl SettingValue {
    /// Formats the value for people.
    pub(crate) fn show(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Switch(on) => on.to_string(),
            Self::List(items) => items.join(":"),
            Self::Checks(checks) => {
                let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
                names.join(", ")
            }
            Self::Receivers(receivers) => {
                let names = receivers
                    .iter()
                    .map(|receiver| format!("{} ({})", receiver.name, receiver.kind.name()));
                names.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// Type and range of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettingKind {
    /// Text, possibly empty.
    Text,
    /// Text that is not empty: names, paths.
    Name,
    /// Host name or IP address without a port.
    Host,
    /// Address as `host:port`.
    Address,
    /// `host:port`, or a URL of http or https.
    Endpoint,
    /// Numeric address of this machine with a port, `127.0.0.1:7700`.
    Socket,
    /// Several paths; separated by `:` outside of TOML.
    Paths,
    /// Several paths or glob patterns; separated by `:` outside of TOML.
    LogPaths,
    /// Names, optionally with `*` as the last character; separated by `:` outside of TOML.
    Names,
    /// Integer within inclusive bounds.
    Count(u64, u64),
    /// `true` or `false`.
    Switch,
    /// Choice of these words.
    Choice(&'static [&'static str]),
    /// Fingerprint of an authority.
    Fingerprint,
    /// Directives of a log filter.
    Filter,
    /// Tables of plug-in checks, in the file only.
    Checks,
    /// Tables of receivers of notifications, in the file only.
    Receivers,
}

impl SettingKind {
    /// Describes the expected value for an error message.
    pub(crate) fn wanted(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Name => "non-empty text".to_owned(),
            Self::Host => "a host name or an IP address, without a port".to_owned(),
            Self::Address => "an address host:port".to_owned(),
            Self::Endpoint => "host:port, http://host:port or https://host:port".to_owned(),
            Self::Socket => "an IP address and a port such as 127.0.0.1:7700".to_owned(),
            Self::Paths => "a list of paths".to_owned(),
            Self::LogPaths => "a list of paths or patterns such as /logs/**/rank-*.log".to_owned(),
            Self::Names => "a list of names of letters, digits, _, - and ., with an optional * at the end".to_owned(),
            Self::Count(min, u64::MAX) => format!("an integer of at least {min}"),
            Self::Count(min, max) => format!("an integer from {min} to {max}"),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Switch => "true or false".to_owned(),
            Self::Checks => "tables [[agent.checks]] in the configuration file".to_owned(),
            Self::Receivers => "tables [[controller.notify]] in the configuration file".to_owned(),
            Self::Fingerprint => "the SHA-256 of an authority's certificate, 64 hexadecimal digits".to_owned(),
            Self::Filter => "log directives such as info or rankguard_agent=debug".to_owned(),
        }
    }

    /// Parses the text of an environment variable or flag.
    pub(crate) fn parse(self, text: &str) -> Result<SettingValue, String> {
        let value = match self {
            Self::Count(..) => text
                .trim()
                .parse()
                .map(SettingValue::Count)
                .map_err(|_| self.refuse(text))?,
            Self::Switch => text
                .trim()
                .parse()
                .map(SettingValue::Switch)
                .map_err(|_| self.refuse(text))?,
            Self::Paths | Self::LogPaths | Self::Names => SettingValue::List(
                text.split(':')
                    .filter(|path| !path.is_empty())
                    .map(str::to_owned)
                    .collect(),
            ),
            _ => SettingValue::Text(text.to_owned()),
        };
        self.check(value)
    }

    /// Validates a value; returns an error for a wrong type or range.
    pub(crate) fn check(self, value: SettingValue) -> Result<SettingValue, String> {
        let fine = match (self, &value) {
            (Self::Text, SettingValue::Text(_)) => true,
            (Self::Name, SettingValue::Text(text)) => !text.is_empty(),
            (Self::Host, SettingValue::Text(text)) => is_host(text),
            (Self::Address, SettingValue::Text(text)) => is_address(text),
            (Self::Endpoint, SettingValue::Text(text)) => text.parse::<OtlpEndpoint>().is_ok(),
            (Self::Fingerprint, SettingValue::Text(text)) => text.parse::<AuthorityFingerprint>().is_ok(),
            (Self::Socket, SettingValue::Text(text)) => text.parse::<std::net::SocketAddr>().is_ok(),
            (Self::Filter, SettingValue::Text(text)) => tracing_subscriber::EnvFilter::try_new(text).is_ok(),
            (Self::Choice(words), SettingValue::Text(text)) => words.contains(&text.as_str()),
            (Self::Count(min, max), SettingValue::Count(count)) => (min..=max).contains(count),
            (Self::Checks, SettingValue::Checks(_)) | (Self::Switch, SettingValue::Switch(_)) => true,
            (Self::Paths, SettingValue::List(items)) => items.iter().all(|item| !item.is_empty()),
            (Self::Names, SettingValue::List(items)) => items.iter().all(|item| is_name_pattern(item)),
            (Self::LogPaths, SettingValue::List(items)) => items.iter().all(|item| is_log_path(item)),
            _ => false,
        };
        if fine {
            Ok(value)
        } else {
            Err(self.refuse(&value.show()))
        }
    }

    fn refuse(self, found: &str) -> String {
        format!("{found:?} is invalid; expected {}", self.wanted())
    }
}

fn is_name_pattern(text: &str) -> bool {
    let name = text.strip_suffix('*').unwrap_or(text);
    !text.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

fn is_host(text: &str) -> bool {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = bare.unwrap_or(text).split('%').next().unwrap_or_default();
    is_host_name(text) || address.parse::<Ipv6Addr>().is_ok()
}

/// Returns true for a host name or an IPv4 address. The last label of a name is no number (RFC 1123, section 2.1), so
/// that `10.0.0.300` is neither.
fn is_host_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label =
        |label: &str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let is_number = |label: &str| label.chars().all(|c| c.is_ascii_digit());
    let is_numeric = name.rsplit('.').next().is_some_and(is_number);
    name.split('.').all(is_label) && (!is_numeric || name.parse::<Ipv4Addr>().is_ok())
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = is_host_name(host) || bracketed.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok());
    is_host && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for right in ["127.0.0.1:0", "node-1.rack:7700", "[::1]:7700"] {
            assert!(is_address(right), "{right:?}");
        }
        for wrong in [
            "",
            "127.0.0.1",
            ":1",
            "a:b",
            "a:70000",
            "::1:7",
            "[x]:1",
            "http://a:1",
            "10.0.0.300:1",
        ] {
            assert!(!is_address(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address() {
        for right in [
            "10.0.0.30",
            "node-1.rack",
            "n1",
            "7up.example.com.",
            "::1",
            "[::1]",
            "fe80::1%eth0",
        ] {
            assert!(SettingKind::Host.parse(right).is_ok(), "{right:?}");
        }
        for wrong in [
            "",
            "10.0.0.300",
            "10.0.0",
            "1.2.3.4.5",
            "n1:7700",
            "a..b",
            "a b",
            "[n1]",
        ] {
            assert!(SettingKind::Host.parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_list_of_names_may_hold_prefixes() {
        assert!(SettingKind::Names.parse("PATH:LC_*:*").is_ok());
        for wrong in ["A*B", "a b", "A=1"] {
            assert!(SettingKind::Names.parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_error_about_a_number_has_its_bounds() {
        assert_eq!(
            SettingKind::Count(1, 9).parse("0"),
            Err("\"0\" is invalid; expected an integer from 1 to 9".to_owned())
        );
        assert_eq!(SettingKind::Count(1, 9).parse("9"), Ok(SettingValue::Count(9)));
        assert!(SettingKind::Count(1, 9).parse("-3").is_err());
    }
}
