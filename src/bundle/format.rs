//! Which kind of bundle a folder is.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// A bundle format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Core ML's, to be compiled.
    MlPackage,
    /// Core ML's, compiled.
    MlModelC,
    /// Core AI's, to be compiled.
    AiModel,
    /// Core AI's, compiled.
    AiModelC,
}

impl Format {
    const ALL: [Format; 4] = [Format::MlPackage, Format::MlModelC, Format::AiModel, Format::AiModelC];

    /// The ending of its folder's name.
    pub const fn ending(self) -> &'static str {
        match self {
            Format::MlPackage => "mlpackage",
            Format::MlModelC => "mlmodelc",
            Format::AiModel => "aimodel",
            Format::AiModelC => "aimodelc",
        }
    }

    /// The format of the bundle at `path`: by its ending, else by the file that only this format has.
    pub fn of(path: &Path) -> Option<Format> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        if let Some(format) = Self::ALL.into_iter().find(|format| Some(format.ending()) == ending) {
            return Some(format);
        }
        let has = |name: &str| path.join(name).is_file();
        let of_file = [
            ("Manifest.json", Format::MlPackage),
            ("coremldata.bin", Format::MlModelC),
            ("main.mlirb", Format::AiModel),
            ("main.hash", Format::AiModelC),
        ];
        of_file.into_iter().find(|(name, _)| has(name)).map(|(_, format)| format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_ending_then_by_content() {
        for format in Format::ALL {
            assert_eq!(Format::of(&Path::new("absent").with_extension(format.ending())), Some(format));
        }
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Format::of(dir.path()), None);
        fs_err::write(dir.path().join("main.hash"), "").unwrap();
        assert_eq!(Format::of(dir.path()), Some(Format::AiModelC));
        fs_err::write(dir.path().join("main.mlirb"), "").unwrap();
        assert_eq!(Format::of(dir.path()), Some(Format::AiModel));
    }
}
