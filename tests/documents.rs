//! Documents: links lead to files and headings, commands and settings are those of the program, the README and all
//! paragraphs are short.

#![allow(
    clippy::print_stderr,
    reason = "a part that cannot run reports it where people see it"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::rankguard;

/// Maximum number of lines of the README.
const README_LINES: usize = 150;
/// Maximum number of words of a paragraph.
const PARAGRAPH_WORDS: usize = 90;
/// Commands that the history program parses.
const HISTORY_COMMANDS: [&str; 4] = ["dataset", "study", "replay", "simulate"];

/// A Markdown file of the repository.
struct Document {
    /// Path relative to the repository.
    name: String,
    text: String,
}

/// A code block with its language.
struct CodeBlock {
    language: String,
    text: String,
}

fn root() -> PathBuf {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    parent.expect("the crate is in a folder of the repository").to_owned()
}

/// Reads the Markdown files of the repository's root, of `docs` and of the Python package.
fn documents() -> Vec<Document> {
    let mut paths = vec![root().join("python/README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else {
                paths.push(path);
            }
        }
    }
    paths.extend(entries(&root()));
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    paths.iter().map(|path| document(path)).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).expect("the folder can be read");
    found.map(|entry| entry.expect("an entry").path()).collect()
}

fn document(path: &Path) -> Document {
    let name = path.strip_prefix(root()).expect("a file of the repository");
    Document {
        name: name.display().to_string(),
        text: fs::read_to_string(path).expect("the document can be read"),
    }
}

impl Document {
    /// Returns the lines outside of code blocks; lines of code blocks are empty, so that numbers stay.
    fn prose(&self) -> Vec<&str> {
        let mut is_code = false;
        let line = |line| {
            let is_fence = is_fence(line);
            let is_shown = !is_code && !is_fence;
            is_code ^= is_fence;
            if is_shown { line } else { "" }
        };
        self.text.lines().map(line).collect()
    }

    fn code_blocks(&self) -> Vec<CodeBlock> {
        let mut blocks = Vec::new();
        let mut open: Option<CodeBlock> = None;
        for line in self.text.lines() {
            if is_fence(line) {
                match open.take() {
                    Some(block) => blocks.push(block),
                    None => {
                        open = Some(CodeBlock {
                            language: line.trim().trim_start_matches('`').to_owned(),
                            text: String::new(),
                        });
                    }
                }
            } else if let Some(block) = &mut open {
                block.text.push_str(line);
                block.text.push('\n');
            }
        }
        assert!(open.is_none(), "{}: a code block has no end", self.name);
        blocks
    }

    /// Returns the anchors of the headings, as GitHub derives them.
    fn anchors(&self) -> BTreeSet<String> {
        let prose = self.prose();
        let headings = prose.iter().filter_map(|line| line.strip_prefix('#'));
        headings
            .map(|heading| anchor(heading.trim_start_matches('#').trim()))
            .collect()
    }

    /// Returns the paragraphs and list items, each as its first line and its number of words.
    fn paragraphs(&self) -> Vec<(String, usize)> {
        let mut paragraphs: Vec<(String, usize)> = Vec::new();
        let mut is_open = false;
        for line in self.prose() {
            let line = line.trim();
            let is_text = !line.is_empty() && !line.starts_with(['|', '#', '<', '!']);
            let is_item = line.starts_with("- ") || line.split_once(". ").is_some_and(|(number, _)| is_number(number));
            if is_text && (!is_open || is_item) {
                paragraphs.push((line.to_owned(), 0));
            }
            if is_text && let Some((_, words)) = paragraphs.last_mut() {
                *words += line.split_whitespace().count();
            }
            is_open = is_text;
        }
        paragraphs
    }
}

