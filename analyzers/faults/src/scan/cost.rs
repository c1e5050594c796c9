//! What looking for a sequence costs on a healthy log, by a small sample of one.
//!
//! The scanner looks at the four bytes that begin at every even place of a text. A sequence begins at an even place or at an
//! odd one, so it is known by two such words. A word costs when it occurs in a log (the sequence is compared) and when it
//! fills the bitmap; a sequence costs when it occurs (its line is taken apart).

use super::bytes::{ByteSet, Sequence, fold};

/// Bytes of a word.
pub(super) const WORD: usize = 4;
/// Bytes from one word to the next.
pub(super) const STEP: usize = 2;
/// Bits of the bitmap, as a power of two: 128 KiB, which a core keeps close.
pub(super) const BITS: u32 = 20;

/// Nanoseconds to look at a word that is in the bitmap, and at a line that has a sequence. Only their ratio matters.
const WORD_NS: f64 = 10.0;
const LINE_NS: f64 = 1500.0;
/// A word that stands for more than this many is no help.
const WIDTH: usize = 1 << 12;
/// Up to this many are looked up one by one.
const COUNTED: usize = 32;
/// Sets wider than this are no letters or digits.
const NARROW: usize = 24;

/// Lines of healthy runs of many tools, written for this purpose.
const SAMPLE: &str = include_str!("healthy.txt");

/// How often words and bytes occur in the sample.
#[derive(Debug)]
pub(super) struct Cost {
    /// Folded words in order, their first byte highest, each with the number of those before it.
    words: Vec<(u32, u32)>,
    /// Positions of the sample.
    all: f64,
    bytes: [f64; 256],
}

/// Where, from the start of a sequence that begins at an even place and of one that begins at an odd one, its telling word
/// begins.
pub(super) type Offsets = [isize; STEP];

impl Cost {
    pub(super) fn new() -> Self {
        let folded: Vec<u8> = SAMPLE.bytes().map(fold).collect();
        let mut words: Vec<u32> = folded
            .windows(WORD)
            .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        words.sort_unstable();
        let mut counted: Vec<(u32, u32)> = words.iter().copied().zip(0..).collect();
        counted.dedup_by_key(|(word, _)| *word);
        let all = folded.len().max(1) as f64;
        let mut bytes = [0.1 / all; 256];
        for byte in folded {
            bytes[usize::from(byte)] += 1.0 / all;
        }
        Self {
            words: counted,
            all,
            bytes,
        }
    }

    /// Infinite for a sequence that cannot be looked for.
    pub(super) fn of(&self, sequence: &Sequence) -> f64 {
        let Some((_, words)) = self.offsets(sequence) else {
            return f64::INFINITY;
        };
        let rarest = sequence.windows(sequence.len().min(WORD)).map(|word| self.part(word));
        words + rarest.fold(f64::INFINITY, f64::min) * STEP as f64 * LINE_NS
    }

    /// The cheapest words of a sequence and what they cost together; none when one of its places has no word that will do.
    pub(super) fn offsets(&self, sequence: &Sequence) -> Option<(Offsets, f64)> {
        let mut offsets = [0; STEP];
        let mut sum = 0.0;
        for (place, chosen) in offsets.iter_mut().enumerate() {
            let mut best = f64::INFINITY;
            // The word that holds the first byte may begin before it; not when that byte may be the one before the text.
            let mut offset = -(place as isize);
            if place > 0 && sequence.first() == Some(&ByteSet::OUTSIDE_WORD) {
                offset += STEP as isize;
            }
            // The last byte alone may be the one behind the text.
            while offset < sequence.len() as isize - 1 {
                let cost = self.of_word(&word_at(sequence, offset));
                if cost < best {
                    best = cost;
                    *chosen = offset;
                }
                offset += STEP as isize;
            }
            sum += best;
        }
        sum.is_finite().then_some((offsets, sum))
    }

    fn of_word(&self, word: &[ByteSet; WORD]) -> f64 {
        let width: usize = word.iter().map(ByteSet::len).product();
        if width > WIDTH {
            return f64::INFINITY;
        }
        let by_chance = width as f64 / f64::from(1_u32 << BITS);
        (self.part(word) + by_chance) * WORD_NS
    }

    /// How many positions of a healthy log are in a filter, at a guess.
    pub(super) fn disturbed(&self, filter: &super::Filter) -> f64 {
        let after = self
            .words
            .iter()
            .skip(1)
            .map(|(_, before)| *before)
            .chain([self.all as u32]);
        let words = self.words.iter().zip(after);
        let words = words.filter(|((word, _), _)| filter.has(word.swap_bytes()));
        words
            .map(|((_, before), after)| f64::from(after.saturating_sub(*before)))
            .sum()
    }

    /// The part of all positions of a healthy log at which such a word, or a shorter one, stands.
    fn part(&self, word: &[ByteSet]) -> f64 {
        let guess: f64 = word.iter().map(|set| self.part_of_bytes(set)).product();
        // Wide sets at the ends are taken by their own frequency, for they are many words.
        let mut known = word;
        let mut beside = 1.0;
        while let Some((set, rest)) = known.split_first().filter(|(set, _)| set.len() > NARROW) {
            beside *= self.part_of_bytes(set);
            known = rest;
        }
        while let Some((set, rest)) = known.split_last().filter(|(set, _)| set.len() > NARROW) {
            beside *= self.part_of_bytes(set);
            known = rest;
        }
        let width: usize = known.iter().map(ByteSet::len).product();
        if known.is_empty() || width > COUNTED {
            return guess;
        }
        let free = 8 * (WORD - known.len()) as u32;
        let mut counted = 0;
        for_each_word(known, &mut |word| {
            let from = word.swap_bytes();
            let to = u64::from(from) + (1 << free);
            counted += self.before(to) - self.before(u64::from(from));
        });
        // What the sample happens not to have is a little rarer than what it has once.
        (f64::from(counted) / self.all * beside).max(guess.min(0.2 / self.all))
    }

    /// Words of the sample below a value.
    fn before(&self, value: u64) -> u32 {
        let at = self.words.partition_point(|(word, _)| u64::from(*word) < value);
        self.words.get(at).map_or(self.all as u32, |(_, before)| *before)
    }

    fn part_of_bytes(&self, set: &ByteSet) -> f64 {
        if *set == ByteSet::ANY {
            return 1.0;
        }
        set.iter().map(|byte| self.bytes[usize::from(byte)]).sum()
    }
}

/// Four positions of a sequence from an offset; what lies outside may be anything.
pub(super) fn word_at(sequence: &[ByteSet], offset: isize) -> [ByteSet; WORD] {
    let mut word = [ByteSet::ANY; WORD];
    for (place, set) in word.iter_mut().enumerate() {
        if let Some(known) = usize::try_from(offset + place as isize)
            .ok()
            .and_then(|at| sequence.get(at))
        {
            *set = *known;
        }
    }
    word
}

/// Every word that four sets allow, its first byte lowest.
pub(super) fn for_each_word(word: &[ByteSet], found: &mut dyn FnMut(u32)) {
    fn go(rest: &[ByteSet], shift: u32, so_far: u32, found: &mut dyn FnMut(u32)) {
        let Some((set, rest)) = rest.split_first() else {
            found(so_far);
            return;
        };
        for byte in set.iter() {
            go(rest, shift + 8, so_far | u32::from(byte) << shift, found);
        }
    }
    go(word, 0, 0, found);
}
