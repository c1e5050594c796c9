//! `rankguard taxonomy`: the published taxonomies, and their mapping to the catalogue's classes.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use rankguard_console::catalogue::CatalogueArgs;
use rankguard_faults::{Catalogue, NameStatus, PublishedFact, Taxonomy, TaxonomyCategory, TaxonomyDimension};
use rankguard_model::ClassId;
use serde::Serialize;

use crate::args::{FormatArgs, OutputFormat};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

#[derive(Debug, Clone, Args)]
pub(crate) struct TaxonomyArgs {
    #[command(subcommand)]
    pub(crate) command: TaxonomyCommand,
}

/// Actions of `taxonomy`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum TaxonomyCommand {
    /// List the taxonomies
    Ls {
        #[command(flatten)]
        catalogue: CatalogueArgs,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Show a taxonomy: citation, studied population, categories with definitions and published figures
    Show {
        /// Id of the taxonomy (`hu-nsdi2024`)
        id: String,
        #[command(flatten)]
        catalogue: CatalogueArgs,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Show the categories of each class in each taxonomy
    Crosswalk {
        /// Show only this class, by id or alias
        #[arg(long, value_name = "CLASS")]
        class: Option<String>,
        #[command(flatten)]
        catalogue: CatalogueArgs,
        #[command(flatten)]
        format: FormatArgs,
    },
}

pub(crate) fn run(args: &TaxonomyArgs) -> Result<CommandExit, CliError> {
    match &args.command {
        TaxonomyCommand::Ls {
            catalogue: files,
            format,
        } => {
            let catalogue = files.read()?;
            let rows: Vec<TaxonomyRow> = catalogue.taxonomies().map(listed).collect();
            listing::print(format.format, &rows, LISTED);
        }
        TaxonomyCommand::Show {
            id,
            catalogue: files,
            format,
        } => show(id, &*files.read()?, format.format)?,
        TaxonomyCommand::Crosswalk {
            class,
            catalogue: files,
            format,
        } => {
            let rows = crosswalk(class.as_deref(), &*files.read()?)?;
            listing::print(format.format, &rows, CROSSWALK);
        }
    }
    Ok(CommandExit::Fine)
}

/// Row of the list of taxonomies.
#[derive(Serialize)]
struct TaxonomyRow {
    id: String,
    short: String,
    kind: String,
    axis: String,
    year: u32,
    categories: usize,
    counted: i64,
    venue: String,
    url: String,
    title: String,
}

const LISTED: &[TableColumn<TaxonomyRow>] = &[
    ("id", |it| it.id.clone()),
    ("short", |it| it.short.clone()),
    ("kind", |it| it.kind.clone()),
    ("axis", |it| it.axis.clone()),
    ("categories", |it| it.categories.to_string()),
    ("counted", |it| {
        if it.counted == 0 {
            String::new()
        } else {
            it.counted.to_string()
        }
    }),
    ("venue", |it| it.venue.clone()),
    ("url", |it| it.url.clone()),
];

fn listed(taxonomy: &Taxonomy) -> TaxonomyRow {
    TaxonomyRow {
        id: taxonomy.id.clone(),
        short: taxonomy.short.clone(),
        kind: taxonomy.kind.clone(),
        axis: taxonomy.axis.clone(),
        year: taxonomy.citation.year,
        categories: taxonomy.categories.len(),
        counted: taxonomy.categories.iter().filter_map(|category| category.count).sum(),
        venue: taxonomy.citation.venue.clone(),
        url: taxonomy.citation.url.clone(),
        title: taxonomy.title.clone(),
    }
}

fn show(id: &str, catalogue: &Catalogue, format: OutputFormat) -> Result<(), CliError> {
    let Some(taxonomy) = catalogue.taxonomy(id) else {
        let close = catalogue.similar_taxonomies(id);
        let hint = if close.is_empty() {
            "`rankguard taxonomy ls` lists the taxonomies".to_owned()
        } else {
            format!("did you mean {}?", close.join(" or "))
        };
        return Err(CliError::usage(format!("there is no taxonomy {id:?}"), hint));
    };
    match format {
        OutputFormat::Table => out::page(&page(taxonomy)),
        OutputFormat::Json => out::json(taxonomy),
        OutputFormat::Jsonl => taxonomy.categories.iter().for_each(out::json_line),
        OutputFormat::Csv => listing::print(format, &taxonomy.categories, CATEGORIES),
    }
    Ok(())
}

const CATEGORIES: &[TableColumn<TaxonomyCategory>] = &[
    ("id", |it| it.id.clone()),
    ("name", |it| it.name.clone()),
    ("dimension", |it| it.dimension.clone()),
    ("axis", |it| it.axis.clone()),
    ("count", |it| {
        it.count.map_or_else(String::new, |count| count.to_string())
    }),
    ("share_percent", |it| {
        it.share_percent.map_or_else(String::new, |share| share.to_string())
    }),
    ("definition", |it| it.definition.clone()),
];

fn page(taxonomy: &Taxonomy) -> String {
    let citation = &taxonomy.citation;
    let mut page = format!("{}\n{}\n", taxonomy.id, taxonomy.title);
    let mut fact = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(page, "  {name:<11} {value}");
        }
    };
    fact("authors", &citation.authors.join(", "));
    fact("published", &format!("{}, {}", citation.venue, citation.year));
    fact("address", &citation.url);
    fact("doi", citation.doi.as_deref().unwrap_or_default());
    fact("arxiv", citation.arxiv.as_deref().unwrap_or_default());
    fact("axis", &taxonomy.axis);
    fact("read", &taxonomy.provenance.level);
    fact("from", &taxonomy.provenance.sources.join("; "));
    fact("note", &taxonomy.provenance.note);
    for (name, value) in &taxonomy.population {
        fact("studied", &format!("{name} = {value}"));
    }
    for (group, facts) in &taxonomy.facts {
        for (name, value) in facts {
            fact(group, &format!("{name} = {value}"));
        }
    }
    for dimension in &taxonomy.dimensions {
        let _ = writeln!(page, "\n{}{}", dimension.name, figures_of(dimension));
        let _ = writeln!(page, "  {}", dimension.definition);
        if let Some(why) = &dimension.unreachable {
            let _ = writeln!(page, "  no class maps here: {why}");
        }
        for category in taxonomy
            .categories
            .iter()
            .filter(|category| category.dimension == dimension.id)
        {
            let _ = write!(page, "{}", entry(taxonomy, category));
        }
    }
    page
}

