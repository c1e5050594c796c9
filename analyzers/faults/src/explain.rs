//! Explanations: all catalogue knowledge of a class, a driver event number or a line, on one page.

use rankguard_model::{ClassId, Classification, EvidenceSource, Role};
use serde::Serialize;

use crate::catalogue::Catalogue;
use crate::class::{ActionBasis, AlternativeAction, ClassKind, FailureClass};
use crate::classes;
use crate::code::{CodeTable, DriverCode, EscalationRule, FatalityScope};
use crate::decode::{DecodedMessage, decode};
use crate::line::{self, LineClock};
use crate::matcher::SignatureMatcher;
use crate::signature::CodeKind;
use crate::taxonomy::Citation;

/// Meaning of a line that raises the suspicion of an out-of-memory kill.
const SUSPECTED: &str = "A process was ended by signal 9, and the line names no reason. A kill for lack of memory is the \
                         most frequent one; only the kernel log or the scheduler can confirm it.";
/// Action that takes a node out.
const REPLACE_NODE: &str = "replace-node";
/// Action that collects evidence first.
const DIAGNOSE: &str = "diagnose";

/// Explanation of one class, driver event number or line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Subject of the query (`XID 79`, a class id, the message of a line).
    pub subject: String,
    /// Failure class of the subject.
    pub class: ClassId,
    /// Other ids of the class.
    pub aliases: Vec<ClassId>,
    /// Layer of the class.
    pub layer: String,
    /// Cause, symptom or end state.
    pub kind: ClassKind,
    pub meaning: String,
    /// Id of the parent class.
    pub parent: Option<ClassId>,
    /// Other classes with the same parent.
    pub siblings: Vec<ClassId>,
    /// Ids of the child classes.
    pub children: Vec<ClassId>,
    /// Usual causes, the most frequent first.
    pub causes: Vec<String>,
    /// Default role in a failure.
    pub role: Role,
    /// Id of the first action.
    pub action: String,
    /// Definition of the first action.
    pub action_means: String,
    /// Advice, as an instruction.
    pub advice: String,
    /// Ids of the follow-up actions, in order.
    pub then: Vec<String>,
    /// Titles of the sources that recommend the action; empty if it is this project's inference.
    pub recommended_by: Vec<String>,
    /// Basis of the first action: published or inferred.
    pub basis: ActionBasis,
    /// First actions that other sources recommend.
    pub alternatives: Vec<AlternativeAction>,
    /// Remark on the action.
    pub notes: String,
    /// Recommendation of the device vendor, for numbered events.
    pub vendor_action: Option<String>,
    /// Clearing condition of the class.
    pub clears: String,
    /// Numbered event, if one was queried or is in the line.
    pub code: Option<DriverEvent>,
    /// Decoded message, if the query was a line with a numbered event.
    pub decoded: Option<DecodedMessage>,
    /// Categories in the published taxonomies.
    #[serde(rename = "taxonomies")]
    pub places: Vec<CategoryReference>,
    /// Signatures that indicate the class.
    pub signatures: Vec<SignatureExample>,
    /// Numbered events that indicate the class (`XID 79`).
    pub codes: Vec<String>,
    /// Sources of meaning and wording.
    pub sources: Vec<CitedSource>,
    /// Match mark, if the query was a line.
    pub mark: Option<Classification>,
}

/// Numbered driver event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DriverEvent {
    /// `XID` or `SXid`.
    pub kind: &'static str,
    pub number: u32,
    /// The vendor's mnemonic.
    pub mnemonic: String,
    /// GPUs and drivers to which it is limited.
    pub scope: String,
    /// Reach of a fatal event, for a switch.
    pub fatal: Option<FatalityScope>,
    /// Number of the event that clears its finding.
    pub cleared_by: Option<u32>,
    /// Escalation rules for repeated events.
    pub escalate: Vec<EscalationRule>,
    pub notes: String,
}

/// Category of a published taxonomy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CategoryReference {
    pub taxonomy: String,
    /// Short title of the taxonomy.
    pub title: String,
    /// Venue and year of the publication.
    pub citation: String,
    /// Address of the publication.
    pub url: String,
    pub category: String,
    pub name: String,
    /// Published figures (`count 148, share 30.1 %`); empty if none were recorded.
    pub figures: String,
}

/// Signature that indicates a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SignatureExample {
    pub id: String,
    /// Example line that the signature matches.
    pub example: String,
    /// Source of the wording.
    pub source: String,
}

/// Source with title and address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CitedSource {
    pub title: String,
    pub url: String,
}

/// Explains a class id or alias, `xid 79` / `XID79`, `sxid 20034`, or a log line. Returns an empty list if nothing
/// is known.
pub fn explain(catalogue: &Catalogue, matcher: &SignatureMatcher, query: &str) -> Vec<Explanation> {
    let query = query.trim();
    if let Some(found) = explain_class(catalogue, &ClassId::from(query)) {
        return vec![found];
    }
    for (word, kind) in [("sxid", CodeKind::Sxid), ("xid", CodeKind::Xid)] {
        if let Some(number) = number_after(query, word) {
            return explain_code(catalogue, kind, number).into_iter().collect();
        }
    }
    explain_line(catalogue, matcher, query)
}

