//! A cursor over protobuf bytes. It borrows, so what it reads costs no memory, and it stops at a fixed depth.

use super::error::{WireError, WireFault};

/// Messages nested deeper than this are refused; a package of any tool needs fewer than twenty.
const DEPTH: u32 = 48;

/// The fields of one message, in order.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    rest: &'a [u8],
    /// Offset of `rest` in the file.
    at: usize,
    depth: u32,
}

/// One field.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    /// Its number.
    pub number: u64,
    /// Offset of its value in the file.
    at: usize,
    depth: u32,
    payload: Payload<'a>,
}

#[derive(Clone, Copy)]
enum Payload<'a> {
    Varint(u64),
    Word64([u8; 8]),
    Word32([u8; 4]),
    Bytes(&'a [u8]),
}

impl<'a> Message<'a> {
    /// The message that a whole file is.
    pub fn file(bytes: &'a [u8]) -> Message<'a> {
        Message { rest: bytes, at: 0, depth: 0 }
    }

    /// The next field, or `None` at the end.
    pub fn next(&mut self) -> Result<Option<Field<'a>>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let (number, kind) = (tag >> 3, tag & 7);
        if number == 0 {
            return Err(self.fault(WireFault::FieldZero));
        }
        let at = self.at;
        let payload = match kind {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Word64(self.word()?),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| self.fault(WireFault::Truncated))?;
                Payload::Bytes(self.take(length)?)
            }
            5 => Payload::Word32(self.word()?),
            other => return Err(self.fault(WireFault::Type { found: other })),
        };
        let at = if let Payload::Bytes(bytes) = payload { self.at - bytes.len() } else { at };
        Ok(Some(Field { number, at, depth: self.depth, payload }))
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.word::<1>()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.fault(WireFault::LongVarint))
    }

    fn word<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.fault(WireFault::Truncated))?;
        (self.rest, self.at) = (rest, self.at + N);
        Ok(*head)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.fault(WireFault::Truncated))?;
        (self.rest, self.at) = (rest, self.at + length);
        Ok(head)
    }

    fn fault(&self, fault: WireFault) -> WireError {
        WireError { offset: self.at, fault }
    }
}

impl<'a> Field<'a> {
    /// A number; negative ones come sign-extended to 64 bits.
    pub fn number(&self) -> Result<u64, WireError> {
        if let Payload::Varint(value) = self.payload { Ok(value) } else { Err(self.unexpected("a number")) }
    }

    /// Raw bytes.
    pub fn bytes(&self) -> Result<&'a [u8], WireError> {
        if let Payload::Bytes(bytes) = self.payload { Ok(bytes) } else { Err(self.unexpected("bytes")) }
    }

    /// Text.
    pub fn text(&self) -> Result<String, WireError> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(str::to_owned).map_err(|_| WireError { offset: self.at, fault: WireFault::NotText })
    }

    /// A message within the message.
    pub fn message(&self) -> Result<Message<'a>, WireError> {
        if self.depth >= DEPTH {
            return Err(WireError { offset: self.at, fault: WireFault::Depth { max: DEPTH } });
        }
        Ok(Message { rest: self.bytes()?, at: self.at, depth: self.depth + 1 })
    }

    /// Calls `take` for each of a repeated field's numbers, packed or not.
    pub fn numbers(&self, mut take: impl FnMut(u64)) -> Result<(), WireError> {
        match self.payload {
            Payload::Varint(value) => take(value),
            Payload::Bytes(bytes) => {
                let mut packed = Message { rest: bytes, at: self.at, depth: self.depth };
                while !packed.rest.is_empty() {
                    take(packed.varint()?);
                }
            }
            Payload::Word32(_) | Payload::Word64(_) => return Err(self.unexpected("numbers")),
        }
        Ok(())
    }

    /// The little-endian bytes of a repeated field of fixed words of `N` bytes, packed or not.
    pub fn words<const N: usize>(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self.payload {
            Payload::Bytes(bytes) if bytes.len().is_multiple_of(N) => out.extend_from_slice(bytes),
            Payload::Word32(word) if N == 4 => out.extend_from_slice(&word),
            Payload::Word64(word) if N == 8 => out.extend_from_slice(&word),
            Payload::Bytes(_) | Payload::Word32(_) | Payload::Word64(_) | Payload::Varint(_) => {
                return Err(self.unexpected("fixed words"));
            }
        }
        Ok(())
    }

    /// An error at this field.
    pub fn fault(&self, fault: WireFault) -> WireError {
        WireError { offset: self.at, fault }
    }

    fn unexpected(&self, want: &'static str) -> WireError {
        WireError { offset: self.at, fault: WireFault::Unexpected { field: self.number, want } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(bytes: &[u8]) -> Result<Option<Field<'_>>, WireError> {
        Message::file(bytes).next()
    }

    #[test]
    fn fields_that_read() {
        assert!(first(&[]).unwrap().is_none());
        assert_eq!(first(&[0x08, 0x96, 0x01]).unwrap().unwrap().number().unwrap(), 150);
        assert_eq!(first(&[0x12, 2, b'h', b'i']).unwrap().unwrap().text().unwrap(), "hi");
        let mut numbers = Vec::new();
        first(&[0x1a, 3, 1, 0x80, 1]).unwrap().unwrap().numbers(|n| numbers.push(n)).unwrap();
        assert_eq!(numbers, [1, 128]);
        let mut words = Vec::new();
        first(&[0x0d, 0, 0, 0x80, 0x3f]).unwrap().unwrap().words::<4>(&mut words).unwrap();
        assert_eq!(words, 1f32.to_le_bytes());
    }

    #[test]
    fn fields_that_do_not() {
        let cases: [(&[u8], &str); 7] = [
            (&[0x08], "byte 1: the message ends within a field"),
            (&[0x08, 0x80], "byte 2: the message ends within a field"),
            (&[0x12, 5, 1], "byte 2: the message ends within a field"),
            (
                &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                "byte 11: the message ends within a field",
            ),
            (&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], "byte 11: a number of more than 64 bits"),
            (&[0x0b], "byte 1: wire type 3, expected 0, 1, 2 or 5"),
            (&[0x00], "byte 1: field number 0"),
        ];
        for (bytes, want) in cases {
            assert_eq!(first(bytes).map(|_| ()).unwrap_err().to_string(), want, "{bytes:?}");
        }
        assert!(first(&[0x08, 1]).unwrap().unwrap().text().is_err());
        assert!(first(&[0x12, 1, 0xff]).unwrap().unwrap().text().is_err());
    }

    #[test]
    fn depth_is_bounded() {
        let mut bytes = Vec::new();
        for _ in 0..100 {
            let inner = bytes;
            bytes = vec![0x0a, u8::try_from(inner.len()).unwrap_or(0)];
            bytes.extend_from_slice(&inner);
        }
        fn descend(mut message: Message<'_>) -> Result<u32, WireError> {
            match message.next()? {
                Some(field) => Ok(1 + descend(field.message()?)?),
                None => Ok(0),
            }
        }
        bytes.truncate(255);
        assert!(descend(Message::file(&bytes)).is_err());
        assert_eq!(descend(Message::file(&[0x0a, 2, 0x0a, 0])).unwrap(), 2);
    }
}
