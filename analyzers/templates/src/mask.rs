//! A line in, its shape out: what looks like a value is masked, in one pass, without regex and without allocation.
//!
//! A **shape** is the line with single spaces between its tokens and `<*>` for every value. It depends on the line and
//! on nothing else: this is what makes ids the same on every node and in every run.
//!
//! Bytes fall into four kinds. *Word* bytes (letters, digits, `_`, everything that is not ASCII) and *joints*
//! (`. : - / , @ + % ~ # * $ \`) make up **compounds**; *breaks* (brackets, quotes, `=` and the like) and spaces end them.
//! A compound is copied unless it holds a digit or a slash, is very long, or is the name of a day or month. What is masked:
//!
//! - paths and addresses with `//` (a leading slash with a word behind it, or two slashes);
//! - compounds of hex words only: numbers, moments, IPv4 and IPv6 addresses with ports, MAC and PCI addresses, UUIDs;
//! - of other compounds each word with a digit, where letters before a number at the word's end stay: `rank<*>`,
//!   `mlx<*>`, `blk_<*>`, but `<*>` alone for `54fadb41`, `12ms`, `x86_64`;
//! - quoted strings of more than [`QUOTE_LIMIT`] bytes, and words of more than [`WORD_LIMIT`] bytes.
//!
//! Neighbouring masks become one (`<*>.<*>.<*>:<*>` is `<*>`), and so do equal tokens in a row that hold nothing else, so
//! that lists and bars of any length have one shape. ANSI escapes and bar glyphs are dropped. `nan` and `inf` stay: they
//! are news, not values.

mod value;

use value::{DIGIT, END, JOINT, KINDS, NOT_HEX, QUOTE, RARE, SLASH, SPACE};
use value::{escape, host, is_address, is_calendar, is_path, is_unit, number, plain, query};

/// Quoted strings longer than this many bytes are values.
pub(crate) const QUOTE_LIMIT: usize = 256;
/// Words longer than this many bytes are values.
pub(crate) const WORD_LIMIT: usize = 64;
/// What stands for a value in a shape.
pub const MASK: &str = "<*>";

/// Units with the punctuation after them are at most this long.
const UNIT_LIMIT: usize = 4;
const MASK_BYTES: &[u8] = MASK.as_bytes();
/// How far the end of a quoted string is looked for.
const QUOTE_REACH: usize = 1024;
/// Marks like `=====` are cut to this many.
const RUN_LIMIT: usize = 3;

/// What bounds a shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Tokens of a shape; the rest of the line is not looked at.
    pub(crate) tokens: usize,
    /// Bytes of a shape; the rest of the line is not looked at.
    pub(crate) bytes: usize,
}

/// A shape and what was left out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Masked {
    /// Tokens in the shape.
    pub(crate) tokens: usize,
    /// Whether the line went on after the shape's bounds.
    pub(crate) cut: bool,
}

/// Writes the shape of `line` into `shape`, which is emptied first. `line` must be UTF-8 for the shape to be; any bytes do.
pub(crate) fn mask(line: &[u8], bounds: Bounds, shape: &mut Vec<u8>) -> Masked {
    shape.clear();
    let mut pass = Pass {
        line,
        shape,
        copied: 0,
        token: 0,
        previous: 0..0,
        masked: false,
        mask_end: 0,
        tokens: 0,
    };
    let cut = pass.run(bounds);
    Masked {
        tokens: pass.tokens,
        cut,
    }
}

struct Pass<'a> {
    line: &'a [u8],
    shape: &'a mut Vec<u8>,
    /// The line up to here is in the shape or dropped from it; what follows is copied when the next change comes.
    copied: usize,
    /// Where the current token starts in the shape; exact once the token has a mask, which is when it is read.
    token: usize,
    /// Where the token before, if it had a mask, stands in the shape.
    previous: std::ops::Range<usize>,
    /// Whether the current token has a mask.
    masked: bool,
    /// Where its last mask ends in the shape.
    mask_end: usize,
    tokens: usize,
}

