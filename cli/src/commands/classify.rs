//! `rankguard classify`: classifies cases with prepared streams, one verdict per line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rankguard_console::catalogue::CatalogueArgs;
use rankguard_console::waiting::WorkNote;
use rankguard_faults::{Catalogue, OUTSIDE_SCOPE, PRIMARY};
use rankguard_files::ReadBudget;
use rankguard_model::{ClassId, NodeId, Rank, Role};
use rankguard_offline::{ClassAlternative, OfflineCase};
use serde::Serialize;

use crate::args::LimitArgs;
use crate::diagnose::{Rules, records};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
A verdict has two classes. `leaf` is the class of `rankguard diagnose` and `rankguard explain`, in which reasoning and alternatives
speak; it is null if `class` is that class. `class` is the nearest class that labelled logs have, to compare verdicts with labels: a
failed write of a checkpoint has the class disk-full there, although no disk need be full.")]
pub(crate) struct ClassifyArgs {
    /// Files of JSON lines {"id", "sources": [{"kind", "rank", "node", "lines"}]}; kind is rank-stderr (default),
    /// nccl-debug, launcher, scheduler, kmsg or agent-event; - for standard input
    #[arg(required = true, value_name = "CASES")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) catalogue: CatalogueArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Format of the output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: VerdictFormat,
}

/// Output format of verdicts, which are for other programs; `rankguard diagnose` prints cases for people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerdictFormat {
    /// JSON Lines: one verdict per line
    #[default]
    Jsonl,
    /// JSON: one document
    Json,
}

/// Verdict in the form that other programs read.
#[derive(Debug, Serialize)]
struct VerdictRecord {
    id: String,
    /// Nearest class that labelled logs have, to compare verdicts with labels.
    class: String,
    /// Class of the failure, if labelled logs do not have it; reasoning and alternatives speak of this one.
    leaf: Option<String>,
    layer: String,
    root_rank: Option<Rank>,
    root_node: Option<NodeId>,
    /// Blamed entity, in words.
    blamed: String,
    confidence: f64,
    key_lines: Vec<KeyLineRecord>,
    action: String,
    /// Every primary taxonomy, with no category if the class lies outside its scope.
    taxonomies: BTreeMap<String, Vec<String>>,
    alternatives: Vec<ClassAlternative>,
    reasoning: Vec<String>,
}

/// A decisive line: stream of the case and line in it, both from 0.
#[derive(Debug, Serialize)]
struct KeyLineRecord {
    stream: usize,
    index: u64,
    role: Role,
    text: String,
}

impl VerdictRecord {
    fn of(case: OfflineCase, catalogue: &Catalogue) -> Self {
        let categories = |taxonomy: &str| {
            let all = case.taxonomies.get(taxonomy).into_iter().flatten();
            all.filter(|id| *id != OUTSIDE_SCOPE).cloned().collect()
        };
        let told_as = catalogue.label_class(&ClassId::from(case.class.as_str())).to_string();
        // A replacement class also replaces the layer, unless the circumstances gave the case another layer.
        let layer_of = |class: &str| {
            let class = catalogue.class(&ClassId::from(class));
            class.map_or_else(String::new, |class| class.layer.clone())
        };
        let layer = if told_as != case.class && case.layer == layer_of(&case.class) {
            Some(layer_of(&told_as)).filter(|layer| !layer.is_empty())
        } else {
            None
        };
        let mut reasoning = case.reasoning;
        if told_as != case.class {
            reasoning.push(format!(
                "The class of this failure is {} (`leaf`). Labelled logs do not have it; {told_as} (`class`) is the nearest that they \
                 have.",
                case.class
            ));
        }
        let told = PRIMARY.iter().map(|id| ((*id).to_owned(), categories(id)));
        Self {
            taxonomies: told.collect(),
            key_lines: case
                .key_lines
                .into_iter()
                .map(|line| KeyLineRecord {
                    stream: line.stream,
                    index: line.line.saturating_sub(1),
                    role: line.role,
                    text: line.text,
                })
                .collect(),
            leaf: (told_as != case.class).then(|| case.class.clone()),
            id: case.id,
            class: told_as,
            layer: layer.unwrap_or(case.layer),
            root_rank: case.root_rank,
            root_node: case.root_node,
            blamed: case.blamed,
            confidence: case.confidence,
            action: case.action,
            alternatives: case.alternatives,
            reasoning,
        }
    }
}

pub(crate) fn run(args: ClassifyArgs) -> Result<CommandExit, CliError> {
    let mut problems = Vec::new();
    let mut document = Vec::new();
    let mut any = false;
    let rules = Rules::from(args.catalogue.read()?);
    let budget = ReadBudget::begin(args.limits.limits());
    let work = WorkNote::start("classifying");
    for path in &args.paths {
        let done = records::classify(
            path,
            &rules,
            &budget,
            &mut problems,
            |case, _| -> Result<(), std::convert::Infallible> {
                any = true;
                let verdict = VerdictRecord::of(case, &rules.catalogue);
                match args.format {
                    VerdictFormat::Jsonl => out::json_line(&verdict),
                    VerdictFormat::Json => document.push(verdict),
                }
                Ok(())
            },
        );
        let Ok(()) = done;
    }
    drop(work);
    if args.format == VerdictFormat::Json {
        out::json(&document);
    }
    for problem in &problems {
        out::note(&format!("skipped: {problem}"));
    }
    if problems.is_empty() {
        return Ok(CommandExit::Fine);
    }
    let what = if any {
        "cannot parse some lines as cases"
    } else {
        "cannot read any case"
    };
    Err(CliError::failure(
        what,
        "expected one object per line: {\"id\", \"sources\": [{\"kind\", \"rank\", \"node\", \"lines\"}]}",
    ))
}
