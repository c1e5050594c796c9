//! What a setting holds, and what it may hold.

use rankguard_agent::{OtlpEndpoint, PluginCheck, is_log_path};
use serde::Serialize;

/// The value of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Value {
    /// A name, an address, a path, one of several words.
    Text(String),
    /// A number without a sign.
    Count(u64),
    /// Yes or no.
    Switch(bool),
    /// Several paths.
    List(Vec<String>),
    /// Plug-in checks.
    Checks(Vec<PluginCheck>),
}

impl Value {
    /// As a person reads it.
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
        }
    }
}

/// What a setting may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// Text that is not empty: names, paths.
    Name,
    /// `host:port`.
    Address,
    /// `host:port`, or a URL of http or https.
    Endpoint,
    /// An address of this machine as numbers, `127.0.0.1:7700`.
    Socket,
    /// Several paths; `:` between them outside of TOML.
    Paths,
    /// The same; they may be patterns.
    LogPaths,
    /// Names, the last character of which may be `*`; `:` between them outside of TOML.
    Names,
    /// A number within bounds.
    Count(u64, u64),
    /// `true` or `false`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Directives of a log filter.
    Filter,
    /// Tables of plug-in checks, in the file only.
    Checks,
}

impl Kind {
    /// What is wanted, after `want `.
    pub(crate) fn wanted(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Name => "text that is not empty".to_owned(),
            Self::Address => "an address host:port".to_owned(),
            Self::Endpoint => "host:port, http://host:port or https://host:port".to_owned(),
            Self::Socket => "an IP address and a port such as 127.0.0.1:7700".to_owned(),
            Self::Paths => "a list of paths".to_owned(),
            Self::LogPaths => "a list of paths, or of patterns such as /logs/**/rank-*.log".to_owned(),
            Self::Names => "a list of names of letters, digits, _, - and ., each with * at most at its end".to_owned(),
            Self::Count(min, u64::MAX) => format!("a whole number of at least {min}"),
            Self::Count(min, max) => format!("a whole number of {min} to {max}"),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Switch => "true or false".to_owned(),
            Self::Checks => "tables [[agent.checks]] in the configuration file".to_owned(),
            Self::Filter => "log directives such as info or rankguard_agent=debug".to_owned(),
        }
    }

    /// Reads a value from the environment or from a flag, where everything is text.
    pub(crate) fn parse(self, text: &str) -> Result<Value, String> {
        let value = match self {
            Self::Count(..) => text.trim().parse().map(Value::Count).map_err(|_| self.refuse(text))?,
            Self::Switch => text.trim().parse().map(Value::Switch).map_err(|_| self.refuse(text))?,
            Self::Paths | Self::LogPaths | Self::Names => Value::List(
                text.split(':')
                    .filter(|path| !path.is_empty())
                    .map(str::to_owned)
                    .collect(),
            ),
            _ => Value::Text(text.to_owned()),
        };
        self.check(value)
    }

    /// Refuses a value of the right type that it may not hold.
    pub(crate) fn check(self, value: Value) -> Result<Value, String> {
        let fine = match (self, &value) {
            (Self::Text, Value::Text(_)) => true,
            (Self::Name, Value::Text(text)) => !text.is_empty(),
            (Self::Address, Value::Text(text)) => is_address(text),
            (Self::Endpoint, Value::Text(text)) => text.parse::<OtlpEndpoint>().is_ok(),
            (Self::Socket, Value::Text(text)) => text.parse::<std::net::SocketAddr>().is_ok(),
            (Self::Filter, Value::Text(text)) => tracing_subscriber::EnvFilter::try_new(text).is_ok(),
            (Self::Choice(words), Value::Text(text)) => words.contains(&text.as_str()),
            (Self::Count(min, max), Value::Count(count)) => (min..=max).contains(count),
            (Self::Checks, Value::Checks(_)) | (Self::Switch, Value::Switch(_)) => true,
            (Self::Paths, Value::List(items)) => items.iter().all(|item| !item.is_empty()),
            (Self::Names, Value::List(items)) => items.iter().all(|item| is_name_pattern(item)),
            (Self::LogPaths, Value::List(items)) => items.iter().all(|item| is_log_path(item)),
            _ => false,
        };
        if fine {
            Ok(value)
        } else {
            Err(self.refuse(&value.show()))
        }
    }

    fn refuse(self, found: &str) -> String {
        format!("{found:?} is refused; want {}", self.wanted())
    }
}

fn is_name_pattern(text: &str) -> bool {
    let name = text.strip_suffix('*').unwrap_or(text);
    !text.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let bare = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host_is_fine = bare || bracketed.is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
    host_is_fine && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for right in ["127.0.0.1:0", "node-1.rack:7700", "[::1]:7700"] {
            assert!(is_address(right), "{right:?}");
        }
        for wrong in ["", "127.0.0.1", ":1", "a:b", "a:70000", "::1:7", "[x]:1", "http://a:1"] {
            assert!(!is_address(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_list_of_names_may_hold_prefixes() {
        assert!(Kind::Names.parse("PATH:LC_*:*").is_ok());
        for wrong in ["A*B", "a b", "A=1"] {
            assert!(Kind::Names.parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_number_out_of_bounds_says_its_bounds() {
        assert_eq!(
            Kind::Count(1, 9).parse("0"),
            Err("\"0\" is refused; want a whole number of 1 to 9".to_owned())
        );
        assert_eq!(Kind::Count(1, 9).parse("9"), Ok(Value::Count(9)));
        assert!(Kind::Count(1, 9).parse("-3").is_err());
    }
}
