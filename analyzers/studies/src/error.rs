//! Errors of studies.

/// Error of a study.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The data lacks a required input.
    #[error("{what}")]
    Missing {
        /// Description of the missing input.
        what: String,
        /// Hint on the data or option to give instead.
        give: &'static str,
    },
    /// A table or column cannot be read.
    #[error("the data set does not have what the study reads")]
    Data(#[from] rankguard_datasets::Error),
}

impl StudyError {
    pub(crate) fn missing(what: impl Into<String>, give: &'static str) -> Self {
        Self::Missing {
            what: what.into(),
            give,
        }
    }

    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing { give, .. } => give,
            Self::Data(_) => {
                "`rankguard dataset check PATH` lists the tables and columns; `study ls` what each study needs"
            }
        }
    }
}
