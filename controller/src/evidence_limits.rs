//! Size limits of evidence: long texts are truncated, and evidence with names beyond the limit is refused.
//!
//! Agents observe these limits themselves. Larger evidence comes from a faulty or hostile peer, and would otherwise
//! remain in the journal, in cases and in memory.

use rankguard_model::{Classification, Entity, Evidence, EvidenceBody, FieldValues};

/// Text of a line or a reason, bytes.
const TEXT_BYTES: usize = 8 << 10;
/// Context lines, and their bytes in total.
const CONTEXT_LINES: usize = 256;
const CONTEXT_BYTES: usize = 64 << 10;
/// Flight recorder dump, bytes. A truncated dump cannot be parsed, so a longer one is refused.
const DUMP_BYTES: usize = 256 << 10;
/// Classifications of one piece of evidence, fields of a classification, bytes of a field.
const MARKS: usize = 32;
const FIELDS: usize = 64;
const FIELD_BYTES: usize = 2 << 10;
/// Names of nodes, jobs, devices, classes and signatures, bytes.
pub(crate) const NAME_BYTES: usize = 256;
/// Entries of a preflight's environment and failed checks.
const ENTRIES: usize = 1_024;

/// Returns the evidence with long texts truncated, or the reason to refuse it.
pub(crate) fn limit_evidence(mut evidence: Evidence) -> Result<Evidence, String> {
    check_names(&evidence)?;
    limit_body(&mut evidence.body)?;
    evidence.marks.truncate(MARKS);
    for mark in &mut evidence.marks {
        limit_mark(mark);
    }
    Ok(evidence)
}

/// Checks that a name is at most [`NAME_BYTES`] long.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), String> {
    if name.len() > NAME_BYTES {
        return Err(format!(
            "its {what} has {} bytes; at most {NAME_BYTES} are taken",
            name.len()
        ));
    }
    Ok(())
}

fn check_names(evidence: &Evidence) -> Result<(), String> {
    match &evidence.entity {
        Entity::Rank { job, node, .. } => {
            check_name("job name", job.as_str())?;
            check_name("node name", node.as_str())?;
        }
        Entity::Job { job } => check_name("job name", job.as_str())?,
        Entity::Node { node } => check_name("node name", node.as_str())?,
        Entity::Device { node, device } => {
            check_name("node name", node.as_str())?;
            check_name("device name", &device.to_string())?;
        }
        Entity::Unknown => {}
    }
    for mark in &evidence.marks {
        check_name("class name", mark.class.as_str())?;
        check_name("signature name", &mark.signature)?;
    }
    Ok(())
}

fn limit_body(body: &mut EvidenceBody) -> Result<(), String> {
    match body {
        EvidenceBody::Line { text, context, .. } => {
            cut(text, TEXT_BYTES);
            limit_context(context);
        }
        EvidenceBody::Sample { metric, unit, .. } => {
            check_name("metric name", metric)?;
            check_name("unit name", unit)?;
        }
        EvidenceBody::Gap { what, .. } => cut(what, TEXT_BYTES),
        EvidenceBody::Fenced { job, left, .. } | EvidenceBody::Stopped { job, left, .. } => {
            check_name("job name", job.as_str())?;
            left.truncate(ENTRIES);
            left.iter_mut().for_each(|process| cut(process, NAME_BYTES));
        }
        EvidenceBody::ShardDurable { seal } => {
            check_name("index digest", &seal.index)?;
            check_name("schema name", &seal.schema)?;
        }
        EvidenceBody::ShardFailed { reason, .. } => cut(reason, TEXT_BYTES),
        EvidenceBody::Copied { to, failed, .. } => {
            cut(to, NAME_BYTES);
            cut_some(failed);
        }
        EvidenceBody::ShardsFinished { job, failed, .. } => {
            check_name("job name", job.as_str())?;
            cut_some(failed);
        }
        EvidenceBody::FlightDump { dump, .. } if dump.len() > DUMP_BYTES => {
            return Err(format!(
                "its flight-recorder dump has {} bytes; at most {DUMP_BYTES} are taken",
                dump.len()
            ));
        }
        EvidenceBody::Preflighted {
            job,
            failed,
            environment,
            ..
        } => {
            check_name("job name", job.as_str())?;
            failed.truncate(ENTRIES);
            for check in failed {
                check_name("class name", check.class.as_str())?;
                for text in [
                    &mut check.check,
                    &mut check.subject,
                    &mut check.found,
                    &mut check.advice,
                ] {
                    cut(text, FIELD_BYTES);
                }
            }
            while environment.len() > ENTRIES {
                environment.pop_last();
            }
            environment.retain(|name, _| name.len() <= NAME_BYTES);
            environment.values_mut().for_each(|value| cut(value, FIELD_BYTES));
        }
        EvidenceBody::Prepared { job, problem, .. } => {
            check_name("job name", job.as_str())?;
            cut_some(problem);
        }
        EvidenceBody::OrderFailed { job, reason, .. } => {
            check_name("job name", job.as_str())?;
            cut(reason, TEXT_BYTES);
        }
        _ => {}
    }
    Ok(())
}

