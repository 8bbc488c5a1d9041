//! A machine for the pickles `torch.save` writes: it builds values and calls nothing.
//!
//! Every name must be in the closed list of [`types`](super::types); a call of one of them only arranges its arguments.
//! No step copies or recurses, and each makes at most one value: memory is bounded by the pickle's length and
//! [`VALUES_MAX`].

use super::types::{Element, Global, global};
use super::value::{Id, Pickle, Storage, Tensor, Value};
use std::collections::BTreeMap;

/// Starts a pickle; its argument is the protocol.
pub const PROTO: u8 = 0x80;

/// Protocols whose opcodes are known here.
const PROTOCOLS: std::ops::RangeInclusive<u8> = 2..=5;

/// Most values a pickle may make, and most it may keep in its memo: those of about 100,000 tensors.
const VALUES_MAX: usize = 1 << 21;

/// Most characters of a name that a message shows.
const NAME_SHOWN: usize = 100;

/// A pickle that is not read. `at` is the byte of the opcode at fault.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    #[error("names {module}.{name} at byte {at}, which is code; only tensors are read")]
    Code { at: usize, module: String, name: String },
    #[error("has opcode {opcode:#04x} at byte {at}, which torch.save does not write for tensors")]
    Opcode { at: usize, opcode: u8 },
    #[error("has protocol {found}, expected 2 to 5")]
    Protocol { found: u8 },
    #[error("ends inside the opcode at byte {at}")]
    Short { at: usize },
    #[error("has bytes that are not UTF-8 in the text at byte {at}")]
    NotUtf8 { at: usize },
    #[error("has an opcode at byte {at} that finds {found}, expected {expected}")]
    Operand { at: usize, found: &'static str, expected: &'static str },
    #[error("has a call of {function} at byte {at} with arguments it does not take: expected {expected}")]
    Arguments { at: usize, function: &'static str, expected: &'static str },
    #[error("refers to memo {index} at byte {at}, which is empty")]
    Memo { at: usize, index: u32 },
    #[error("makes more than {VALUES_MAX} values")]
    Values,
    #[error("ends at byte {end}, but {trailing} bytes follow")]
    Trailing { end: usize, trailing: usize },
}

/// Reads a pickle.
///
/// # Errors
/// It names anything outside the closed list, uses an opcode that `torch.save` does not write, or is malformed.
pub fn read(bytes: &[u8]) -> Result<Pickle<'_>, PickleError> {
    let mut machine = Machine { bytes, ..Machine::default() };
    loop {
        if let Some(root) = machine.step()? {
            let trailing = bytes.len() - machine.at;
            if trailing > 0 {
                return Err(PickleError::Trailing { end: machine.at, trailing });
            }
            return Ok(Pickle { values: machine.values, root });
        }
    }
}

/// A name out of the pickle as a message can show it: short, and without control characters.
pub fn shown(name: &str) -> String {
    name.chars().take(NAME_SHOWN).flat_map(char::escape_debug).collect()
}

#[derive(Default)]
struct Machine<'p> {
    bytes: &'p [u8],
    /// The next byte.
    at: usize,
    /// The opcode being done.
    opcode: usize,
    values: Vec<Value<'p>>,
    stack: Vec<Id>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: BTreeMap<u32, Id>,
}

