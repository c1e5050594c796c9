#![allow(clippy::unwrap_used)]

use super::*;
use crate::line::{self, LineClock};

fn source_for(signature: &Signature) -> Source {
    signature.sources.first().copied().unwrap_or(Source::JobLog)
}

#[test]
fn every_pattern_compiles() {
    for signature in Catalogue::builtin().signatures() {
        for pattern in [Some(&signature.pattern), signature.unless.as_ref()]
            .into_iter()
            .flatten()
        {
            if let Err(error) = Regex::new(pattern) {
                panic!("{}: {error}", signature.id);
            }
        }
    }
}

#[test]
fn every_signature_matches_its_example_and_names_its_class() {
    let matcher = Matcher::builtin();
    let mut wrong = Vec::new();
    for signature in Catalogue::builtin().signatures() {
        let lower = signature.example.to_lowercase();
        if !signature
            .literals
            .iter()
            .any(|literal| lower.contains(&literal.to_lowercase()))
        {
            wrong.push(format!("{}: no literal occurs in its example", signature.id));
        }
        let regex = Regex::new(&signature.pattern).unwrap();
        if !regex.is_match(&signature.example) {
            wrong.push(format!("{}: does not match its example", signature.id));
            continue;
        }
        // The line goes through the same way as in life: cleaned, prefixes off.
        let cleaned = line::clean(&signature.example);
        let parsed = line::parse(&cleaned, &LineClock::default());
        let marks = matcher.marks(source_for(signature), parsed.text);
        if signature.codes.is_none() && !marks.iter().any(|mark| mark.class == signature.class) {
            let got: Vec<_> = marks.iter().map(|m| m.signature.as_str()).collect();
            wrong.push(format!("{}: class {} not among {got:?}", signature.id, signature.class));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Lines nobody here wrote, when they lie beside the repository.
fn foreign_lines() -> Vec<String> {
    let shared = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let mut lines = Vec::new();
    if let Ok(text) = std::fs::read_to_string(shared.join("failure-logs/dev.jsonl")) {
        for case in text
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        {
            for stream in case["sources"].as_array().into_iter().flatten() {
                for line in stream["lines"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|line| line.as_str())
                {
                    lines.push(line.to_owned());
                }
            }
        }
    }
    lines
}

#[test]
fn the_prefilter_hides_no_match() {
    let lines = foreign_lines();
    if lines.is_empty() {
        eprintln!("SKIPPED: no ../shared/failure-logs beside the repository");
        return;
    }
    let mut hidden = std::collections::BTreeMap::new();
    for signature in Catalogue::builtin().signatures() {
        let regex = Regex::new(&signature.pattern).unwrap();
        for line in lines.iter().filter(|line| line.len() <= 4096 && regex.is_match(line)) {
            let lower = line.to_lowercase();
            if !signature
                .literals
                .iter()
                .any(|literal| lower.contains(&literal.to_lowercase()))
            {
                let start = regex.find(line).unwrap();
                hidden
                    .entry(signature.id.clone())
                    .or_insert_with(|| start.as_str().chars().take(80).collect::<String>());
            }
        }
    }
    assert!(hidden.is_empty(), "{hidden:#?}");
}
