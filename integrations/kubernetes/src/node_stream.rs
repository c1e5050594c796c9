//! Events of a watch of nodes.

use std::time::Duration;

use reqwest::Response;

use crate::api_error::ApiError;
use crate::objects::{NodeObject, ObjectMeta, StatusObject, WatchLine};

/// Longest line of a watch, bytes: one node.
const LINE_BYTES_MAX: usize = 8 << 20;
/// Longest silence of a watch. The server sends a bookmark about once a minute; after this time the watch is ended here, as
/// its connection may be lost, and a new one continues where it ended.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeEvent {
    /// A node was added or changed.
    Applied(Box<NodeObject>),
    /// A node was deleted.
    Deleted {
        /// Name of the node.
        name: String,
        /// Version of the deletion.
        resource_version: String,
    },
    /// Nothing changed up to a version.
    Bookmark {
        /// Version from which a watch continues.
        resource_version: String,
    },
}

/// Answer to a watch, read line by line.
#[derive(Debug)]
pub struct NodeStream {
    response: Response,
    buffer: Vec<u8>,
    /// Bytes of the buffer that contain no end of a line.
    searched: usize,
}

impl NodeStream {
    pub(crate) fn new(response: Response) -> Self {
        Self {
            response,
            buffer: Vec::new(),
            searched: 0,
        }
    }

    /// Waits for the next event; `None` at the end of the watch.
    ///
    /// # Errors
    /// The connection broke, or a line is no event; 410 if the version has expired.
    pub async fn next(&mut self) -> Result<Option<NodeEvent>, ApiError> {
        loop {
            if let Some(line) = self.take_line() {
                match parse_line(&line)? {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                }
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(ApiError::Answer(format!("a line has more than {LINE_BYTES_MAX} bytes")));
            }
            let chunk = tokio::time::timeout(SILENCE_MAX, self.response.chunk()).await;
            // The next watch shows whether the server is there.
            let Ok(chunk) = chunk else { return Ok(None) };
            let broken =
                |problem: reqwest::Error| ApiError::Unreachable(rankguard_model::with_causes(&problem.without_url()));
            match chunk.map_err(broken)? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        match end {
            Some(end) => {
                let rest = self.buffer.split_off(self.searched + end + 1);
                self.searched = 0;
                Some(std::mem::replace(&mut self.buffer, rest))
            }
            None => {
                self.searched = self.buffer.len();
                None
            }
        }
    }
}

/// Parses a line of a watch; `None` for a kind of event that is not known.
fn parse_line(line: &[u8]) -> Result<Option<NodeEvent>, ApiError> {
    let wrong = |problem: serde_json::Error| ApiError::Answer(problem.to_string());
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let line: WatchLine = serde_json::from_slice(line).map_err(wrong)?;
    let meta = || serde_json::from_value::<ObjectMeta>(line.object["metadata"].clone()).map_err(wrong);
    match line.kind.as_str() {
        "ADDED" | "MODIFIED" => {
            let node = serde_json::from_value(line.object).map_err(wrong)?;
            Ok(Some(NodeEvent::Applied(Box::new(node))))
        }
        "DELETED" => meta().map(|meta| {
            Some(NodeEvent::Deleted {
                name: meta.name,
                resource_version: meta.resource_version,
            })
        }),
        "BOOKMARK" => meta().map(|meta| {
            Some(NodeEvent::Bookmark {
                resource_version: meta.resource_version,
            })
        }),
        "ERROR" => {
            let status: StatusObject = serde_json::from_value(line.object).map_err(wrong)?;
            Err(ApiError::Refused {
                code: status.code,
                reason: status.reason,
                message: status.message,
                retry_after: None,
            })
        }
        _ => Ok(None),
    }
}
