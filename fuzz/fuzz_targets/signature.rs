//! Fuzzes expressions of added signatures: the scanner, which is built from them, misses no line that they match, and
//! block-wise and line-wise matching agree.
//!
//! Blocks are separated by empty lines. Each is an expression, a literal, and texts of one line each; the first text
//! that both match is the example. Blocks that the loader would refuse for other reasons are left out.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use rankguard_faults::{Catalogue, LINE_LIMIT, SignatureMatcher, StreamContext, Triage};
use rankguard_model::{EvidenceSource, Timestamp};
use regex::Regex;

/// Maximum number of signatures of one input: building a matcher costs far more than matching.
const BLOCKS: usize = 8;

struct Block<'t> {
    pattern: &'t str,
    literal: &'t str,
    regex: Regex,
    texts: Vec<&'t str>,
}

impl<'t> Block<'t> {
    fn read(text: &'t str) -> Option<Self> {
        let mut lines = text.lines();
        let pattern = lines.next()?;
        let literal = lines.next()?;
        if literal.len() < 3 || pattern.len() > 200 || !is_plain(literal) {
            return None;
        }
        let regex = Regex::new(pattern).ok()?;
        let mut block = Self {
            pattern,
            literal,
            regex,
            texts: Vec::new(),
        };
        block.texts = lines
            .filter(|line| is_plain(line) && block.wants(line))
            .take(8)
            .collect();
        (!block.texts.is_empty()).then_some(block)
    }

    /// Returns true if the signature should match a text, computed without a scanner.
    fn wants(&self, text: &str) -> bool {
        let literal = self.literal.to_ascii_lowercase();
        self.regex.is_match(text) && text.to_ascii_lowercase().contains(&literal)
    }

    fn toml(&self, number: usize) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        format!(
            "[[signature]]\nid = \"fuzz-{number}\"\nliterals = [{}]\npattern = '''{}'''\nclass = \"unknown\"\nconfidence = 1.0\n\
             example = {}\n",
            quoted(self.literal),
            self.pattern,
            quoted(self.texts[0])
        )
    }
}

/// Returns true if a text has the form of a cleaned line. The scanner drops letters and digits beyond ASCII that stand
/// for ASCII ones, and control characters beside a word.
fn is_plain(text: &str) -> bool {
    text.len() <= LINE_LIMIT && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // These would end the literal string of the file below, or are not valid TOML.
    if text.contains("'''") || text.bytes().any(|byte| byte == 0x7f || byte < b' ' && byte != b'\n') {
        return;
    }
    let blocks = text
        .split("\n\n")
        .filter_map(Block::read)
        .filter(|block| !block.pattern.ends_with('\''));
    let blocks: Vec<Block> = blocks.take(BLOCKS).collect();
    if blocks.is_empty() {
        return;
    }
    let file: String = blocks
        .iter()
        .enumerate()
        .map(|(number, block)| block.toml(number))
        .collect();
    let catalogue = match Catalogue::with_files(&[("fuzz.toml", &file)]) {
        Ok(catalogue) => catalogue,
        Err(error) => panic!("refused: {error}\n{file}"),
    };
    let matcher = Arc::new(SignatureMatcher::new(&catalogue));
    let mut log = String::new();
    for block in &blocks {
        for line in &block.texts {
            let found = !matcher.marks(EvidenceSource::JobLog, line).is_empty();
            assert!(found, "{:?} with {:?} misses {line:?}", block.pattern, block.literal);
            log.push_str(line);
            log.push_str("\nstep 1\n");
        }
    }
    let new = || Triage::new(Arc::clone(&matcher), StreamContext::new(EvidenceSource::JobLog));
    let mut by_block = new();
    let mut by_line = new();
    let mut blocks = by_block.push_block(log.as_bytes(), Timestamp(0));
    blocks.extend(by_block.flush());
    let mut lines = Vec::new();
    for line in log.lines() {
        lines.extend(by_line.push(line, Timestamp(0)));
    }
    lines.extend(by_line.flush());
    assert_eq!(blocks, lines);
});
