//! Why a message is not a model value.

use std::fmt;

/// A message that cannot be a model value: which field, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("message field `{field}`: {problem}")]
pub struct WireError {
    /// Path of the field, as in the `.proto` files (`body.fenced.master_port`).
    pub field: String,
    /// What is wrong, as a lowercase fragment.
    pub problem: String,
}

impl WireError {
    /// `field` is wrong in this way.
    pub fn new(field: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self {
            field: field.into(),
            problem: problem.to_string(),
        }
    }

    /// `field` must be there and is not.
    pub(crate) fn absent(field: &str) -> Self {
        Self::new(field, "absent, or of a kind that this version does not know")
    }

    /// The same problem, seen from the message that holds this one as `field`.
    pub(crate) fn within(mut self, field: &str) -> Self {
        self.field = format!("{field}.{}", self.field);
        self
    }
}

/// Reads a sub-message that must be there.
pub(crate) fn required<W, M>(field: &str, value: Option<W>) -> Result<M, WireError>
where
    M: TryFrom<W, Error = WireError>,
{
    let value = value.ok_or_else(|| WireError::absent(field))?;
    M::try_from(value).map_err(|e| e.within(field))
}

/// Reads a sub-message that may be absent.
pub(crate) fn optional<W, M>(field: &str, value: Option<W>) -> Result<Option<M>, WireError>
where
    M: TryFrom<W, Error = WireError>,
{
    value
        .map(|value| M::try_from(value).map_err(|e| e.within(field)))
        .transpose()
}

/// Reads a repeated sub-message; a bad one is named by its position.
pub(crate) fn repeated<W, M>(field: &str, values: Vec<W>) -> Result<Vec<M>, WireError>
where
    M: TryFrom<W, Error = WireError>,
{
    values
        .into_iter()
        .enumerate()
        .map(|(position, value)| M::try_from(value).map_err(|e| e.within(&format!("{field}[{position}]"))))
        .collect()
}

/// A name that must not be empty.
pub(crate) fn name(field: &str, value: String) -> Result<String, WireError> {
    if value.is_empty() {
        return Err(WireError::new(field, "empty"));
    }
    Ok(value)
}

/// A number that must be a number: the journal is JSON, which has neither NaN nor infinity.
pub(crate) fn finite(field: &str, value: f64) -> Result<f64, WireError> {
    if !value.is_finite() {
        return Err(WireError::new(field, format!("{value} is not a finite number")));
    }
    Ok(value)
}

/// A TCP port.
pub(crate) fn port(field: &str, value: u32) -> Result<u16, WireError> {
    u16::try_from(value).map_err(|_| WireError::new(field, format!("{value} is not a TCP port (0 to 65535)")))
}

/// An enum value that this version knows.
pub(crate) fn known<E: TryFrom<i32>>(field: &str, value: i32) -> Result<E, WireError> {
    E::try_from(value).map_err(|_| WireError::new(field, format!("value {value} is not one that this version knows")))
}
