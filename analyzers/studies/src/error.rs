//! Why a study gives no answer.

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The data lacks what the question needs.
    #[error("{what}")]
    Missing {
        /// What is missing.
        what: String,
        /// What to give instead.
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

    /// What a person may try.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing { give, .. } => give,
            Self::Data(_) => {
                "`rankguard dataset check PATH` lists the tables and columns; `study ls` what each study needs"
            }
        }
    }
}
