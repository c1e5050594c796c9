//! Cursor over the start of a line. Each step either consumes the expected text or leaves the cursor unchanged.

#[derive(Debug, Clone, Copy)]
pub(super) struct LineCursor<'a> {
    pub(super) rest: &'a str,
}

impl<'a> LineCursor<'a> {
    pub(super) fn new(rest: &'a str) -> Self {
        Self { rest }
    }

    pub(super) fn eat(&mut self, expected: &str) -> bool {
        match self.rest.strip_prefix(expected) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    pub(super) fn eat_any(&mut self, expected: &[char]) -> bool {
        match self.rest.strip_prefix(expected) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    pub(super) fn spaces(&mut self) -> bool {
        let trimmed = self.rest.trim_start_matches([' ', '\t']);
        let moved = trimmed.len() < self.rest.len();
        self.rest = trimmed;
        moved
    }

    /// Consumes one to `most` digits.
    pub(super) fn digits(&mut self, most: usize) -> Option<&'a str> {
        let len = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        self.take(len)
    }

    pub(super) fn number(&mut self, most: usize) -> Option<u64> {
        let before = *self;
        let number = self.digits(most).and_then(|digits| digits.parse().ok());
        if number.is_none() {
            *self = before;
        }
        number
    }

    /// Consumes at least one ASCII byte for which `wanted` holds.
    pub(super) fn run(&mut self, wanted: impl Fn(u8) -> bool) -> Option<&'a str> {
        let len = self.rest.bytes().take_while(|b| b.is_ascii() && wanted(*b)).count();
        self.take(len)
    }

    fn take(&mut self, len: usize) -> Option<&'a str> {
        if len == 0 {
            return None;
        }
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(taken)
    }
}
