//! Second reader of `diagnose --reader` and `cases show --reader`: asks the language model of the settings `reader.*`, and
//! shows its answer beside the verdict. Nothing depends on the answer.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use rankguard_console::display_text::count;
use rankguard_faults::{Catalogue, classes};
use rankguard_model::{ClassId, Timestamp, with_causes};
use rankguard_reader::{Excerpt, ModelReading, ReaderSettings, ReadingReceipt, Redactor, SecondReader, StreamSample};
use serde::Serialize;

use crate::args::CommonArgs;
use crate::error::CliError;
use crate::runtime::block_on;

/// Reader of one command.
#[derive(Debug)]
pub(crate) struct AskedReader {
    settings: ReaderSettings,
    /// Requests that the command may still send.
    left: Cell<u64>,
    limit: u64,
}

/// Question to the reader.
#[derive(Debug)]
pub(crate) struct ReaderQuestion<'a> {
    /// Name of what is read.
    pub(crate) of: String,
    pub(crate) samples: &'a [StreamSample],
    /// Known names of nodes, which are not sent.
    pub(crate) nodes: Vec<String>,
    /// Classes of the verdicts on it; none if nothing failed.
    pub(crate) verdicts: &'a [ClassId],
}

/// Answer of the reader, or the reason why there is none.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ShownReading {
    of: String,
    model: String,
    service: String,
    /// What the model reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reading: Option<ModelReading>,
    /// Reason why there is no reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Classes of the verdicts; `none` if nothing failed.
    verdicts: Vec<ClassId>,
    /// False if the model reads another class than the verdicts, which is a reason to review them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agrees: Option<bool>,
    /// Number of streams of which the request has lines, and of those without room.
    streams: usize,
    streams_left_out: usize,
    /// Size of the request, bytes.
    request_bytes: usize,
    /// Stored request with its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<PathBuf>,
}

impl AskedReader {
    /// Returns the configured reader.
    pub(crate) fn configured(common: &CommonArgs) -> Result<Self, CliError> {
        let config = common.settings([])?;
        let limit = config.reader_requests();
        let settings = config.reader().ok_or_else(|| {
            CliError::usage(
                "no second reader is configured",
                "set reader.url and reader.model, in the file of --config or as RANKGUARD_READER_URL and RANKGUARD_READER_MODEL",
            )
        })?;
        Ok(Self {
            settings,
            left: Cell::new(limit),
            limit,
        })
    }

    /// Asks the reader; waits at most for its time limit.
    pub(crate) fn ask(&self, question: ReaderQuestion<'_>, catalogue: &Catalogue) -> ShownReading {
        let users = ["USER", "LOGNAME", "SUDO_USER"]
            .iter()
            .filter_map(|name| std::env::var(name).ok());
        let mut redactor = Redactor::new(question.nodes, users);
        let excerpt = Excerpt::of(question.samples, &mut redactor, self.settings.excerpt_bytes);
        let (receipt, reading) = self.answer(&excerpt, &redactor, catalogue);
        let verdicts = if question.verdicts.is_empty() {
            vec![ClassId::from(classes::NONE)]
        } else {
            question.verdicts.to_vec()
        };
        let agrees = |reading: &ModelReading| verdicts.iter().any(|verdict| reading.agrees_with(verdict, catalogue));
        ShownReading {
            of: question.of,
            model: self.settings.model.clone(),
            service: self.settings.url.to_string(),
            agrees: reading.as_ref().ok().map(agrees),
            problem: reading.as_ref().err().cloned(),
            reading: reading.ok(),
            verdicts,
            streams: excerpt.streams,
            streams_left_out: excerpt.left_out,
            request_bytes: receipt.as_ref().map_or(0, |receipt| receipt.bytes),
            record: receipt.map(|receipt| receipt.record),
        }
    }

    fn answer(
        &self,
        excerpt: &Excerpt,
        redactor: &Redactor,
        catalogue: &Catalogue,
    ) -> (Option<ReadingReceipt>, Result<ModelReading, String>) {
        if excerpt.is_empty() {
            return (None, Err("there are no lines to send".to_owned()));
        }
        if self.left.get() == 0 {
            return (None, Err(format!("not asked: reader.requests is {}", self.limit)));
        }
        self.left.set(self.left.get() - 1);
        let reader = match SecondReader::new(self.settings.clone()) {
            Ok(reader) => reader,
            Err(problem) => return (None, Err(with_causes(&problem))),
        };
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = Timestamp(0).after(since_epoch.unwrap_or_default());
        match block_on(reader.read(excerpt, redactor, catalogue, now)) {
            Ok((receipt, reading)) => (receipt, reading.map_err(|problem| with_causes(&problem))),
            Err(problem) => (None, Err(problem.to_string())),
        }
    }
}

impl ShownReading {
    /// Returns the comment that asks for a review of the verdicts, if the model reads another class.
    pub(crate) fn review_text(&self) -> Option<String> {
        let reading = self.reading.as_ref().filter(|_| self.agrees == Some(false))?;
        let verdicts: Vec<&str> = self.verdicts.iter().map(ClassId::as_str).collect();
        Some(format!(
            "review: the language model {} reads {}, not {}",
            self.model,
            reading.class,
            verdicts.join(", ")
        ))
    }

    /// Returns the lines of the answer for people.
    pub(crate) fn page(&self) -> Vec<String> {
        let mut lines = vec![
            format!("Second reader, a language model: {} at {}", self.model, self.service),
            format!("   of          {}", self.of),
        ];
        match (&self.reading, &self.problem) {
            (Some(reading), _) => {
                let verdicts: Vec<&str> = self.verdicts.iter().map(ClassId::as_str).collect();
                let verdicts = verdicts.join(", ");
                let relation = if self.agrees == Some(true) {
                    format!("agrees with the verdict {verdicts}")
                } else {
                    format!("differs from the verdict {verdicts}: review")
                };
                lines.push(format!(
                    "   reads       {} ({}); {relation}",
                    reading.class, reading.layer
                ));
                lines.extend(reading.root_rank.map(|rank| format!("   root rank   {rank}")));
                lines.extend(reading.node.as_ref().map(|node| format!("   node        {node}")));
                lines.push(format!("   its reason  {}", reading.reason));
            }
            (None, problem) => lines.push(format!(
                "   no answer   {}",
                problem.as_deref().unwrap_or("unknown reason")
            )),
        }
        if let Some(record) = &self.record {
            let left_out = match self.streams_left_out {
                0 => String::new(),
                more => format!(", {} left out", count(more, "stream")),
            };
            let tokens = self.reading.as_ref().and_then(|reading| reading.tokens);
            let tokens = tokens.map_or_else(String::new, |tokens| {
                format!("; {} + {} tokens", tokens.prompt_tokens, tokens.completion_tokens)
            });
            lines.push(format!(
                "   request     {} bytes with redacted lines of {}{left_out}{tokens}; stored in {}",
                self.request_bytes,
                count(self.streams, "stream"),
                record.display()
            ));
        }
        lines.push("   The answer is no evidence; verdict, actions and exit code do not depend on it.".to_owned());
        lines
    }
}
