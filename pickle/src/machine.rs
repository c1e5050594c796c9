//! Stack machine that executes the opcodes of a pickle and collects its values in a [`PickleTree`].

use crate::error::{Error, ParseLimits};
use crate::memo::MemoTable;
use crate::opcode as op;
use crate::tree::{FALSE, NONE, PickleTree, PickledValue, TRUE, ValueId};

/// Handling of opcodes that ask for a class, a call or an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectPolicy {
    /// Return [`Error::Refused`] with the opcode, its offset and, if known, the requested name.
    Refuse,
    /// Return a value that describes the request: [`PickledValue::Global`], [`PickledValue::Object`] or
    /// [`PickledValue::Persistent`].
    Describe,
}

/// Values of a pickle; if the pickle is truncated, the values before the truncation.
#[derive(Debug)]
pub struct UnpickledValues<'a> {
    pub tree: PickleTree<'a>,
    /// Length of a truncated pickle in bytes; `None` for a complete one.
    pub cut: Option<usize>,
    /// Number of bytes after the end of the pickle.
    pub trailing: usize,
}

/// Reads one pickle. If it is truncated within its outermost dictionary, the entries before the truncation are
/// returned. Fails for a pickle that is invalid, exceeds `limits`, or asks for an object under
/// [`ObjectPolicy::Refuse`].
pub fn read<'a>(input: &'a [u8], limits: &ParseLimits, objects: ObjectPolicy) -> Result<UnpickledValues<'a>, Error> {
    let limit = limits.bytes.min(u32::MAX as usize / 4);
    if input.len() > limit {
        let bytes = input.len();
        return Err(Error::TooLarge { bytes, limit });
    }
    let mut machine = StackMachine {
        input,
        at: 0,
        opcode: 0,
        opcode_at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: MemoTable::default(),
        pushed: 0,
        tree: PickleTree::new(input),
        limits,
        objects,
    };
    match machine.run() {
        Ok(root) => {
            machine.tree.root = root;
            Ok(UnpickledValues {
                trailing: input.len() - machine.at,
                tree: machine.tree,
                cut: None,
            })
        }
        Err(Error::Truncated { offset }) => {
            machine.tree.root = machine.salvage().ok_or(Error::Truncated { offset })?;
            Ok(UnpickledValues {
                tree: machine.tree,
                cut: Some(offset),
                trailing: 0,
            })
        }
        Err(error) => Err(error),
    }
}

/// State of the machine between two opcodes.
pub(crate) struct StackMachine<'a, 'l> {
    pub(crate) input: &'a [u8],
    /// Offset of the next byte.
    pub(crate) at: usize,
    /// Opcode that is executed at present.
    pub(crate) opcode: u8,
    /// Offset of that opcode.
    opcode_at: usize,
    stack: Vec<ValueId>,
    /// Height of the stack at each open mark.
    marks: Vec<usize>,
    memo: MemoTable,
    /// Number of pushes so far; see [`ParseLimits::values`].
    pushed: usize,
    pub(crate) tree: PickleTree<'a>,
    limits: &'l ParseLimits,
    objects: ObjectPolicy,
}

/// Result of a part of an opcode.
pub(crate) type StepResult<T> = Result<T, Error>;

