//! Question to the second reader about a case, and the comment that asks for a review.

use rankguard_faults::Catalogue;
use rankguard_model::{Case, CaseFinding, NodeId};
use rankguard_proto::v1;
use rankguard_reader::StreamSample;

use crate::args::{CommonArgs, ControllerAddress};
use crate::out;
use crate::runtime::block_on;
use crate::second_reader::{AskedReader, ReaderQuestion, ShownReading};

/// Asks the reader about the evidence of a case, in order of time and without what was concluded from it.
pub(super) fn ask(case: &Case, reader: &AskedReader) -> ShownReading {
    let mut findings: Vec<&CaseFinding> = case.findings.iter().collect();
    findings.sort_by_key(|finding| finding.at);
    let mut sample = StreamSample::new("evidence of one job, in order of time");
    for finding in &findings {
        for line in finding.text.lines() {
            sample.push(&format!("{} {}: {line}", finding.at, finding.entity));
        }
    }
    let nodes = findings.iter().filter_map(|finding| finding.entity.node());
    let question = ReaderQuestion {
        of: format!("case {}", case.id),
        samples: &[sample],
        nodes: nodes.map(NodeId::to_string).collect(),
        verdicts: &[case.corrected_class().unwrap_or(&case.verdict.class).clone()],
    };
    reader.ask(question, Catalogue::builtin())
}

/// Adds a comment to the case if the model reads another class than the verdict. A comment that the case has is not
/// repeated, and one that cannot be added is a note: the command has shown what it was asked for.
pub(super) fn mark_for_review(case: &Case, reading: &ShownReading, address: &ControllerAddress, common: &CommonArgs) {
    let Some(text) = reading.review_text() else { return };
    if case.notes.iter().any(|note| note.text == text) {
        return;
    }
    let request = v1::CaseNoteRequest {
        id: case.id.0,
        by: "second reader".to_owned(),
        text,
        acknowledges: false,
        closes: false,
        class: None,
    };
    let saved = address
        .client(common)
        .and_then(|client| Ok(block_on(client.note_case(request))??));
    match saved {
        Ok(_) => out::note("the case has a comment that asks for a review"),
        Err(problem) => out::note(&format!("the case has no comment that asks for a review: {problem}")),
    }
}
