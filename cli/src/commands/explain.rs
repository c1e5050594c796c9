//! `rankguard explain`.

use std::fmt::Write as _;

use rankguard_faults::{Catalogue, Explanation, Matcher, explain};
use serde::Serialize;

use crate::args::{ExplainArgs, Format};
use crate::error::CliError;
use crate::exit::Exit;
use crate::listing::{self, Column, plain};
use crate::out;

/// An explanation as machines read it.
#[derive(Serialize)]
struct Explained {
    subject: String,
    class: String,
    layer: String,
    meaning: String,
    causes: Vec<String>,
    action: String,
    advice: String,
    vendor_action: Option<String>,
    recommended_by: Vec<String>,
    clears: String,
    taxonomies: Vec<InTaxonomy>,
    mark: Option<rankguard_model::Mark>,
}

#[derive(Serialize)]
struct InTaxonomy {
    taxonomy: String,
    category: String,
    name: String,
}

const COLUMNS: &[Column<Explained>] = &[
    ("subject", |it| it.subject.clone()),
    ("class", |it| it.class.clone()),
    ("layer", |it| it.layer.clone()),
    ("action", |it| it.action.clone()),
    ("meaning", |it| it.meaning.clone()),
];

pub(super) fn run(args: &ExplainArgs) -> Result<Exit, CliError> {
    let catalogue = Catalogue::builtin();
    let matcher = Matcher::new(catalogue);
    let query = args.words.join(" ");
    let found = explain(catalogue, &matcher, &query);
    if found.is_empty() {
        return Err(CliError::failure(
            format!("nothing is known about {:?}", plain(&query)),
            "ask for a class (gpu-fallen-off-bus), a code (XID 79) or a line of a log in quotes",
        ));
    }
    match args.format.format {
        Format::Table => found
            .iter()
            .for_each(|explanation| out::text(&plain(&page(explanation)))),
        format => listing::print(format, &found.into_iter().map(explained).collect::<Vec<_>>(), COLUMNS),
    }
    Ok(Exit::Fine)
}

fn explained(found: Explanation) -> Explained {
    let place = |place: rankguard_faults::Place| InTaxonomy {
        taxonomy: place.taxonomy,
        category: place.category,
        name: place.name,
    };
    Explained {
        subject: found.subject,
        class: found.class.0,
        layer: found.layer,
        meaning: found.meaning,
        causes: found.causes,
        action: found.action,
        advice: found.advice,
        vendor_action: found.vendor_action,
        recommended_by: found.recommended_by,
        clears: found.clears,
        taxonomies: found.places.into_iter().map(place).collect(),
        mark: found.mark,
    }
}

fn page(found: &Explanation) -> String {
    let mut page = format!("{}\n", found.subject);
    let mut fact = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(page, "  {name:<11} {value}");
        }
    };
    fact("class", found.class.as_str());
    fact("layer", &found.layer);
    if let Some(mark) = &found.mark {
        fact("role", crate::words::role(mark.role));
        let fields: Vec<String> = mark
            .fields
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        fact("signature", &format!("{} {}", mark.signature, fields.join(" ")));
    }
    fact("meaning", &found.meaning);
    fact("causes", &found.causes.join("; "));
    fact("do", &format!("{}: {}", found.action, found.advice));
    fact("vendor says", found.vendor_action.as_deref().unwrap_or_default());
    let by = if found.recommended_by.is_empty() {
        "our own inference"
    } else {
        &found.recommended_by.join("; ")
    };
    fact("source", by);
    fact("cleared by", &found.clears);
    for place in &found.places {
        let _ = writeln!(
            page,
            "  {:<11} {}",
            "",
            format_args!("{}: {} ({})", place.title, place.name, place.category)
        );
    }
    page
}
