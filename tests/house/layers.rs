//! Modules of the large crates lie in layers: a module imports modules of lower layers only. The table of layers is in
//! the crate doc, so that readers and this test use the same one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::root;
use crate::sources::{ProductionCode, SourceFile, SourceToken, production_files};

/// Crates with a table of layers.
const LAYERED: [&str; 2] = ["agent", "controller"];

/// Parses the table of layers: rows of a crate doc with a number, module names and a purpose.
fn layers(source: &str) -> BTreeMap<&str, u32> {
    let mut layers = BTreeMap::new();
    for line in source.lines() {
        let Some(row) = line.strip_prefix("//! |") else {
            continue;
        };
        let mut cells = row.split('|').map(str::trim);
        let Some(layer) = cells.next().and_then(|cell| cell.parse().ok()) else {
            continue;
        };
        for name in cells.next().unwrap_or_default().split(", ") {
            let name = name.trim_matches('`');
            assert!(layers.insert(name, layer).is_none(), "{name} is in two rows");
        }
    }
    layers
}

/// Name that a source imports from the root of its crate.
#[derive(Debug, PartialEq)]
struct RootImport<'c> {
    name: &'c str,
    line: usize,
}

/// Returns the names after `crate::`, and after `super::` if that is the root for a source at this depth below `src`.
fn root_imports(code: &ProductionCode, depth: usize) -> Vec<RootImport<'_>> {
    let tokens = &code.tokens;
    let is = |index: usize, text: &str| tokens.get(index).is_some_and(|token: &SourceToken| token.text == text);
    let is_path = |index: usize| is(index + 1, ":") && is(index + 2, ":");
    let mut found = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let mut supers = 0;
        let mut next = index;
        while is(next, "super") && is_path(next) {
            supers += 1;
            next += 3;
        }
        if supers == 0 && is(index, "crate") && is_path(index) {
            next = index + 3;
        } else if supers == 0 || supers < depth {
            index = next.max(index + 1);
            continue;
        }
        if is(next, "{") {
            found.extend(first_names(&tokens[next..]));
        } else if let Some(token) = tokens.get(next) {
            found.push(import_of(token));
        }
        index = next;
    }
    found
}

fn import_of(token: &SourceToken) -> RootImport<'_> {
    RootImport {
        name: &token.text,
        line: token.line,
    }
}

/// Returns the first name of each path in a group; `tokens` begin with its brace.
fn first_names(tokens: &[SourceToken]) -> Vec<RootImport<'_>> {
    let mut names = Vec::new();
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => break,
            "}" => depth -= 1,
            _ => {
                let is_first = matches!(tokens[index - 1].text.as_str(), "{" | ",");
                if depth == 1 && is_first {
                    names.push(import_of(token));
                }
            }
        }
    }
    names
}

/// Returns every import that does not go down, as sentences.
fn upward(layers: &BTreeMap<&str, u32>, src: &Path, files: &[SourceFile]) -> Vec<String> {
    let mut wrong = Vec::new();
    for file in files {
        let path = file.path.strip_prefix(src).expect("a source lies below src");
        let module = path.components().next().expect("a path has a component");
        let module = module.as_os_str().to_str().expect("names of sources are ASCII");
        let module = module.trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let Some(layer) = layers.get(module) else {
            wrong.push(format!("{module} is in no layer"));
            continue;
        };
        for import in root_imports(&file.code, path.components().count()) {
            let place = format!("{}:{}: {module} -> {}", path.display(), import.line, import.name);
            match layers.get(import.name) {
                _ if import.name == module => {}
                Some(lower) if lower < layer => {}
                Some(_) => wrong.push(format!("{place} does not go down")),
                None => wrong.push(format!("{place}: name the module that defines it")),
            }
        }
    }
    wrong
}

#[test]
fn imports_between_modules_go_down_only() {
    for folder in LAYERED {
        let src = root().join(folder).join("src");
        let doc = fs::read_to_string(src.join("lib.rs")).expect("a crate has a root");
        let layers = layers(&doc);
        let files = production_files(&src);
        let wrong = upward(&layers, &src, &files);
        assert!(wrong.is_empty(), "{folder}:\n{}", wrong.join("\n"));
        let declared: BTreeSet<&str> = doc.lines().filter_map(module_declaration).collect();
        assert!(declared.len() > 20, "{folder} declares {declared:?} only");
        assert_eq!(
            layers.keys().copied().collect::<BTreeSet<_>>(),
            declared,
            "the layers of {folder} name its modules"
        );
    }
}

/// Returns the name in `mod name;` or `pub mod name;`.
fn module_declaration(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    line.strip_prefix("mod ")?.strip_suffix(';')
}

#[test]
fn upward_level_and_unknown_imports_are_seen() {
    let layers = layers(
        "//! | layer | modules |\n//! | 0 | `low`, `ground` |\n//! | 1 | `middle`, `beside` |\n//! | 2 | `high` |",
    );
    let file = |path: &str, source: &str| SourceFile {
        path: Path::new("src").join(path),
        code: ProductionCode::of(source),
    };
    let files = [
        file(
            "middle.rs",
            "use crate::{low::{self, A}, high, middle};\nfn f() { super::beside::f(); crate::ground::f() }",
        ),
        file(
            "middle/part.rs",
            "use super::high;\nuse super::super::high::B;\npub(in crate::middle) use crate::Name;",
        ),
        file("unknown.rs", ""),
    ];
    let wanted = [
        "middle.rs:1: middle -> high does not go down",
        "middle.rs:2: middle -> beside does not go down",
        "middle/part.rs:2: middle -> high does not go down",
        "middle/part.rs:3: middle -> Name: name the module that defines it",
        "unknown is in no layer",
    ];
    assert_eq!(upward(&layers, Path::new("src"), &files), wanted);
}
