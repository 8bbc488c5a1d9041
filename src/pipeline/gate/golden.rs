//! Golden files: one clip each, safetensors, and what weights the reference had by `source_sha256` in the header.

use super::clip_files::{ClipFilesError, by_name};
use super::evidence::{Evidence, EvidenceError, EvidenceKind};
use crate::checkpoint::Checkpoint;
use crate::digest::Digest;
use crate::eval::{HostTensor, Values};
use crate::gate::{Golden, Tensors};
use crate::pipeline::RunError;
use crate::pipeline::run::read_tensor;
use crate::tensor::{DType, Fact, SourceError, WeightSource};
use std::path::{Path, PathBuf};

/// Key in a golden's `__metadata__`: SHA-256 of each weights file of the reference, with commas between.
const SOURCE_KEY: &str = "source_sha256";

/// A golden and where it is from.
#[derive(Debug)]
pub struct GoldenFile {
    /// The file.
    pub path: PathBuf,
    /// Digests of the weights that the reference had; none where it does not tell.
    pub sources: Vec<Digest>,
    /// The clip, called as the file without its ending.
    pub golden: Golden,
    /// The file as it was read.
    pub evidence: Evidence,
}

/// Why golden files cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum GoldenFileError {
    #[error("golden {} cannot be used", path.display())]
    Tensor {
        path: PathBuf,
        #[source]
        source: Box<RunError>,
    },
    #[error("golden {}: tensor {tensor} could not be read", path.display())]
    Read { path: PathBuf, tensor: &'static str, source: SourceError },
    #[error("golden {}: {tensor} has {value}, which is no 32-bit integer", path.display())]
    TooLarge { path: PathBuf, tensor: &'static str, value: i64 },
    #[error("golden {}: {SOURCE_KEY} is {found:?}, expected SHA-256 digests of 64 hexadecimal digits", path.display())]
    Source { path: PathBuf, found: String },
    #[error(transparent)]
    Files(#[from] ClipFilesError),
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
}

/// Reads the `tensors` of every file of `given`, and of every `.safetensors` of the folders among them, sorted by name.
/// Other tensors are left alone.
///
/// # Errors
/// One cannot be read, is malformed or is called as another; a folder has none.
pub fn read_all(given: &[PathBuf], tensors: &[&'static str]) -> Result<Vec<GoldenFile>, GoldenFileError> {
    by_name(given, "safetensors")?.into_iter().map(|(name, path)| read(name, path, tensors)).collect()
}

fn read(name: String, path: PathBuf, tensors: &[&'static str]) -> Result<GoldenFile, GoldenFileError> {
    let ((tensors, sources), evidence) = Evidence::of(EvidenceKind::Golden, &path, || content(&path, tensors))?;
    Ok(GoldenFile { path, sources, golden: Golden { name, tensors }, evidence })
}

/// The tensors that are `wanted`, and the digests of the reference's weights.
fn content(path: &Path, wanted: &[&'static str]) -> Result<(Tensors, Vec<Digest>), GoldenFileError> {
    let unusable = |source: RunError| GoldenFileError::Tensor { path: path.into(), source: Box::new(source) };
    let file = Checkpoint::open_file(path).map_err(|e| unusable(e.into()))?;
    let mut tensors = Tensors::new();
    for tensor in wanted.iter().copied() {
        let found = match file.fact(tensor) {
            Some(fact) if fact.dtype == DType::I64 => Some(narrowed(&file, tensor, fact, path)?),
            Some(_) | None => read_tensor(&file, tensor, path).map_err(unusable)?,
        };
        tensors.extend(found.map(|found| (tensor.to_string(), found)));
    }
    let sources = file.metadata(SOURCE_KEY).map_or(Ok(Vec::new()), |found| sources(found, path))?;
    Ok((tensors, sources))
}

fn sources(found: &str, path: &Path) -> Result<Vec<Digest>, GoldenFileError> {
    let one = |digits: &str| serde_json::from_value::<Digest>(digits.trim().into());
    let all = found.split(',').map(one).collect::<Result<Vec<_>, _>>();
    all.map_err(|_| GoldenFileError::Source { path: path.into(), found: found.into() })
}

/// PyTorch counts and indexes in 64 bits; what is counted here fits in 32.
fn narrowed(file: &Checkpoint, tensor: &'static str, fact: &Fact, path: &Path) -> Result<HostTensor, GoldenFileError> {
    let mut bytes = vec![0u8; fact.bytes()];
    let read = |source| GoldenFileError::Read { path: path.into(), tensor, source };
    file.read(tensor, 0, &mut bytes).map_err(read)?;
    let value = |b: &[u8; 8]| {
        let value = i64::from_le_bytes(*b);
        i32::try_from(value).map_err(|_| GoldenFileError::TooLarge { path: path.into(), tensor, value })
    };
    let values = bytes.as_chunks::<8>().0.iter().map(value).collect::<Result<Vec<i32>, _>>()?;
    let host = |source| RunError::Host { name: tensor.into(), path: path.into(), source };
    HostTensor::new(Fact { dtype: DType::I32, shape: fact.shape.clone() }, Values::I32(values))
        .map_err(|e| GoldenFileError::Tensor { path: path.into(), source: Box::new(host(e)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Named, write_safetensors};

    fn write(path: &Path, tensors: &[(&str, DType, Vec<u8>)]) {
        let facts: Vec<Fact> = tensors.iter().map(|(_, d, bytes)| Fact::new(*d, [bytes.len() / d.size()])).collect();
        let named = tensors.iter().zip(&facts).map(|((name, _, bytes), fact)| Named { name, fact, bytes }).collect();
        write_safetensors(named, fs_err::File::create(path).unwrap()).unwrap();
    }

    #[test]
    fn files_and_folders() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let told = |paths: &[&str]| {
            let paths: Vec<PathBuf> = paths.iter().map(|p| at(p)).collect();
            let names = |files: Vec<GoldenFile>| files.into_iter().map(|f| f.golden.name).collect::<Vec<_>>();
            read_all(&paths, &["n_tokens"])
                .map(names)
                .map_err(|e| e.to_string().replace(dir.path().to_str().unwrap(), ""))
        };
        fs_err::create_dir_all(at("clips")).unwrap();
        insta::assert_snapshot!(told(&["clips"]).unwrap_err(), @"folder /clips has no .safetensors file");
        insta::assert_snapshot!(told(&["absent"]).unwrap_err(), @"golden /absent cannot be used");
        for name in ["clips/b.safetensors", "clips/a.safetensors", "clips/notes.txt", "c.safetensors"] {
            write(&at(name), &[("n_tokens", DType::I64, 7i64.to_le_bytes().to_vec())]);
        }
        assert_eq!(told(&["c.safetensors", "clips"]), Ok(vec!["a".into(), "b".into(), "c".into()]));
        insta::assert_snapshot!(told(&["clips", "clips/a.safetensors"]).unwrap_err(), @"/clips/a.safetensors and /clips/a.safetensors are both called a");
    }

    #[test]
    fn tensors_that_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clip.safetensors");
        let hide = |e: GoldenFileError| e.to_string().replace(dir.path().to_str().unwrap(), "");
        let read = |dtype, bytes: Vec<u8>| {
            // A tensor of another name is not looked at.
            write(&path, &[("n_tokens", dtype, bytes), ("other", DType::U8, vec![1])]);
            read_all(std::slice::from_ref(&path), &["n_tokens"])
                .map(|mut files| files.remove(0).golden.tensors)
                .map_err(hide)
        };
        let wide = |value: i64| value.to_le_bytes().to_vec();
        let found = read(DType::I64, wide(-7)).unwrap();
        assert_eq!((found.len(), found["n_tokens"].values()), (1, &Values::I32(vec![-7])));
        insta::assert_snapshot!(read(DType::I64, wide(1 << 31)).unwrap_err(), @"golden /clip.safetensors: n_tokens has 2147483648, which is no 32-bit integer");
        insta::assert_snapshot!(read(DType::U8, vec![1]).unwrap_err(), @"golden /clip.safetensors cannot be used");
        insta::assert_snapshot!(read(DType::F32, f32::NAN.to_le_bytes().to_vec()).unwrap_err(), @"golden /clip.safetensors cannot be used");
    }

    #[test]
    fn digests_of_the_source() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let read = |text: &str| sources(text, Path::new("clip")).map_err(|e| e.to_string());
        assert_eq!(read(&format!("{a}, {b}")), Ok(vec![a, b]));
        insta::assert_snapshot!(read("").unwrap_err(), @r#"golden clip: source_sha256 is "", expected SHA-256 digests of 64 hexadecimal digits"#);
        assert!(read(&format!("{a},")).is_err() && read(&a.to_string()[1..]).is_err());
    }
}
