//! Where the literals of all signatures stand: a second, narrower look at the lines of a storm.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::masked::{DIGIT, hidden};
use super::{CAPACITY, Rule};
use crate::scan::{self, Scanner};

/// From so many tried lines on it is worth knowing where all literals stand: whoever reads one log, or a log in peace, need
/// not wait for that to be made.
const STORM: usize = 256;

/// A set of signatures.
pub(super) type Candidates = [u64; CAPACITY / 64];

/// Looks for the literals of all signatures at once.
#[derive(Debug, Default)]
pub(super) struct Literals {
    /// Made once enough lines were tried.
    scanner: OnceLock<Scanner>,
    /// Lines of which something was tried, up to [`STORM`].
    tried: AtomicUsize,
}

impl Literals {
    /// Whether enough lines were tried.
    pub(super) fn in_storm(&self) -> bool {
        self.tried.load(Ordering::Relaxed) >= STORM
    }

    /// A line was tried.
    pub(super) fn count(&self) {
        self.tried.fetch_add(1, Ordering::Relaxed);
    }

    /// Signatures of which a literal stands in a text, whatever the digits of both; none where it is not known. What was
    /// looked for first is often a part of the pattern that many share (` error`); an expression that cannot match costs more
    /// than this look at all of them.
    pub(super) fn present(&self, rules: &[Rule], masked: &[u8]) -> Option<Candidates> {
        // Of a literal nobody knows whether its last digit is that of a name, so all digits are hidden here.
        let masked: Vec<u8> = masked.iter().copied().map(hidden).collect();
        if scan::has_harmless(&masked) {
            // The scanner passes over such a phrase, and literals may stand in it.
            return None;
        }
        let scanner = self.scanner.get_or_init(|| {
            let mut builder = scan::Builder::new();
            for (owner, rule) in (0_u16..).zip(rules) {
                let hidden = rule.signature.literals.iter().map(|literal| hide(literal));
                let need = builder.need(None, &hidden.collect::<Vec<_>>());
                builder.add(owner, need.expect("a literal of three bytes can be looked for"));
            }
            builder.build()
        });
        let mut present: Candidates = [0; CAPACITY / 64];
        scanner.owners(&masked, &mut |owner| {
            present[usize::from(owner) / 64] |= 1 << (owner % 64);
        });
        Some(present)
    }
}

/// A literal with its digits hidden.
fn hide(literal: &str) -> String {
    literal.replace(|c: char| c.is_ascii_digit(), &char::from(DIGIT).to_string())
}
