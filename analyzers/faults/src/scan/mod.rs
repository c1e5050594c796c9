//! The scanner: where in a large text something stands that a signature could know.
//!
//! It asks a bitmap of the four bytes at every even place of a block; only those that are in it are compared with what was
//! looked for. That needs no look at lines, no table walk from byte to byte, and the questions do
//! not wait for one another. What is looked for is what the patterns cannot do without ([`factor`]), as rare as they allow.
//!
//! Invariant: nothing is missed. When a sequence of an owner stands in a text, or at its edge with the outside of a word
//! beyond, the owner is found wherever it begins. More may be found than is there: letters count in any case, and some other
//! bytes fall together.

mod bytes;
mod cost;
mod factor;

use std::collections::{BTreeMap, BTreeSet};

use bytes::{ByteSet, Sequence, fold, sequence};
use cost::{BITS, Cost, STEP, WORD, for_each_word, word_at};
use factor::Need;

/// Bytes that are asked of the bitmap before the first answer is looked at.
const TILE: usize = 2048;
/// Sets wider than this are left out of a word's key and compared with the rest.
const KEYED: usize = 16;
/// Where frameworks say a word of alarm in every healthy line. Nothing in such a phrase is a find.
const HARMLESS: [&[u8]; 1] = [b"number of nan iterations:   0 |"];
/// What is thought to stand before and behind a text.
const EDGE: u8 = b'\n';

/// Odd numbers with their bits well spread.
const FACTORS: [u32; 6] = [
    0x9e37_79b1,
    0x85eb_ca77,
    0xc2b2_ae3d,
    0x27d4_eb2f,
    0x1656_67b1,
    0xcc9e_2d51,
];

type Bitmap = [u32; 1 << (BITS - 5)];

/// Everything that is looked for.
pub(crate) struct Scanner {
    /// One bit for each hash of a word.
    bitmap: Box<Bitmap>,
    /// Taken times a word, it gives the word's place in the bitmap.
    factor: u32,
    tables: Vec<Table>,
    places: Vec<Place>,
    /// Number of the set of each position, sequence after sequence.
    positions: Vec<u16>,
    sets: Vec<ByteSet>,
    wanted: Vec<Wanted>,
    owners: Vec<u16>,
}

/// Words of which the same bytes are known, in an open table.
struct Table {
    mask: u32,
    shift: u32,
    /// Word, and where its places begin. A word is never zero.
    slots: Vec<(u32, u32)>,
}

impl Table {
    fn new(mask: u32, words: usize) -> Self {
        let bits = (words * 3).next_power_of_two().trailing_zeros().max(4);
        Self {
            mask,
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

/// A sequence, and how far into it the word stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    wanted: u32,
    offset: i16,
    /// The last one of its word.
    last: bool,
}

/// A sequence in `positions` and those who look for it in `owners`.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    from: u32,
    to: u32,
    owners_from: u32,
    owners_to: u32,
}

impl std::fmt::Debug for Scanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanner")
            .field("sequences", &self.wanted.len())
            .finish_non_exhaustive()
    }
}

