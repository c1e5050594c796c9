//! `rankguard explain`: one page about a class, a code or a log line.

use std::fmt::Write as _;

use clap::Args;
use rankguard_console::catalogue::CatalogueArgs;
use rankguard_faults::{
    ActionBasis, Catalogue, CategoryReference, ClassKind, DriverEvent, Explanation, FatalityScope, SignatureExample,
    SignatureMatcher, explain,
};

use crate::args::{FormatArgs, OutputFormat};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

#[derive(Debug, Clone, Args)]
pub(crate) struct ExplainArgs {
    /// A class (`gpu-fallen-off-bus`), a code (`XID 79`, `SXid 12028`), or a quoted log line
    #[arg(required = true, value_name = "CLASS|CODE|LINE")]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) catalogue: CatalogueArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Signatures shown on a page; the other formats contain all.
const SIGNATURES_SHOWN: usize = 6;

const COLUMNS: &[TableColumn<Explanation>] = &[
    ("subject", |it| it.subject.clone()),
    ("class", |it| it.class.to_string()),
    ("layer", |it| it.layer.clone()),
    ("action", |it| it.action.clone()),
    ("meaning", |it| it.meaning.clone()),
];

pub(crate) fn run(args: &ExplainArgs) -> Result<CommandExit, CliError> {
    let catalogue = args.catalogue.read()?;
    let matcher = SignatureMatcher::new(&catalogue);
    let query = args.words.join(" ");
    let found = explain_words(&catalogue, &matcher, &query)?;
    if found.is_empty() {
        let close = catalogue.similar_classes(query.trim());
        let hint = if close.is_empty() {
            "name a class (gpu-fallen-off-bus), a code (XID 79) or a quoted log line".to_owned()
        } else {
            format!("did you mean {}?", close.join(" or "))
        };
        return Err(CliError::failure(
            format!("no class, code or signature matches {query:?}"),
            hint,
        ));
    }
    match args.format.format {
        OutputFormat::Table => {
            let pages: Vec<String> = found.iter().map(page).collect();
            out::page(&pages.join("\n"));
        }
        format => listing::print(format, &found, COLUMNS),
    }
    Ok(CommandExit::Fine)
}

/// Explains a class in any case, each of several codes, or a line.
fn explain_words(catalogue: &Catalogue, matcher: &SignatureMatcher, query: &str) -> Result<Vec<Explanation>, CliError> {
    let mut found = Vec::new();
    match codes(query) {
        Some((family, numbers)) => {
            if let Some(wrong) = numbers.iter().find(|number| number.parse::<u32>().is_err()) {
                let what = format!("{wrong} is not a code of {family}");
                return Err(CliError::usage(
                    what,
                    format!("name numbers from 0, as in `{family} 79`"),
                ));
            }
            for number in numbers {
                found.extend(explain(catalogue, matcher, &format!("{family} {number}")));
            }
        }
        None => found = explain(catalogue, matcher, query),
    }
    if found.is_empty() {
        // Ids of classes are in lower case.
        found = explain(catalogue, matcher, &query.to_lowercase());
    }
    Ok(found)
}

/// Splits `XID 79 48` into the family and its numbers; `None` for any other text.
fn codes(query: &str) -> Option<(&str, Vec<&str>)> {
    let (family, rest) = query.trim().split_once(char::is_whitespace)?;
    let is_family = ["xid", "sxid"].iter().any(|known| family.eq_ignore_ascii_case(known));
    let numbers: Vec<&str> = rest
        .split(|letter: char| letter.is_whitespace() || letter == ',')
        .filter(|number| !number.is_empty())
        .collect();
    let is_number = |number: &&str| number.parse::<i64>().is_ok();
    (is_family && !numbers.is_empty() && numbers.iter().all(is_number)).then_some((family, numbers))
}

/// Page that is built fact by fact.
struct ExplainPage(String);

impl ExplainPage {
    fn fact(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            let _ = writeln!(self.0, "  {name:<11} {value}");
        }
    }

    /// Adds several values of one name, each on its own line.
    fn facts(&mut self, name: &str, values: impl IntoIterator<Item = String>) {
        let mut name = name;
        for value in values {
            let _ = writeln!(self.0, "  {name:<11} {value}");
            name = "";
        }
    }
}

fn page(found: &Explanation) -> String {
    let mut page = ExplainPage(format!("{}\n", found.subject));
    page.fact("class", found.class.as_str());
    page.fact("known as", &ids(&found.aliases));
    page.fact("layer", &found.layer);
    page.fact("kind", kind(found.kind));
    page.fact("role", crate::display_text::role(found.role));
    family(found, &mut page);
    if let Some(mark) = &found.mark {
        let fields: Vec<String> = mark
            .fields
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        page.fact("signature", &format!("{} {}", mark.signature, fields.join(" ")));
    }
    if let Some(decoded) = &found.decoded {
        page.fact("message", &decoded.sentence);
        let fields: Vec<String> = decoded
            .fields
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        page.fact("decoded", &fields.join(" "));
    }
    page.fact("meaning", &found.meaning);
    if let Some(event) = &found.code {
        code(event, &mut page);
    }
    page.fact("causes", &found.causes.join("; "));
    page.fact("advice", &found.advice);
    page.fact("action", &format!("{}: {}", found.action, found.action_means));
    page.fact("next", &found.then.join(", "));
    page.fact("vendor", found.vendor_action.as_deref().unwrap_or_default());
    page.fact("source", &basis(found));
    let others = found
        .alternatives
        .iter()
        .map(|other| format!("{}: {} first", other.source, other.action));
    page.facts("other", others);
    page.fact("note", &found.notes);
    page.fact("cleared by", &found.clears);
    let studies = found.places.chunk_by(|a, b| a.taxonomy == b.taxonomy);
    page.facts("literature", studies.filter_map(study));
    page.fact("codes", &found.codes.join(", "));
    let more = found.signatures.len().saturating_sub(SIGNATURES_SHOWN);
    let shown = found.signatures.iter().take(SIGNATURES_SHOWN).map(announcement);
    page.facts(
        "signatures",
        shown.chain((more > 0).then(|| format!("{more} more with --format json"))),
    );
    page.facts(
        "sources",
        found.sources.iter().map(|read| format!("{}: {}", read.title, read.url)),
    );
    page.0
}