fn explain_line(catalogue: &Catalogue, matcher: &SignatureMatcher, query: &str) -> Vec<Explanation> {
    let cleaned = line::clean(query);
    let parsed = line::parse(&cleaned, &LineClock::default());
    let text = parsed.text;
    let mut found = Vec::new();
    for source in [
        EvidenceSource::KernelLog,
        EvidenceSource::JobLog,
        EvidenceSource::Launcher,
        EvidenceSource::Scheduler,
    ] {
        for mark in matcher.marks(source, text) {
            let told = |seen: &Explanation| seen.mark.as_ref().is_some_and(|m| m.signature == mark.signature);
            if found.iter().any(told) {
                continue;
            }
            let number = coded(&mark);
            let decoded = number.map(|(kind, number)| decode(table(catalogue, kind), kind, number, text, None));
            let class = decoded.as_ref().map_or(&mark.class, |decoded| &decoded.class);
            let Some(mut explanation) = explain_class(catalogue, class) else {
                continue;
            };
            text.clone_into(&mut explanation.subject);
            if let Some((kind, number)) = number {
                add_code(catalogue, kind, number, &mut explanation);
            }
            if let Some(decoded) = decoded {
                explanation.role = decoded.role;
                explanation.vendor_action = Some(decoded.vendor_action.to_string()).filter(|action| !action.is_empty());
                explanation.decoded = Some(decoded);
            } else {
                explanation.role = mark.role;
                if mark.role == Role::Confirmation && mark.class.as_str() == classes::HOST_OOM_KILL {
                    SUSPECTED.clone_into(&mut explanation.meaning);
                }
            }
            explanation.mark = Some(mark);
            found.push(explanation);
        }
    }
    found
}

/// Returns the kind and number of the driver event in a mark.
fn coded(mark: &Classification) -> Option<(CodeKind, u32)> {
    let number = |field: &str| mark.fields.get(field)?.parse::<u32>().ok();
    let sxid = number("sxid").map(|number| (CodeKind::Sxid, number));
    sxid.or_else(|| number("xid").map(|number| (CodeKind::Xid, number)))
}

fn table(catalogue: &Catalogue, kind: CodeKind) -> &CodeTable {
    match kind {
        CodeKind::Xid => catalogue.xids(),
        CodeKind::Sxid => catalogue.sxids(),
    }
}

fn shown(kind: CodeKind) -> &'static str {
    match kind {
        CodeKind::Xid => "XID",
        CodeKind::Sxid => "SXid",
    }
}

/// Parses `XID 79`, `xid-79` or `Xid79` to the number, if nothing else follows.
fn number_after(query: &str, word: &str) -> Option<u32> {
    let head = query.get(..word.len()).filter(|head| head.eq_ignore_ascii_case(word))?;
    query[head.len()..]
        .trim_start_matches([' ', '-', '_', ':', '#'])
        .parse()
        .ok()
}

fn explain_code(catalogue: &Catalogue, kind: CodeKind, number: u32) -> Option<Explanation> {
    let code = table(catalogue, kind).get(number);
    let unknown = ClassId::from(format!("unknown-{}-{number}", shown(kind).to_ascii_lowercase()));
    let mut explanation = explain_class(catalogue, code.map_or(&unknown, |code| &code.class))?;
    explanation.subject = format!("{} {number}", shown(kind));
    add_code(catalogue, kind, number, &mut explanation);
    if let Some(code) = code {
        explanation.role = code.role;
        explanation.vendor_action = Some(code.vendor_action.to_string()).filter(|action| !action.is_empty());
    }
    Some(explanation)
}

fn add_code(catalogue: &Catalogue, kind: CodeKind, number: u32, explanation: &mut Explanation) {
    let codes = table(catalogue, kind);
    let Some(code) = codes.get(number) else { return };
    // Several numbers share a class; its definition covers the most frequent of them only.
    explanation.meaning = format!("{}.", code.meaning);
    if code.fatal == Some(FatalityScope::NonFatal) {
        spare_node(catalogue, explanation);
    }
    explanation.code = Some(event(kind, code, codes.cleared_by(number)));
    if let Some(source) = catalogue.source(&code.source) {
        let reading = CitedSource {
            title: source.title.clone(),
            url: source.url.clone(),
        };
        if !explanation.sources.contains(&reading) {
            explanation.sources.insert(0, reading);
        }
    }
}

