//! What looking for a sequence costs on a healthy log, by a small sample of one.
//!
//! The scanner reads a text in words of four bytes, one after the other, none twice. A sequence begins at any of four places in
//! a word, so it is known by four words, one for each place. A word costs when it occurs in a log (the sequence is compared)
//! and when it fills the bitmap; a sequence costs when it occurs (its line is taken apart).

use super::bytes::{ByteSet, Sequence, fold};

/// Bytes of a word.
pub(super) const WORD: usize = 4;
/// Bits of the bitmap, as a power of two: 32 KiB, what a core keeps at hand.
pub(super) const BITS: u32 = 18;

/// Nanoseconds to look at a word that is in the bitmap, and at a line that has a sequence. Only their ratio matters.
const WORD_NS: f64 = 10.0;
const LINE_NS: f64 = 1500.0;
/// A word that stands for more than this many is no help.
const WIDTH: usize = 1 << 14;
/// Up to this many are looked up one by one.
const COUNTED: usize = 100;

/// Lines of healthy runs of many tools, written for this purpose.
const SAMPLE: &str = include_str!("healthy.txt");

/// How often words and bytes occur in the sample.
#[derive(Debug)]
pub(super) struct Cost {
    /// Folded words in order, with the part of all positions they take.
    words: Vec<(u32, f64)>,
    bytes: [f64; 256],
    unit: f64,
}

/// Where, from the start of a sequence that begins at each of the four places, its telling word begins.
pub(super) type Offsets = [isize; WORD];

impl Cost {
    pub(super) fn new() -> Self {
        let folded: Vec<u8> = SAMPLE.bytes().map(fold).collect();
        let unit = 1.0 / folded.len().max(1) as f64;
        let mut all: Vec<u32> = folded
            .windows(WORD)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        all.sort_unstable();
        let mut words: Vec<(u32, f64)> = Vec::new();
        for word in all {
            match words.last_mut() {
                Some((last, part)) if *last == word => *part += unit,
                _ => words.push((word, unit)),
            }
        }
        let mut bytes = [unit * 0.1; 256];
        for byte in folded {
            bytes[usize::from(byte)] += unit;
        }
        Self { words, bytes, unit }
    }

    /// Infinite for a sequence that cannot be looked for.
    pub(super) fn of(&self, sequence: &Sequence) -> f64 {
        let Some((_, words)) = self.offsets(sequence) else {
            return f64::INFINITY;
        };
        let whole = sequence.windows(WORD).map(|word| self.part(word));
        let rarest = whole.fold(f64::INFINITY, f64::min);
        let by_bytes: f64 = sequence.iter().map(|set| self.part_of_bytes(set)).product();
        let occurs = if rarest.is_finite() { rarest.max(by_bytes) } else { by_bytes };
        words + occurs * WORD as f64 * LINE_NS
    }

    /// The cheapest words of a sequence and what they cost together; none when one of its places has no word that will do.
    pub(super) fn offsets(&self, sequence: &Sequence) -> Option<(Offsets, f64)> {
        let mut offsets = [0; WORD];
        let mut sum = 0.0;
        for (place, chosen) in offsets.iter_mut().enumerate() {
            let mut best = f64::INFINITY;
            // The first word begins with the byte at which `place` begins, or before it when the sequence is short.
            let mut offset = -isize::try_from(place).ok()?;
            // A sequence that begins in the last byte of a word may begin one byte before the text.
            if place == WORD - 1 {
                offset += WORD as isize;
            }
            while offset < sequence.len() as isize - 1 {
                let cost = self.of_word(&word_at(sequence, offset));
                if cost < best {
                    best = cost;
                    *chosen = offset;
                }
                offset += WORD as isize;
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

    /// The part of all positions of a healthy log at which such a word stands.
    fn part(&self, word: &[ByteSet]) -> f64 {
        let width: usize = word.iter().map(ByteSet::len).product();
        let guess: f64 = word.iter().map(|set| self.part_of_bytes(set)).product();
        if width > COUNTED {
            return guess;
        }
        let mut counted = 0.0;
        for_each_word(word, &mut |word| {
            if let Ok(at) = self.words.binary_search_by_key(&word, |(known, _)| *known) {
                counted += self.words[at].1;
            }
        });
        counted.max(guess.min(self.unit * 0.5))
    }

    fn part_of_bytes(&self, set: &ByteSet) -> f64 {
        set.iter().map(|byte| self.bytes[usize::from(byte)]).sum()
    }
}

/// Four positions of a sequence from an offset; what lies outside may be anything.
pub(super) fn word_at(sequence: &[ByteSet], offset: isize) -> [ByteSet; WORD] {
    let mut word = [ByteSet::any(); WORD];
    for (place, set) in word.iter_mut().enumerate() {
        if let Some(known) = usize::try_from(offset + place as isize).ok().and_then(|at| sequence.get(at)) {
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
