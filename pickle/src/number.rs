//! Opcodes for numbers, text and bytes.

use crate::error::Error;
use crate::tree::{FALSE, PickledValue, TRUE};

use crate::machine::{StackMachine, StepResult};
use crate::opcode as op;

impl StackMachine<'_, '_> {
    /// Executes an opcode that pushes a number; INT also encodes booleans, as `00` and `01`.
    pub(crate) fn number(&mut self) -> StepResult<()> {
        let node = match self.opcode {
            op::BININT => PickledValue::Int(i64::from(self.little(4)? as u32 as i32)),
            op::BININT1 => PickledValue::Int(i64::from(self.byte()?)),
            op::BININT2 => PickledValue::Int(self.little(2)? as i64),
            op::LONG1 => {
                let count = usize::from(self.byte()?);
                twos_complement(self.take(count)?)
            }
            op::LONG4 => {
                let count = self.little(4)? as u32 as i32;
                let count = usize::try_from(count).map_err(|_| self.malformed("a negative length"))?;
                twos_complement(self.take(count)?)
            }
            op::BINFLOAT => {
                let bits = self.take(8)?.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
                PickledValue::Float(f64::from_bits(bits))
            }
            op::INT => {
                let line = self.line()?;
                match line {
                    b"00" => return self.push(FALSE),
                    b"01" => return self.push(TRUE),
                    _ => self.decimal(line)?,
                }
            }
            op::LONG => {
                let line = self.line()?;
                self.decimal(line.strip_suffix(b"L").unwrap_or(line))?
            }
            _ => {
                let line = self.line()?;
                let value = std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok());
                PickledValue::Float(value.ok_or_else(|| self.malformed("no number"))?)
            }
        };
        self.push_new(node)
    }

    /// Parses a decimal integer; beyond 64 bits it is [`PickledValue::Huge`].
    fn decimal(&self, line: &[u8]) -> StepResult<PickledValue> {
        let text = std::str::from_utf8(line)
            .map_err(|_| self.malformed("no number"))?
            .trim();
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.malformed("no number"));
        }
        Ok(text.parse().map(PickledValue::Int).unwrap_or(PickledValue::Huge))
    }

    /// Executes an opcode that pushes text or bytes.
    pub(crate) fn text(&mut self) -> StepResult<()> {
        let len = match self.opcode {
            op::SHORT_BINUNICODE | op::SHORT_BINBYTES | op::SHORT_BINSTRING => u64::from(self.byte()?),
            op::BINUNICODE | op::BINBYTES | op::BINSTRING => self.little(4)?,
            op::BINUNICODE8 | op::BINBYTES8 | op::BYTEARRAY8 => self.little(8)?,
            _ => return self.text_line(),
        };
        let len = usize::try_from(len).map_err(|_| Error::Truncated {
            offset: self.input.len(),
        })?;
        let start = self.at;
        self.take(len)?;
        let is_text = matches!(
            self.opcode,
            op::SHORT_BINUNICODE | op::BINUNICODE | op::BINUNICODE8 | op::SHORT_BINSTRING | op::BINSTRING
        );
        let id = if is_text {
            self.tree.text_at(start, len)
        } else {
            self.tree.bytes_at(start, len)
        };
        self.push(id)
    }

    /// Reads text of protocol 0: a quoted string as `repr` writes it, or text with `\u` escapes.
    fn text_line(&mut self) -> StepResult<()> {
        let line = self.line()?;
        let raw = self.opcode == op::UNICODE;
        let body = if raw {
            line
        } else {
            let quoted = line.len() >= 2 && line[0] == line[line.len() - 1] && matches!(line[0], b'\'' | b'"');
            if !quoted {
                return Err(self.malformed("text without quotes"));
            }
            &line[1..line.len() - 1]
        };
        let id = self.tree.text_aside(&unescaped(body, raw));
        self.push(id)
    }
}

/// Decodes a little-endian integer in two's complement; beyond 64 bits it is [`PickledValue::Huge`].
fn twos_complement(bytes: &[u8]) -> PickledValue {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let filler = if negative { 0xff } else { 0 };
    let mut whole = [filler; 8];
    let kept = bytes.len().min(8);
    whole[..kept].copy_from_slice(&bytes[..kept]);
    let fits = bytes[kept..].iter().all(|byte| *byte == filler) && (whole[7] & 0x80 != 0) == negative;
    if fits {
        PickledValue::Int(i64::from_le_bytes(whole))
    } else {
        PickledValue::Huge
    }
}

/// Resolves the escapes of a text: `\u` and `\U` if it is `raw`, otherwise those of `repr`. The result is at most twice
/// as long, because a Latin-1 byte of a raw text takes two bytes as UTF-8.
fn unescaped(body: &[u8], raw: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let (digits, radix) = match (byte, after.first()) {
            (b'\\', Some(b'u')) if raw => (4, 16),
            (b'\\', Some(b'U')) if raw => (8, 16),
            (b'\\', Some(b'x')) if !raw => (2, 16),
            (b'\\', Some(sign)) if !raw => {
                rest = &after[1..];
                out.push(match sign {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    other => *other,
                });
                continue;
            }
            _ => {
                push_latin(&mut out, u32::from(byte), raw);
                continue;
            }
        };
        let code = after.get(1..1 + digits).and_then(|text| std::str::from_utf8(text).ok());
        match code.and_then(|text| u32::from_str_radix(text, radix).ok()) {
            Some(code) => {
                rest = &after[1 + digits..];
                push_latin(&mut out, code, raw);
            }
            None => out.push(byte),
        }
    }
    out
}

/// Appends a code of a `repr` as one byte if it fits, and any other code as UTF-8.
fn push_latin(out: &mut Vec<u8>, code: u32, raw: bool) {
    match (raw, u8::try_from(code)) {
        (false, Ok(byte)) => out.push(byte),
        _ => {
            let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}