/// Collects what is looked for.
pub(crate) struct Builder {
    costs: Cost,
    sequences: BTreeMap<Sequence, Vec<u16>>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            costs: Cost::new(),
            sequences: BTreeMap::new(),
        }
    }

    /// What texts need that match a pattern and hold one of some literals in any case: whichever of the two is rarer. None
    /// when neither can be looked for.
    pub(crate) fn need(&self, pattern: Option<&str>, literals: &[impl AsRef<str>]) -> Option<Need> {
        let by_pattern = pattern.and_then(|pattern| factor::need(pattern, &self.costs));
        match (by_pattern, self.literals(literals)) {
            (Some(one), Some(other)) => Some(if other.cost < one.cost { other } else { one }),
            (one, other) => one.or(other),
        }
    }

    /// An owner wants every text that has something of a need.
    pub(crate) fn add(&mut self, owner: u16, need: Need) {
        for sequence in need.sequences {
            let owners = self.sequences.entry(sequence).or_default();
            if !owners.contains(&owner) {
                owners.push(owner);
            }
        }
    }

    fn literals(&self, literals: &[impl AsRef<str>]) -> Option<Need> {
        let sequences: Vec<Sequence> = literals.iter().map(|text| sequence(text.as_ref().as_bytes())).collect();
        let cost: f64 = sequences.iter().map(|sequence| self.costs.of(sequence)).sum();
        (!sequences.is_empty() && cost.is_finite()).then_some(Need { sequences, cost })
    }

    pub(crate) fn build(self) -> Scanner {
        let mut scanner = Scanner {
            bitmap: Box::new([0; 1 << (BITS - 5)]),
            factor: 0,
            tables: Vec::new(),
            places: Vec::new(),
            positions: Vec::new(),
            sets: Vec::new(),
            wanted: Vec::new(),
            owners: Vec::new(),
        };
        let mut numbers: BTreeMap<ByteSet, u16> = BTreeMap::new();
        let mut keyed: BTreeMap<u32, BTreeMap<u32, Vec<Place>>> = BTreeMap::new();
        let mut words = BTreeSet::new();
        for (sequence, owners) in self.sequences {
            let Some((offsets, _)) = self.costs.offsets(&sequence) else {
                continue;
            };
            let number = scanner.wanted.len() as u32;
            for offset in offsets {
                let word = word_at(&sequence, offset);
                for_each_word(&word, &mut |word| {
                    words.insert(word);
                });
                let place = Place {
                    wanted: number,
                    offset: offset as i16,
                    last: false,
                };
                let (mask, key) = key_of(&word);
                for_each_word(&key, &mut |word| {
                    let places = keyed.entry(mask).or_default().entry(word & mask).or_default();
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
            scanner.wanted.push(Wanted {
                from,
                to: scanner.positions.len() as u32,
                owners_from,
                owners_to: scanner.owners.len() as u32,
            });
        }
        for (mask, words) in keyed {
            let mut table = Table::new(mask, words.len());
            for (word, mut places) in words {
                table.insert(word, scanner.places.len() as u32);
                places.last_mut().into_iter().for_each(|place| place.last = true);
                scanner.places.extend(places);
            }
            scanner.tables.push(table);
        }
        // Words fall on the same bits by chance. Of a few factors the one is taken that disturbs a healthy log least.
        let marked = FACTORS.map(|factor| (factor, marked(&words, factor)));
        let best = marked.into_iter().min_by(|(a, left), (b, right)| {
            let [left, right] = [self.costs.disturbed(left, *a), self.costs.disturbed(right, *b)];
            left.total_cmp(&right)
        });
        if let Some((factor, bitmap)) = best {
            scanner.factor = factor;
            scanner.bitmap = bitmap;
        }
        scanner
    }
}

/// The part of a word that is looked up: wide sets are left out of it.
fn key_of(word: &[ByteSet; WORD]) -> (u32, [ByteSet; WORD]) {
    let mut mask = 0;
    let mut key = *word;
    for (place, set) in key.iter_mut().enumerate() {
        if set.len() <= KEYED {
            mask |= 0xff << (8 * place);
        } else {
            *set = ByteSet::of([0]);
        }
    }
    (mask, key)
}

/// Whether a byte is part of a harmless phrase.
fn is_harmless(text: &[u8], inside: usize) -> bool {
    HARMLESS.iter().any(|phrase| {
        let starts = inside.saturating_sub(phrase.len() - 1)..=inside;
        starts.rev().any(|start| text[start..].starts_with(phrase))
    })
}

/// Place of a word in a bitmap: its number there and its bit.
fn bit(word: u32, factor: u32) -> (usize, u32) {
    let at = word.wrapping_mul(factor) >> (32 - BITS);
    ((at >> 5) as usize, at & 31)
}

fn marked(words: &BTreeSet<u32>, factor: u32) -> Box<Bitmap> {
    let mut bitmap = Box::new([0; 1 << (BITS - 5)]);
    for word in words {
        let (at, bit) = bit(*word, factor);
        bitmap[at] |= 1 << bit;
    }
    bitmap
}

impl Scanner {
    /// Calls with each sequence that stands in the text, with its owners and a byte well inside it, word after word from the
    /// one that holds `from` to the one before `to`, until told to stop. A sequence that reaches into the first word may be
    /// among them.
    fn each(&self, text: &[u8], from: usize, to: usize, found: &mut dyn FnMut(&[u16], usize) -> bool) {
        let mut at = from - from % WORD;
        let to = if to + WORD < text.len() {
            to.next_multiple_of(WORD)
        } else {
            text.len()
        };
        let mut first = [0_u16; TILE / WORD];
        let mut second = [0_u16; TILE / WORD];
        while at < to {
            let end = to.min(at + TILE);
            // Words that begin at every fourth byte, and those between them. What has fewer than four bytes left is compared
            // without being asked for.
            let one = self.probe(&text[at..end], &mut first);
            let other = self.probe(
                text.get(at + STEP..text.len().min(end + STEP)).unwrap_or_default(),
                &mut second,
            );
            let (mut one, mut other) = (&first[..one], &second[..other]);
            loop {
                let in_first = match (one.first(), other.first()) {
                    (Some(one), Some(other)) => one <= other,
                    (one, None) if one.is_some() => true,
                    (None, Some(_)) => false,
                    _ => break,
                };
                let (hits, between) = if in_first { (&mut one, 0) } else { (&mut other, STEP) };
                let word = at + usize::from(hits[0]) * WORD + between;
                *hits = &hits[1..];
                if !self.compare(text, word, found) {
                    return;
                }
            }
            at = end;
        }
        if to == text.len() {
            let mut last = to
                .saturating_sub(WORD - 1)
                .next_multiple_of(STEP)
                .max(from - from % WORD);
            while last < to {
                if !self.compare(text, last, found) {
                    return;
                }
                last += STEP;
            }
        }
    }

    /// Which words of a tile are in the bitmap; how many. Nothing here depends on an answer before.
    fn probe(&self, tile: &[u8], hits: &mut [u16; TILE / WORD]) -> usize {
        let mut count = 0;
        for (number, word) in tile.chunks_exact(WORD).enumerate() {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) | 0x2020_2020;
            let (at, bit) = bit(word, self.factor);
            let bit = self.bitmap[at] >> bit & 1;
            hits[count & (TILE / WORD - 1)] = number as u16;
            count += bit as usize;
        }
        count
    }

    /// The sequences that a word is part of, each compared with what stands around it.
    fn compare(&self, text: &[u8], at: usize, found: &mut dyn FnMut(&[u16], usize) -> bool) -> bool {
        let mut word = [EDGE; WORD];
        let rest = &text[at..text.len().min(at + WORD)];
        word[..rest.len()].copy_from_slice(rest);
        let word = u32::from_le_bytes(word) | 0x2020_2020;
        let mut go_on = true;
        for table in &self.tables {
            let Some(from) = table.get(word & table.mask) else {
                continue;
            };
            for place in &self.places[from as usize..] {
                let start = at as isize - isize::from(place.offset);
                let wanted = &self.wanted[place.wanted as usize];
                if self.stands(text, start, wanted) {
                    let owners = &self.owners[wanted.owners_from as usize..wanted.owners_to as usize];
                    let inside = (start + (wanted.to - wanted.from) as isize / 2).max(0) as usize;
                    if !is_harmless(text, inside) {
                        go_on &= found(owners, inside);
                    }
                }
                if place.last {
                    break;
                }
            }
        }
        go_on
    }

    fn stands(&self, text: &[u8], start: isize, wanted: &Wanted) -> bool {
        let positions = &self.positions[wanted.from as usize..wanted.to as usize];
        let past = start + positions.len() as isize;
        // Only the outside of a word may lie beyond the text, and that is one byte.
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

    /// Everyone who wants something that stands in the text.
    pub(crate) fn owners(&self, text: &[u8], wants: &mut dyn FnMut(u16)) {
        self.each(text, 0, text.len(), &mut |owners, _| {
            owners.iter().for_each(|owner| wants(*owner));
            true
        });
    }

    /// Whether anyone wants anything of the text.
    pub(crate) fn wants(&self, text: &[u8]) -> bool {
        self.first_within(text, 0, text.len(), 0).is_some()
    }

    /// A byte inside the first line in which something wanted stands, looking at the words from `at` to `to` and at lines from
    /// `floor` on. Lines before the one that is found may be passed over only if they were looked at before.
    pub(crate) fn first_within(&self, text: &[u8], at: usize, to: usize, floor: usize) -> Option<usize> {
        let mut first: Option<usize> = None;
        self.each(text, at, to, &mut |_, inside| {
            if inside >= floor {
                // One word may hold the end of a line and the start of the next.
                first = Some(first.map_or(inside, |known| known.min(inside)));
            }
            first.is_none()
        });
        first
    }
}

#[cfg(test)]
mod tests;
