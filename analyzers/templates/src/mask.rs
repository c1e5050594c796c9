//! Masking of values: converts a line to its shape in one pass, without regex and without allocation.
//!
//! A **shape** is the line with single spaces between its tokens and `<*>` for every value. It depends on the line
//! alone, which makes ids equal on every node and in every run.
//!
//! Bytes have four kinds. *Word* bytes (letters, digits, `_`, everything that is not ASCII) and *joints*
//! (`. : - / , @ + % ~ # * $ \`) form **compounds**; *breaks* (brackets, quotes, `=` and the like) and spaces end them.
//! A compound is copied unless it contains a digit or a slash, is very long, or is the name of a day or month. Masked
//! are:
//!
//! - paths and addresses with `//` (a leading slash followed by a word, or two slashes);
//! - compounds of hex words only: numbers, times, IPv4 and IPv6 addresses with ports, MAC and PCI addresses, UUIDs;
//! - of other compounds each word with a digit, where letters before a number at the word's end remain: `rank<*>`,
//!   `mlx<*>`, `blk_<*>`, but `<*>` alone for `54fadb41`, `12ms`, `x86_64`;
//! - quoted strings of more than [`QUOTE_LIMIT`] bytes, and words of more than [`WORD_LIMIT`] bytes.
//!
//! Adjacent masks become one (`<*>.<*>.<*>:<*>` is `<*>`), and so do equal consecutive tokens that contain nothing
//! else, so that lists and bars of any length have one shape. ANSI escapes and bar glyphs are dropped. `nan` and `inf`
//! remain, because they indicate trouble.

mod value;

use value::{DIGIT, END, JOINT, KINDS, NOT_HEX, QUOTE, RARE, SLASH, SPACE};
use value::{escape, host, is_address, is_calendar, is_path, is_unit, number, plain, query};

/// Length in bytes above which a quoted string is a value.
pub(crate) const QUOTE_LIMIT: usize = 256;
/// Length in bytes above which a word is a value.
pub(crate) const WORD_LIMIT: usize = 64;
/// Placeholder of a value in a shape.
pub const MASK: &str = "<*>";

/// Maximum length in bytes of a unit with its trailing punctuation.
const UNIT_LIMIT: usize = 4;
const MASK_BYTES: &[u8] = MASK.as_bytes();
/// Maximum distance in bytes at which the end of a quoted string is searched.
const QUOTE_REACH: usize = 1024;
/// Maximum length of runs of one punctuation mark such as `=====`; longer ones are cut.
const RUN_LIMIT: usize = 3;

/// Limits of a shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShapeLimits {
    /// Maximum tokens of a shape; the rest of the line is ignored.
    pub(crate) tokens: usize,
    /// Maximum bytes of a shape; the rest of the line is ignored.
    pub(crate) bytes: usize,
}

/// Result of masking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskResult {
    /// Number of tokens in the shape.
    pub(crate) tokens: usize,
    /// True if the line was longer than the limits of the shape.
    pub(crate) cut: bool,
}

/// Writes the shape of `line` to `shape`, which is cleared first. Accepts any bytes; the shape is UTF-8 if `line` is.
pub(crate) fn mask(line: &[u8], bounds: ShapeLimits, shape: &mut Vec<u8>) -> MaskResult {
    shape.clear();
    let mut pass = MaskPass {
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
    MaskResult {
        tokens: pass.tokens,
        cut,
    }
}

struct MaskPass<'a> {
    line: &'a [u8],
    shape: &'a mut Vec<u8>,
    /// Input offset up to which the line is copied to the shape or dropped; the rest is copied at the next change.
    copied: usize,
    /// Start of the current token in the shape; exact once the token has a mask, which is when it is read.
    token: usize,
    /// Range of the previous token in the shape, if it had a mask.
    previous: std::ops::Range<usize>,
    /// True if the current token has a mask.
    masked: bool,
    /// End of its last mask in the shape.
    mask_end: usize,
    tokens: usize,
}

impl MaskPass<'_> {
    fn run(&mut self, bounds: ShapeLimits) -> bool {
        let mut at = 0;
        // End of the previous token.
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
                // Most tokens: copied later together with their neighbours, unless the space between them differs.
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

    /// Copies pending input up to `end` and applies the limit; returns true if it was exceeded.
    fn finish(&mut self, end: usize, limit: usize) -> bool {
        self.flush(end);
        let over = self.shape.len() > limit;
        if over {
            self.cut(limit);
        }
        over
    }

    /// Copies pending input up to `end` and starts a token at `at`.
    fn start_token(&mut self, at: usize, end: usize) {
        self.flush(end);
        if !self.shape.is_empty() {
            self.shape.push(b' ');
        }
        self.copied = at;
    }

    /// Removes tokens beyond `limit`, or the end of a single token.
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

    /// Processes one token; returns the offset after it.
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

    /// Shortens a run of one break.
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

    /// Processes a quote, or a character that starts with 0xe2.
    fn special(&mut self, at: usize, kind: u8) -> usize {
        if kind & RARE != 0 {
            // Three bytes: dashes, quotes, arrows and so on, treated as breaks like those of ASCII.
            let end = (at + 3).min(self.line.len());
            // U+2500 to U+25ff: box drawing, blocks and geometric shapes of progress bars.
            if matches!(self.line.get(at + 1), Some(0x94..=0x97)) {
                self.flush(at);
                self.copied = end;
            }
            return end;
        }
        let quote = self.line[at];
        let reach = self.line.len().min(at + QUOTE_REACH);
        // An apostrophe within a word does not open a quote.
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

    /// Copies pending input up to `end`.
    fn flush(&mut self, end: usize) {
        if end > self.copied {
            self.shape.extend_from_slice(&self.line[self.copied..end]);
            self.copied = end;
        }
    }

    /// Writes a mask; it absorbs the joints after a previous mask, and a sign.
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
            // The token is empty after masking, for example a bar.
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
                // The marks that the tree writes for many words must not come from input.
                self.shape.truncate(start);
                self.shape.extend_from_slice(MASK_BYTES);
            }
            self.previous = 0..0;
        }
        self.tokens += 1;
    }

    /// Merges a unit into the preceding number: `<*> KB,` becomes `<*>,`.
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

    /// Masks the compound at `start..end`, which has no breaks and no spaces; `seen` is the union of its bytes' kinds.
    /// Returns the offset after it, which includes a URL's query.
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
        // Trailing punctuation belongs to the sentence.
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

    /// Masks the words that contain a digit.
    fn words(&mut self, start: usize, end: usize) {
        let line = self.line;
        let mut at = start;
        while at < end {
            let from = at;
            let mut digit = usize::MAX;
            let mut seen = 0;
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
                // Hex word without digits within a UUID or an address.
                self.copied = at;
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests;
