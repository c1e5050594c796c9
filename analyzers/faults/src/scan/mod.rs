//! The scanner: where in a large text something stands that a signature could know.
//!
//! It reads a block in words of four bytes, one after the other, and asks a bitmap of every word; only words that are in it
//! are compared with what was looked for. That needs no look at lines, no table walk from byte to byte, and the questions do
//! not wait for one another. What is looked for is what the patterns cannot do without ([`factor`]), as rare as they allow.
//!
//! Invariant: nothing is missed. When a sequence of an owner stands in a text, or at its edge with the outside of a word
//! beyond, the owner is found wherever it begins. More may be found than is there: letters count in any case, and some other
//! bytes fall together.

mod bytes;
mod cost;
mod factor;

use std::collections::BTreeMap;

use bytes::{ByteSet, Sequence, fold, sequence};
use cost::{BITS, Cost, WORD, for_each_word, word_at};
use factor::Need;

/// Bytes that are asked of the bitmap before the first answer is looked at.
const TILE: usize = 2048;
/// Sets wider than this are left out of a word's key and compared with the rest.
const KEYED: usize = 16;
/// What is thought to stand before and behind a text.
const EDGE: u8 = b'\n';

/// Everything that is looked for.
pub(crate) struct Scanner {
    /// One bit for each hash of a word.
    bitmap: Box<[u32; 1 << (BITS - 5)]>,
    /// Which bytes of a word can tell sequences: every mask that `keys` uses.
    masks: Vec<u32>,
    /// Open table over masked words: key, and where its places begin and end in `places`.
    keys: Vec<Option<Key>>,
    places: Vec<Place>,
    /// Number of the set of each position, sequence after sequence.
    positions: Vec<u16>,
    sets: Vec<ByteSet>,
    wanted: Vec<Wanted>,
    owners: Vec<u16>,
}

#[derive(Debug, Clone, Copy)]
struct Key {
    word: u32,
    mask: u32,
    from: u32,
    to: u32,
}

