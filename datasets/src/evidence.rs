//! Tables as evidence that `rankguard replay` reads: one piece a line, JSON, in order of time.
//!
//! A journal's events carry the evidence that they came from, which is written as it was. Of anybody else's rows only what
//! they hold is known: a moment, a node, a text. They become lines of a kernel's log that nobody has marked, and the replay
//! marks them. A true journal cannot be made of tables: orders, timers and jobs' specifications are not in them.

use std::io::Write;

use rankguard_model::{Body, Entity, Evidence, EvidenceId, NodeId, Sequence, Source, Timestamp};

use crate::dataset::Dataset;
use crate::error::Error;
use crate::table::Table;

/// What was written, and what could not be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvidenceWritten {
    /// Pieces of evidence.
    pub pieces: u64,
    /// Rows without a time or a text, which are no evidence.
    pub left_out: u64,
}

impl Dataset {
    /// Writes the events, or the failures where there are none, as evidence.
    pub fn evidence(&self, mut sink: impl Write) -> Result<EvidenceWritten, Error> {
        let table = match self.has(Table::Events) {
            true => Table::Events,
            false => Table::Failures,
        };
        let times = self.f64s(table, "time")?;
        let nodes = self.strings(table, "node")?;
        let texts = self.texts(table)?;
        let whole = self.strings(table, "x_evidence").unwrap_or_default();
        // A journal tells of more than evidence: what it knows of itself is not played again.
        let kinds = self.strings(table, "x_kind").unwrap_or_default();
        let mut written = EvidenceWritten::default();
        let mut order: Vec<(f64, usize)> = Vec::new();
        for (at, time) in times.iter().enumerate() {
            match time {
                Some(time) => order.push((*time, at)),
                None => written.left_out += 1,
            }
        }
        // Stable: rows of the same moment keep their order.
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

    /// What each row says: the message of an event, class and subclass of a failure.
    fn texts(&self, table: Table) -> Result<Vec<Option<String>>, Error> {
        if table == Table::Events {
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
        source: Source::KernelLog,
        entity: node.map_or(Entity::Unknown, |node| Entity::Node {
            node: NodeId::from(node),
        }),
        body: Body::Line {
            text: text.to_owned(),
            context: Vec::new(),
            repeats: 1,
        },
        marks: Vec::new(),
        synthetic: false,
    }
}