impl<'p> Machine<'p> {
    /// Does one opcode; the root once it was the last. The numbers are those of Python's `pickletools`.
    fn step(&mut self) -> Result<Option<Id>, PickleError> {
        self.opcode = self.at;
        let opcode = self.byte()?;
        match opcode {
            PROTO => self.protocol()?,
            0x95 => drop(self.array::<8>()?), // FRAME: a length that only helps readers of streams
            b'.' => return Ok(Some(self.pop()?)), // STOP
            b'(' => self.marks.push(self.stack.len()), // MARK
            b'N' => self.push(Value::Other)?, // NONE
            0x88 => self.push(Value::Bool(true))?, // NEWTRUE
            0x89 => self.push(Value::Bool(false))?, // NEWFALSE
            b'J' => self.int::<4>(|b| i32::from_le_bytes(b).into())?, // BININT
            b'K' => self.int::<1>(|b| b[0].into())?, // BININT1
            b'M' => self.int::<2>(|b| u16::from_le_bytes(b).into())?, // BININT2
            0x8a => self.long()?,             // LONG1
            b'G' => {
                self.array::<8>()?; // BINFLOAT
                self.push(Value::Other)?;
            }
            0x8c => {
                let length = self.byte()?; // SHORT_BINUNICODE
                self.text(length.into())?;
            }
            b'X' => {
                let length = u32::from_le_bytes(self.array()?); // BINUNICODE
                self.text(length.into())?;
            }
            0x8d => {
                let length = u64::from_le_bytes(self.array()?); // BINUNICODE8
                self.text(length)?;
            }
            b'}' => self.push(Value::Dict(Vec::new()))?,  // EMPTY_DICT
            b']' => self.push(Value::List(Vec::new()))?,  // EMPTY_LIST
            b')' => self.push(Value::Tuple(Vec::new()))?, // EMPTY_TUPLE
            b't' => {
                let items = self.pop_mark()?; // TUPLE
                self.push(Value::Tuple(items))?;
            }
            0x85..=0x87 => self.short_tuple(opcode - 0x84)?, // TUPLE1 to TUPLE3
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?); // SETITEM
                self.set_items(vec![key, value])?;
            }
            b'u' => {
                let items = self.pop_mark()?; // SETITEMS
                self.set_items(items)?;
            }
            b'a' => {
                let item = self.pop()?; // APPEND
                self.append(&[item])?;
            }
            b'e' => {
                let items = self.pop_mark()?; // APPENDS
                self.append(&items)?;
            }
            b'q' => {
                let index = self.byte()?; // BINPUT
                self.put(index.into())?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.array()?); // LONG_BINPUT
                self.put(index)?;
            }
            0x94 => self.put(self.memo.len() as u32)?, // MEMOIZE
            b'h' => {
                let index = self.byte()?; // BINGET
                self.recall(index.into())?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.array()?); // LONG_BINGET
                self.recall(index)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?); // GLOBAL
                self.global(module, name)?;
            }
            0x93 => {
                let (name, module) = (self.pop_text()?, self.pop_text()?); // STACK_GLOBAL
                self.global(module, name)?;
            }
            b'Q' => self.storage()?, // BINPERSID
            b'R' => self.call()?,    // REDUCE
            b'b' => self.build()?,   // BUILD
            _ => return Err(PickleError::Opcode { at: self.opcode, opcode }),
        }
        Ok(None)
    }

    fn take(&mut self, length: u64) -> Result<&'p [u8], PickleError> {
        let rest = &self.bytes[self.at..];
        let length = usize::try_from(length).ok().filter(|n| *n <= rest.len());
        let taken = &rest[..length.ok_or(PickleError::Short { at: self.opcode })?];
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    fn byte(&mut self) -> Result<u8, PickleError> {
        Ok(self.array::<1>()?[0])
    }

    fn utf8(&self, bytes: &'p [u8]) -> Result<&'p str, PickleError> {
        std::str::from_utf8(bytes).map_err(|_| PickleError::NotUtf8 { at: self.opcode })
    }

    /// Up to the next line feed.
    fn line(&mut self) -> Result<&'p str, PickleError> {
        let Some(length) = memchr::memchr(b'\n', &self.bytes[self.at..]) else {
            return Err(PickleError::Short { at: self.opcode });
        };
        let line = self.take(length as u64)?;
        self.byte()?;
        self.utf8(line)
    }

    fn protocol(&mut self) -> Result<(), PickleError> {
        let found = self.byte()?;
        if PROTOCOLS.contains(&found) { Ok(()) } else { Err(PickleError::Protocol { found }) }
    }

    fn push(&mut self, value: Value<'p>) -> Result<(), PickleError> {
        if self.values.len() == VALUES_MAX {
            return Err(PickleError::Values);
        }
        self.stack.push(Id(self.values.len() as u32));
        self.values.push(value);
        Ok(())
    }

    fn int<const N: usize>(&mut self, value: impl Fn([u8; N]) -> i64) -> Result<(), PickleError> {
        let bytes = self.array()?;
        self.push(Value::Int(value(bytes)))
    }

    /// An integer of any length, as two's complement.
    fn long(&mut self) -> Result<(), PickleError> {
        let length = self.byte()?;
        let bytes = self.take(length.into())?;
        let negative = bytes.last().is_some_and(|b| *b > 0x7f);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        let Some(low) = wide.get_mut(..bytes.len()) else { return self.push(Value::Other) };
        low.copy_from_slice(bytes);
        self.push(Value::Int(i64::from_le_bytes(wide)))
    }

    fn text(&mut self, length: u64) -> Result<(), PickleError> {
        let bytes = self.take(length)?;
        let text = self.utf8(bytes)?;
        self.push(Value::Text(text))
    }

    fn operand(&self, found: &'static str, expected: &'static str) -> PickleError {
        PickleError::Operand { at: self.opcode, found, expected }
    }

    /// That the value is of another kind than the opcode takes.
    fn misfit(&self, id: Id, expected: &'static str) -> PickleError {
        self.operand(self.get(id).kind(), expected)
    }

    /// Height of the stack below which this opcode may not reach.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Id, PickleError> {
        let above = self.stack.len() > self.floor();
        above.then(|| self.stack.pop()).flatten().ok_or_else(|| self.operand("an empty stack", "a value"))
    }

    fn top(&self) -> Result<Id, PickleError> {
        let top = self.stack.last().filter(|_| self.stack.len() > self.floor());
        top.copied().ok_or_else(|| self.operand("an empty stack", "a value"))
    }

    fn pop_mark(&mut self) -> Result<Vec<Id>, PickleError> {
        let mark = self.marks.pop().ok_or_else(|| self.operand("no mark", "one"))?;
        Ok(self.stack.split_off(mark))
    }

    fn get(&self, id: Id) -> &Value<'p> {
        &self.values[id.0 as usize]
    }

    fn pop_text(&mut self) -> Result<&'p str, PickleError> {
        let id = self.pop()?;
        if let Value::Text(text) = self.get(id) { Ok(text) } else { Err(self.misfit(id, "a text")) }
    }

    fn short_tuple(&mut self, length: u8) -> Result<(), PickleError> {
        let mut items = (0..length).map(|_| self.pop()).collect::<Result<Vec<Id>, _>>()?;
        items.reverse();
        self.push(Value::Tuple(items))
    }

    /// Puts keys and values, in turn, into the dict on top.
    fn set_items(&mut self, items: Vec<Id>) -> Result<(), PickleError> {
        let (pairs, rest) = items.as_chunks::<2>();
        let dict = self.top()?;
        if !rest.is_empty() {
            return Err(self.operand("a key without a value", "pairs"));
        }
        let Value::Dict(dict) = &mut self.values[dict.0 as usize] else { return Err(self.misfit(dict, "a dict")) };
        dict.extend(pairs.iter().map(|[key, value]| (*key, *value)));
        Ok(())
    }

    fn append(&mut self, items: &[Id]) -> Result<(), PickleError> {
        let list = self.top()?;
        let Value::List(list) = &mut self.values[list.0 as usize] else { return Err(self.misfit(list, "a list")) };
        list.extend(items);
        Ok(())
    }

    fn put(&mut self, index: u32) -> Result<(), PickleError> {
        let top = self.top()?;
        if self.memo.len() == VALUES_MAX {
            return Err(PickleError::Values);
        }
        self.memo.insert(index, top);
        Ok(())
    }

    fn recall(&mut self, index: u32) -> Result<(), PickleError> {
        let id = self.memo.get(&index).ok_or(PickleError::Memo { at: self.opcode, index })?;
        self.stack.push(*id);
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> Result<(), PickleError> {
        let Some(global) = global(module, name) else {
            return Err(PickleError::Code { at: self.opcode, module: shown(module), name: shown(name) });
        };
        self.push(Value::Global(global))
    }

    fn pop_tuple(&mut self) -> Result<&[Id], PickleError> {
        let id = self.pop()?;
        if let Value::Tuple(items) = self.get(id) { Ok(items) } else { Err(self.misfit(id, "a tuple")) }
    }

    /// A persistent id, which torch writes for storages only: ('storage', type, key, location, length).
    fn storage(&mut self) -> Result<(), PickleError> {
        let items: Option<[Id; 5]> = self.pop_tuple()?.try_into().ok();
        let storage = items.and_then(|[kind, of, key, ..]| match (self.get(kind), self.get(of), self.get(key)) {
            (Value::Text("storage"), Value::Global(Global::Storage(element)), Value::Text(key)) => {
                Some(Storage { key, element: *element })
            }
            _ => None,
        });
        match storage {
            Some(storage) => self.push(Value::Storage(storage)),
            None => Err(self.operand("another persistent id", "('storage', type, key, location, length)")),
        }
    }

    /// A call: the arguments are arranged as the name's meaning wants, nothing runs.
    fn call(&mut self) -> Result<(), PickleError> {
        let mut arguments = [None; 8];
        let items = self.pop_tuple()?;
        let count = items.len();
        for (slot, item) in arguments.iter_mut().zip(items) {
            *slot = Some(*item);
        }
        let function = self.pop()?;
        let Value::Global(function) = *self.get(function) else {
            return Err(self.misfit(function, "a name to call"));
        };
        let wrong = |function, expected| PickleError::Arguments { at: self.opcode, function, expected };
        let first = arguments[0];
        match function {
            Global::OrderedDict if count == 0 => self.push(Value::Dict(Vec::new())),
            Global::OrderedDict => Err(wrong("OrderedDict", "none")),
            Global::Device => self.push(Value::Other),
            Global::Size => match first {
                Some(id) if matches!(self.get(id), Value::Tuple(_)) => self.push_again(id),
                _ => Err(wrong("Size", "a tuple")),
            },
            Global::Parameter => match first {
                Some(id) if matches!(self.get(id), Value::Tensor(_)) => self.push_again(id),
                _ => Err(wrong("a parameter", "a tensor first")),
            },
            Global::Tensor => {
                let tensor = self.tensor(&arguments[..4], None, arguments[6]);
                let expected = "storage, offset, size, stride";
                self.push(Value::Tensor(Box::new(tensor.ok_or_else(|| wrong("_rebuild_tensor_v2", expected))?)))
            }
            Global::TensorOfDtype => {
                let dtype = arguments[6].and_then(|id| {
                    if let Value::Global(Global::DType(element)) = self.get(id) { Some(*element) } else { None }
                });
                let tensor = dtype.and_then(|dtype| self.tensor(&arguments[..4], Some(dtype), arguments[7]));
                let expected = "storage, offset, size, stride, .., dtype";
                self.push(Value::Tensor(Box::new(tensor.ok_or_else(|| wrong("_rebuild_tensor_v3", expected))?)))
            }
            Global::DType(_) | Global::Storage(_) => Err(self.operand("a type", "a function")),
        }
    }

    fn push_again(&mut self, id: Id) -> Result<(), PickleError> {
        self.stack.push(id);
        Ok(())
    }

    /// A tensor of the arguments storage, offset, size, stride; its dtype is the storage's where none is given.
    fn tensor(&self, arguments: &[Option<Id>], dtype: Option<Element>, metadata: Option<Id>) -> Option<Tensor<'p>> {
        let &[Some(storage), Some(offset), Some(size), Some(stride)] = arguments else { return None };
        match (self.get(storage), self.get(offset), self.get(size), self.get(stride)) {
            (Value::Storage(storage), Value::Int(offset), Value::Tuple(_), Value::Tuple(_)) => Some(Tensor {
                storage: *storage,
                element: dtype.or(storage.element)?,
                offset: u64::try_from(*offset).ok()?,
                size,
                stride,
                metadata,
            }),
            _ => None,
        }
    }

    /// The state of an object, which is attributes: a state dict's `_metadata`, a parameter's own. Passed over.
    fn build(&mut self) -> Result<(), PickleError> {
        self.pop()?;
        let object = self.top()?;
        let takes = matches!(self.get(object), Value::Dict(_) | Value::Tensor(_));
        if takes { Ok(()) } else { Err(self.misfit(object, "a dict or a tensor")) }
    }
}
