//! HTTP/1.1, as far as this server needs it.

use std::io::{BufRead, Read, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use url::Url;

/// Request of a client.
#[derive(Debug, Clone)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    pub(crate) url: Url,
    pub(crate) token: Option<String>,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

impl HttpRequest {
    /// Reads a request; `None` at the end of the connection.
    pub(crate) fn read(reader: &mut impl BufRead) -> Option<Self> {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let mut words = line.split_whitespace();
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut request = Self {
            method,
            url: Url::parse(&format!("https://fake{path}")).ok()?,
            token: None,
            content_type: String::new(),
            body: Vec::new(),
        };
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim().split_once(':') else {
                break;
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "authorization" => request.token = value.strip_prefix("Bearer ").map(str::to_owned),
                "content-type" => request.content_type = value.to_owned(),
                "content-length" => length = value.parse().ok()?,
                _ => {}
            }
        }
        reader.take(length).read_to_end(&mut request.body).ok()?;
        Some(request)
    }

    /// Returns a parameter of the query.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = self.url.query_pairs();
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// Answer to a request.
#[derive(Debug, Clone)]
pub(crate) struct HttpAnswer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    /// Wait that the answer requests, seconds.
    pub(crate) retry_after: Option<u32>,
}

impl HttpAnswer {
    pub(crate) fn ok(body: Value) -> Self {
        Self {
            code: 200,
            body,
            retry_after: None,
        }
    }

    pub(crate) fn created(body: Value) -> Self {
        Self {
            code: 201,
            ..Self::ok(body)
        }
    }

    pub(crate) fn refused(code: u16, reason: &str, message: &str) -> Self {
        Self {
            code,
            ..Self::ok(status_object(code, reason, message))
        }
    }

    pub(crate) fn write(&self, writer: &mut impl Write, date_offset: i64) -> std::io::Result<()> {
        let body = self.body.to_string();
        let retry = self
            .retry_after
            .map_or_else(String::new, |seconds| format!("Retry-After: {seconds}\r\n"));
        write!(
            writer,
            "HTTP/1.1 {} X\r\nDate: {}\r\nContent-Type: application/json\r\n{retry}Content-Length: {}\r\n\r\n{body}",
            self.code,
            http_date(date_offset),
            body.len()
        )?;
        writer.flush()
    }
}

/// Returns a `Status` object.
pub(crate) fn status_object(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
    })
}

/// Begins an answer in chunks.
pub(crate) fn begin_chunks(writer: &mut impl Write, date_offset: i64) -> std::io::Result<()> {
    write!(
        writer,
        "HTTP/1.1 200 OK\r\nDate: {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        http_date(date_offset)
    )?;
    writer.flush()
}

/// Writes one chunk; an empty one ends the answer.
pub(crate) fn write_chunk(writer: &mut impl Write, text: &str) -> std::io::Result<()> {
    write!(writer, "{:x}\r\n{text}\r\n", text.len())?;
    writer.flush()
}

/// Returns the time of this machine plus `offset` seconds in the format of HTTP.
fn http_date(offset: i64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(now).unwrap_or_default() + offset;
    let days = seconds.div_euclid(86_400);
    let of_day = seconds.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][days.rem_euclid(7) as usize];
    let names = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let month = names[(month - 1) as usize];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Converts days since the Unix epoch to year, month and day.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}
