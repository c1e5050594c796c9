//! Scanner for the literals of all signatures; reduces the expressions tried on lines of a log storm.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::masked::{DIGIT, hidden};
use super::{CAPACITY, SignatureRule};
use crate::scan::{self, SequenceScanner};

/// Number of tried lines from which the literal scanner pays off. Short runs and quiet logs do not wait until it is
/// built.
const STORM: usize = 256;

/// Bit set of signature numbers.
pub(super) type SignatureSet = [u64; CAPACITY / 64];

/// Lazily built scanner for the literals of all signatures.
#[derive(Debug, Default)]
pub(super) struct LiteralScanner {
    /// Built on first use, once [`STORM`] lines were tried.
    scanner: OnceLock<SequenceScanner>,
    /// Lines on which expressions were tried, up to [`STORM`].
    tried: AtomicUsize,
}

impl LiteralScanner {
    /// Returns true if enough lines were tried.
    pub(super) fn in_storm(&self) -> bool {
        self.tried.load(Ordering::Relaxed) >= STORM
    }

    /// Counts a tried line.
    pub(super) fn count(&self) {
        self.tried.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the signatures of which a literal occurs in the text, ignoring digits of both; none if unknown. The
    /// sequence that selected a signature is often part of a pattern that many share (` error`), and one expression
    /// that cannot match costs more than this scan for all of them.
    pub(super) fn present(&self, rules: &[SignatureRule], masked: &[u8]) -> Option<SignatureSet> {
        // A literal does not show if its last digit belongs to a name, so all digits are hidden here.
        let masked: Vec<u8> = masked.iter().copied().map(hidden).collect();
        if scan::has_harmless(&masked) {
            // The scanner skips such a phrase, and literals may occur in it.
            return None;
        }
        let scanner = self.scanner.get_or_init(|| {
            let mut builder = scan::ScannerBuilder::new();
            for (owner, rule) in (0_u16..).zip(rules) {
                let hidden = rule.signature.literals.iter().map(|literal| hide(literal));
                let need = builder.need(None, &hidden.collect::<Vec<_>>());
                builder.add(owner, need.expect("a literal of three bytes can be looked for"));
            }
            builder.build()
        });
        let mut present: SignatureSet = [0; CAPACITY / 64];
        scanner.owners(&masked, &mut |owner| {
            present[usize::from(owner) / 64] |= 1 << (owner % 64);
        });
        Some(present)
    }
}

/// Returns the literal with its digits hidden.
fn hide(literal: &str) -> String {
    literal.replace(|c: char| c.is_ascii_digit(), &char::from(DIGIT).to_string())
}