fn is_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the targets of the links in a line, without those in code spans.
fn links(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect();
    let mut targets = Vec::new();
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once("](") {
        let (target, following) = after.split_once(')').unwrap_or((after, ""));
        targets.push(target.to_owned());
        rest = following;
    }
    targets
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for document in documents() {
        for (at, line) in document.prose().into_iter().enumerate() {
            for target in links(line) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                if let Err(reason) = resolve(&document, &target) {
                    broken.push(format!("{}:{}: {target}: {reason}", document.name, at + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn resolve(from: &Document, target: &str) -> Result<(), &'static str> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let source = root().join(&from.name);
    let path = if file.is_empty() {
        source
    } else {
        source.with_file_name("").join(file)
    };
    if !path.exists() {
        return Err("no such file");
    }
    if !heading.is_empty() && !document(&path).anchors().contains(heading) {
        return Err("no such heading");
    }
    Ok(())
}

/// Divides a shell line into commands of words: at `;`, `|`, `&&` and `>`, and at white space outside of quotes.
/// What follows `>` is a file and is dropped, and so are comments.
fn shell_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut is_target = false;
    for c in line.chars().chain([' ']) {
        if let Some(end) = quote {
            if c == end {
                quote = None;
            } else {
                word.get_or_insert_default().push(c);
            }
            continue;
        }
        match c {
            '\'' | '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            '#' if word.is_none() => break,
            ' ' | '\t' | ';' | '|' | '&' | '>' => {
                if let Some(word) = word.take() {
                    if !is_target {
                        commands.last_mut().expect("there is a command").push(word);
                    }
                    is_target = false;
                }
                match c {
                    ';' | '|' | '&' => commands.push(Vec::new()),
                    '>' => is_target = true,
                    _ => {}
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    commands.retain(|words| !words.is_empty());
    commands
}

/// Returns the arguments of a command of this program, with `--help` before a `--`; `None` for another program.
fn arguments(words: &[String]) -> Option<Vec<String>> {
    let is_prefix = |word: &&String| *word == "sudo" || word.contains('=');
    let start = words.iter().take_while(is_prefix).count();
    let words = &words[start..];
    let program = Path::new(words.first()?).file_name()?.to_str()?;
    let mut arguments = match program {
        "rankguard" | "rankguard-history" => words[1..].to_vec(),
        "cargo" if words.get(1).is_some_and(|word| word == "run") => {
            let end = words.iter().position(|word| word == "--")?;
            words[end + 1..].to_vec()
        }
        _ => return None,
    };
    let end = arguments.iter().position(|word| word == "--");
    arguments.insert(end.unwrap_or(arguments.len()), "--help".to_owned());
    Some(arguments)
}

/// Returns the commands in the shell blocks and in the code spans of a document.
fn program_commands(document: &Document) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for block in document.code_blocks() {
        if matches!(block.language.as_str(), "sh" | "bash" | "console") {
            lines.extend(block.text.replace("\\\n", " ").lines().map(str::to_owned));
        }
    }
    for line in document.prose() {
        let spans = line.split('`').skip(1).step_by(2);
        // A span with an ellipsis, an optional part or a placeholder is no whole command.
        let is_partial = |span: &str| ["...", "[", "COMMAND"].iter().any(|mark| span.contains(mark));
        let whole = |span: &&str| span.starts_with("rankguard") && !is_partial(span);
        lines.extend(spans.filter(whole).map(|span| span.replace("\\|", ",")));
    }
    let commands = lines.iter().flat_map(|line| shell_commands(line));
    commands.filter_map(|words| arguments(&words)).collect()
}

#[test]
fn commands_in_the_documents_parse() {
    let history = PathBuf::from(env!("CARGO_BIN_EXE_rankguard")).with_file_name("rankguard-history");
    let has_history = history.exists();
    let mut wrong = Vec::new();
    let mut parsed = BTreeSet::new();
    let mut documents = documents();
    // Decisions record their time, helper processes included.
    documents.retain(|document| !document.name.starts_with("docs/decisions/"));
    for document in documents {
        for words in program_commands(&document) {
            let is_history = words
                .first()
                .is_some_and(|word| HISTORY_COMMANDS.contains(&word.as_str()))
                || words.starts_with(&["bench".to_owned(), "replay".to_owned()])
                || words.starts_with(&["bench".to_owned(), "studies".to_owned()]);
            if is_history && !has_history || !parsed.insert(words.clone()) {
                continue;
            }
            let reason = if is_history {
                history_help(&history, &words)
            } else {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let ran = rankguard(&words);
                (ran.code != Some(0)).then_some(ran.stderr)
            };
            if let Some(reason) = reason {
                wrong.push(format!("{}: {}\n  {reason}", document.name, words.join(" ")));
            }
        }
    }
    if !has_history {
        eprintln!("SKIPPED: commands of rankguard-history, which is not built");
    }
    assert!(parsed.len() > 100, "only {} commands were found", parsed.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs the history program with these arguments; returns its messages if it refuses them.
fn history_help(program: &Path, words: &[String]) -> Option<String> {
    let mut command = Command::new(program);
    let ran = command.args(words).stdin(Stdio::null()).output();
    let ran = ran.expect("the history program starts");
    (!ran.status.success()).then(|| String::from_utf8_lossy(&ran.stderr).into_owned())
}

/// Writes out the alternatives of a path such as `src/{a,b}.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else {
        return vec![path.to_owned()];
    };
    let (inside, after) = rest.split_once('}').unwrap_or((rest, ""));
    let one = |choice: &str| format!("{before}{choice}{after}");
    inside.split(',').map(one).collect()
}

#[test]
fn files_that_show_a_promise_exist() {
    let mut missing = Vec::new();
    for name in ["SPECIFICATION.md", "ARCHITECTURE.md"] {
        let document = document(&root().join(name));
        for line in document.prose() {
            let spans = line.split('`').skip(1).step_by(2);
            let is_file = |span: &&str| {
                let ends = [".rs", ".py", ".sh", "/tests", "/src", "}"];
                span.contains('/') && !span.contains([' ', ':']) && ends.iter().any(|end| span.ends_with(end))
            };
            for path in spans.filter(is_file).flat_map(alternatives) {
                if !root().join(&path).exists() {
                    missing.push(format!("{name}: {path}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn settings_in_the_documents_are_known() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("example.toml");
    let path = file.to_str().expect("a plain path");
    let mut count = 0;
    for document in documents() {
        let blocks = document.code_blocks().into_iter();
        for block in blocks.filter(|block| block.language == "toml") {
            fs::write(&file, &block.text).expect("the example can be written");
            let is_catalogue = ["[[signature]]", "failure-taxonomy/1"]
                .iter()
                .any(|mark| block.text.contains(mark));
            let ran = if is_catalogue {
                rankguard(&["taxonomy", "ls", "--catalogue", path])
            } else {
                rankguard(&["--config", path, "config", "show"])
            };
            assert_eq!(ran.code, Some(0), "{}:\n{}{}", document.name, block.text, ran.stderr);
            count += 1;
        }
    }
    assert!(count > 1, "only {count} examples were found");
}

#[test]
fn the_readme_is_short_and_names_the_two_commands() {
    let readme = document(&root().join("README.md"));
    let lines = readme.text.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines");
    for command in ["cargo demo", "cargo test --workspace"] {
        let block = format!("```sh\n{command}\n```");
        assert!(readme.text.contains(&block), "README.md lacks the block `{command}`");
    }
}

#[test]
fn paragraphs_are_short() {
    let mut long = Vec::new();
    for document in documents() {
        let is_guide = document.name.starts_with("docs/") && !document.name[5..].contains('/');
        let is_checked = is_guide
            || matches!(
                document.name.as_str(),
                "README.md" | "ARCHITECTURE.md" | "SPECIFICATION.md"
            );
        if !is_checked {
            continue;
        }
        for (first, words) in document.paragraphs() {
            if words > PARAGRAPH_WORDS {
                long.push(format!("{}: {words} words: {first}", document.name));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn shell_lines_are_divided_as_a_shell_does() {
    let line = "A=1 rankguard run --name 'a b' -- python x.py > out.txt && ls | rankguard cases # comment";
    let commands = shell_commands(line);
    assert_eq!(commands.len(), 3, "{commands:?}");
    let first = arguments(&commands[0]).expect("a command of the program");
    assert_eq!(first, ["run", "--name", "a b", "--help", "--", "python", "x.py"]);
    assert_eq!(arguments(&commands[1]), None);
    assert_eq!(
        arguments(&commands[2]),
        Some(vec!["cases".to_owned(), "--help".to_owned()])
    );
}

#[test]
fn anchors_are_those_of_github() {
    assert_eq!(anchor("Absent, and reported so"), "absent-and-reported-so");
    assert_eq!(anchor("`rankguard run`: jobs"), "rankguard-run-jobs");
    assert_eq!(links("see [a](b.md#c), `[x](y)` and [d](e)"), ["b.md#c", "e"]);
}
