//! Reader of Rust sources: the tokens of production code with their lines.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, Group, LexError, TokenStream, TokenTree};

/// Token of a source; groups are flattened, their delimiters are tokens of their own.
pub(crate) struct SourceToken {
    /// Text as written.
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl SourceToken {
    /// Returns the value of a string literal without escapes.
    pub(crate) fn literal(&self) -> Option<&str> {
        self.text.strip_prefix('"')?.strip_suffix('"')
    }
}

/// Tokens of a source outside attributes, comments and `#[cfg(test)]` items.
#[derive(Default)]
pub(crate) struct ProductionCode {
    pub(crate) tokens: Vec<SourceToken>,
    /// Names of the `#[cfg(test)]` modules in files of their own.
    test_modules: Vec<String>,
}

impl FromStr for ProductionCode {
    type Err = LexError;

    fn from_str(source: &str) -> Result<Self, LexError> {
        let mut code = Self::default();
        code.read(source.parse()?);
        Ok(code)
    }
}

impl ProductionCode {
    fn read(&mut self, stream: TokenStream) {
        let mut trees = stream.into_iter().peekable();
        while let Some(tree) = trees.next() {
            if !is_punct(&tree, '#') {
                self.push(tree);
                continue;
            }
            if trees.next_if(|next| is_punct(next, '!')).is_some() {
                trees.next();
                continue;
            }
            let Some(TokenTree::Group(attribute)) = trees.next() else {
                continue;
            };
            if requires_test(&attribute) {
                self.test_modules.extend(skip_item(&mut trees));
            }
        }
    }

    fn push(&mut self, tree: TokenTree) {
        let mut token = |text: String, line| self.tokens.push(SourceToken { text, line });
        let TokenTree::Group(group) = tree else {
            return token(tree.to_string(), tree.span().start().line);
        };
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => ("", ""),
        };
        token(open.to_owned(), group.span_open().start().line);
        self.read(group.stream());
        self.tokens.push(SourceToken {
            text: close.to_owned(),
            line: group.span_close().start().line,
        });
    }
}

fn is_punct(tree: &TokenTree, wanted: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

/// True for `[cfg(test)]` and `[cfg(all(test, ...))]`.
fn requires_test(attribute: &Group) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    text.starts_with("[cfg(test)") || text.starts_with("[cfg(all(test,")
}

/// Skips the item after an attribute. Returns its name if it is a module in a file of its own.
fn skip_item(trees: &mut impl Iterator<Item = TokenTree>) -> Option<String> {
    let mut words = Vec::new();
    for tree in trees {
        match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return None,
            TokenTree::Ident(word) => words.push(word.to_string()),
            TokenTree::Punct(end) if end.as_char() == ';' => {
                let keyword = words.iter().position(|word| word == "mod")?;
                return words.into_iter().nth(keyword + 1);
            }
            _ => {}
        }
    }
    None
}

/// Source file of production code.
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) code: ProductionCode,
}

/// Returns the production sources below a crate's `src` folder, ordered by path.
pub(crate) fn production_files(src: &Path) -> Vec<SourceFile> {
    let mut paths = BTreeSet::new();
    find_sources(src, &mut paths);
    let mut files = Vec::new();
    let mut test_paths = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("a source is a text file");
        let code: ProductionCode = text
            .parse()
            .unwrap_or_else(|problem| panic!("{}: {problem}", path.display()));
        let folder = children_of(&path);
        test_paths.extend(code.test_modules.iter().map(|name| folder.join(name)));
        files.push(SourceFile { path, code });
    }
    files.retain(|file| {
        let module = file.path.with_extension("");
        !test_paths.iter().any(|test| module.starts_with(test))
    });
    files
}

fn find_sources(folder: &Path, paths: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder of sources can be listed") {
        let path = entry.expect("the folder of sources can be listed").path();
        if path.is_dir() {
            find_sources(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.insert(path);
        }
    }
}

/// Returns the folder in which the child modules of a source lie.
fn children_of(path: &Path) -> PathBuf {
    let module = path.with_extension("");
    if module.ends_with("lib") || module.ends_with("main") {
        module.parent().expect("a source lies in a folder").to_owned()
    } else {
        module
    }
}

#[test]
fn test_items_attributes_and_comments_are_not_production_code() {
    let source = r#"
//! "comment"
#![allow(dead_code, reason = "inner attribute")]
#[doc = "attribute"]
const A: &str = "kept";
#[cfg(test)]
#[allow(dead_code)]
mod tests { const B: &str = "test"; }
#[cfg(all(test, unix))]
mod suite;
#[cfg(test)]
fn helper(text: [u8; 2]) -> &'static str { "test" }
#[cfg(not(test))]
const C: &str = "kept too";
"#;
    let code: ProductionCode = source.parse().expect("a valid source");
    let literals: Vec<_> = code
        .tokens
        .iter()
        .filter_map(|it| Some((it.line, it.literal()?)))
        .collect();
    assert_eq!(literals, [(5, "kept"), (14, "kept too")]);
    assert_eq!(code.test_modules, ["suite"]);
}

#[test]
fn files_of_test_modules_are_not_production_code() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("the folder can be made");
        fs::write(path, text).expect("the file can be written");
    };
    write("lib.rs", "mod a;");
    write("a.rs", "#[cfg(test)] mod tests; mod tests_of_time;");
    write("a/tests.rs", "mod parts;");
    write("a/tests/parts.rs", "");
    write("a/tests_of_time.rs", "");
    let files = production_files(folder.path());
    let names: Vec<_> = files
        .iter()
        .map(|file| file.path.strip_prefix(folder.path()).expect("below the folder"))
        .collect();
    assert_eq!(names, ["a/tests_of_time.rs", "a.rs", "lib.rs"].map(Path::new));
}
