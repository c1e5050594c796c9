//! `src/classes.rs` holds one constant a class of the catalogue.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;
use std::path::Path;

use rankguard_faults::{Catalogue, classes};

/// Longest line of a doc comment.
const WIDTH: usize = 120;

/// Returns the source of the module that the catalogue's data requires.
fn generated(catalogue: &Catalogue) -> String {
    let mut text = String::from(
        "//! Ids of the catalogue's failure classes, for code that treats a class specially.\n\
         //!\n\
         //! Generated from `data/classes.toml`; to write it again: `RANKGUARD_BLESS=1 cargo test -p rankguard-faults --test\n\
         //! classes`.\n",
    );
    for class in catalogue.classes() {
        let id = class.id.as_str();
        let name = id.replace('-', "_").to_uppercase();
        text.push('\n');
        text.push_str(&doc(first_sentence(&class.definition)));
        text.push_str(&format!("pub const {name}: &str = \"{id}\";\n"));
    }
    text
}

/// Returns the text up to the first full stop that ends a sentence.
fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}

/// Wraps a sentence into doc comment lines.
fn doc(sentence: &str) -> String {
    let mut text = String::new();
    let mut line = String::from("///");
    for word in sentence.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = String::from("///");
        }
        line.push(' ');
        line.push_str(word);
    }
    text + &line + "\n"
}

#[test]
fn class_constants_match_the_catalogue() {
    let wanted = generated(Catalogue::builtin());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/classes.rs");
    if std::env::var_os("RANKGUARD_BLESS").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap();
    assert!(
        found == wanted,
        "src/classes.rs differs from data/classes.toml; \
         RANKGUARD_BLESS=1 cargo test -p rankguard-faults --test faults_tests writes it"
    );
}

#[test]
fn a_constant_is_the_id_of_its_class() {
    let catalogue = Catalogue::builtin();
    for id in [classes::HOST_OOM_KILL, classes::UNKNOWN] {
        assert!(catalogue.class(&id.into()).is_some(), "{id}");
    }
    assert_eq!(classes::HOST_OOM_KILL, "host-oom-kill");
}
