//! Explanations: everything the catalogue knows of a class, a driver event number or a line.

use rankguard_model::{ClassId, Mark, Source};

use crate::catalogue::Catalogue;
use crate::class::Class;
use crate::line::{self, LineClock};
use crate::matcher::Matcher;

/// What is known about one thing that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// What was asked for (`XID 79`, a class id, the message of a line).
    pub subject: String,
    /// The class it belongs to.
    pub class: ClassId,
    /// Where the class sits.
    pub layer: String,
    /// What it means.
    pub meaning: String,
    /// What usually causes it, most usual first.
    pub causes: Vec<String>,
    /// Id of the first action.
    pub action: String,
    /// What to do, as an instruction.
    pub advice: String,
    /// What the vendor of the device says, for numbered events.
    pub vendor_action: Option<String>,
    /// Titles of the sources that recommend the action; empty when it is our own inference.
    pub recommended_by: Vec<String>,
    /// What evidence clears it.
    pub clears: String,
    /// Its places in the published taxonomies.
    pub places: Vec<Place>,
    /// The mark, where a line was explained.
    pub mark: Option<Mark>,
}

/// A category of a published taxonomy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Id of the taxonomy.
    pub taxonomy: String,
    /// Its short title.
    pub title: String,
    /// Id of the category.
    pub category: String,
    /// Name of the category.
    pub name: String,
}

/// Explains a class id, `xid 79` / `XID79`, `sxid 20034`, or a log line. Nothing known gives an empty list.
pub fn explain(catalogue: &Catalogue, matcher: &Matcher, query: &str) -> Vec<Explanation> {
    let query = query.trim();
    if let Some(found) = explain_class(catalogue, &ClassId::from(query)) {
        return vec![found];
    }
    if let Some(number) = number_after(query, "sxid") {
        return explain_code(catalogue, "SXid", number).into_iter().collect();
    }
    if let Some(number) = number_after(query, "xid") {
        return explain_code(catalogue, "XID", number).into_iter().collect();
    }
    let cleaned = line::clean(query);
    let text = line::parse(&cleaned, &LineClock::default()).text;
    let mut found = Vec::new();
    for source in [Source::KernelLog, Source::JobLog, Source::Launcher, Source::Scheduler] {
        for mark in matcher.marks(source, text) {
            if found
                .iter()
                .any(|seen: &Explanation| seen.mark.as_ref().is_some_and(|m| m.signature == mark.signature))
            {
                continue;
            }
            if let Some(mut explanation) = explain_class(catalogue, &mark.class) {
                explanation.subject = text.to_owned();
                explanation.class = mark.class.clone();
                explanation.vendor_action = mark.fields.get("vendor_action").cloned();
                if let Some(meaning) = mark.fields.get("meaning") {
                    explanation.meaning = format!("{meaning}. {}", explanation.meaning);
                }
                explanation.mark = Some(mark);
                found.push(explanation);
            }
        }
    }
    found
}

/// `XID 79`, `xid-79`, `Xid79`: the number, when nothing else stands there.
fn number_after(query: &str, word: &str) -> Option<u32> {
    let head = query.get(..word.len()).filter(|head| head.eq_ignore_ascii_case(word))?;
    query[head.len()..]
        .trim_start_matches([' ', '-', '_', ':', '#'])
        .parse()
        .ok()
}

fn explain_code(catalogue: &Catalogue, kind: &str, number: u32) -> Option<Explanation> {
    let table = if kind == "XID" {
        catalogue.xids()
    } else {
        catalogue.sxids()
    };
    let code = table.get(number);
    let unknown = ClassId(format!("unknown-{}-{number}", kind.to_ascii_lowercase()));
    let mut explanation = explain_class(catalogue, code.map_or(&unknown, |code| &code.class))?;
    explanation.subject = format!("{kind} {number}");
    if let Some(code) = code {
        explanation.meaning = format!("{}. {}", code.meaning, explanation.meaning);
        explanation.vendor_action = Some(code.vendor_action.clone()).filter(|action| !action.is_empty());
    }
    Some(explanation)
}

/// Explains a class.
pub fn explain_class(catalogue: &Catalogue, id: &ClassId) -> Option<Explanation> {
    let class: &Class = catalogue.class(id)?;
    let titles = class
        .mitigation
        .recommended_by
        .iter()
        .filter_map(|source| catalogue.source_title(source));
    Some(Explanation {
        subject: id.to_string(),
        class: id.clone(),
        layer: class.layer.clone(),
        meaning: class.definition.clone(),
        causes: class.causes.clone(),
        action: class.mitigation.action.clone(),
        advice: class.mitigation.advice.clone(),
        vendor_action: None,
        recommended_by: titles.map(str::to_owned).collect(),
        clears: class.clears.clone(),
        places: places(catalogue, class),
        mark: None,
    })
}

fn places(catalogue: &Catalogue, class: &Class) -> Vec<Place> {
    let mut places = Vec::new();
    for taxonomy in catalogue.taxonomies() {
        for category in class.taxonomies.get(&taxonomy.id).into_iter().flatten() {
            places.push(Place {
                taxonomy: taxonomy.id.clone(),
                title: taxonomy.short.clone(),
                category: category.clone(),
                name: taxonomy.name_of(category).unwrap_or(category).to_owned(),
            });
        }
    }
    places
}
