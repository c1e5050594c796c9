//! Settings of the second reader.

use std::path::PathBuf;

use rankguard_reader::{ReaderSettings, ReaderUrl};

use super::ResolvedConfig;
use super::mistake::ConfigMistake;
use super::value::SettingValue;

const URL: &str = "reader.url";
const MODEL: &str = "reader.model";

/// Default size of an excerpt, bytes; length of an answer, tokens; requests of one command; time limit, milliseconds.
pub(super) const DEFAULTS: [(&str, SettingValue); 4] = [
    ("reader.excerpt_bytes", SettingValue::Count(32 << 10)),
    ("reader.answer_tokens", SettingValue::Count(1_000)),
    ("reader.requests", SettingValue::Count(4)),
    ("reader.timeout_ms", SettingValue::Count(30_000)),
];

impl ResolvedConfig {
    /// Returns the settings of the second reader; `None` if no URL is set.
    pub(crate) fn reader(&self) -> Option<ReaderSettings> {
        let optional = |key| self.value(key).map(|value| PathBuf::from(value.show()));
        Some(ReaderSettings {
            url: ReaderUrl::parse(&self.value(URL)?.show()).ok()?,
            model: self.value(MODEL)?.show(),
            key_file: optional("reader.key_file"),
            ca_file: optional("reader.ca_file"),
            timeout: self.wait("reader.timeout_ms"),
            excerpt_bytes: usize::try_from(self.count("reader.excerpt_bytes")).unwrap_or(usize::MAX),
            answer_tokens: self.count("reader.answer_tokens"),
            record_dir: optional("reader.record_dir").unwrap_or_else(default_record_dir),
        })
    }

    /// Returns the maximum number of requests of one command to the second reader.
    pub(crate) fn reader_requests(&self) -> u64 {
        self.count("reader.requests")
    }

    /// Returns the mistakes of a reader without a model, with an invalid URL, or with a key that would travel in the clear.
    pub(super) fn reader_mistakes(&self) -> Vec<ConfigMistake> {
        let at = |key: &str| self.values.get(key).map(|(_, at)| at.clone());
        let mistake = |key, what: String| at(key).map(|at| ConfigMistake { at, what });
        let url = self.value(URL).map(|value| ReaderUrl::parse(&value.show()));
        let mut mistakes = Vec::new();
        match &url {
            Some(Err(problem)) => mistakes.extend(mistake(URL, format!("{URL}: {problem}"))),
            Some(Ok(url)) if url.is_open() => mistakes.extend(mistake(
                "reader.key_file",
                format!("reader.key_file is not sent over http to another machine; use an https URL in {URL}"),
            )),
            Some(Ok(_)) | None => {}
        }
        if url.is_some() && self.value(MODEL).is_none() {
            mistakes.extend(mistake(
                URL,
                format!("a reader needs {URL} and {MODEL}; not set: {MODEL}"),
            ));
        }
        mistakes
    }
}

/// Returns the folder for state of this user's programs, of the XDG base directory specification.
fn default_record_dir() -> PathBuf {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.unwrap_or_else(|| PathBuf::from(".")).join("rankguard/readings")
}

#[cfg(test)]
mod tests {
    use super::super::FlagValue;
    use super::*;

    fn mistakes(values: &[(&'static str, &str)]) -> Vec<String> {
        let flags: Vec<FlagValue> = values
            .iter()
            .filter_map(|(setting, text)| FlagValue::of(setting, "--flag", Some(*text)))
            .collect();
        let (_, mistakes) = ResolvedConfig::read(None, [], &flags);
        mistakes.into_iter().map(|mistake| mistake.what).collect()
    }

    #[test]
    fn a_reader_needs_a_url_and_a_model() {
        assert!(mistakes(&[]).is_empty());
        assert!(mistakes(&[(URL, "https://h/v1"), (MODEL, "m"), ("reader.key_file", "k")]).is_empty());
        assert_eq!(
            mistakes(&[(URL, "https://h/v1")]),
            ["a reader needs reader.url and reader.model; not set: reader.model"]
        );
        assert!(mistakes(&[(URL, "h"), (MODEL, "m")])[0].starts_with("reader.url: "));
        let open = mistakes(&[(URL, "http://h/v1"), (MODEL, "m"), ("reader.key_file", "k")]);
        assert!(open[0].contains("use an https URL"), "{open:?}");
        assert!(mistakes(&[(URL, "http://h/v1"), (MODEL, "m")]).is_empty());
    }
}
