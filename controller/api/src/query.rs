//! Query parameters: each route names those that it knows, others are refused.

use std::collections::BTreeMap;

use rankguard_model::Timestamp;

use crate::problem::{Problem, quoted};

/// Entries of a page without `limit`, and at most.
pub(crate) const LIMIT_DEFAULT: usize = 100;
pub(crate) const LIMIT_MAX: usize = 1_000;
/// Longest text of a parameter, bytes.
const TEXT_BYTES_MAX: usize = 512;

/// Query parameter of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: ParameterKind,
    pub(crate) doc: &'static str,
}

/// Form of a parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterKind {
    /// Integer from 1 to [`LIMIT_MAX`].
    Limit,
    /// Text of one character or more.
    Text,
    /// Time as RFC 3339 defines it.
    Time,
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// Maximum number of entries of a page.
pub(crate) const LIMIT: Parameter = Parameter {
    name: "limit",
    kind: ParameterKind::Limit,
    doc: "Maximum number of entries of the page, 1 to 1000; default 100.",
};
/// Place where a page begins.
pub(crate) const CURSOR: Parameter = Parameter {
    name: "cursor",
    kind: ParameterKind::Text,
    doc: "Value of `next` of the page before; absent for the first page.",
};

/// Checked parameters of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(BTreeMap<&'static str, QueryValue>);

#[derive(Debug, PartialEq, Eq)]
enum QueryValue {
    Limit(usize),
    Text(String),
    Time(Timestamp),
    Flag(bool),
}

impl Query {
    /// Parses the query of a URI against the parameters of its route.
    pub(crate) fn parse(text: Option<&str>, known: &[Parameter]) -> Result<Self, Problem> {
        let mut query = Self::default();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let undecodable = |_| {
                let detail = format!("{} is no percent-encoded UTF-8", quoted(pair));
                Problem::invalid("query", detail).hint("encode names and values as UTF-8, and % as %25")
            };
            let name = decode(name).map_err(undecodable)?;
            let value = decode(value).map_err(undecodable)?;
            let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
                return Err(unknown_parameter(&name, known));
            };
            let value = parameter.value(value)?;
            if query.0.insert(parameter.name, value).is_some() {
                let detail = format!("{} occurs more than once", parameter.name);
                return Err(Problem::invalid(parameter.name, detail).hint("name each parameter once"));
            }
        }
        Ok(query)
    }

    /// Returns the maximum number of entries.
    pub(crate) fn limit(&self) -> usize {
        match self.0.get(LIMIT.name) {
            Some(QueryValue::Limit(limit)) => *limit,
            _ => LIMIT_DEFAULT,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(QueryValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn time(&self, name: &str) -> Option<Timestamp> {
        match self.0.get(name) {
            Some(QueryValue::Time(time)) => Some(*time),
            _ => None,
        }
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        match self.0.get(name) {
            Some(QueryValue::Flag(flag)) => Some(*flag),
            _ => None,
        }
    }
}

impl Parameter {
    fn value(&self, text: String) -> Result<QueryValue, Problem> {
        let invalid = |expected: &str| {
            let detail = format!("{} is {}; expected {expected}", self.name, quoted(&text));
            Problem::invalid(self.name, detail)
        };
        match self.kind {
            ParameterKind::Limit => {
                let limit = text.parse().ok();
                let limit = limit.filter(|limit| (1..=LIMIT_MAX).contains(limit) && !text.starts_with('+'));
                limit
                    .map(QueryValue::Limit)
                    .ok_or_else(|| invalid("an integer from 1 to 1000"))
            }
            ParameterKind::Text if text.is_empty() || text.len() > TEXT_BYTES_MAX => {
                Err(invalid("1 to 512 bytes of text"))
            }
            ParameterKind::Text => Ok(QueryValue::Text(text)),
            ParameterKind::Time => parse_time(&text).map(QueryValue::Time).ok_or_else(|| {
                let time = "a time of RFC 3339, such as 2026-11-24T10:00:00Z";
                invalid(time).hint("encode the + of an offset as %2B")
            }),
            ParameterKind::Flag => match text.as_str() {
                "true" => Ok(QueryValue::Flag(true)),
                "false" => Ok(QueryValue::Flag(false)),
                _ => Err(invalid("true or false").known(["true", "false"])),
            },
            ParameterKind::Choice(words) if words.contains(&text.as_str()) => Ok(QueryValue::Text(text)),
            ParameterKind::Choice(words) => Err(invalid("one of the known values").known(words.iter().copied())),
        }
    }
}

fn unknown_parameter(name: &str, known: &[Parameter]) -> Problem {
    let title = "the route has no such parameter";
    let detail = format!("there is no parameter {}", quoted(name));
    let problem = Problem::new(hyper::StatusCode::BAD_REQUEST, "unknown-parameter", title, detail).of(name);
    if known.is_empty() {
        return problem.hint("leave out the query: this route has no parameters");
    }
    problem
        .known(known.iter().map(|parameter| parameter.name))
        .hint("use one of the known parameters")
}

/// Parses a time of RFC 3339 between the years 1678 and 2261.
fn parse_time(text: &str) -> Option<Timestamp> {
    let is_written = text.len() >= "2026-11-24T10:00:00Z".len() && text.is_ascii() && text.as_bytes()[10] == b'T';
    let time: jiff::Timestamp = text.parse().ok().filter(|_| is_written)?;
    i64::try_from(time.as_nanosecond()).ok().map(Timestamp)
}

/// Decodes `%XX` and `+`; fails for an incomplete escape and for bytes that are no UTF-8.
fn decode(text: &str) -> Result<String, ()> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = rest.next().and_then(digit).ok_or(())?;
                let low = rest.next().and_then(digit).ok_or(())?;
                high << 4 | low
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| ())
}

