//! The zip archive: which members there are and where their bytes lie. Nothing is unpacked, so nothing may be packed.

use super::PyTorchError;
use crate::checkpoint::CheckpointError;
use crate::checkpoint::format::Input;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

/// Longest pickle that is read. A tensor takes about 160 bytes of it.
const PICKLE_MAX: u64 = 1 << 23;

/// A zip archive that holds no state dict.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("is not a whole zip archive: {0}")]
    Zip(ZipError),
    #[error(
        "is a zip archive without a data.pkl, expected one written by torch.save; from an .npz save one array as .npy"
    )]
    NoPickle,
    #[error("is a zip archive with several data.pkl: {}", .found.join(", "))]
    Pickles { found: Vec<String> },
    #[error("is a TorchScript archive ({member}), which holds code; save the module's state_dict() with torch.save")]
    TorchScript { member: String },
    #[error("has {member} twice in its archive")]
    Twice { member: String },
    #[error("is an archive whose {member} is {state}; torch.save stores members as they are")]
    Packed { member: String, state: &'static str },
    #[error("is an archive whose {member} takes bytes {begin}..{end}, but the file has {len}")]
    Beyond { member: String, begin: u64, end: u64, len: u64 },
    #[error("was saved on a {found:?}-endian machine, expected \"little\"")]
    ByteOrder { found: String },
    #[error("has a data.pkl of {found} bytes; at most {PICKLE_MAX} are read")]
    LongPickle { found: u64 },
}

/// The members that matter and where their bytes lie in the file.
#[derive(Debug)]
pub struct Archive {
    pickle: Range<u64>,
    /// By the storage's key: what follows `<root>/data/`.
    storages: BTreeMap<String, Range<u64>>,
}

impl Archive {
    /// Reads the directory of the archive.
    ///
    /// # Errors
    /// It is malformed, or not of a state dict.
    pub fn open(input: &Input<'_>) -> Result<Archive, CheckpointError> {
        let refuse =
            |why: ArchiveError| CheckpointError::PyTorch { file: input.name.into(), why: PyTorchError::from(why) };
        let (root, members) = members(input).map_err(refuse)?;
        let member = |name: &str| members.get(&format!("{root}{name}")).cloned();
        if let Some(order) = member("byteorder") {
            let found = input.bytes(order.start, (order.end - order.start).min(16) as usize)?;
            if found != b"little" {
                let found = String::from_utf8_lossy(&found).into_owned();
                return Err(refuse(ArchiveError::ByteOrder { found }));
            }
        }
        let pickle = member("data.pkl").unwrap_or_default();
        let data = format!("{root}data/");
        let storage = |(name, range): (&String, &Range<u64>)| Some((name.strip_prefix(&data)?.into(), range.clone()));
        Ok(Archive { pickle, storages: members.iter().filter_map(storage).collect() })
    }

    /// The bytes of the pickle.
    ///
    /// # Errors
    /// It is longer than any state dict's, or cannot be read.
    pub fn pickle(&self, input: &Input<'_>) -> Result<Vec<u8>, CheckpointError> {
        let found = self.pickle.end - self.pickle.start;
        if found > PICKLE_MAX {
            let why = ArchiveError::LongPickle { found }.into();
            return Err(CheckpointError::PyTorch { file: input.name.into(), why });
        }
        input.bytes(self.pickle.start, found as usize)
    }

    /// An archive of nothing but storages.
    #[cfg(test)]
    pub fn of_storages<const N: usize>(storages: [(&str, Range<u64>); N]) -> Archive {
        Archive { pickle: 0..0, storages: storages.into_iter().map(|(key, place)| (key.into(), place)).collect() }
    }

    /// Where the storage of that key lies in the file.
    pub fn storage(&self, key: &str) -> Option<Range<u64>> {
        self.storages.get(key).cloned()
    }
}

/// Opens the archive and reads its directory: the folder that all members are in, with its slash, and each member's
/// place.
fn members(input: &Input<'_>) -> Result<(String, BTreeMap<String, Range<u64>>), ArchiveError> {
    let mut archive = ZipArchive::new(BufReader::new(input.file)).map_err(ArchiveError::Zip)?;
    let names = archive.file_names().map(|name| Ok(name?.into_owned())).collect::<Result<Vec<String>, _>>();
    let names = names.map_err(ArchiveError::Zip)?;
    let root = root(&names)?.to_string();
    let mut members = BTreeMap::new();
    for (i, member) in names.into_iter().enumerate() {
        let place = place(&mut archive, i, &member, input.len)?;
        if members.insert(member.clone(), place).is_some() {
            return Err(ArchiveError::Twice { member });
        }
    }
    // The directory keeps one of two members whose names are the same bytes.
    if archive.has_duplicate_names() {
        return Err(ArchiveError::Twice { member: "a member".into() });
    }
    Ok((root, members))
}

/// Where member `i` lies in the file, as it is.
fn place(
    archive: &mut ZipArchive<BufReader<&File>>,
    i: usize,
    member: &str,
    len: u64,
) -> Result<Range<u64>, ArchiveError> {
    let file = archive.by_index_raw(i).map_err(ArchiveError::Zip)?;
    let packed = |state| ArchiveError::Packed { member: member.into(), state };
    if file.encrypted() {
        return Err(packed("encrypted"));
    }
    if file.compression() != CompressionMethod::Stored || file.size() != file.compressed_size() {
        return Err(packed("compressed"));
    }
    let begin = file.data_start().unwrap_or(u64::MAX);
    let end = begin.saturating_add(file.size());
    if end > len {
        return Err(ArchiveError::Beyond { member: member.into(), begin, end, len });
    }
    Ok(begin..end)
}

/// The folder that holds `data.pkl`, with its slash; of a state dict, not of a module with its code.
fn root(names: &[String]) -> Result<&str, ArchiveError> {
    let roots: Vec<&str> = names.iter().filter_map(|m| m.strip_suffix("data.pkl")).filter(slash).collect();
    let root = match &roots[..] {
        [] => return Err(ArchiveError::NoPickle),
        [one] => *one,
        several => {
            return Err(ArchiveError::Pickles { found: several.iter().map(|r| format!("{r}data.pkl")).collect() });
        }
    };
    let code = |m: &&String| m.strip_prefix(root).is_some_and(|m| m == "constants.pkl" || m.starts_with("code/"));
    match names.iter().find(code) {
        Some(member) => Err(ArchiveError::TorchScript { member: member.clone() }),
        None => Ok(root),
    }
}

fn slash(root: &&str) -> bool {
    root.is_empty() || root.ends_with('/')
}
