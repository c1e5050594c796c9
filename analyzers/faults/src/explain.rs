//! Explanations: everything the catalogue knows of a class, a driver event number or a line, as one page.

use rankguard_model::{ClassId, Mark, Role, Source};
use serde::Serialize;

use crate::catalogue::Catalogue;
use crate::class::{Alternative, Basis, Class, Kind};
use crate::code::{Code, CodeTable, Escalation, Fatality};
use crate::decode::{Decoded, decode};
use crate::line::{self, LineClock};
use crate::matcher::Matcher;
use crate::signature::CodeKind;
use crate::taxonomy::Citation;

/// What is known about one thing that was asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// What was asked for (`XID 79`, a class id, the message of a line).
    pub subject: String,
    /// The class it belongs to.
    pub class: ClassId,
    /// Ids by which other lists know the class.
    pub aliases: Vec<ClassId>,
    /// Where the class sits.
    pub layer: String,
    /// Whether it is a cause, a symptom or an end state.
    pub kind: Kind,
    /// What it means.
    pub meaning: String,
    /// The wider class it is a case of.
    pub parent: Option<ClassId>,
    /// Other cases of the same wider class.
    pub siblings: Vec<ClassId>,
    /// Its own cases.
    pub children: Vec<ClassId>,
    /// What usually causes it, most usual first.
    pub causes: Vec<String>,
    /// The part it plays in a failure as a rule.
    pub role: Role,
    /// Id of the first action.
    pub action: String,
    /// What the first action means.
    pub action_means: String,
    /// What to do, as an instruction.
    pub advice: String,
    /// Ids of what to do after the first action.
    pub then: Vec<String>,
    /// Titles of the sources that recommend the action; empty when it is our own inference.
    pub recommended_by: Vec<String>,
    /// Whether they recommend it for this very failure.
    pub basis: Basis,
    /// What other sources do first.
    pub alternatives: Vec<Alternative>,
    /// A remark on the action.
    pub notes: String,
    /// What the vendor of the device says, for numbered events.
    pub vendor_action: Option<String>,
    /// What evidence clears it.
    pub clears: String,
    /// The numbered event, where one was asked for or stands in the line.
    pub code: Option<Event>,
    /// What stands inside the message, where a line with a numbered event was explained.
    pub decoded: Option<Decoded>,
    /// Its places in the published taxonomies.
    #[serde(rename = "taxonomies")]
    pub places: Vec<Place>,
    /// Signatures that announce it in one line.
    pub signatures: Vec<Announcement>,
    /// Numbered events that announce it (`XID 79`).
    pub codes: Vec<String>,
    /// Where meaning and wording can be read.
    pub sources: Vec<Reading>,
    /// The mark, where a line was explained.
    pub mark: Option<Mark>,
}

/// A numbered event of a driver.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// `XID` or `SXid`.
    pub kind: &'static str,
    /// Its number.
    pub number: u32,
    /// The vendor's symbol.
    pub mnemonic: String,
    /// GPUs and drivers it is limited to.
    pub scope: String,
    /// What it stops, for a switch.
    pub fatal: Option<Fatality>,
    /// The number whose event ends its finding.
    pub cleared_by: Option<u32>,
    /// What its repetition means.
    pub escalate: Vec<Escalation>,
    /// A remark.
    pub notes: String,
}

/// A category of a published taxonomy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Id of the taxonomy.
    pub taxonomy: String,
    /// Its short title.
    pub title: String,
    /// Where it was published, with the year.
    pub citation: String,
    /// Its address.
    pub url: String,
    /// Id of the category.
    pub category: String,
    /// Name of the category.
    pub name: String,
    /// What the publication counted (`count 148, share 30.1 %`); empty where nothing was read.
    pub figures: String,
}

/// A signature that announces a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Announcement {
    /// Its id.
    pub id: String,
    /// A line that it matches.
    pub example: String,
    /// Where its wording is from.
    pub source: String,
}

/// Something to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Its title.
    pub title: String,
    /// Its address.
    pub url: String,
}

/// Explains a class id or alias, `xid 79` / `XID79`, `sxid 20034`, or a log line. Nothing known gives an empty list.
pub fn explain(catalogue: &Catalogue, matcher: &Matcher, query: &str) -> Vec<Explanation> {
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

fn explain_line(catalogue: &Catalogue, matcher: &Matcher, query: &str) -> Vec<Explanation> {
    let cleaned = line::clean(query);
    let parsed = line::parse(&cleaned, &LineClock::default());
    let text = parsed.text;
    let mut found = Vec::new();
    for source in [Source::KernelLog, Source::JobLog, Source::Launcher, Source::Scheduler] {
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
            }
            explanation.mark = Some(mark);
            found.push(explanation);
        }
    }
    found
}

/// The numbered event that a mark speaks of.
fn coded(mark: &Mark) -> Option<(CodeKind, u32)> {
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

/// `XID 79`, `xid-79`, `Xid79`: the number, when nothing else stands there.
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
    explanation.meaning = format!("{}. {}", code.meaning, explanation.meaning);
    explanation.code = Some(event(kind, code, codes.cleared_by(number)));
    if let Some(source) = catalogue.source(&code.source) {
        let reading = Reading {
            title: source.title.clone(),
            url: source.url.clone(),
        };
        if !explanation.sources.contains(&reading) {
            explanation.sources.insert(0, reading);
        }
    }
}

fn event(kind: CodeKind, code: &Code, cleared_by: Option<u32>) -> Event {
    Event {
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
    let class: &Class = catalogue.class(id)?;
    // An unknown number keeps its name; it has only borrowed the class of its family.
    let borrowed = class.id != *id && !class.aliases.contains(id);
    let name = if borrowed { id } else { &class.id };
    let ids = |classes: &mut dyn Iterator<Item = &Class>| classes.map(|class| class.id.clone()).collect::<Vec<_>>();
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
            .map(|source| Reading {
                title: source.title.clone(),
                url: source.url.clone(),
            })
            .collect(),
        mark: None,
    })
}

fn announcements(catalogue: &Catalogue, class: &Class) -> Vec<Announcement> {
    let signatures = catalogue.signatures().iter();
    signatures
        .filter(|signature| signature.class == class.id)
        .map(|signature| Announcement {
            id: signature.id.to_string(),
            example: signature.example.clone(),
            source: signature.source.clone(),
        })
        .collect()
}

fn numbers(catalogue: &Catalogue, class: &Class) -> Vec<String> {
    let mut numbers = Vec::new();
    for kind in [CodeKind::Xid, CodeKind::Sxid] {
        let codes = table(catalogue, kind).iter().filter(|code| code.class == class.id);
        numbers.extend(codes.map(|code| format!("{} {}", shown(kind), code.number)));
    }
    numbers
}

/// Venue and year; most venues hold their year already.
fn cited(citation: &Citation) -> String {
    let year = citation.year.to_string();
    if citation.venue.contains(&year) {
        return citation.venue.clone();
    }
    format!("{}, {year}", citation.venue)
}

fn places(catalogue: &Catalogue, class: &Class) -> Vec<Place> {
    let mut places = Vec::new();
    for id in catalogue.taxonomy_ids() {
        // Only what is mapped is read: most classes stand in a few of the studies.
        let Some(categories) = catalogue.places_in(&class.id, id) else {
            continue;
        };
        let Some(taxonomy) = catalogue.taxonomy(id) else {
            continue;
        };
        for category in categories {
            places.push(Place {
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