fn digit(byte: u8) -> Option<u8> {
    let value = char::from(byte).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Encodes a name for a path.
pub(crate) fn encode_path(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Parameter; 4] = [
        LIMIT,
        CURSOR,
        Parameter {
            name: "since",
            kind: ParameterKind::Time,
            doc: "",
        },
        Parameter {
            name: "open",
            kind: ParameterKind::Flag,
            doc: "",
        },
    ];

    #[test]
    fn values_are_decoded_and_checked() {
        let query = Query::parse(
            Some("limit=7&since=2026-11-24T10:00:00%2B02:00&open=true&cursor=a%20b"),
            &KNOWN,
        );
        let query = query.expect("good values");
        assert_eq!(
            (query.limit(), query.flag("open"), query.text("cursor")),
            (7, Some(true), Some("a b"))
        );
        assert_eq!(
            query.time("since").map(|time| time.to_string()).as_deref(),
            Some("2026-11-24T08:00:00.000Z")
        );
        assert_eq!(Query::parse(None, &KNOWN).expect("no query").limit(), LIMIT_DEFAULT);
        for (text, field) in [
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=+5", "limit"),
            ("limit", "limit"),
            ("limit=5&limit=5", "limit"),
            ("since=yesterday", "since"),
            ("since=2026-11-24", "since"),
            ("since=2026-11-24T10:00:00+02:00", "since"),
            ("since=9999-12-31T00:00:00Z", "since"),
            ("open=yes", "open"),
            ("cursor=", "cursor"),
            ("nope=1", "nope"),
            ("%zz=1", "query"),
            ("cursor=%ff", "query"),
            ("cursor=%4", "query"),
        ] {
            let problem = Query::parse(Some(text), &KNOWN).expect_err(text);
            let document = serde_json::to_value(&problem).expect("JSON");
            assert_eq!(document["field"], field, "{text}: {document}");
            assert!(
                document["hint"].is_string() || document["detail"].as_str().is_some_and(|it| it.contains("expected"))
            );
        }
    }

    #[test]
    fn names_in_paths_are_encoded() {
        assert_eq!(encode_path("job-1.a_b~"), "job-1.a_b~");
        assert_eq!(encode_path("a/b ü%"), "a%2Fb%20%C3%BC%25");
    }
}
