//! Digit-blind patterns: bounds on the matches of a pattern over all texts that differ only in their digits.
//!
//! Such texts are one kind; its masked text has `0` for every digit. A digit in a name (`mlx5_core`) is not a number:
//! it is retained, both in masked texts and in patterns.
//!
//! `Xid .*: (?P<xid>\d+)` accepts any digit, so it gives the same result for all texts of a kind. `exit code 137` does
//! not; it is widened to `exit code \d\d\d`, and a mismatch of the widened pattern excludes all texts of the kind.
//!
//! Conversely, `: 0\b|corrected` is narrowed to `corrected`, without the part that requires a certain digit; a match of
//! the narrowed pattern holds for every text of the kind. Captured fields are at the same positions in all texts of the
//! kind if the match of the widened pattern uses no part that requires certain digits: that match exists for all
//! digits, and none is preferred to it.

use regex::Regex;
use regex_syntax::hir::{self, Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look};

use super::masked::is_of_a_name;

/// Digit-blind bounds of a pattern, for ASCII texts.
#[derive(Debug)]
pub(super) struct PatternBounds {
    /// Matches every text of which the pattern matches a variant with other digits. Its groups are the parts that
    /// require certain digits.
    widened: Regex,
    /// Matches only texts of which the pattern matches all variants with other digits; `None` if the pattern requires
    /// no certain digits, so that the widened pattern is exact.
    narrowed: Option<Regex>,
}

impl PatternBounds {
    /// Builds the bounds of a pattern, without its named groups. Returns `None` if the pattern is invalid, or if no
    /// valid expression remains when it is restricted to ASCII.
    pub(super) fn of(pattern: &str) -> Option<Self> {
        let hir = regex_syntax::parse(pattern).ok()?;
        let (widened, was_blind) = blinded(&hir, DigitReplacement::Any);
        let narrowed = (!was_blind).then(|| blinded(&hir, DigitReplacement::Never).0);
        let compile = |hir: &Hir| Regex::new(&hir.to_string()).ok();
        Some(Self {
            widened: compile(&widened)?,
            narrowed: match narrowed {
                Some(hir) => Some(compile(&hir)?),
                None => None,
            },
        })
    }

    /// Returns false only if the pattern matches no text of the kind of `text`, which is masked and ASCII.
    pub(super) fn may_match(&self, text: &str) -> bool {
        self.widened.is_match(text)
    }

    /// Returns true only if the pattern matches every text of the kind.
    pub(super) fn must_match(&self, text: &str) -> bool {
        self.narrowed.as_ref().unwrap_or(&self.widened).is_match(text)
    }

    /// Returns true only if the positions of a match are the same in every text of the kind.
    pub(super) fn stays_in(&self, text: &str) -> bool {
        self.narrowed.is_none() || {
            let captures = self.widened.captures(text);
            captures.is_some_and(|captures| captures.iter().skip(1).all(|part| part.is_none()))
        }
    }
}

/// Replacement of the digits in a pattern part that requires certain ones.
#[derive(Debug, Clone, Copy)]
enum DigitReplacement {
    /// Any digit, in a capture group: widens the pattern.
    Any,
    /// No digit: narrows the pattern.
    Never,
}

/// Returns the expression with the parts replaced that require certain digits, and true if there were none.
fn blinded(hir: &Hir, certain: DigitReplacement) -> (Hir, bool) {
    let mut was_blind = true;
    let blinded = PatternRewriter {
        certain,
        was_blind: &mut was_blind,
    }
    .blinded(hir, false);
    (blinded, was_blind)
}

/// Rewrites an expression for [`blinded`].
struct PatternRewriter<'a> {
    certain: DigitReplacement,
    /// Set to false by the first replacement.
    was_blind: &'a mut bool,
}

