//! Ids of failure classes are written as constants (`rankguard_faults::classes`), so that a renamed class is a
//! compiler error and each special case is found by its name.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_faults::Catalogue;

use crate::crates::RANKS;
use crate::sources::{ProductionCode, SourceToken, production_files};
use crate::{metadata, root};

/// Ids that are also ordinary words: refused only in a place of a class.
const WORDS: [&str; 2] = ["none", "unknown"];

/// Tokens before a literal that is a class.
const CLASS_PLACES: [&[&str]; 7] = [
    &["mark", "("],
    &["of_class", "("],
    &["ClassId", ":", ":", "from", "("],
    &["class", "=", "="],
    &["class", "!", "="],
    &["class", ".", "as_str", "(", ")", "=", "="],
    &["class", ".", "as_str", "(", ")", "!", "="],
];

/// Literals that equal an id and are none: file, literal, meaning.
const OTHER_MEANINGS: [(&str, &str, &str); 2] = [
    ("agent/src/inject.rs", "disk-full", "kind of a simulated fault"),
    ("datasets/src/words.rs", "preempted", "outcome of a job in the tables"),
];

/// Returns line and text of each literal that equals a class id, or lies where a class must be, whether or not there is such a class.
fn class_literals<'c>(code: &'c ProductionCode, ids: &BTreeSet<&str>) -> Vec<(usize, &'c str)> {
    let tokens = &code.tokens;
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let Some(text) = token.literal() else {
            continue;
        };
        if is_class_place(&tokens[..index]) || (ids.contains(text) && !WORDS.contains(&text)) {
            found.push((token.line, text));
        }
    }
    found
}

fn is_class_place(before: &[SourceToken]) -> bool {
    CLASS_PLACES.iter().any(|place| {
        let start = before.len().checked_sub(place.len());
        start.is_some_and(|start| {
            before[start..]
                .iter()
                .map(|token| token.text.as_str())
                .eq(place.iter().copied())
        })
    })
}

#[test]
fn class_ids_are_constants_in_production_code() {
    let ids: BTreeSet<&str> = Catalogue::builtin().classes().map(|class| class.id.as_str()).collect();
    assert!(WORDS.iter().all(|word| ids.contains(word)), "a word is no id any more");
    let ranks = BTreeMap::from(RANKS);
    let lowest = ranks["rankguard-faults"];
    let mut refused = Vec::new();
    let mut excepted = BTreeSet::new();
    let mut files = 0;
    for package in metadata().workspace_packages() {
        let name = package.name.as_str();
        // A crate below the catalogue, or beside it, cannot use its constants.
        if name != "rankguard-faults" && ranks[name] <= lowest {
            continue;
        }
        let folder = package.manifest_path.parent().expect("a manifest lies in a folder");
        for file in production_files(folder.join("src").as_std_path()) {
            let path = file.path.strip_prefix(root()).expect("a source lies in the workspace");
            let path = path.to_str().expect("names of sources are ASCII");
            if path == "analyzers/faults/src/classes.rs" {
                continue;
            }
            files += 1;
            for (line, text) in class_literals(&file.code, &ids) {
                let exception = OTHER_MEANINGS
                    .iter()
                    .find(|(file, word, _)| (*file, *word) == (path, text));
                match exception {
                    Some(exception) => {
                        excepted.insert(*exception);
                    }
                    None => refused.push(format!("{path}:{line}: \"{text}\"")),
                }
            }
        }
    }
    assert!(files > 500, "only {files} sources were read");
    assert!(
        refused.is_empty(),
        "use the constants of rankguard_faults::classes:\n{}",
        refused.join("\n")
    );
    assert_eq!(
        excepted,
        BTreeSet::from(OTHER_MEANINGS),
        "an exception has become unnecessary"
    );
}

#[test]
fn a_planted_class_literal_is_found() {
    let ids = BTreeSet::from(["none", "host-oom-kill", "segfault"]);
    let planted = r#"
const TABLE: [(&str, u8); 1] = [("host-oom-kill", 1)];
fn weigh(class: &ClassId, entity: &str) -> bool {
    let other = entity == "none" || entity == "segfaults" || entity.is_empty();
    let says = mark("none", Role::Noise);
    let from = ClassId::from("hots-oom-kill");
    let asked = class.as_str() != "none";
    matches!(class.as_str(), "nothing" | "segfault")
}
#[cfg(test)]
mod tests { const CLASS: &str = "host-oom-kill"; }
"#;
    let code = ProductionCode::of(planted);
    let wanted = [
        (2, "host-oom-kill"),
        (5, "none"),
        (6, "hots-oom-kill"),
        (7, "none"),
        (8, "segfault"),
    ];
    assert_eq!(class_literals(&code, &ids), wanted);
}
