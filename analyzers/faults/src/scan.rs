//! Scanner: finds the places in a large text at which a signature may match.
//!
//! It tests the four bytes at every even offset of a block against a bitmap, and those that pass against a second
//! one; only words in both are compared with the searched sequences. This needs no line splitting and no byte-wise
//! automaton, and the tests are independent of each other. The sequences are the required factors of the patterns
//! ([`factor`]), as rare as they allow.
//!
//! Invariant: no false negatives. If a sequence of an owner occurs in a text, or at its edge with the outside of a
//! word beyond, the owner is found at any alignment. False positives are possible: letters match in any case, and
//! some other bytes fold together.

mod bytes;
mod cost;
mod factor;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use bytes::{ByteSequence, ByteSet, fold, sequence};
use cost::{BITS, CostModel, STEP, WORD, for_each_word, word_at};
use factor::SequenceRequirement;

/// Number of bytes that are tested against the first filter before a result is used: a `u64` has a bit for each word
/// in them.
const TILE: usize = 64 * STEP;
/// Tile and the rest of its last word, bytes.
const ASKED: usize = TILE + WORD - STEP;
/// Maximum number of bytes that the scanner reads beyond `to`.
pub(crate) const BEYOND: usize = TILE;
/// Phrases of healthy lines that contain an alarming word. Finds inside them are ignored.
const HARMLESS: [&[u8]; 1] = [b"number of nan iterations:   0 |"];
/// Byte assumed before and after a text.
const EDGE: u8 = b'\n';

/// Odd multipliers with well spread bits.
const FACTORS: [u32; 6] = [
    0x9e37_79b1,
    0x85eb_ca77,
    0xc2b2_ae3d,
    0x27d4_eb2f,
    0x1656_67b1,
    0xcc9e_2d51,
];

type WordBitmap = [u32; 1 << (BITS - 5)];

/// Compiled search for all sequences.
pub(crate) struct SequenceScanner {
    /// Filter for every word.
    first: WordFilter,
    /// Filter for the words that pass the first: most of them collide with another word.
    second: WordFilter,
    table: WordTable,
    places: Vec<WordPlace>,
    /// Index of the set of each position, sequence after sequence.
    positions: Vec<u16>,
    sets: Vec<ByteSet>,
    wanted: Vec<SequenceRange>,
    owners: Vec<u16>,
}

/// Bitmap filter with one bit for each hash of a word.
struct WordFilter {
    bitmap: Box<WordBitmap>,
    /// Multiplier of the hash.
    factor: u32,
}

impl WordFilter {
    fn of(words: &[u32], factor: u32) -> Self {
        let mut bitmap = Box::new([0; 1 << (BITS - 5)]);
        for word in words {
            let (at, bit) = bit(*word, factor);
            bitmap[at] |= 1 << bit;
        }
        Self { bitmap, factor }
    }

    /// Returns true if the word may be among the searched ones.
    fn has(&self, word: u32) -> bool {
        let (at, bit) = bit(word, self.factor);
        self.bitmap[at] >> bit & 1 == 1
    }
}

/// Open-addressing hash table of searched words.
struct WordTable {
    shift: u32,
    /// Word, and start index of its places. A word is never zero.
    slots: Vec<(u32, u32)>,
}

impl WordTable {
    fn new(words: usize) -> Self {
        let bits = (words * 2).next_power_of_two().trailing_zeros().max(4);
        Self {
            shift: 32 - bits,
            slots: vec![(0, 0); 1 << bits],
        }
    }

    fn insert(&mut self, word: u32, from: u32) {
        let mut slot = self.slot(word);
        while self.slots[slot].0 != 0 {
            slot = (slot + 1) % self.slots.len();
        }
        self.slots[slot] = (word, from);
    }

    fn get(&self, word: u32) -> Option<u32> {
        let mut slot = self.slot(word);
        loop {
            match self.slots[slot] {
                (known, from) if known == word => return Some(from),
                (0, _) => return None,
                _ => slot = (slot + 1) & (self.slots.len() - 1),
            }
        }
    }

    fn slot(&self, word: u32) -> usize {
        (word.wrapping_mul(0x85eb_ca6b) >> self.shift) as usize
    }
}

/// Sequence, and the offset of the word in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WordPlace {
    wanted: u32,
    offset: i16,
    /// Required bytes in the four bytes before the word and after it.
    before: MaskedWord,
    behind: MaskedWord,
    /// True for the last place of its word.
    last: bool,
}

/// Four bytes of which some are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MaskedWord {
    mask: u32,
    word: u32,
}

impl MaskedWord {
    /// Returns those of the four positions of a sequence from an offset that allow only one byte.
    fn of(sequence: &[ByteSet], offset: isize) -> Self {
        let mut known = Self { mask: 0, word: 0 };
        for (place, set) in word_at(sequence, offset).iter().enumerate() {
            if let (1, Some(byte)) = (set.len(), set.iter().next()) {
                known.mask |= 0xff << (8 * place);
                known.word |= u32::from(byte) << (8 * place);
            }
        }
        known
    }