impl PatternRewriter<'_> {
    /// Returns the rewritten expression; `after_letter` is true if [`is_letter`] holds for the preceding one.
    fn blinded(&mut self, hir: &Hir, after_letter: bool) -> Hir {
        match hir.kind() {
            HirKind::Empty => Hir::empty(),
            HirKind::Literal(literal) => self.literal(&literal.0, after_letter),
            HirKind::Class(class) => self.class(class),
            // Word boundaries are ASCII in ASCII texts, and none depends on the value of a digit.
            HirKind::Look(look) => Hir::look(match *look {
                Look::WordUnicode => Look::WordAscii,
                Look::WordUnicodeNegate => Look::WordAsciiNegate,
                Look::WordStartUnicode => Look::WordStartAscii,
                Look::WordEndUnicode => Look::WordEndAscii,
                Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
                Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
                other => other,
            }),
            HirKind::Repetition(repetition) => Hir::repetition(hir::Repetition {
                sub: Box::new(self.blinded(&repetition.sub, false)),
                ..repetition.clone()
            }),
            HirKind::Capture(capture) => self.blinded(&capture.sub, after_letter),
            HirKind::Concat(parts) => {
                let before = std::iter::once(after_letter).chain(parts.iter().map(is_letter));
                let blinded = parts.iter().zip(before).map(|(part, after)| self.blinded(part, after));
                Hir::concat(blinded.collect())
            }
            HirKind::Alternation(parts) => {
                Hir::alternation(parts.iter().map(|part| self.blinded(part, after_letter)).collect())
            }
        }
    }

    /// Rewrites a literal text; the digit of a name is retained.
    fn literal(&mut self, text: &[u8], after_letter: bool) -> Hir {
        // In case-insensitive patterns letters are classes, so the literal part of a name begins with its digit.
        let begins = |at: usize| at == 0 && after_letter && text[0].is_ascii_digit() && text.get(1) == Some(&b'_');
        let byte = |at: usize| {
            if begins(at) || is_of_a_name(text, at) {
                Hir::literal([text[at]])
            } else {
                self.byte(text[at])
            }
        };
        Hir::concat((0..text.len()).map(byte).collect())
    }

    fn byte(&mut self, byte: u8) -> Hir {
        if !byte.is_ascii_digit() {
            return Hir::literal([byte]);
        }
        self.certain(ClassUnicode::empty())
    }

    /// Replaces a part that requires certain digits; `besides` are the characters that it allows in addition.
    fn certain(&mut self, mut besides: ClassUnicode) -> Hir {
        *self.was_blind = false;
        match self.certain {
            DigitReplacement::Any => {
                besides.push(digits());
                let sub = Box::new(Hir::class(Class::Unicode(besides)));
                // Group numbers are assigned when the expression is parsed again.
                let index = 0;
                let name = None;
                Hir::capture(hir::Capture { index, name, sub })
            }
            DigitReplacement::Never => Hir::class(Class::Unicode(besides)),
        }
    }

    /// Restricts a class to ASCII. A class with some but not all digits requires certain digits.
    fn class(&mut self, class: &Class) -> Hir {
        let mut class = match class {
            Class::Unicode(class) => class.clone(),
            Class::Bytes(class) => {
                let range = |range: &hir::ClassBytesRange| {
                    ClassUnicodeRange::new(char::from(range.start()), char::from(range.end()))
                };
                ClassUnicode::new(class.iter().map(range))
            }
        };
        class.intersect(&ClassUnicode::new([ClassUnicodeRange::new('\0', '\x7f')]));
        let mut held = class.clone();
        held.intersect(&ClassUnicode::new([digits()]));
        let held: u32 = held
            .iter()
            .map(|range| range.end() as u32 - range.start() as u32 + 1)
            .sum();
        if (1..10).contains(&held) {
            class.difference(&ClassUnicode::new([digits()]));
            return self.certain(class);
        }
        Hir::class(Class::Unicode(class))
    }
}

/// Returns true for a class with only letters in its ASCII part, such as `[Kk\u{212a}]` for `k` in a case-insensitive
/// pattern.
fn is_letter(hir: &Hir) -> bool {
    let HirKind::Class(Class::Unicode(class)) = hir.kind() else {
        return false;
    };
    let letters = |range: &ClassUnicodeRange| (range.start()..=range.end()).all(|c| c.is_ascii_alphabetic());
    let mut of_ascii = class.iter().filter(|range| range.start().is_ascii());
    of_ascii.all(letters)
}

fn digits() -> ClassUnicodeRange {
    ClassUnicodeRange::new('0', '9')
}

#[cfg(test)]
mod tests {
    use super::PatternBounds;

    #[test]
    fn a_pattern_that_asks_for_a_certain_digit_is_not_born_blind() {
        for (pattern, sure, may, never) in [
            (
                r"Xid \(PCI:(?P<bdf>[0-9a-f:.]+)\): (?P<xid>\d+)",
                true,
                "Xid (PCI:00:0): 00",
                "Xid",
            ),
            (
                r"\bkilled process \w+\b.*[^,]$",
                true,
                "killed process 00 by",
                "killed process 00,",
            ),
            (r"(?i)error 12\b", false, "ERROR 00", "error 000"),
            (r"exit code [1-9]\d*", false, "exit code 0", "exit code x"),
            (r"x[^0]y", false, "x0y", "xy"),
            (r"(?:ok|v2)$", false, "v0", "v00"),
            (r"mlx5_core \d+", true, "mlx5_core 00", "mlx4_core 00"),
            (r"mlx5(?:_core)?", false, "mlx0", "mlx"),
            (
                r"(?i)(?:mlx5_core|mlx4_en|ice) \d+",
                true,
                "MLX5_core 00",
                "mlx0_core 00",
            ),
            (r"(?i)[x_]5_core", false, "x5_core", "x_core"),
        ] {
            let blind = PatternBounds::of(pattern).expect(pattern);
            assert_eq!(blind.narrowed.is_none(), sure, "{pattern}");
            assert!(blind.may_match(may) && !blind.may_match(never), "{pattern}");
            assert_eq!(blind.must_match(may), sure, "{pattern}");
        }
    }

    #[test]
    fn what_is_taken_out_stays_where_it_is_if_no_certain_digit_was_asked_for() {
        let blind = PatternBounds::of(r"(?:(?:tg3|mlx5_core|e1000e) (?P<bdf>[0-9a-f:]+): |[1-9x]+)?.*(?:down|up 7)")
            .expect("a pattern");
        for (text, stays) in [
            ("mlx5_core 00:00: link down", true),
            ("tg0 00:00: link down", false),
            ("link down", true),
            ("link up 0", false),
            ("link up 0 down", true),
            ("0 link down", false),
            ("nothing", false),
        ] {
            assert_eq!(blind.stays_in(text), stays, "{text}");
        }
    }

    #[test]
    fn what_matches_without_a_look_at_digits_matches_whatever_they_are() {
        let blind = PatternBounds::of(r"(?i)\bno\b|: 0\b|[1-9x]y").expect("a pattern");
        for (text, may, must) in [
            ("No 0", true, true),
            ("a: 0", true, false),
            ("xy", true, true),
            ("0y", true, false),
            ("z", false, false),
        ] {
            assert_eq!((blind.may_match(text), blind.must_match(text)), (may, must), "{text}");
        }
    }
}