/// A sequence, and how far into it the word stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    wanted: u32,
    offset: i16,
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
        f.debug_struct("Scanner").field("sequences", &self.wanted.len()).finish_non_exhaustive()
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

    /// An owner that wants texts which match a pattern and hold one of some literals in any case: whichever of the two is
    /// rarer is looked for. False when neither can be: the owner would have to see every text.
    pub(crate) fn add(&mut self, owner: u16, pattern: Option<&str>, literals: &[impl AsRef<str>]) -> bool {
        let by_pattern = pattern.and_then(|pattern| factor::need(pattern, &self.costs));
        let by_literals = self.literals(literals);
        let need = match (by_pattern, by_literals) {
            (Some(one), Some(other)) if other.cost < one.cost => other,
            (Some(one), _) => one,
            (None, Some(other)) => other,
            (None, None) => return false,
        };
        for sequence in need.sequences {
            let owners = self.sequences.entry(sequence).or_default();
            if !owners.contains(&owner) {
                owners.push(owner);
            }
        }
        true
    }

    fn literals(&self, literals: &[impl AsRef<str>]) -> Option<Need> {
        let sequences: Vec<Sequence> = literals.iter().map(|text| sequence(text.as_ref().as_bytes())).collect();
        let cost: f64 = sequences.iter().map(|sequence| self.costs.of(sequence)).sum();
        (!sequences.is_empty() && cost.is_finite()).then_some(Need { sequences, cost })
    }

    pub(crate) fn build(self) -> Scanner {
        let mut scanner = Scanner {
            bitmap: Box::new([0; 1 << (BITS - 5)]),
            masks: Vec::new(),
            keys: Vec::new(),
            places: Vec::new(),
            positions: Vec::new(),
            sets: Vec::new(),
            wanted: Vec::new(),
            owners: Vec::new(),
        };
        let mut numbers: BTreeMap<ByteSet, u16> = BTreeMap::new();
        let mut keyed: BTreeMap<(u32, u32), Vec<Place>> = BTreeMap::new();
        for (sequence, owners) in self.sequences {
            let Some((offsets, _)) = self.costs.offsets(&sequence) else { continue };
            let number = scanner.wanted.len() as u32;
            for offset in offsets {
                let word = word_at(&sequence, offset);
                for_each_word(&word, &mut |word| scanner.mark(word));
                let place = Place {
                    wanted: number,
                    offset: offset as i16,
                };
                let (mask, key) = key_of(&word);
                for_each_word(&key, &mut |word| {
                    let places = keyed.entry((mask, word & mask)).or_default();
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
        scanner.fill(keyed);
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

fn hash(word: u32) -> u32 {
    word.wrapping_mul(0x9e37_79b1)
}

impl Scanner {
    fn mark(&mut self, word: u32) {
        let at = hash(word) >> (32 - BITS);
        self.bitmap[(at >> 5) as usize] |= 1 << (at & 31);
    }

    fn fill(&mut self, keyed: BTreeMap<(u32, u32), Vec<Place>>) {
        let size = (keyed.len() * 2).next_power_of_two().max(2);
        self.keys = vec![None; size];
        for ((mask, word), places) in keyed {
            if !self.masks.contains(&mask) {
                self.masks.push(mask);
            }
            let from = self.places.len() as u32;
            self.places.extend(places);
            let key = Key {
                word,
                mask,
                from,
                to: self.places.len() as u32,
            };
            let mut slot = self.slot(word, mask);
            while self.keys[slot].is_some() {
                slot = (slot + 1) & (size - 1);
            }
            self.keys[slot] = Some(key);
        }
    }

    fn slot(&self, word: u32, mask: u32) -> usize {
        let mixed = u64::from(hash(word ^ mask.rotate_left(7))) * self.keys.len() as u64;
        (mixed >> 32) as usize
    }

    /// Calls with each sequence that stands in the text, with its owners and a byte well inside it, word after word from the
    /// one that holds `from` to the one before `to`, until told to stop. A sequence that reaches into the first word may be among them.
    fn each(&self, text: &[u8], from: usize, to: usize, found: &mut dyn FnMut(&[u16], usize) -> bool) {
        let mut at = from - from % WORD;
        let to = text.len().min(to.next_multiple_of(WORD));
        let mut hits = [0_u16; TILE / WORD];
        while at + WORD <= to {
            let end = to.min(at + TILE);
            let tile = &text[at..end];
            let count = self.probe(tile, &mut hits);
            for hit in &hits[..count] {
                if !self.compare(text, at + usize::from(*hit) * WORD, found) {
                    return;
                }
            }
            at += tile.len() / WORD * WORD;
        }
        if at < to {
            self.compare(text, at, found);
        }
    }

    /// Which words of a tile are in the bitmap; how many. Nothing here depends on an answer before.
    fn probe(&self, tile: &[u8], hits: &mut [u16; TILE / WORD]) -> usize {
        let mut count = 0;
        for (number, word) in tile.chunks_exact(WORD).enumerate() {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) | 0x2020_2020;
            let at = hash(word) >> (32 - BITS);
            let bit = self.bitmap[(at >> 5) as usize] >> (at & 31) & 1;
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
        for &mask in &self.masks {
            let Some(key) = self.look_up(word & mask, mask) else { continue };
            for place in &self.places[key.from as usize..key.to as usize] {
                let start = at as isize - isize::from(place.offset);
                let wanted = &self.wanted[place.wanted as usize];
                if self.stands(text, start, wanted) {
                    let owners = &self.owners[wanted.owners_from as usize..wanted.owners_to as usize];
                    let inside = start + (wanted.to - wanted.from) as isize / 2;
                    go_on &= found(owners, inside.max(0) as usize);
                }
            }
        }
        go_on
    }

    fn look_up(&self, word: u32, mask: u32) -> Option<&Key> {
        let mut slot = self.slot(word, mask);
        while let Some(key) = &self.keys[slot] {
            if key.word == word && key.mask == mask {
                return Some(key);
            }
            slot = (slot + 1) & (self.keys.len() - 1);
        }
        None
    }

    fn stands(&self, text: &[u8], start: isize, wanted: &Wanted) -> bool {
        let positions = &self.positions[wanted.from as usize..wanted.to as usize];
        let past = start + positions.len() as isize;
        // Only the outside of a word may lie beyond the text, and that is one byte.
        if start < -1 || past > text.len() as isize + 1 {
            return false;
        }
        positions.iter().zip(start..).all(|(set, at)| {
            let byte = usize::try_from(at).ok().and_then(|at| text.get(at)).copied().unwrap_or(EDGE);
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
