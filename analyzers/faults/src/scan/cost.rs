//! Cost of searching for a sequence in a healthy log, estimated from a small sample.
//!
//! The scanner reads the four bytes at every even offset of a text. A sequence begins at an even or an odd offset, so
//! two such words identify it. A word costs when it occurs in a log (the sequence is compared) and when it fills the
//! bitmap; a sequence costs when it occurs (its line is parsed).

use super::bytes::{ByteSequence, ByteSet, fold};

/// Size of a word, bytes.
pub(super) const WORD: usize = 4;
/// Distance from one word to the next, bytes.
pub(super) const STEP: usize = 2;
/// Distance before a sequence at which the first word that overlaps it begins, bytes.
const BEFORE: usize = STEP - 1;
/// Size of the bitmap in bits, as a power of two: 128 KiB, which fits into a core's cache.
pub(super) const BITS: u32 = 20;

/// Nanoseconds to examine a word that is in the bitmap, and a line that contains a sequence. Only their ratio
/// matters.
const WORD_NS: f64 = 10.0;
const LINE_NS: f64 = 1500.0;
/// Maximum number of words that a usable word may denote.
const WIDTH: usize = 1 << 12;
/// Maximum number of words that are looked up one by one.
const COUNTED: usize = 32;
/// Sets wider than this are not letters or digits.
const NARROW: usize = 24;

/// Lines of healthy runs of many tools, written for this purpose.
const SAMPLE: &str = include_str!("healthy.txt");

/// Frequency of words and bytes in the sample.
#[derive(Debug)]
pub(super) struct CostModel {
    /// Folded words, ascending with the first byte highest, each with its number of occurrences.
    words: Vec<(u32, u32)>,
    /// Start index of the words with each first byte, and the end.
    firsts: [usize; 257],
    /// Number of positions in the sample.
    all: f64,
    bytes: [f64; 256],
    /// Frequency of [`ByteSet::OUTSIDE_WORD`], precomputed because it is the most used wide set.
    outside: f64,
}

/// Position of a sequence: number of bytes it allows, and their frequency.
struct ByteWeight {
    set: ByteSet,
    len: usize,
    part: f64,
}

/// Four sets of a sequence: fraction of the positions of a healthy log at which they match, and number of words they
/// allow.
struct WordCost {
    part: f64,
    width: usize,
}

impl WordCost {
    fn cost(&self) -> f64 {
        if self.width > WIDTH {
            return f64::INFINITY;
        }
        let by_chance = self.width as f64 / f64::from(1_u32 << BITS);
        (self.part + by_chance) * WORD_NS
    }
}

/// Offsets of the identifying word from the start of a sequence that begins at an even offset, and of one at an odd
/// offset.
pub(super) type WordOffsets = [isize; STEP];

impl CostModel {
    pub(super) fn new() -> Self {
        let folded: Vec<u8> = SAMPLE.bytes().map(fold).collect();
        let mut words: Vec<u32> = folded
            .windows(WORD)
            .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        words.sort_unstable();
        let words: Vec<(u32, u32)> = words
            .chunk_by(|one, other| one == other)
            .map(|same| (same[0], same.len() as u32))
            .collect();
        let firsts = std::array::from_fn(|first| words.partition_point(|(word, _)| ((word >> 24) as usize) < first));
        let all = folded.len().max(1) as f64;
        let mut bytes = [0.1 / all; 256];
        for byte in folded {
            bytes[usize::from(byte)] += 1.0 / all;
        }
        let outside = ByteSet::OUTSIDE_WORD.iter().map(|byte| bytes[usize::from(byte)]).sum();
        Self {
            words,
            firsts,
            all,
            bytes,
            outside,
        }
    }

    /// Returns the cost; infinite for a sequence that cannot be searched for.
    pub(super) fn of(&self, sequence: &ByteSequence) -> f64 {
        let words = self.words_of(sequence);
        let Some((_, looks)) = cheapest(sequence, &words) else {
            return f64::INFINITY;
        };
        // Words that reach beyond an end are no rarer than those within.
        let within = &words[BEFORE..=BEFORE + sequence.len().saturating_sub(WORD)];
        let rarest = within.iter().map(|word| word.part).fold(f64::INFINITY, f64::min);
        looks + rarest * STEP as f64 * LINE_NS
    }

    /// Returns the cheapest words of a sequence; none if one of its alignments has no usable word.
    pub(super) fn offsets(&self, sequence: &ByteSequence) -> Option<WordOffsets> {
        cheapest(sequence, &self.words_of(sequence)).map(|(offsets, _)| offsets)
    }

