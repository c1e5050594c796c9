//! Configuration mistakes and their origin.

use std::fmt;
use std::path::PathBuf;

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ValueOrigin {
    /// Built-in default value.
    Default,
    /// Line of the configuration file; line 0 for the whole file.
    File(PathBuf, usize),
    /// Name of an environment variable.
    Environment(String),
    /// Name of a flag.
    Flag(&'static str),
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, 0) => write!(f, "{}", path.display()),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// Configuration mistake with its origin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConfigMistake {
    /// Origin of the wrong value.
    pub(crate) at: ValueOrigin,
    /// The mistake and the expected value.
    pub(crate) what: String,
}

impl fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// All mistakes of a configuration; never empty.
#[derive(Debug)]
pub(crate) struct ConfigMistakes(pub(crate) Vec<ConfigMistake>);

impl fmt::Display for ConfigMistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(
            f,
            "the configuration has {count} mistake{}",
            if count == 1 { "" } else { "s" }
        )?;
        self.0.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
    }
}
