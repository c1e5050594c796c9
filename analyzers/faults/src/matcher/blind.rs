//! Patterns made blind to digits: what they say of a text, whatever digits stand in it.
//!
//! The digit of a name (`mlx5_core`) is no number: it stays what it is, in the texts of a kind and in patterns.
//!
//! `Xid .*: (?P<xid>\d+)` tells no digit from another one, so it says the same of all texts that differ only in which digits
//! stand at the same places. `exit code 137` does; made blind it is `exit code \d\d\d`, and where even that does not match, no
//! text of the kind can. The other way round, `: 0\b|corrected` with what asks for a digit left out is `corrected`, and where
//! that matches, so does the whole for every text of the kind.

use regex::Regex;
use regex_syntax::hir::{self, Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look};

use super::masked::is_of_a_name;

/// A pattern made blind, for texts of plain ASCII.
#[derive(Debug)]
pub(super) struct Blind {
    /// Matches where the pattern does with some digits.
    widened: Regex,
    /// Matches where the pattern does with any digits; none where it is blind as it is.
    narrowed: Option<Regex>,
}

impl Blind {
    /// Of a pattern that can be compiled; it takes nothing out. None where what is left of it in ASCII is no expression.
    pub(super) fn of(pattern: &str) -> Option<Self> {
        let hir = regex_syntax::parse(pattern).ok()?;
        let (widened, was_blind) = blinded(&hir, Certain::Any);
        let narrowed = (!was_blind).then(|| blinded(&hir, Certain::Never).0);
        let compile = |hir: &Hir| Regex::new(&hir.to_string()).ok();
        Some(Self {
            widened: compile(&widened)?,
            narrowed: match narrowed {
                Some(hir) => Some(compile(&hir)?),
                None => None,
            },
        })
    }

    /// Whether it may match a text with these digits or others in their places.
    pub(super) fn may_match(&self, text: &str) -> bool {
        self.widened.is_match(text)
    }

    /// Whether it matches a text whatever digits stand in these places.
    pub(super) fn must_match(&self, text: &str) -> bool {
        self.narrowed.as_ref().unwrap_or(&self.widened).is_match(text)
    }

    /// Whether what it says of one text is so of all, and where.
    pub(super) fn is_sure(&self) -> bool {
        self.narrowed.is_none()
    }
}

/// What stands for a part of a pattern that asks for certain digits.
#[derive(Debug, Clone, Copy)]
enum Certain {
    /// Any digit.
    Any,
    /// What never matches.
    Never,
}

/// The expression with such parts replaced, and whether there were none.
fn blinded(hir: &Hir, certain: Certain) -> (Hir, bool) {
    let mut was_blind = true;
    let blinded = Blinder {
        certain,
        was_blind: &mut was_blind,
    }
    .blinded(hir);
    (blinded, was_blind)
}

struct Blinder<'a> {
    certain: Certain,
    was_blind: &'a mut bool,
}

impl Blinder<'_> {
    fn blinded(&mut self, hir: &Hir) -> Hir {
        match hir.kind() {
            HirKind::Empty => Hir::empty(),
            HirKind::Literal(literal) if !literal.0.iter().any(u8::is_ascii_digit) => hir.clone(),
            HirKind::Literal(literal) => {
                let byte = |at: usize| match is_of_a_name(&literal.0, at) {
                    true => Hir::literal([literal.0[at]]),
                    false => self.byte(literal.0[at]),
                };
                Hir::concat((0..literal.0.len()).map(byte).collect())
            }
            HirKind::Class(class) => Hir::class(Class::Unicode(self.class(class))),
            // The edges of words are those of ASCII in a text of ASCII. No edge asks which digit stands there.
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
                sub: Box::new(self.blinded(&repetition.sub)),
                ..repetition.clone()
            }),
            HirKind::Capture(capture) => self.blinded(&capture.sub),
            HirKind::Concat(parts) => Hir::concat(parts.iter().map(|part| self.blinded(part)).collect()),
            HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(|part| self.blinded(part)).collect()),
        }
    }

    fn byte(&mut self, byte: u8) -> Hir {
        if !byte.is_ascii_digit() {
            return Hir::literal([byte]);
        }
        *self.was_blind = false;
        match self.certain {
            Certain::Any => Hir::class(Class::Unicode(ClassUnicode::new([digits()]))),
            Certain::Never => Hir::fail(),
        }
    }

    /// What a class allows in ASCII: all digits or none where it allows some.
    fn class(&mut self, class: &Class) -> ClassUnicode {
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
            *self.was_blind = false;
            match self.certain {
                Certain::Any => class.push(digits()),
                Certain::Never => class.difference(&ClassUnicode::new([digits()])),
            }
        }
        class
    }
}

fn digits() -> ClassUnicodeRange {
    ClassUnicodeRange::new('0', '9')
}

#[cfg(test)]
mod tests {
    use super::Blind;

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
        ] {
            let blind = Blind::of(pattern).expect(pattern);
            assert_eq!(blind.is_sure(), sure, "{pattern}");
            assert!(blind.may_match(may) && !blind.may_match(never), "{pattern}");
            assert_eq!(blind.must_match(may), sure, "{pattern}");
        }
    }

    #[test]
    fn what_matches_without_a_look_at_digits_matches_whatever_they_are() {
        let blind = Blind::of(r"(?i)\bno\b|: 0\b|[1-9x]y").expect("a pattern");
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