    /// Returns true if the bytes are compatible; without enough text there is nothing to compare.
    fn allows(self, bytes: Option<&[u8]>) -> bool {
        bytes.is_none_or(|bytes| word_of(bytes) & self.mask == self.word)
    }
}

/// Sequence as a range of `positions`, with its owners as a range of `owners`.
#[derive(Debug, Clone, Copy)]
struct SequenceRange {
    from: u32,
    to: u32,
    owners_from: u32,
    owners_to: u32,
}

impl std::fmt::Debug for SequenceScanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanner")
            .field("sequences", &self.wanted.len())
            .finish_non_exhaustive()
    }
}

/// Builder of a scanner.
pub(crate) struct ScannerBuilder {
    costs: CostModel,
    sequences: BTreeMap<ByteSequence, Vec<u16>>,
}

impl ScannerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            costs: CostModel::new(),
            sequences: BTreeMap::new(),
        }
    }

    /// Returns the requirement of texts that match a pattern and hold one of some literals in any case: the rarer of
    /// the two. None if neither can be searched for. If the literals are rare the pattern is not parsed, because
    /// parsing takes most of the start-up time of a program.
    pub(crate) fn need(&self, pattern: Option<&str>, literals: &[impl AsRef<str>]) -> Option<SequenceRequirement> {
        let by_literals = self.literals(literals);
        if by_literals.as_ref().is_some_and(SequenceRequirement::is_rare) {
            return by_literals;
        }
        let by_pattern = pattern.and_then(|pattern| factor::need(pattern, &self.costs));
        factor::cheaper(by_pattern, by_literals)
    }

    /// Registers an owner for every text that meets the requirement.
    pub(crate) fn add(&mut self, owner: u16, need: SequenceRequirement) {
        for sequence in need.sequences {
            let owners = self.sequences.entry(sequence).or_default();
            if !owners.contains(&owner) {
                owners.push(owner);
            }
        }
    }

    fn literals(&self, literals: &[impl AsRef<str>]) -> Option<SequenceRequirement> {
        let sequences: Vec<ByteSequence> = literals.iter().map(|text| sequence(text.as_ref().as_bytes())).collect();
        let cost: f64 = sequences.iter().map(|sequence| self.costs.of(sequence)).sum();
        (!sequences.is_empty() && cost.is_finite()).then_some(SequenceRequirement { sequences, cost })
    }

    pub(crate) fn build(self) -> SequenceScanner {
        let mut scanner = SequenceScanner {
            first: WordFilter::of(&[], FACTORS[0]),
            second: WordFilter::of(&[], FACTORS[1]),
            table: WordTable::new(0),
            places: Vec::new(),
            positions: Vec::new(),
            sets: Vec::new(),
            wanted: Vec::new(),
            owners: Vec::new(),
        };
        let mut numbers: BTreeMap<ByteSet, u16> = BTreeMap::new();
        let mut keyed: BTreeMap<u32, Vec<WordPlace>> = BTreeMap::new();
        for (sequence, owners) in self.sequences {
            let Some(offsets) = self.costs.offsets(&sequence) else {
                continue;
            };
            let number = scanner.wanted.len() as u32;
            for offset in offsets {
                let word = word_at(&sequence, offset);
                let place = WordPlace {
                    wanted: number,
                    offset: offset as i16,
                    before: MaskedWord::of(&sequence, offset - WORD as isize),
                    behind: MaskedWord::of(&sequence, offset + WORD as isize),
                    last: false,
                };
                for_each_word(&word, &mut |word| {
                    let places = keyed.entry(word).or_default();
                    if !places.contains(&place) {
                        places.push(place);
                    }
                });
            }
            let from = scanner.positions.len() as u32;
            for set in sequence {
                let next = numbers.len() as u16;
                let number = *numbers.entry(set).or_insert_with(|| {
                    scanner.sets.push(set);
                    next
                });
                scanner.positions.push(number);
            }
            let owners_from = scanner.owners.len() as u32;
            scanner.owners.extend(owners);
            scanner.wanted.push(SequenceRange {
                from,
                to: scanner.positions.len() as u32,
                owners_from,
                owners_to: scanner.owners.len() as u32,
            });
        }
        let words: Vec<u32> = keyed.keys().copied().collect();
        scanner.table = WordTable::new(words.len());
        for (word, mut places) in keyed {
            scanner.table.insert(word, scanner.places.len() as u32);
            places.last_mut().into_iter().for_each(|place| place.last = true);
            scanner.places.extend(places);
        }
        // Words collide by chance. Of a few multipliers, those with the fewest collisions on a healthy log are used.
        let mut filters = FACTORS.map(|factor| WordFilter::of(&words, factor));
        filters.sort_by(|a, b| self.costs.disturbed(a).total_cmp(&self.costs.disturbed(b)));
        let [first, second, ..] = filters;
        scanner.first = first;
        scanner.second = second;
        scanner
    }
}

/// Returns true if the byte is part of a harmless phrase.
fn is_harmless(text: &[u8], inside: usize) -> bool {
    HARMLESS.iter().any(|phrase| {
        let starts = inside.saturating_sub(phrase.len() - 1)..=inside;
        starts.rev().any(|start| text[start..].starts_with(phrase))
    })
}

