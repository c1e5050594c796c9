//! Errors of the conversion from wire messages to model values.

use std::fmt;

/// Message that cannot be converted to a model value, with the field and the problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("message field `{field}`: {problem}")]
pub struct WireError {
    /// Path of the field, as in the `.proto` files (`body.fenced.master_port`).
    pub field: String,
    /// Problem, as a lowercase fragment.
    pub problem: String,
}

impl WireError {
    /// Creates an error for `field`.
    pub fn new(field: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self {
            field: field.into(),
            problem: problem.to_string(),
        }
    }

    /// Creates the error for a required field that is absent.
    pub(crate) fn absent(field: &str) -> Self {
        Self::new(field, "absent, or of a kind that this version does not know")
    }

    /// Prefixes the path with the field that holds this message.
    pub(crate) fn within(mut self, field: &str) -> Self {
        self.field = format!("{field}.{}", self.field);
        self
    }
}

/// Converts a required sub-message.
pub(crate) fn required<W, M>(field: &str, value: Option<W>) -> Result<M, WireError>
where
    M: TryFrom<W, Error = WireError>,
{
    let value = value.ok_or_else(|| WireError::absent(field))?;
    M::try_from(value).map_err(|e| e.within(field))
}

/// Converts an optional sub-message.
pub(crate) fn optional<W, M>(field: &str, value: Option<W>) -> Result<Option<M>, WireError>
where
    M: TryFrom<W, Error = WireError>,
{
    value
        .map(|value| M::try_from(value).map_err(|e| e.within(field)))
        .transpose()
}

/// Converts a repeated sub-message; an error names the position.
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

/// Checks that a name is not empty.
pub(crate) fn name(field: &str, value: String) -> Result<String, WireError> {
    if value.is_empty() {
        return Err(WireError::new(field, "empty"));
    }
    Ok(value)
}

/// Checks that a number is finite: the journal is JSON, which has neither NaN nor infinity.
pub(crate) fn finite(field: &str, value: f64) -> Result<f64, WireError> {
    if !value.is_finite() {
        return Err(WireError::new(field, format!("{value} is not a finite number")));
    }
    Ok(value)
}

/// Converts a TCP port.
pub(crate) fn port(field: &str, value: u32) -> Result<u16, WireError> {
    u16::try_from(value).map_err(|_| WireError::new(field, format!("{value} is not a TCP port (0 to 65535)")))
}

/// Converts an enum value; values of newer versions are refused.
pub(crate) fn known<E: TryFrom<i32>>(field: &str, value: i32) -> Result<E, WireError> {
    E::try_from(value).map_err(|_| WireError::new(field, format!("value {value} is not one that this version knows")))
}
