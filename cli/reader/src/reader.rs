//! Reader: one request to the service.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rankguard_faults::Catalogue;
use rankguard_files::read_text;
use rankguard_model::Timestamp;
use rankguard_web_client::{Deadlines, WebClient, WebClientError, read_body, shown_answer};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use crate::answer::{self, AnswerError, ModelReading};
use crate::excerpt::Excerpt;
use crate::prompt;
use crate::record::{ReadingRecord, RecordFolder};
use crate::redact::Redactor;
use crate::settings::ReaderSettings;

/// Bytes of an answer and of a key file that are read.
const ANSWER_BYTES: usize = 256 << 10;
const KEY_BYTES: u64 = 8 << 10;
/// Longest wait for a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// Reason why there is no reading.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    #[error("reader.key_file is not sent over http to another machine; use https")]
    OpenKey,
    #[error("cannot read {path}: {source}", path = path.display())]
    Key { path: PathBuf, source: io::Error },
    #[error("{path} contains no key: one line without spaces", path = path.display())]
    NoKey { path: PathBuf },
    #[error(transparent)]
    Client(#[from] WebClientError),
    #[error("cannot store the request below {path}, so nothing is sent: {source}", path = path.display())]
    Record { path: PathBuf, source: io::Error },
    #[error("the request was not answered: {0}")]
    Request(String),
    #[error("the answer is longer than {ANSWER_BYTES} bytes")]
    TooLong,
    #[error("the service answers {0}")]
    Status(String),
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

/// Request that was stored before it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadingReceipt {
    /// Bytes of the body.
    pub bytes: usize,
    /// Stored request, with its answer.
    pub record: PathBuf,
}

/// Reader with its service.
#[derive(Debug)]
pub struct SecondReader {
    settings: ReaderSettings,
    client: WebClient,
    key: Option<HeaderValue>,
}

impl SecondReader {
    /// Makes a reader; reads the key and the authorities.
    pub fn new(settings: ReaderSettings) -> Result<Self, ReaderError> {
        let client = WebClient::new(
            settings.ca_file.as_deref(),
            Deadlines {
                connect: settings.timeout.min(CONNECT_DEADLINE),
                request: settings.timeout,
            },
        )?;
        let key = key(&settings)?;
        Ok(Self { settings, client, key })
    }

    /// Returns the settings of the reader.
    pub fn settings(&self) -> &ReaderSettings {
        &self.settings
    }

    /// Stores and sends an excerpt, and reads the answer. The receipt is present if the request was stored.
    pub async fn read(
        &self,
        excerpt: &Excerpt,
        redactor: &Redactor,
        catalogue: &Catalogue,
        now: Timestamp,
    ) -> (Option<ReadingReceipt>, Result<ModelReading, ReaderError>) {
        let request = prompt::request(&self.settings, catalogue, excerpt);
        let mut record = ReadingRecord {
            at: now,
            service: self.settings.url.to_string(),
            request: &request,
            answer: None,
        };
        let stored = RecordFolder::open(&self.settings.record_dir).and_then(|folder| folder.store(&record));
        let path = match stored {
            Ok(path) => path,
            Err(source) => {
                let path = self.settings.record_dir.clone();
                return (None, Err(ReaderError::Record { path, source }));
            }
        };
        let body = request.to_string().into_bytes();
        let receipt = ReadingReceipt {
            bytes: body.len(),
            record: path,
        };
        let answer = self.send(body).await;
        record.answer = Some(match &answer {
            Ok(body) => serde_json::from_slice(body).unwrap_or_else(|_| Value::String(shown_answer(body))),
            Err(problem) => Value::String(problem.to_string()),
        });
        // The request is stored; an answer that cannot be is still shown.
        drop(RecordFolder::replace(&receipt.record, &record));
        let reading = answer.and_then(|body| Ok(answer::parse(&body, catalogue, redactor)?));
        (Some(receipt), reading)
    }

    async fn send(&self, body: Vec<u8>) -> Result<Vec<u8>, ReaderError> {
        let mut request = self.client.post(self.settings.url.reveal());
        request = request.header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        let problem = |problem| ReaderError::Request(self.client.problem_text(problem));
        let mut response = request.body(body).send().await.map_err(problem)?;
        let mut answer = Vec::new();
        let read = read_body(&mut response, &mut answer, ANSWER_BYTES).await;
        let status = response.status();
        if !status.is_success() {
            return Err(ReaderError::Status(match shown_answer(&answer).as_str() {
                "" => status.to_string(),
                text => format!("{status}: {text}"),
            }));
        }
        read.map_err(problem)?;
        if answer.len() >= ANSWER_BYTES {
            return Err(ReaderError::TooLong);
        }
        Ok(answer)
    }
}

/// Reads the key as the value of a header.
fn key(settings: &ReaderSettings) -> Result<Option<HeaderValue>, ReaderError> {
    let Some(path) = &settings.key_file else {
        return Ok(None);
    };
    if settings.url.is_open() {
        return Err(ReaderError::OpenKey);
    }
    let text = read_text(path, KEY_BYTES).map_err(|source| ReaderError::Key {
        path: path.clone(),
        source,
    })?;
    let no_key = || ReaderError::NoKey { path: path.clone() };
    let key = text.trim();
    if key.is_empty() || key.contains(char::is_whitespace) {
        return Err(no_key());
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| no_key())?;
    value.set_sensitive(true);
    Ok(Some(value))
}
