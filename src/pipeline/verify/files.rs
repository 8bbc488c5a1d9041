//! Every file of a release, against the list of digests and against the record.

use super::fault::Fault;
use crate::bundle::{FileDigest, Listing, Tree, TreeError};
use crate::digest::Digest;
use crate::files;
use crate::pipeline::told::chain;
use crate::provenance::release::{RELEASE_FILE, ReleaseRecord, STATEMENT_FILE, SUMS_FILE};
use crate::provenance::texts::{listed as sums_of, sums};
use std::collections::BTreeMap;
use std::path::Path;

/// All that is there, the list of digests apart. What is no regular file that can be read is a fault of its own.
///
/// # Errors
/// The system has no more files to open.
pub fn listed(folder: &Path, faults: &mut Vec<Fault>) -> Result<Listing, TreeError> {
    let mut listing = Listing::of(folder)?;
    listing.tree.files.retain(|file| file.path != SUMS_FILE);
    faults.extend(listing.odd.values().map(|error| Fault::Unreadable { why: chain(error) }));
    Ok(listing)
}

/// Holds the files against both lists, and tells each fault once.
pub fn check(folder: &Path, listing: &Listing, record: Option<&ReleaseRecord>, faults: &mut Vec<Fault>) {
    let there = &listing.tree;
    let found: BTreeMap<&str, Digest> = there.files.iter().map(|file| (file.path.as_str(), file.sha256)).collect();
    let text = files::read(&folder.join(SUMS_FILE), files::TEXT_MAX);
    let mut lists: Vec<(&str, BTreeMap<String, Digest>)> = Vec::new();
    match text.map(String::from_utf8) {
        Ok(Ok(text)) => {
            let (list, wrong) = sums_of(&text);
            if list == found && wrong.is_empty() && text != sums(&there.files) {
                faults.push(Fault::Form { file: SUMS_FILE });
            }
            let short = |line: &str| line.chars().take(120).collect();
            faults.extend(wrong.iter().map(|(at, line)| Fault::Line {
                file: SUMS_FILE,
                line: *at,
                found: short(line),
            }));
            lists.push((SUMS_FILE, list.into_iter().map(|(path, sha256)| (path.to_string(), sha256)).collect()));
        }
        Ok(Err(_)) => faults.push(Fault::Unreadable { why: format!("{SUMS_FILE} is not UTF-8 text") }),
        Err(error) => faults.push(Fault::Unreadable { why: format!("{SUMS_FILE} could not be read: {error}") }),
    }
    if let Some(record) = record {
        let mut list: BTreeMap<String, Digest> = files_of(record).map(|(path, file)| (path, file.sha256)).collect();
        // It cannot have its own digest, nor that of what is made of it.
        for own in [RELEASE_FILE, STATEMENT_FILE] {
            list.extend(found.get(own).map(|sha256| (own.to_string(), *sha256)));
        }
        lists.push((RELEASE_FILE, list));
    }
    let lists_named = lists.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" and ");
    // No list has folders, so one without files is in none.
    faults.extend(listing.empty.iter().map(|path| Fault::Extra { path: path.clone(), by: lists_named.clone() }));
    let before = faults.len();
    held(&found, &lists, faults);
    // What is there and cannot be read was told of already.
    let told = |path: &str| {
        let of =
            |odd: &String| path.strip_prefix(odd.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        listing.odd.keys().any(of)
    };
    let held = faults.split_off(before);
    faults.extend(held.into_iter().filter(|fault| !matches!(fault, Fault::Missing { path, .. } if told(path))));
    if let Some(record) = record {
        sizes(there, record, faults);
    }
}

/// The size of every file that has the digest it should have.
fn sizes(there: &Tree, record: &ReleaseRecord, faults: &mut Vec<Fault>) {
    let real: BTreeMap<&str, &FileDigest> = there.files.iter().map(|file| (file.path.as_str(), file)).collect();
    for (path, listed) in files_of(record) {
        let Some(real) = real.get(path.as_str()).filter(|real| real.sha256 == listed.sha256) else { continue };
        if real.size != listed.size {
            let (found, follows) = (listed.size.to_string(), real.size.to_string());
            faults.push(Fault::Field { field: format!("{path}: size"), found, follows });
        }
    }
}

/// All that the record lists, by paths in the release.
pub fn files_of(record: &ReleaseRecord) -> impl Iterator<Item = (String, &FileDigest)> {
    let bundles = record.artefacts.iter();
    let inside =
        bundles.flat_map(|bundle| bundle.files.iter().map(move |f| (format!("{}/{}", bundle.name, f.path), f)));
    inside.chain(record.files.iter().map(|file| (file.path.clone(), file)))
}

fn held(found: &BTreeMap<&str, Digest>, lists: &[(&str, BTreeMap<String, Digest>)], faults: &mut Vec<Fault>) {
    let listed = lists.iter().flat_map(|(_, list)| list.keys().map(String::as_str));
    let mut paths: Vec<&str> = found.keys().copied().chain(listed).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let by = |fits: &dyn Fn(Option<&Digest>) -> bool| {
            let names = lists.iter().filter(|(_, list)| fits(list.get(path))).map(|(name, _)| *name);
            names.collect::<Vec<_>>().join(" and ")
        };
        let path = path.to_string();
        match found.get(path.as_str()) {
            None => faults.push(Fault::Missing { path: path.clone(), by: by(&|listed| listed.is_some()) }),
            Some(found) => {
                let without = by(&|listed| listed.is_none());
                if !without.is_empty() {
                    faults.push(Fault::Extra { path: path.clone(), by: without });
                }
                let others = lists.iter().filter_map(|(_, list)| list.get(&path)).filter(|listed| *listed != found);
                let mut others: Vec<Digest> = others.copied().collect();
                others.dedup();
                for recorded in others {
                    let by = by(&|listed| listed == Some(&recorded));
                    faults.push(Fault::Changed { path: path.clone(), found: *found, recorded, by });
                }
            }
        }
    }
}