/// Replaces the removal of a node by a diagnosis: an event that stops nothing is a reason to look, not to act.
fn spare_node(catalogue: &Catalogue, explanation: &mut Explanation) {
    if explanation.action != REPLACE_NODE {
        return;
    }
    explanation.action = DIAGNOSE.to_owned();
    explanation.action_means = catalogue.action(DIAGNOSE).unwrap_or_default().to_owned();
    explanation.then.clear();
    let (agreeing, others): (Vec<_>, Vec<_>) = std::mem::take(&mut explanation.alternatives)
        .into_iter()
        .partition(|other| other.action == DIAGNOSE);
    explanation.alternatives = others;
    let titles = agreeing
        .iter()
        .filter_map(|other| catalogue.source_title(&other.source));
    explanation.recommended_by = titles.map(str::to_owned).collect();
}

fn event(kind: CodeKind, code: &DriverCode, cleared_by: Option<u32>) -> DriverEvent {
    DriverEvent {
        kind: shown(kind),
        number: code.number,
        mnemonic: code.mnemonic.clone(),
        scope: code.scope.clone(),
        fatal: code.fatal,
        cleared_by,
        escalate: code.escalate.clone(),
        notes: code.notes.clone(),
    }
}

/// Explains a class by its id or an alias.
pub fn explain_class(catalogue: &Catalogue, id: &ClassId) -> Option<Explanation> {
    let class: &FailureClass = catalogue.class(id)?;
    // An unknown number retains its own id; it only uses the class of its family.
    let borrowed = class.id != *id && !class.aliases.contains(id);
    let name = if borrowed { id } else { &class.id };
    let ids =
        |classes: &mut dyn Iterator<Item = &FailureClass>| classes.map(|class| class.id.clone()).collect::<Vec<_>>();
    let siblings = class.parent.as_ref().map(|parent| {
        let others = catalogue.children(parent);
        ids(&mut others.filter(|other| other.id != class.id))
    });
    let titles = class.mitigation.recommended_by.iter();
    let titles = titles
        .filter_map(|source| catalogue.source_title(source))
        .map(str::to_owned);
    let readings = class.sources.iter().filter_map(|source| catalogue.source(source));
    Some(Explanation {
        subject: id.to_string(),
        class: name.clone(),
        aliases: class.aliases.clone(),
        layer: class.layer.clone(),
        kind: class.kind,
        meaning: class.definition.clone(),
        parent: class.parent.clone(),
        siblings: siblings.unwrap_or_default(),
        children: ids(&mut catalogue.children(&class.id)),
        causes: class.causes.clone(),
        role: class.role,
        action: class.mitigation.action.clone(),
        action_means: catalogue
            .action(&class.mitigation.action)
            .unwrap_or_default()
            .to_owned(),
        advice: class.mitigation.advice.clone(),
        then: class.then.clone(),
        recommended_by: titles.collect(),
        basis: class.basis,
        alternatives: class.alternatives.clone(),
        notes: class.notes.clone(),
        vendor_action: None,
        clears: class.clears.clone(),
        code: None,
        decoded: None,
        places: places(catalogue, class),
        signatures: announcements(catalogue, class),
        codes: numbers(catalogue, class),
        sources: readings
            .map(|source| CitedSource {
                title: source.title.clone(),
                url: source.url.clone(),
            })
            .collect(),
        mark: None,
    })
}

fn announcements(catalogue: &Catalogue, class: &FailureClass) -> Vec<SignatureExample> {
    let signatures = catalogue.signatures().iter();
    signatures
        .filter(|signature| signature.class == class.id)
        .map(|signature| SignatureExample {
            id: signature.id.to_string(),
            example: signature.example.clone(),
            source: signature.source.clone(),
        })
        .collect()
}

fn numbers(catalogue: &Catalogue, class: &FailureClass) -> Vec<String> {
    let mut numbers = Vec::new();
    for kind in [CodeKind::Xid, CodeKind::Sxid] {
        let codes = table(catalogue, kind).iter().filter(|code| code.class == class.id);
        numbers.extend(codes.map(|code| format!("{} {}", shown(kind), code.number)));
    }
    numbers
}

/// Formats venue and year; most venues contain their year already.
fn cited(citation: &Citation) -> String {
    let year = citation.year.to_string();
    if citation.venue.contains(&year) {
        return citation.venue.clone();
    }
    format!("{}, {year}", citation.venue)
}

fn places(catalogue: &Catalogue, class: &FailureClass) -> Vec<CategoryReference> {
    let mut places = Vec::new();
    for id in catalogue.taxonomy_ids() {
        // Only mapped taxonomies are parsed: most classes have a category in only a few.
        let Some(categories) = catalogue.places_in(&class.id, id) else {
            continue;
        };
        let Some(taxonomy) = catalogue.taxonomy(id) else {
            continue;
        };
        for category in categories {
            places.push(CategoryReference {
                taxonomy: taxonomy.id.clone(),
                title: taxonomy.short.clone(),
                citation: cited(&taxonomy.citation),
                url: taxonomy.citation.url.clone(),
                category: category.clone(),
                name: taxonomy.name_of(category).unwrap_or(category).to_owned(),
                figures: taxonomy.figures(category),
            });
        }
    }
    places
}