fn family(found: &Explanation, page: &mut ExplainPage) {
    if let Some(parent) = &found.parent {
        let beside = if found.siblings.is_empty() {
            String::new()
        } else {
            format!(", with {}", ids(&found.siblings))
        };
        page.fact("kind of", &format!("{parent}{beside}"));
    }
    page.fact("kinds", &ids(&found.children));
}

fn ids(ids: &[rankguard_model::ClassId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn kind(kind: ClassKind) -> &'static str {
    match kind {
        ClassKind::RootCause => "root cause",
        ClassKind::Symptom => "symptom: needs diagnosis before blame",
        ClassKind::Outcome => "outcome: a deliberate end",
    }
}

fn basis(found: &Explanation) -> String {
    if found.recommended_by.is_empty() {
        return "inferred by Rankguard".to_owned();
    }
    let by = found.recommended_by.join("; ");
    match found.basis {
        ActionBasis::Published => by,
        ActionBasis::Inferred => format!("{by} (inferred from a related recommendation)"),
    }
}

fn code(event: &DriverEvent, page: &mut ExplainPage) {
    page.fact("symbol", &event.mnemonic);
    page.fact("scope", &event.scope);
    let stops = match event.fatal {
        Some(FatalityScope::NonFatal) => "neither partition nor fabric: the vendor grades it non-fatal",
        Some(FatalityScope::Port) => "the partition that owns the port",
        Some(FatalityScope::Fabric) => "the whole fabric",
        None => "",
    };
    page.fact("stops", stops);
    if let Some(number) = event.cleared_by {
        page.fact("end event", &format!("{} {number}", event.kind));
    }
    let again = event.escalate.iter().map(|rule| {
        format!(
            "{} in {} h on one {}: {}",
            crate::display_text::count(rule.times as usize, "time"),
            rule.hours,
            rule.same,
            rule.then
        )
    });
    page.facts("repeated", again);
    page.fact("remark", &event.notes);
}

/// Formats a study with the categories of a class in it.
fn study(places: &[CategoryReference]) -> Option<String> {
    let first = places.first()?;
    let categories = places.iter().map(|place| {
        let figures = if place.figures.is_empty() {
            String::new()
        } else {
            format!(": {}", place.figures)
        };
        format!("{} ({}){figures}", place.name, place.category)
    });
    let categories: Vec<String> = categories.collect();
    Some(format!(
        "{}: {}; {}, {}",
        first.title,
        categories.join("; "),
        first.citation,
        first.url
    ))
}

fn announcement(announcement: &SignatureExample) -> String {
    // One line per signature: examples of tracebacks have several lines.
    let example = announcement.example.lines().next().unwrap_or_default();
    format!("{}: {example}", announcement.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(query: &str) -> String {
        explain(Catalogue::builtin(), &SignatureMatcher::builtin(), query)
            .iter()
            .map(page)
            .collect()
    }

    #[test]
    fn a_page_answers_what_a_person_on_call_asks() {
        let text = page_of("XID 79");
        for line in [
            "XID 79\n  class       gpu-fallen-off-bus\n",
            "  symbol      ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS\n",
            "  vendor      RESTART_BM; then CONTACT_SUPPORT\n",
            "  cleared by  ",
            "GPU Unavailable (gpu-unavailable)",
            "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn several_codes_are_all_explained_and_what_is_no_code_is_refused() {
        let subjects = |query: &str| -> Result<Vec<String>, String> {
            let found = explain_words(Catalogue::builtin(), &SignatureMatcher::builtin(), query);
            let found = found.map_err(|problem| problem.lines())?;
            Ok(found.into_iter().map(|it| it.subject).collect())
        };
        let two = Ok(vec!["XID 79".to_owned(), "XID 48".to_owned()]);
        assert_eq!((subjects("XID 79 48"), subjects("xid 79, 48")), (two.clone(), two));
        assert!(subjects("XID -1").is_err_and(|lines| lines.contains("-1 is not a code of XID")));
        assert!(subjects("XID 79 -1").is_err());
        assert_eq!(
            subjects("GPU-FALLEN-OFF-BUS"),
            Ok(vec!["gpu-fallen-off-bus".to_owned()])
        );
        let line = "Xid (PCI:0000:9b:00): 79, pid=1, name=python, GPU has fallen off the bus.";
        assert!(subjects(line).is_ok_and(|found| !found.is_empty()));
    }

    #[test]
    fn a_page_shows_the_family_of_a_class() {
        let text = page_of("connection-refused");
        assert!(text.contains("  kind of     connection-failed, with "), "{text}");
        let text = page_of("connection-failed");
        assert!(text.contains("  kinds       "), "{text}");
        let text = page_of("python-import-error");
        assert!(text.contains("  known as    python-import-error\n"), "{text}");
    }

    #[test]
    fn a_log_line_is_decoded() {
        let text =
            page_of("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)");
        assert!(
            text.contains("  message     NETIR_LINK_EVT on link 8: link-fatal error (hardware)\n"),
            "{text}"
        );
        assert!(text.contains("subcode=4"), "{text}");
    }
}