/// Returns true if the text contains a harmless phrase.
pub(crate) fn has_harmless(text: &[u8]) -> bool {
    static FINDERS: LazyLock<[Finder<'static>; HARMLESS.len()]> = LazyLock::new(|| HARMLESS.map(Finder::new));
    FINDERS.iter().any(|phrase| phrase.find(text).is_some())
}

/// Returns the folded word of four bytes.
fn word_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) | 0x2020_2020
}

/// Returns the position of a word in a bitmap: element index and bit.
fn bit(word: u32, factor: u32) -> (usize, u32) {
    let at = word.wrapping_mul(factor) >> (32 - BITS);
    ((at >> 5) as usize, at & 31)
}

impl SequenceScanner {
    /// Calls `found` for each sequence in the text, with its owners and the offset of a byte well inside it, in order
    /// of words from the one at `from` to the one before `to`, until it returns false. A sequence that reaches into
    /// the first word may be included, and some from the [`BEYOND`] bytes after `to`.
    pub(crate) fn each(&self, text: &[u8], from: usize, to: usize, found: &mut dyn FnMut(&[u16], usize) -> bool) {
        let mut at = from - from % WORD;
        while at < to {
            let Some(tile) = text.get(at..).and_then(<[u8]>::first_chunk) else {
                break;
            };
            let mut hits = self.probe(tile);
            while hits != 0 {
                let place = hits.leading_zeros();
                hits ^= 1 << (63 - place);
                let place = place as usize * STEP;
                if self.second.has(word_of(&tile[place..])) && !self.compare(text, at + place, found) {
                    return;
                }
            }
            at += TILE;
        }
        // Words after the last full tile, and at the end a word with fewer than four bytes.
        while at < to {
            let asked = text
                .get(at..at + WORD)
                .is_none_or(|word| self.first.has(word_of(word)) && self.second.has(word_of(word)));
            if asked && !self.compare(text, at, found) {
                return;
            }
            at += STEP;
        }
    }

    /// Returns the words of a tile that pass the first filter, the first word in the highest bit. No test depends on
    /// another.
    fn probe(&self, tile: &[u8; ASKED]) -> u64 {
        let mut hits = 0;
        for place in (0..TILE).step_by(STEP) {
            hits = hits << 1 | u64::from(self.first.has(word_of(&tile[place..place + WORD])));
        }
        hits
    }

    /// Compares each sequence that contains the word with the text around it.
    fn compare(&self, text: &[u8], at: usize, found: &mut dyn FnMut(&[u16], usize) -> bool) -> bool {
        let mut word = [EDGE; WORD];
        let rest = &text[at..text.len().min(at + WORD)];
        word[..rest.len()].copy_from_slice(rest);
        let word = word_of(&word);
        let Some(from) = self.table.get(word) else { return true };
        let before = at.checked_sub(WORD).map(|start| &text[start..at]);
        let behind = text.get(at + WORD..at + 2 * WORD);
        let mut go_on = true;
        for place in &self.places[from as usize..] {
            if place.before.allows(before) && place.behind.allows(behind) {
                go_on &= self.compare_place(text, at, place, found);
            }
            if place.last {
                break;
            }
        }
        go_on
    }

    fn compare_place(
        &self,
        text: &[u8],
        at: usize,
        place: &WordPlace,
        found: &mut dyn FnMut(&[u16], usize) -> bool,
    ) -> bool {
        let start = at as isize - isize::from(place.offset);
        let wanted = &self.wanted[place.wanted as usize];
        let inside = (start + (wanted.to - wanted.from) as isize / 2).max(0) as usize;
        if !self.stands(text, start, wanted) || is_harmless(text, inside) {
            return true;
        }
        found(
            &self.owners[wanted.owners_from as usize..wanted.owners_to as usize],
            inside,
        )
    }

    fn stands(&self, text: &[u8], start: isize, wanted: &SequenceRange) -> bool {
        let positions = &self.positions[wanted.from as usize..wanted.to as usize];
        let past = start + positions.len() as isize;
        // Only the outside of a word may lie beyond the text, and it is one byte.
        if start < -1 || past > text.len() as isize + 1 {
            return false;
        }
        positions.iter().zip(start..).all(|(set, at)| {
            let byte = usize::try_from(at)
                .ok()
                .and_then(|at| text.get(at))
                .copied()
                .unwrap_or(EDGE);
            self.sets[usize::from(*set)].contains(fold(byte))
        })
    }

    /// Calls the callback with every owner that has a sequence in the text.
    pub(crate) fn owners(&self, text: &[u8], wants: &mut dyn FnMut(u16)) {
        self.each(text, 0, text.len(), &mut |owners, _| {
            owners.iter().for_each(|owner| wants(*owner));
            true
        });
    }

    /// Returns true if any sequence occurs in the text.
    pub(crate) fn wants(&self, text: &[u8]) -> bool {
        let mut any = false;
        self.each(text, 0, text.len(), &mut |_, _| {
            any = true;
            false
        });
        any
    }
}

#[cfg(test)]
mod tests;
