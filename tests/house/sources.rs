//! Reader of Rust sources: the tokens of production code with their lines.
//!
//! It knows what can hide a token: nested comments, raw strings, characters that look like lifetimes. The lexer of
//! proc-macro2 would do, but as a dependency of tests it changes how Cargo builds all procedural macros, so that every
//! foreign crate is compiled once for programs and once more for tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Token of a source: a word, a number, a literal, a lifetime or a single punctuation character.
#[derive(Debug, Clone, PartialEq)]
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

/// Returns the tokens of a source, without comments.
fn tokens(source: &str) -> Vec<SourceToken> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = token_length(rest, first);
        let (text, after) = rest.split_at(length);
        let is_comment = text.starts_with("//") || text.starts_with("/*");
        if !is_comment && !first.is_whitespace() {
            tokens.push(SourceToken {
                text: text.to_owned(),
                line,
            });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

/// Returns the bytes of the token, comment or white space at the start of a source.
fn token_length(rest: &str, first: char) -> usize {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let run = |holds: &dyn Fn(char) -> bool| rest.find(|character| !holds(character)).unwrap_or(rest.len());
    if first.is_whitespace() {
        return run(&char::is_whitespace);
    }
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_length(rest);
    }
    if let Some(length) = string_length(rest) {
        return length;
    }
    match first {
        '\'' => quote_length(rest),
        _ if is_word(first) => run(&is_word),
        _ => first.len_utf8(),
    }
}

/// Returns the bytes of a comment that may hold others.
fn block_comment_length(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Returns the bytes of a string literal with its prefix; none if the source starts with something else.
fn string_length(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c", ""].into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix);
        after.is_some_and(|after| after.starts_with('"') || prefix.ends_with('r') && after.starts_with('#'))
    })?;
    let body = &rest[prefix.len()..];
    let hashes = body.len() - body.trim_start_matches('#').len();
    let text = body[hashes..].strip_prefix('"')?;
    let start = prefix.len() + hashes + 1;
    if prefix.ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(start + text.find(&end)? + end.len());
    }
    Some(start + escaped_length(text, '"')?)
}

/// Returns the bytes up to and with the first `end` that is not escaped.
fn escaped_length(text: &str, end: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == end => return Some(at + end.len_utf8()),
            _ => {}
        }
    }
    None
}

/// Returns the bytes of a character or of a lifetime.
fn quote_length(rest: &str) -> usize {
    let text = &rest[1..];
    let mut characters = text.chars();
    let first = characters.next();
    let is_character = first == Some('\\') || characters.next() == Some('\'');
    match escaped_length(text, '\'') {
        Some(length) if is_character => 1 + length,
        _ => {
            1 + text
                .find(|character: char| !character.is_alphanumeric() && character != '_')
                .unwrap_or(text.len())
        }
    }
}

/// Tokens of a source outside attributes, comments and `#[cfg(test)]` items.
#[derive(Default)]
pub(crate) struct ProductionCode {
    pub(crate) tokens: Vec<SourceToken>,
    /// Names of the `#[cfg(test)]` modules in files of their own.
    test_modules: Vec<String>,
}

impl ProductionCode {
    pub(crate) fn of(source: &str) -> Self {
        let mut code = Self::default();
        let all = tokens(source);
        let is = |index: usize, text: &str| all.get(index).is_some_and(|token| token.text == text);
        let mut at = 0;
        while at < all.len() {
            let is_inner = is(at + 1, "!");
            let open = at + 1 + usize::from(is_inner);
            if !is(at, "#") || !is(open, "[") {
                code.tokens.push(all[at].clone());
                at += 1;
                continue;
            }
            let end = group_end(&all, open);
            at = end;
            if !is_inner && requires_test(&all[open..end]) {
                let item = &all[end..];
                code.test_modules.extend(module_in_its_file(item));
                at += item_length(item);
            }
        }
        code
    }
}

/// Returns the index after the group that opens at an index.
fn group_end(tokens: &[SourceToken], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// True for `[cfg(test)]` and `[cfg(all(test, ...))]`.
fn requires_test(attribute: &[SourceToken]) -> bool {
    let text: String = attribute.iter().map(|token| token.text.as_str()).collect();
    text.starts_with("[cfg(test)") || text.starts_with("[cfg(all(test,")
}

/// Returns the number of tokens of an item, with its further attributes.
fn item_length(tokens: &[SourceToken]) -> usize {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            "{" => return group_end(tokens, at),
            ";" => return at + 1,
            "(" | "[" => at = group_end(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// Returns the name of an item that is a module in a file of its own.
fn module_in_its_file(item: &[SourceToken]) -> Option<String> {
    let item = &item[..item_length(item)];
    let keyword = item.iter().position(|token| token.text == "mod")?;
    (item.last()?.text == ";").then(|| item[keyword + 1].text.clone())
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
        let code = ProductionCode::of(&text);
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
fn tokens_are_found_behind_what_looks_like_others() {
    let source = r##"a /* "b" /* c */ d */ 'e' '\'' 'f: b'"' "g\"h" r#"i" j"# br"k\" r#l 1.5e3 // "m"
n::"o" 'p"##;
    let found: Vec<_> = tokens(source)
        .into_iter()
        .map(|token| (token.line, token.text))
        .collect();
    let wanted = [
        (1, "a"),
        (1, "'e'"),
        (1, "'\\''"),
        (1, "'f"),
        (1, ":"),
        (1, "b"),
        (1, "'\"'"),
        (1, "\"g\\\"h\""),
        (1, "r#\"i\" j\"#"),
        (1, "br\"k\\\""),
        (1, "r"),
        (1, "#"),
        (1, "l"),
        (1, "1"),
        (1, "."),
        (1, "5e3"),
        (2, "n"),
        (2, ":"),
        (2, ":"),
        (2, "\"o\""),
        (2, "'p"),
    ];
    assert_eq!(found, wanted.map(|(line, text)| (line, text.to_owned())));
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
    let code = ProductionCode::of(source);
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