fn figures_of(dimension: &TaxonomyDimension) -> String {
    let count = dimension.count.map(|count| format!("count {count}"));
    let share = dimension.share_percent.map(|share| format!("share {share} %"));
    let time = dimension.gpu_time_percent.map(|share| format!("GPU time {share} %"));
    let words: Vec<String> = [count, share, time].into_iter().flatten().collect();
    if words.is_empty() {
        return String::new();
    }
    format!(" ({})", words.join(", "))
}

fn entry(taxonomy: &Taxonomy, category: &TaxonomyCategory) -> String {
    let figures = taxonomy.figures(&category.id);
    let figures = if figures.is_empty() {
        figures
    } else {
        format!(": {figures}")
    };
    let recalled = match category.name_status {
        NameStatus::Verbatim => "",
        NameStatus::Translated => ", name translated",
        NameStatus::Recalled => ", name from memory",
    };
    let mut text = format!("  {} ({}{recalled}){figures}\n", category.name, category.id);
    let mut more = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "      {name}{value}");
        }
    };
    more("", category.definition.clone());
    more("messages: ", category.example_messages.join("; "));
    more("causes: ", category.root_causes.join("; "));
    more("diagnosis: ", category.diagnosis.join("; "));
    more("mitigations: ", category.mitigations.join("; "));
    let details = category
        .details
        .iter()
        .map(|(name, value): (&String, &PublishedFact)| format!("{name} = {value}"));
    more("", details.collect::<Vec<_>>().join(", "));
    more("note: ", category.note.clone());
    more("no class maps here: ", category.unreachable.clone().unwrap_or_default());
    text
}