    /// Returns the words of a sequence, from the one that begins [`BEFORE`] it to the one of its last two bytes.
    fn words_of(&self, sequence: &ByteSequence) -> Vec<WordCost> {
        let weights: Vec<ByteWeight> = sequence.iter().map(|set| self.weight(set)).collect();
        let starts = 0..BEFORE + sequence.len().saturating_sub(1);
        let within = |start: usize| start.saturating_sub(BEFORE)..weights.len().min(start + WORD - BEFORE);
        starts.map(|start| self.word(&weights[within(start)])).collect()
    }

    /// Returns a word of which some positions are known; the others may be anything.
    fn word(&self, known: &[ByteWeight]) -> WordCost {
        let width: usize = known.iter().map(|weight| weight.len).product();
        WordCost {
            part: self.part(known),
            width: width * ByteSet::ANY.len().pow((WORD - known.len()) as u32),
        }
    }

    /// Returns the estimated number of positions of a healthy log that pass a filter.
    pub(super) fn disturbed(&self, filter: &super::WordFilter) -> f64 {
        let disturbed = self.words.iter().filter(|(word, _)| filter.has(word.swap_bytes()));
        disturbed.map(|(_, times)| f64::from(*times)).sum()
    }

    /// Returns the fraction of all positions of a healthy log at which such a word, or a shorter one, matches.
    fn part(&self, word: &[ByteWeight]) -> f64 {
        let guess: f64 = word.iter().map(|weight| weight.part).product();
        // Wide sets at the ends are weighted by their own frequency, because they denote many words.
        let mut known = word;
        let mut beside = 1.0;
        while let Some((weight, rest)) = known.split_first().filter(|(weight, _)| weight.len > NARROW) {
            beside *= weight.part;
            known = rest;
        }
        while let Some((weight, rest)) = known.split_last().filter(|(weight, _)| weight.len > NARROW) {
            beside *= weight.part;
            known = rest;
        }
        let width: usize = known.iter().map(|weight| weight.len).product();
        if known.is_empty() || width > COUNTED {
            return guess;
        }
        let counted = self.counted(known, 0, u32::BITS);
        // A word that the sample lacks is assumed to be a little rarer than one that occurs once.
        (f64::from(counted) / self.all * beside).max(guess.min(0.2 / self.all))
    }

    /// Counts sample words that begin with the bytes in `so_far` and continue with one of each set; the lowest `free`
    /// bits are open.
    fn counted(&self, rest: &[ByteWeight], so_far: u32, free: u32) -> u32 {
        let Some((weight, rest)) = rest.split_first() else {
            return self.between(so_far, u64::from(so_far) + (1 << free));
        };
        let free = free - u8::BITS;
        let longer = weight.set.iter().map(|byte| so_far | u32::from(byte) << free);
        longer.map(|longer| self.counted(rest, longer, free)).sum()
    }

    /// Counts sample words from one value to before another, all with the same first byte.
    fn between(&self, from: u32, to: u64) -> u32 {
        let first = (from >> (u32::BITS - u8::BITS)) as usize;
        let words = &self.words[self.firsts[first]..self.firsts[first + 1]];
        let start = words.partition_point(|(word, _)| *word < from);
        // Nearly always only a few.
        let inside = words[start..].iter().take_while(|(word, _)| u64::from(*word) < to);
        inside.map(|(_, times)| *times).sum()
    }

    fn weight(&self, set: &ByteSet) -> ByteWeight {
        ByteWeight {
            set: *set,
            len: set.len(),
            part: match *set {
                ByteSet::ANY => 1.0,
                ByteSet::OUTSIDE_WORD => self.outside,
                _ => set.iter().map(|byte| self.bytes[usize::from(byte)]).sum(),
            },
        }
    }
}

/// Returns the cheapest words of a sequence and their total cost.
fn cheapest(sequence: &ByteSequence, words: &[WordCost]) -> Option<(WordOffsets, f64)> {
    let mut offsets = [0; STEP];
    let mut sum = 0.0;
    for (place, chosen) in offsets.iter_mut().enumerate() {
        let mut best = f64::INFINITY;
        // The word with the first byte may begin before it, unless that byte may be the one before the text.
        let mut start = BEFORE - place;
        if place > 0 && sequence.first() == Some(&ByteSet::OUTSIDE_WORD) {
            start += STEP;
        }
        // The last byte alone may be the one after the text.
        while let Some(word) = words.get(start) {
            let cost = word.cost();
            if cost < best {
                best = cost;
                *chosen = start as isize - BEFORE as isize;
            }
            start += STEP;
        }
        sum += best;
    }
    sum.is_finite().then_some((offsets, sum))
}

/// Returns four positions of a sequence from an offset; positions outside it may be anything.
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

/// Calls `found` with every word that four sets allow, its first byte lowest.
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
