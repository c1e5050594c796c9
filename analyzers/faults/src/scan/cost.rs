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
/// How far before a sequence the first word begins that holds some of it.
const BEFORE: usize = STEP - 1;
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
    /// Folded words in order, their first byte highest, each with the times it occurs.
    words: Vec<(u32, u32)>,
    /// Where the words with each first byte begin, and at last where all end.
    firsts: [usize; 257],
    /// Positions of the sample.
    all: f64,
    bytes: [f64; 256],
    /// What is asked for most, and is many bytes.
    outside: f64,
}

/// A position of a sequence: how many bytes it allows, and how often one of them stands somewhere.
struct Weight {
    set: ByteSet,
    len: usize,
    part: f64,
}

/// Four sets of a sequence: at which part of all positions of a healthy log they stand, and how many words they allow.
struct Word {
    part: f64,
    width: usize,
}

impl Word {
    fn cost(&self) -> f64 {
        if self.width > WIDTH {
            return f64::INFINITY;
        }
        let by_chance = self.width as f64 / f64::from(1_u32 << BITS);
        (self.part + by_chance) * WORD_NS
    }
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

    /// Infinite for a sequence that cannot be looked for.
    pub(super) fn of(&self, sequence: &Sequence) -> f64 {
        let words = self.words_of(sequence);
        let Some((_, looks)) = cheapest(sequence, &words) else {
            return f64::INFINITY;
        };
        // Words that reach beyond an end are no rarer than those within.
        let within = &words[BEFORE..=BEFORE + sequence.len().saturating_sub(WORD)];
        let rarest = within.iter().map(|word| word.part).fold(f64::INFINITY, f64::min);
        looks + rarest * STEP as f64 * LINE_NS
    }

    /// The cheapest words of a sequence; none when one of its places has no word that will do.
    pub(super) fn offsets(&self, sequence: &Sequence) -> Option<Offsets> {
        cheapest(sequence, &self.words_of(sequence)).map(|(offsets, _)| offsets)
    }

    /// The words of a sequence, from the one that begins [`BEFORE`] it to the one of its last two bytes.
    fn words_of(&self, sequence: &Sequence) -> Vec<Word> {
        let weights: Vec<Weight> = sequence.iter().map(|set| self.weight(set)).collect();
        let starts = 0..BEFORE + sequence.len().saturating_sub(1);
        let within = |start: usize| start.saturating_sub(BEFORE)..weights.len().min(start + WORD - BEFORE);
        starts.map(|start| self.word(&weights[within(start)])).collect()
    }

    /// A word of which some is known; what lies outside may be anything.
    fn word(&self, known: &[Weight]) -> Word {
        let width: usize = known.iter().map(|weight| weight.len).product();
        Word {
            part: self.part(known),
            width: width * ByteSet::ANY.len().pow((WORD - known.len()) as u32),
        }
    }

    /// How many positions of a healthy log are in a filter, at a guess.
    pub(super) fn disturbed(&self, filter: &super::Filter) -> f64 {
        let disturbed = self.words.iter().filter(|(word, _)| filter.has(word.swap_bytes()));
        disturbed.map(|(_, times)| f64::from(*times)).sum()
    }

    /// The part of all positions of a healthy log at which such a word, or a shorter one, stands.
    fn part(&self, word: &[Weight]) -> f64 {
        let guess: f64 = word.iter().map(|weight| weight.part).product();
        // Wide sets at the ends are taken by their own frequency, for they are many words.
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
        // What the sample happens not to have is a little rarer than what it has once.
        (f64::from(counted) / self.all * beside).max(guess.min(0.2 / self.all))
    }

    /// How often words stand in the sample that go on from some first bytes with one of each set; the lowest bits are free.
    fn counted(&self, rest: &[Weight], so_far: u32, free: u32) -> u32 {
        let Some((weight, rest)) = rest.split_first() else {
            return self.between(so_far, u64::from(so_far) + (1 << free));
        };
        let free = free - u8::BITS;
        let longer = weight.set.iter().map(|byte| so_far | u32::from(byte) << free);
        longer.map(|longer| self.counted(rest, longer, free)).sum()
    }

    /// Words of the sample from one value to before another, all with one first byte.
    fn between(&self, from: u32, to: u64) -> u32 {
        let first = (from >> (u32::BITS - u8::BITS)) as usize;
        let words = &self.words[self.firsts[first]..self.firsts[first + 1]];
        let start = words.partition_point(|(word, _)| *word < from);
        // They are few, nearly always.
        let inside = words[start..].iter().take_while(|(word, _)| u64::from(*word) < to);
        inside.map(|(_, times)| *times).sum()
    }

    fn weight(&self, set: &ByteSet) -> Weight {
        Weight {
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

/// The cheapest words of a sequence and what they cost together.
fn cheapest(sequence: &Sequence, words: &[Word]) -> Option<(Offsets, f64)> {
    let mut offsets = [0; STEP];
    let mut sum = 0.0;
    for (place, chosen) in offsets.iter_mut().enumerate() {
        let mut best = f64::INFINITY;
        // The word that holds the first byte may begin before it; not when that byte may be the one before the text.
        let mut start = BEFORE - place;
        if place > 0 && sequence.first() == Some(&ByteSet::OUTSIDE_WORD) {
            start += STEP;
        }
        // The last byte alone may be the one behind the text.
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
