//! Second reader: a language model of the operator reads an excerpt of the logs, and its answer is shown beside the
//! verdict.
//!
//! A [`StreamSample`] keeps the first, alarming and last lines of a stream. [`Excerpt`] joins the samples within a bound of
//! bytes, after a [`Redactor`] has removed keys, tokens, addresses and user names from each line. [`SecondReader`] stores
//! the request, sends it with the classes of the catalogue to an endpoint with the chat-completions interface, and parses
//! the answer into a [`ModelReading`].
//!
//! Invariants:
//! - The answer is no evidence: no verdict, case class, plan or exit code depends on it.
//! - Nothing is sent that is not stored first; what is sent has passed the redactor.
//! - A reader that hangs, refuses or answers nonsense gives a [`ReaderError`] after a deadline, and nothing else fails.
//! - An answer names a class of the catalogue or is refused; its text is bounded, and printed without characters that act
//!   on a terminal.
//!
//! The modules `answer`, `excerpt`, `prompt` and `redact` do no I/O.
//!
//! Not removed by the redactor: paths outside of home folders, names of jobs, models and data sets, and what a program
//! prints without a form that marks it as a name or a secret.

mod answer;
mod excerpt;
mod prompt;
mod reader;
mod record;
mod redact;
mod settings;

pub use answer::{AnswerError, ModelReading, TokenCounts};
pub use excerpt::{Excerpt, StreamSample};
pub use reader::{ReaderError, ReadingReceipt, SecondReader};
pub use redact::Redactor;
pub use settings::{ReaderSettings, ReaderUrl};
