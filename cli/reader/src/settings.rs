//! Settings of the reader.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

/// Path of the chat-completions interface below the base URL of a service.
const INTERFACE: &str = "chat/completions";

/// URL of the interface. Only its origin is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ReaderUrl(Url);

impl ReaderUrl {
    /// Parses a URL of http or https, without a user; `chat/completions` is appended to a base URL such as
    /// `http://127.0.0.1:8000/v1`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wanted = "expected a URL such as https://host/v1, without a user";
        let mut url = Url::parse(text.trim()).map_err(|problem| format!("{problem}; {wanted}"))?;
        let is_web = matches!(url.scheme(), "http" | "https") && url.host().is_some();
        if !is_web || !url.username().is_empty() || url.password().is_some() {
            return Err(wanted.to_owned());
        }
        if !url.path().ends_with(INTERFACE) {
            let base = url.path().trim_end_matches('/').to_owned();
            url.set_path(&format!("{base}/{INTERFACE}"));
        }
        Ok(Self(url))
    }

    /// Returns true if a key would travel in the clear to another machine.
    pub fn is_open(&self) -> bool {
        let is_loopback = match self.0.host_str() {
            Some("localhost") => true,
            Some(host) => host
                .trim_matches(['[', ']'])
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback()),
            None => false,
        };
        self.0.scheme() == "http" && !is_loopback
    }

    pub(crate) fn reveal(&self) -> Url {
        self.0.clone()
    }
}

impl fmt::Display for ReaderUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())?;
        self.0.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for ReaderUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Settings of the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderSettings {
    pub url: ReaderUrl,
    /// Name of the model at the service.
    pub model: String,
    /// File with the key of the service, sent as a bearer token.
    pub key_file: Option<PathBuf>,
    /// Certificates (PEM) of the authorities of an https URL; absent: those of the system.
    pub ca_file: Option<PathBuf>,
    /// Time limit of a request with its answer.
    pub timeout: Duration,
    /// Maximum size of an excerpt, bytes.
    pub excerpt_bytes: usize,
    /// Maximum length of an answer, tokens of the model; 0 leaves it to the service.
    pub answer_tokens: u64,
    /// Folder of the stored requests and answers.
    pub record_dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_gets_the_path_of_the_interface() {
        let path = |text: &str| ReaderUrl::parse(text).map(|url| url.reveal().to_string());
        assert_eq!(
            path("http://127.0.0.1:8000/v1/").as_deref(),
            Ok("http://127.0.0.1:8000/v1/chat/completions")
        );
        assert_eq!(
            path("https://h/openai/chat/completions?api-version=1").as_deref(),
            Ok("https://h/openai/chat/completions?api-version=1")
        );
        for wrong in ["h:80", "ftp://h/", "https://user:key@h/", "file:///x"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_http_to_another_machine_is_open() {
        let is_open = |text: &str| ReaderUrl::parse(text).is_ok_and(|url| url.is_open());
        assert!(is_open("http://reader.example/v1") && is_open("http://10.0.0.1/"));
        for closed in [
            "https://reader.example/",
            "http://localhost:1/",
            "http://[::1]:1/",
            "http://127.0.0.2/",
        ] {
            assert!(!is_open(closed), "{closed}");
        }
    }

    #[test]
    fn a_shown_url_has_no_path_and_no_query() {
        let url = ReaderUrl::parse("https://h:444/v1?key=s3cret").expect("a URL");
        assert_eq!(
            (url.to_string(), format!("{url:?}")),
            ("https://h:444".to_owned(), "https://h:444".to_owned())
        );
    }
}