/// One class in one category of one taxonomy.
#[derive(Serialize)]
struct CrosswalkRow {
    class: String,
    root: String,
    layer: String,
    taxonomy: String,
    category: String,
    name: String,
    figures: String,
}

const CROSSWALK: &[TableColumn<CrosswalkRow>] = &[
    ("class", |it| it.class.clone()),
    ("root", |it| it.root.clone()),
    ("layer", |it| it.layer.clone()),
    ("taxonomy", |it| it.taxonomy.clone()),
    ("category", |it| it.category.clone()),
    ("name", |it| it.name.clone()),
    ("figures", |it| it.figures.clone()),
];

fn crosswalk(only: Option<&str>, catalogue: &Catalogue) -> Result<Vec<CrosswalkRow>, CliError> {
    let only = match only {
        None => None,
        Some(id) => match catalogue.class(&ClassId::from(id)) {
            Some(class) => Some(&class.id),
            None => {
                let close = catalogue.similar_classes(id);
                let hint = if close.is_empty() {
                    "`rankguard taxonomy crosswalk` shows all classes".to_owned()
                } else {
                    format!("did you mean {}?", close.join(" or "))
                };
                return Err(CliError::usage(format!("there is no class {id:?}"), hint));
            }
        },
    };
    let mut rows = Vec::new();
    for class in catalogue
        .classes()
        .filter(|class| only.is_none_or(|only| class.id == *only))
    {
        let root = catalogue.root_of(&class.id).map_or(&class.id, |root| &root.id);
        for taxonomy in catalogue.taxonomies() {
            for category in catalogue.places_in(&class.id, &taxonomy.id).into_iter().flatten() {
                rows.push(CrosswalkRow {
                    class: class.id.to_string(),
                    root: root.to_string(),
                    layer: class.layer.clone(),
                    taxonomy: taxonomy.id.clone(),
                    category: category.clone(),
                    name: taxonomy.name_of(category).unwrap_or(category).to_owned(),
                    figures: taxonomy.figures(category),
                });
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_taxonomy_is_listed_and_has_a_page() {
        let catalogue = Catalogue::builtin();
        for taxonomy in catalogue.taxonomies() {
            let row = listed(taxonomy);
            let text = page(taxonomy);
            assert!(text.contains(&row.url) && text.contains(&row.title), "{text}");
            for category in &taxonomy.categories {
                assert!(text.contains(&category.definition), "{} of {}", category.id, row.id);
            }
        }
    }

    #[test]
    fn published_figures_stand_beside_their_category() {
        let text = page(Catalogue::builtin().taxonomy("hu-nsdi2024").expect("it is built in"));
        assert!(text.contains("count "), "{text}");
        let text = page(
            Catalogue::builtin()
                .taxonomy("openpai-exit-spec")
                .expect("it is built in"),
        );
        assert!(
            text.contains("code = -1000") && text.contains("reaction = always-retry"),
            "{text}"
        );
    }

    #[test]
    fn the_crosswalk_takes_an_alias_and_refuses_what_is_no_class() {
        let catalogue = Catalogue::builtin();
        let rows = crosswalk(Some("thermal-fault"), catalogue).expect("an alias of gpu-thermal");
        assert!(rows.len() >= 5 && rows.iter().all(|row| row.class == "gpu-thermal"));
        let Err(problem) = crosswalk(Some("gpu-thermla"), catalogue) else {
            panic!("no such class");
        };
        assert_eq!(problem.exit(), CommandExit::Usage);
        assert!(
            problem.lines().contains("did you mean gpu-thermal"),
            "{}",
            problem.lines()
        );
    }

    #[test]
    fn an_unknown_taxonomy_is_refused_with_the_nearest() {
        let Err(problem) = show("hu-nsdi24", Catalogue::builtin(), OutputFormat::Table) else {
            panic!("no such taxonomy");
        };
        assert_eq!(problem.exit(), CommandExit::Usage);
        assert!(problem.lines().contains("hu-nsdi2024"), "{}", problem.lines());
    }
}