/// Retains the context lines nearest to the line: the last ones.
fn limit_context(context: &mut Vec<String>) {
    let mut room = CONTEXT_BYTES;
    let mut kept = 0;
    for line in context.iter_mut().rev() {
        cut(line, TEXT_BYTES);
        if kept == CONTEXT_LINES || line.len() > room {
            break;
        }
        room -= line.len();
        kept += 1;
    }
    let gone = context.len() - kept;
    context.drain(..gone);
}

fn limit_mark(mark: &mut Classification) {
    let is_long = |(name, value): (&str, &str)| name.len() > NAME_BYTES || value.len() > FIELD_BYTES;
    let pairs = || mark.fields.iter();
    if mark.fields.len() <= FIELDS && !pairs().any(is_long) {
        return;
    }
    let short = pairs().filter(|(name, _)| name.len() <= NAME_BYTES).take(FIELDS);
    let fields: FieldValues = short
        .map(|(name, value)| {
            let mut value = value.to_owned();
            cut(&mut value, FIELD_BYTES);
            (name.to_owned(), value)
        })
        .collect();
    mark.fields = fields;
}

fn cut_some(text: &mut Option<String>) {
    if let Some(text) = text {
        cut(text, TEXT_BYTES);
    }
}

/// Truncates a text at a character boundary and appends the number of missing bytes.
fn cut(text: &mut String, most: usize) {
    if text.len() <= most {
        return;
    }
    let missing = format!(" [{} bytes cut]", text.len() - most);
    text.truncate(text.floor_char_boundary(most.saturating_sub(missing.len())));
    text.push_str(&missing);
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use rankguard_model::{EvidenceId, EvidenceSource, JobId, NodeId, Role, Sequence, Timestamp};

    use super::*;

    fn evidence(body: EvidenceBody) -> Evidence {
        Evidence {
            id: EvidenceId {
                node: NodeId::from("n1"),
                seq: Sequence(1),
            },
            at: Timestamp(1),
            source: EvidenceSource::JobLog,
            entity: Entity::Job {
                job: JobId::from("llm"),
            },
            body,
            marks: Vec::new(),
            synthetic: false,
        }
    }

    fn size(evidence: &Evidence) -> usize {
        serde_json::to_vec(evidence).expect("JSON").len()
    }

    #[test]
    fn rg_9_whatever_an_agent_sends_takes_a_bounded_number_of_bytes() {
        let long = "é".repeat(2 << 20);
        let line = evidence(EvidenceBody::Line {
            text: long.clone(),
            context: vec![long.clone(); 20],
            repeats: 1,
        });
        let limited = limit_evidence(line).expect("it can be cut");
        assert!(
            size(&limited) <= TEXT_BYTES + CONTEXT_BYTES + 1_024,
            "{}",
            size(&limited)
        );
        let EvidenceBody::Line { text, .. } = &limited.body else {
            panic!("{limited:?}")
        };
        assert!(
            text.starts_with("ééé") && text.ends_with(" bytes cut]"),
            "{}",
            &text[text.len() - 30..]
        );
        let mut marked = evidence(EvidenceBody::RankFinished);
        let mark = Classification {
            class: "xid".into(),
            role: Role::Root,
            confidence: 1.0,
            signature: "s".into(),
            fields: (0..500).map(|at| (format!("field-{at}"), long.clone())).collect(),
        };
        marked.marks = vec![mark; 100];
        let limited = limit_evidence(marked).expect("it can be cut");
        assert!(
            size(&limited) <= MARKS * FIELDS * (FIELD_BYTES + 64),
            "{}",
            size(&limited)
        );
    }

    #[test]
    fn what_cannot_be_cut_is_not_taken() {
        let mut named = evidence(EvidenceBody::RankFinished);
        named.entity = Entity::Job {
            job: JobId::from("j".repeat(300)),
        };
        let problem = limit_evidence(named).expect_err("a long name");
        assert_eq!(problem, "its job name has 300 bytes; at most 256 are taken");
        let dump = evidence(EvidenceBody::FlightDump {
            dump: "x".repeat(DUMP_BYTES + 1),
            left_out: 0,
        });
        assert!(limit_evidence(dump).is_err());
    }

    #[test]
    fn evidence_of_the_usual_size_stays_as_it_is() {
        let usual = evidence(EvidenceBody::Line {
            text: "NVRM: Xid (PCI:0000:1b:00): 79".to_owned(),
            context: vec!["before".to_owned(); 20],
            repeats: 3,
        });
        assert_eq!(limit_evidence(usual.clone()), Ok(usual));
    }
}
