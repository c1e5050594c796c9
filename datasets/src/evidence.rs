//! Export of tables as evidence for `rankguard replay`: one JSON object a line, in order of time.
//!
//! Events of a journal contain their original evidence, which is written unchanged. Rows of other sources hold only a
//! time, a node and a text. They become unclassified kernel log lines, and the replay classifies them. Tables cannot be
//! converted to a full journal: they lack orders, timers and job specifications.

use std::io::Write;

use rankguard_model::{Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, NodeId, Sequence, Timestamp};

use crate::dataset::Dataset;
use crate::error::Error;
use crate::table::TableKind;

/// Result of an export.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvidenceExport {
    /// Number of exported pieces of evidence.
    pub pieces: u64,
    /// Number of rows left out because they lack a time or a text.
    pub left_out: u64,
}

impl Dataset {
    /// Writes the events, or the failures if there are none, as evidence.
    pub fn evidence(&self, mut sink: impl Write) -> Result<EvidenceExport, Error> {
        let table = if self.has(TableKind::Events) {
            TableKind::Events
        } else {
            TableKind::Failures
        };
        let times = self.f64s(table, "time")?;
        let nodes = self.strings(table, "node")?;
        let texts = self.texts(table)?;
        let whole = self.strings(table, "x_evidence").unwrap_or_default();
        // A journal's own events are not evidence and are not replayed.
        let kinds = self.strings(table, "x_kind").unwrap_or_default();
        let mut written = EvidenceExport::default();
        let mut order: Vec<(f64, usize)> = Vec::new();
        for (at, time) in times.iter().enumerate() {
            match time {
                Some(time) => order.push((*time, at)),
                None => written.left_out += 1,
            }
        }
        // Stable: rows of the same time retain their order.
        order.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (time, at) in order {
            let kept = whole.get(at).and_then(Option::as_deref);
            let is_news = kept.is_none() && kinds.get(at).and_then(Option::as_deref).is_some();
            let line = match (kept, &texts[at]) {
                (Some(json), _) => json.to_owned(),
                (None, Some(text)) if !is_news => {
                    let seq = Sequence(written.pieces + 1);
                    let evidence = line(self.source, seq, time, nodes[at].as_deref(), text);
                    serde_json::to_string(&evidence).unwrap_or_default()
                }
                _ => {
                    written.left_out += 1;
                    continue;
                }
            };
            writeln!(sink, "{line}").map_err(|problem| Error::Write {
                path: "the evidence".into(),
                what: problem.to_string(),
            })?;
            written.pieces += 1;
        }
        sink.flush().map_err(|problem| Error::Write {
            path: "the evidence".into(),
            what: problem.to_string(),
        })?;
        Ok(written)
    }

    /// Returns the text of each row: the message of an event, or class and subclass of a failure.
    fn texts(&self, table: TableKind) -> Result<Vec<Option<String>>, Error> {
        if table == TableKind::Events {
            return self.strings(table, "message");
        }
        let classes = self.strings(table, "class")?;
        let subclasses = self.strings(table, "subclass")?;
        let both = classes.into_iter().zip(subclasses);
        Ok(both
            .map(|pair| match pair {
                (Some(class), Some(subclass)) => Some(format!("{class}: {subclass}")),
                (class, subclass) => class.or(subclass),
            })
            .collect())
    }
}

fn line(source: &str, seq: Sequence, time: f64, node: Option<&str>, text: &str) -> Evidence {
    Evidence {
        id: EvidenceId {
            node: NodeId::from(source),
            seq,
        },
        at: Timestamp((time * 1e9) as i64),
        source: EvidenceSource::KernelLog,
        entity: node.map_or(Entity::Unknown, |node| Entity::Node {
            node: NodeId::from(node),
        }),
        body: EvidenceBody::Line {
            text: text.to_owned(),
            context: Vec::new(),
            repeats: 1,
        },
        marks: Vec::new(),
        synthetic: false,
    }
}