impl<'a> StackMachine<'a, '_> {
    /// Executes opcodes up to STOP and returns the value on top.
    fn run(&mut self) -> StepResult<ValueId> {
        loop {
            self.opcode_at = self.at;
            self.opcode = self.byte()?;
            match self.opcode {
                op::STOP => return self.pop(),
                op::PROTO => {
                    if self.byte()? > 5 {
                        return Err(self.malformed("a protocol beyond 5"));
                    }
                }
                op::FRAME => {
                    self.take(8)?;
                }
                op::MARK => {
                    if self.marks.len() >= self.limits.depth {
                        return Err(self.limit("containers open at once", self.limits.depth));
                    }
                    self.marks.push(self.stack.len());
                }
                op::POP => {
                    if self.marks.last() == Some(&self.stack.len()) {
                        self.marks.pop();
                    } else {
                        self.pop()?;
                    }
                }
                op::POP_MARK => drop(self.pop_to_mark()?),
                op::DUP => {
                    let top = self.top()?;
                    self.push(top)?;
                }
                op::NONE => self.push(NONE)?,
                op::NEWTRUE => self.push(TRUE)?,
                op::NEWFALSE => self.push(FALSE)?,
                op::INT
                | op::BININT
                | op::BININT1
                | op::BININT2
                | op::LONG
                | op::LONG1
                | op::LONG4
                | op::FLOAT
                | op::BINFLOAT => self.number()?,
                op::STRING
                | op::BINSTRING
                | op::SHORT_BINSTRING
                | op::UNICODE
                | op::BINUNICODE
                | op::SHORT_BINUNICODE
                | op::BINUNICODE8
                | op::BINBYTES
                | op::SHORT_BINBYTES
                | op::BINBYTES8
                | op::BYTEARRAY8 => self.text()?,
                op::EMPTY_LIST | op::EMPTY_TUPLE | op::EMPTY_DICT | op::EMPTY_SET => {
                    let node = self.container(Vec::new())?;
                    self.push_new(node)?;
                }
                op::LIST | op::TUPLE | op::DICT | op::FROZENSET => {
                    let items = self.pop_to_mark()?;
                    let node = self.container(items)?;
                    self.push_new(node)?;
                }
                op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                    let count = usize::from(self.opcode - op::TUPLE1) + 1;
                    let mut items = Vec::with_capacity(count);
                    for _ in 0..count {
                        items.push(self.pop()?);
                    }
                    items.reverse();
                    self.push_new(PickledValue::Tuple(items))?;
                }
                op::APPEND => {
                    let item = self.pop()?;
                    self.extend(&[item])?;
                }
                op::SETITEM => {
                    let value = self.pop()?;
                    let key = self.pop()?;
                    self.extend(&[key, value])?;
                }
                op::APPENDS | op::SETITEMS | op::ADDITEMS => {
                    let items = self.pop_to_mark()?;
                    self.extend(&items)?;
                }
                op::PUT | op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => self.remember()?,
                op::GET | op::BINGET | op::LONG_BINGET => self.recall()?,
                other if self.objects == ObjectPolicy::Refuse => return Err(self.refuse(other)),
                _ => self.object()?,
            }
        }
    }

    /// Returns the error of an opcode that this machine does not execute, with the requested name if it is known.
    pub(crate) fn refuse(&mut self, byte: u8) -> Error {
        let offset = self.opcode_at;
        let Some(opcode) = op::refused_name(byte) else {
            return Error::UnknownOpcode { byte, offset };
        };
        let asks = match byte {
            op::GLOBAL | op::INST => self.lines_ahead(2),
            op::PERSID => self.lines_ahead(1),
            op::STACK_GLOBAL => {
                let named = self.stack.iter().rev().take(2).rev();
                let parts: Vec<String> = named
                    .filter_map(|id| self.tree.text(*id, 64))
                    .map(|text| printable(&text))
                    .collect();
                (!parts.is_empty()).then(|| parts.join(" "))
            }
            _ => None,
        };
        Error::Refused { opcode, offset, asks }
    }

    /// Returns up to `count` lines of at most the next 160 bytes, for an error message.
    fn lines_ahead(&self, count: usize) -> Option<String> {
        let ahead = self.input.get(self.at..)?;
        let lines = ahead[..ahead.len().min(160)].split(|byte| *byte == b'\n').take(count);
        let words: Vec<String> = lines.map(|line| printable(&String::from_utf8_lossy(line))).collect();
        Some(words.join(" "))
    }

    /// Creates the container of this opcode from its items.
    fn container(&self, items: Vec<ValueId>) -> StepResult<PickledValue> {
        match self.opcode {
            op::EMPTY_LIST | op::LIST => Ok(PickledValue::List(items)),
            op::EMPTY_TUPLE | op::TUPLE => Ok(PickledValue::Tuple(items)),
            op::EMPTY_SET | op::FROZENSET => Ok(PickledValue::Set(items)),
            _ if items.len().is_multiple_of(2) => Ok(PickledValue::Dict(items)),
            _ => Err(self.malformed("a key without a value")),
        }
    }

    /// Adds items to the container, or to the object, on top of the stack.
    fn extend(&mut self, items: &[ValueId]) -> StepResult<()> {
        let wanted = self.opcode;
        let top = self.top()?;
        let top = self.part_that_grows(top);
        match &mut self.tree.nodes[top as usize] {
            PickledValue::List(list) if matches!(wanted, op::APPEND | op::APPENDS) => list.extend_from_slice(items),
            PickledValue::Set(set) if wanted == op::ADDITEMS => set.extend_from_slice(items),
            PickledValue::Dict(flat)
                if matches!(wanted, op::SETITEM | op::SETITEMS) && items.len().is_multiple_of(2) =>
            {
                flat.extend_from_slice(items);
            }
            _ => return Err(self.malformed("what it adds to is no such container")),
        }
        Ok(())
    }

    /// Returns the value that receives items for the value on top: the value itself or, for an object, the container of
    /// its items or pairs, which is created at first use.
    fn part_that_grows(&mut self, top: ValueId) -> ValueId {
        let PickledValue::Object { items, pairs, .. } = *self.tree.node(top) else {
            return top;
        };
        let as_pairs = matches!(self.opcode, op::SETITEM | op::SETITEMS);
        let found = if as_pairs { pairs } else { items };
        if found != NONE {
            return found;
        }
        let part = match self.opcode {
            op::ADDITEMS => PickledValue::Set(Vec::new()),
            _ if as_pairs => PickledValue::Dict(Vec::new()),
            _ => PickledValue::List(Vec::new()),
        };
        let part = self.tree.add(part);
        if let PickledValue::Object { items, pairs, .. } = &mut self.tree.nodes[top as usize] {
            *(if as_pairs { pairs } else { items }) = part;
        }
        part
    }

    /// Stores the value on top in the memo, under the key of this opcode; MEMOIZE uses the number of stored values.
    fn remember(&mut self) -> StepResult<()> {
        let key = match self.opcode {
            op::PUT => self.decimal_line()?,
            op::BINPUT => u64::from(self.byte()?),
            op::LONG_BINPUT => self.little(4)?,
            _ => self.memo.len() as u64,
        };
        let top = self.top()?;
        self.memo.put(key, top);
        if self.memo.len() > self.limits.memo {
            return Err(self.limit("remembered values", self.limits.memo));
        }
        Ok(())
    }

    /// Pushes the memo value with the key of this opcode.
    fn recall(&mut self) -> StepResult<()> {
        let key = match self.opcode {
            op::GET => self.decimal_line()?,
            op::BINGET => u64::from(self.byte()?),
            _ => self.little(4)?,
        };
        let id = self
            .memo
            .get(key)
            .ok_or_else(|| self.malformed("a value that was never remembered"))?;
        self.push(id)
    }

    /// Moves the values above each open mark of a truncated pickle into the container below it. Returns the outermost
    /// value; `None` if it is no dictionary with entries.
    fn salvage(&mut self) -> Option<ValueId> {
        while let Some(mark) = self.marks.pop() {
            let mut items = self.stack.split_off(mark.min(self.stack.len()));
            let Some(below) = self.stack.last() else { continue };
            match &mut self.tree.nodes[*below as usize] {
                PickledValue::List(list) | PickledValue::Set(list) => list.append(&mut items),
                PickledValue::Dict(flat) => {
                    items.truncate(items.len() & !1);
                    flat.append(&mut items);
                }
                _ => {}
            }
        }
        let root = *self.stack.first()?;
        matches!(self.tree.node(root), PickledValue::Dict(flat) if !flat.is_empty()).then_some(root)
    }

    /// Pushes a value; fails at the limit of values.
    pub(crate) fn push(&mut self, id: ValueId) -> StepResult<()> {
        if self.pushed >= self.limits.values {
            return Err(self.limit("values", self.limits.values));
        }
        self.pushed += 1;
        self.stack.push(id);
        Ok(())
    }

    pub(crate) fn push_new(&mut self, node: PickledValue) -> StepResult<()> {
        let id = self.tree.add(node);
        self.push(id)
    }

    /// Returns the height of the stack at the innermost open mark; values below it cannot be popped.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    /// Returns the value on top; fails if there is none above the innermost mark.
    pub(crate) fn top(&self) -> StepResult<ValueId> {
        let above = self.stack.len() > self.floor();
        above
            .then(|| self.stack.last().copied())
            .flatten()
            .ok_or_else(|| self.malformed("nothing on the stack"))
    }

    pub(crate) fn pop(&mut self) -> StepResult<ValueId> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Closes the innermost mark and pops the values above it, oldest first.
    pub(crate) fn pop_to_mark(&mut self) -> StepResult<Vec<ValueId>> {
        let mark = self.marks.pop().ok_or_else(|| self.malformed("no mark on the stack"))?;
        Ok(self.stack.split_off(mark))
    }

    pub(crate) fn byte(&mut self) -> StepResult<u8> {
        Ok(self.take(1)?[0])
    }

    /// Reads the next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> StepResult<&'a [u8]> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.input.len());
        let end = end.ok_or(Error::Truncated {
            offset: self.input.len(),
        })?;
        let taken = &self.input[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Reads an unsigned little-endian number of `count` bytes.
    pub(crate) fn little(&mut self, count: usize) -> StepResult<u64> {
        Ok(self
            .take(count)?
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// Reads the rest of the line; returns it without its end.
    pub(crate) fn line(&mut self) -> StepResult<&'a [u8]> {
        let rest = &self.input[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or(Error::Truncated {
            offset: self.input.len(),
        })?;
        self.at += end + 1;
        Ok(&rest[..end])
    }

    /// Reads the rest of the line as a decimal number.
    fn decimal_line(&mut self) -> StepResult<u64> {
        let line = self.line()?;
        let number = std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok());
        number.ok_or_else(|| self.malformed("a number was expected"))
    }

    pub(crate) fn malformed(&self, what: &'static str) -> Error {
        Error::Malformed {
            opcode: op::name(self.opcode),
            offset: self.opcode_at,
            what,
        }
    }

    fn limit(&self, what: &'static str, limit: usize) -> Error {
        Error::Limit {
            what,
            limit,
            offset: self.opcode_at,
        }
    }
}

/// Returns the first 80 characters of foreign text with `?` for control characters, for an error message.
fn printable(text: &str) -> String {
    text.chars()
        .take(80)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}