impl Pass<'_> {
    fn run(&mut self, bounds: Bounds) -> bool {
        let mut at = 0;
        // Where the token before ended.
        let mut end = 0;
        loop {
            at = self.skip_spaces(at);
            if at >= self.line.len() {
                break;
            }
            if self.tokens == bounds.tokens {
                self.finish(end, bounds.bytes);
                return true;
            }
            let digit = self.line[at].is_ascii_digit();
            if !digit
                && let Some(length) = plain(&self.line[at..])
                && (self.previous.is_empty() || length > UNIT_LIMIT)
            {
                // Most tokens: they wait to be copied together with their neighbours, unless the space between differs.
                let goes_on = at == end + 1 && self.line[end] == b' ' && (self.copied < end || !self.shape.is_empty());
                if !goes_on {
                    self.start_token(at, end);
                }
                self.previous = 0..0;
                self.tokens += 1;
                at += length;
                end = at;
                continue;
            }
            self.start_token(at, end);
            self.masked = false;
            self.token = self.shape.len();
            if digit && let Some(length) = number(&self.line[at..]) {
                at += length;
                self.copied = at;
                if self.shape[self.previous.clone()] == *MASK_BYTES {
                    self.shape.truncate(self.token - 1);
                } else {
                    self.shape.extend_from_slice(MASK_BYTES);
                    self.previous = self.token..self.shape.len();
                    self.tokens += 1;
                }
                end = at;
                continue;
            }
            at = self.token_from(at);
            end = at;
            self.end_token(at);
            if self.shape.len() > bounds.bytes {
                self.cut(bounds.bytes);
                return true;
            }
        }
        self.finish(end, bounds.bytes)
    }

    /// Copies what waits, up to `end`, and keeps to the limit; tells whether it was exceeded.
    fn finish(&mut self, end: usize, limit: usize) -> bool {
        self.flush(end);
        let over = self.shape.len() > limit;
        if over {
            self.cut(limit);
        }
        over
    }

    /// Copies what waits, up to `end`, and begins anew at `at`.
    fn start_token(&mut self, at: usize, end: usize) {
        self.flush(end);
        if !self.shape.is_empty() {
            self.shape.push(b' ');
        }
        self.copied = at;
    }

    /// Takes off the tokens over `limit`, or the end of the only one.
    fn cut(&mut self, limit: usize) {
        while self.shape.len() > limit && self.tokens > 1 {
            self.tokens -= 1;
            let space = self.shape.iter().rposition(|b| *b == b' ').unwrap_or(0);
            self.shape.truncate(space);
        }
        if self.shape.len() > limit {
            let mut end = limit;
            while end > 0 && self.shape[end] & 0xc0 == 0x80 {
                end -= 1;
            }
            self.shape.truncate(end);
            self.tokens = usize::from(end > 0);
        }
    }

    fn skip_spaces(&self, mut at: usize) -> usize {
        while let Some(&byte) = self.line.get(at) {
            let kind = KINDS[usize::from(byte)];
            if kind & SPACE == 0 {
                break;
            }
            at += if kind & RARE != 0 { escape(&self.line[at..]) } else { 1 };
        }
        at
    }

    /// Reads one token; gives the place after it.
    fn token_from(&mut self, mut at: usize) -> usize {
        let line = self.line;
        while at < line.len() {
            let start = at;
            let mut seen = 0;
            let mut kind = 0;
            while at < line.len() {
                kind = KINDS[usize::from(line[at])];
                if kind & END != 0 {
                    break;
                }
                seen |= kind;
                at += 1;
            }
            if at > start {
                let length = at - start;
                let valued = seen & (DIGIT | SLASH) != 0 || length == 3 || length > WORD_LIMIT;
                if valued || (seen & NOT_HEX == 0 && length > RUN_LIMIT) {
                    at = self.compound(start, at, seen);
                    kind = self.line.get(at).map_or(0, |b| KINDS[usize::from(*b)]);
                }
            }
            if at == line.len() || kind & SPACE != 0 {
                break;
            }
            at = if kind & (QUOTE | RARE) != 0 {
                self.special(at, kind)
            } else {
                self.breaks(at)
            };
        }
        at
    }

    /// A run of one and the same break is cut short.
    fn breaks(&mut self, at: usize) -> usize {
        let byte = self.line[at];
        let mut end = at + 1;
        while self.line.get(end) == Some(&byte) {
            end += 1;
        }
        if end - at > RUN_LIMIT {
            self.flush(at + RUN_LIMIT);
            self.copied = end;
        }
        end
    }

    /// A quote, or a character that starts with 0xe2.
    fn special(&mut self, at: usize, kind: u8) -> usize {
        if kind & RARE != 0 {
            // Three bytes: dashes, quotes, arrows and so on, breaks like those of ASCII.
            let end = (at + 3).min(self.line.len());
            // U+2500 to U+25ff: box drawing, blocks, shapes of which bars are made.
            if matches!(self.line.get(at + 1), Some(0x94..=0x97)) {
                self.flush(at);
                self.copied = end;
            }
            return end;
        }
        let quote = self.line[at];
        let reach = self.line.len().min(at + QUOTE_REACH);
        // An apostrophe within a word opens nothing.
        let opens = quote == b'"' || at == 0 || KINDS[usize::from(self.line[at - 1])] & (END | JOINT) != 0;
        if opens
            && self.line.len() > at + QUOTE_LIMIT
            && let Some(length) = self.line[at + 1..reach].iter().position(|b| *b == quote)
            && length > QUOTE_LIMIT
        {
            self.flush(at + 1);
            self.copied = at + 1 + length;
            self.put_mask();
            return at + 2 + length;
        }
        at + 1
    }

    /// Copies the line up to `end` that is not copied yet.
    fn flush(&mut self, end: usize) {
        if end > self.copied {
            self.shape.extend_from_slice(&self.line[self.copied..end]);
            self.copied = end;
        }
    }

    /// A mask, which swallows the joints between it and a mask before it, and a sign.
    fn put_mask(&mut self) {
        let joined = |b: &u8| KINDS[usize::from(*b)] & JOINT != 0;
        if self.masked && self.shape[self.mask_end..].iter().all(joined) {
            self.shape.truncate(self.mask_end);
            return;
        }
        self.masked = true;
        // A sign belongs to the number unless it joins it to a word.
        if let Some((b'-' | b'+', rest)) = self.shape[self.token..].split_last()
            && rest.last().is_none_or(|b| !b.is_ascii_alphanumeric())
        {
            self.shape.pop();
        }
        self.shape.extend_from_slice(MASK_BYTES);
        self.mask_end = self.shape.len();
    }

    fn end_token(&mut self, end: usize) {
        self.flush(end);
        let start = self.token;
        if self.shape.len() == start {
            // Nothing is left of it: a bar, for example.
            self.shape.truncate(start.saturating_sub(1));
            return;
        }
        if self.masked {
            if !self.previous.is_empty() && self.shape[self.previous.clone()] == self.shape[start..] {
                self.shape.truncate(start.saturating_sub(1));
                return;
            }
            self.previous = start..self.shape.len();
        } else {
            if !self.previous.is_empty() && self.shape.len() - start <= UNIT_LIMIT && self.end_unit() {
                return;
            }
            if self.shape.len() - start == 3 && self.shape[start] == b'<' && self.shape[start + 2] == b'>' {
                // What the tree writes where it met many words must come from the tree only.
                self.shape.truncate(start);
                self.shape.extend_from_slice(MASK_BYTES);
            }
            self.previous = 0..0;
        }
        self.tokens += 1;
    }

    /// A unit after a number is part of the number: `<*> KB,` becomes `<*>,`.
    fn end_unit(&mut self) -> bool {
        if !self.shape[..self.previous.end].ends_with(MASK_BYTES) {
            return false;
        }
        let letters = self.shape[self.token..]
            .iter()
            .take_while(|b| b.is_ascii_alphabetic())
            .count();
        if !is_unit(&self.shape[self.token..self.token + letters]) {
            return false;
        }
        self.shape.drain(self.previous.end..self.token + letters);
        self.previous.end = self.shape.len();
        true
    }

    /// `start..end` has no breaks and no spaces; `seen` is the union of its bytes' kinds.
    /// Gives the place after it, which a URL's query moves on.
    fn compound(&mut self, mut start: usize, mut end: usize, seen: u8) -> usize {
        let line = self.line;
        let after = end;
        let first = line[start];
        if seen & (JOINT | DIGIT | NOT_HEX) == JOINT && line[start..end].iter().all(|b| *b == first) {
            if end - start > RUN_LIMIT {
                self.flush(start + RUN_LIMIT);
                self.copied = end;
            }
            return after;
        }
        // Punctuation at its end belongs to the sentence.
        while end > start && matches!(line[end - 1], b'.' | b',' | b':' | b'%' | b'*' | b'-' | b'#') {
            end -= 1;
        }
        let relative = seen & SLASH != 0 && first == b'.';
        while start < end && !relative && matches!(line[start], b'.' | b',' | b':' | b'*' | b'#' | b'@' | b'$') {
            start += 1;
        }
        let text = &line[start..end];
        if seen & SLASH != 0 && is_path(text) {
            let query = if line.get(after) == Some(&b'?') {
                query(&line[after..])
            } else {
                0
            };
            if query > 1 {
                self.replace(start, after + query);
                return after + query;
            }
            self.replace(start, end);
        } else if seen & DIGIT != 0 {
            if seen & NOT_HEX == 0 && is_address(text) {
                self.replace(start, end);
            } else if seen & JOINT != 0
                && let Some(host) = host(text)
            {
                self.replace(start, start + host);
                self.words(start + host, end);
            } else {
                self.words(start, end);
            }
        } else if text.len() > WORD_LIMIT || is_calendar(text) {
            self.replace(start, end);
        }
        after
    }

    fn replace(&mut self, start: usize, end: usize) {
        self.flush(start);
        self.copied = end;
        self.put_mask();
    }

    /// Masks the words that hold a digit.
    fn words(&mut self, start: usize, end: usize) {
        let line = self.line;
        let mut at = start;
        while at < end {
            let from = at;
            let (mut digit, mut seen) = (usize::MAX, 0);
            while at < end && KINDS[usize::from(line[at])] & JOINT == 0 {
                let kind = KINDS[usize::from(line[at])];
                if kind & DIGIT != 0 && digit == usize::MAX {
                    digit = at;
                }
                seen |= kind;
                at += 1;
            }
            if digit != usize::MAX {
                let letters = &line[from..digit];
                let number = line[digit..at].iter().all(|b| b.is_ascii_digit() || *b == b'_');
                let named = number && seen & NOT_HEX != 0 && letters.len() >= 2 && letters.len() <= WORD_LIMIT;
                self.flush(if named { digit } else { from });
                self.copied = at;
                self.put_mask();
            } else if self.copied == from.saturating_sub(1)
                && from > start
                && seen & NOT_HEX == 0
                && matches!(at - from, 2 | 4)
                && matches!(line[from - 1], b'-' | b':')
            {
                // A hex word without digits, in the midst of a UUID or an address.
                self.copied = at;
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests;
