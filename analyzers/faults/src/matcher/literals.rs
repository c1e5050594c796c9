//! Where the literals of all signatures stand: a second, narrower look at the lines of a storm.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    /// Leaves those candidates of which a literal stands in the text too. What was looked for first is often a part of the
    /// pattern that many share (` error`); an expression that cannot match costs more than this look at all of them.
    pub(super) fn narrow(&self, rules: &[Rule], candidates: &mut Candidates, text: &str) {
        if self.tried.load(Ordering::Relaxed) < STORM {
            self.tried.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if scan::has_harmless(text.as_bytes()) {
            // The scanner passes over such a phrase, and literals may stand in it.
            return;
        }
        let scanner = self.scanner.get_or_init(|| {
            let mut builder = scan::Builder::new();
            for (owner, rule) in (0_u16..).zip(rules) {
                let need = builder.need(None, &rule.signature.literals);
                builder.add(owner, need.expect("a literal of three bytes can be looked for"));
            }
            builder.build()
        });
        let mut present: Candidates = [0; CAPACITY / 64];
        scanner.owners(text.as_bytes(), &mut |owner| {
            present[usize::from(owner) / 64] |= 1 << (owner % 64);
        });
        for (candidates, present) in candidates.iter_mut().zip(present) {
            *candidates &= present;
        }
    }
}
