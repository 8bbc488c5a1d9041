//! SHA-256 digests, and readers that hash while they stream. Level 0.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, Read};
use std::path::Path;

/// A SHA-256 digest; prints as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Digest of bytes at hand.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// Digest of all that `reader` yields, and how many bytes that was.
    ///
    /// # Errors
    /// The reader's.
    pub fn of_reader(mut reader: impl Read) -> io::Result<(Digest, u64)> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0u8; 1 << 20];
        let mut total = 0;
        loop {
            match reader.read(&mut buffer)? {
                0 => return Ok((Digest(hash.finalize().into()), total)),
                n => {
                    hash.update(&buffer[..n]);
                    total += n as u64;
                }
            }
        }
    }

    /// Digest of a file's content, and its length.
    ///
    /// # Errors
    /// The file cannot be opened or read; the message names it.
    pub fn of_file(path: &Path) -> io::Result<(Digest, u64)> {
        Self::of_reader(fs_err::File::open(path)?)
    }

    /// A digest computed elsewhere, by a hasher that does more than one thing in a pass.
    pub fn from_bytes(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest root of a set of files: the digest of its sorted lines `sha256  path`, each ended by a newline.
    ///
    /// The same text `sha256sum` prints, so that anyone can reproduce it.
    pub fn root<'a>(files: impl IntoIterator<Item = (&'a str, Digest)>) -> Digest {
        let mut lines: Vec<String> = files.into_iter().map(|(path, digest)| format!("{digest}  {path}\n")).collect();
        lines.sort();
        Digest::of(lines.concat().as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(d)?;
        let wrong = || serde::de::Error::custom("expected 64 hexadecimal digits");
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut bytes = [0u8; 32];
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(wrong());
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
            *byte = digit(*high).zip(digit(*low)).map(|(h, l)| h << 4 | l).ok_or_else(wrong)?;
        }
        Ok(Digest(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(Digest::of(b"abc").to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Digest::of_reader(&b"abc"[..]).unwrap(), (Digest::of(b"abc"), 3));
    }

    #[test]
    fn json_there_and_back() {
        let json = serde_json::to_string(&Digest::of(b"abc")).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), Digest::of(b"abc"));
        for wrong in [&json[..json.len() - 2], &json.replacen('b', "g", 1), "\"\"", "1"] {
            assert!(serde_json::from_str::<Digest>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn root_does_not_depend_on_order() {
        let (a, b) = (("x/a", Digest::of(b"1")), ("b", Digest::of(b"2")));
        assert_eq!(Digest::root([a, b]), Digest::root([b, a]));
        assert_ne!(Digest::root([a, b]), Digest::root([a]));
    }
}
