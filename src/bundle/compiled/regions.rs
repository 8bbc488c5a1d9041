//! Neural Engine regions: unique stems of `*_ANE_region_*` names inside `*.llir.bundle` folders.
//!
//! A region is a folder `<stem>.bc` with `<architecture>/<stem>.mlir.bc` in it, and sometimes `<stem>.bc.weights`
//! beside that. Folder and files are one region, which is why a loose glob counts it twice. The indices at the end
//! of a stem start anew for each function, so only the whole stem tells two regions apart.

use super::CompiledError;
use super::walk::Walk;
use serde::Serialize;
use std::collections::BTreeMap;

const MARK: &str = "_ANE_region_";

/// One region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// Its name, such as `main_9wemocz7YmEwKSHhsD5JpQ_0_ANE_region_0_0`.
    pub stem: String,
    /// Bytes of its code.
    pub ir_bytes: u64,
    /// Bytes of its own weights, where it has any: most regions read them from the package around them.
    pub weights_bytes: Option<u64>,
}

/// Regions by architecture and function symbol, and the stems that belong to no architecture.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub by_architecture: BTreeMap<String, BTreeMap<String, Vec<Region>>>,
    pub homeless: Vec<String>,
}

/// The stem in a file's or folder's name, and where in it the function's symbol ends.
fn stem(name: &str) -> Option<(&str, usize)> {
    // `._name` is what macOS leaves beside `name` on a foreign disk.
    if name.starts_with('.') {
        return None;
    }
    let symbol = name.rfind(MARK).filter(|at| *at > 0)?;
    let indices = symbol + MARK.len();
    let end = name[indices..].find('.').map_or(name.len(), |dot| indices + dot);
    let index = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    name[indices..end].split('_').all(index).then_some((&name[..end], symbol))
}

/// `stem` or a function's symbol with its hash cut short, for people.
pub fn short_stem(stem: &str) -> String {
    // A hash has 22 characters; no name of ours has so long a word.
    let short = |part: &str| match part.char_indices().nth(6) {
        Some((at, _)) if part.chars().count() >= 20 => format!("{}\u{2026}", &part[..at]),
        _ => part.to_string(),
    };
    stem.split('_').map(short).collect::<Vec<_>>().join("_")
}

/// What was found of one region inside one `*.llir.bundle`.
#[derive(Default)]
struct Pieces<'a> {
    /// Architecture of the delegates around it.
    outer: Option<&'a str>,
    /// Bytes of code by the architecture whose folder they are in.
    ir: BTreeMap<Option<&'a str>, u64>,
    weights: Option<u64>,
}

/// Counts the regions in `walk`.
///
/// # Errors
/// A file stands where a region has a folder, or the other way round.
pub(super) fn count(walk: &Walk) -> Result<Census, CompiledError> {
    let mut found: BTreeMap<(&str, &str), Pieces<'_>> = BTreeMap::new();
    let files = walk.files.iter().map(|(path, size)| (path.as_str(), Some(*size)));
    let folders = walk.folders.iter().map(|path| (path.as_str(), None));
    for (path, size) in folders.chain(files) {
        let Some((bundle, inside)) = split_at_bundle(path) else { continue };
        let parts: Vec<&str> = inside.split('/').collect();
        let Some(stem) = parts.iter().find_map(|part| stem(part)).map(|(stem, _)| stem) else { continue };
        let (&name, above) = parts.split_last().unwrap_or((&"", &[]));
        check_kind(path, name, stem, size.is_some())?;
        let pieces = found.entry((bundle, stem)).or_default();
        pieces.outer = outer_architecture(bundle);
        let Some(size) = size else { continue };
        if name.ends_with(".weights") {
            *pieces.weights.get_or_insert(0) += size;
        } else if name.ends_with(".mlir.bc") {
            let inner = above.last().copied().filter(|folder| self::stem(folder).is_none());
            *pieces.ir.entry(inner).or_default() += size;
        }
    }
    Ok(census(found))
}

/// What is before and after the first folder named `*.llir.bundle`.
fn split_at_bundle(path: &str) -> Option<(&str, &str)> {
    const ENDING: &str = ".llir.bundle/";
    let end = path.find(ENDING)? + ENDING.len();
    Some((&path[..end], &path[end..]))
}

/// `h18p` of `main-h18p-delegates/...`.
fn outer_architecture(path: &str) -> Option<&str> {
    super::read::delegates_of(path.split('/').next()?)
}

fn check_kind(path: &str, name: &str, stem: &str, is_file: bool) -> Result<(), CompiledError> {
    let expected = match name.strip_prefix(stem) {
        Some(".bc") if is_file => "folder",
        Some(".mlir.bc" | ".bc.weights") if !is_file => "file",
        _ => return Ok(()),
    };
    Err(CompiledError::Kind { path: path.to_string(), expected })
}

fn census(found: BTreeMap<(&str, &str), Pieces<'_>>) -> Census {
    let mut regions: BTreeMap<(&str, &str), Region> = BTreeMap::new();
    let mut census = Census::default();
    for ((_, stem), mut pieces) in found {
        if pieces.ir.is_empty() {
            pieces.ir.insert(None, 0);
        }
        for (inner, bytes) in pieces.ir {
            let Some(architecture) = inner.or(pieces.outer) else {
                census.homeless.push(stem.to_string());
                continue;
            };
            let new = || Region { stem: stem.to_string(), ir_bytes: 0, weights_bytes: None };
            let region = regions.entry((architecture, stem)).or_insert_with(new);
            region.ir_bytes += bytes;
            if let Some(weights) = pieces.weights {
                *region.weights_bytes.get_or_insert(0) += weights;
            }
        }
    }
    for ((architecture, full), region) in regions {
        let symbol = stem(full).map_or(full, |(stem, symbol)| &stem[..symbol]);
        let functions = census.by_architecture.entry(architecture.to_string()).or_default();
        functions.entry(symbol.to_string()).or_default().push(region);
    }
    census
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems() {
        for (name, want) in [
            ("main_x_0_ANE_region_0_0.bc", Some("main_x_0_ANE_region_0_0")),
            ("main_x_0_ANE_region_12_3.mlir.bc", Some("main_x_0_ANE_region_12_3")),
            ("main_x_0_ANE_region_0_0.bc.weights", Some("main_x_0_ANE_region_0_0")),
            ("v1.2_main_0_ANE_region_0.bc", Some("v1.2_main_0_ANE_region_0")),
            ("a_ANE_region_1_ANE_region_0_0.bc", Some("a_ANE_region_1_ANE_region_0_0")),
            ("_ANE_region_0_0.bc", None),
            ("main_ANE_region_.bc", None),
            ("main_ANE_region_0_.bc", None),
            ("main_ANE_region_notes.txt", None),
            ("._main_x_0_ANE_region_0_0.bc", None),
            ("main_x_0_GPU_region_0", None),
        ] {
            assert_eq!(stem(name).map(|(stem, _)| stem), want, "{name}");
        }
    }

    #[test]
    fn hashes_are_cut_short() {
        assert_eq!(short_stem("main_9wemocz7YmEwKSHhsD5JpQ_0_ANE_region_0_1"), "main_9wemoc\u{2026}_0_ANE_region_0_1");
        assert_eq!(short_stem("extend_1024_16"), "extend_1024_16");
    }
}
