//! The bundles of a release, each opened by the reader of its format.

use super::fault::Fault;
use crate::bundle::compiled::{CompiledBundle, Identity};
use crate::bundle::{AiModel, Format};
use crate::digest::Digest;
use crate::emit::mil::read::Package;
use crate::pipeline::told::chain;
use crate::provenance::release::{ReleaseRecord, Released};
use std::path::Path;

/// Opens every bundle and holds what it says of itself against the record; gives their identities.
pub fn check(folder: &Path, record: &ReleaseRecord, faults: &mut Vec<Fault>) -> Vec<Identity> {
    for bundle in &record.artefacts {
        let path = folder.join(&bundle.name);
        // What is not there was told of with its files.
        if path.is_dir() {
            faults
                .extend(one(&path, bundle).into_iter().map(|why| Fault::Bundle { artefact: bundle.name.clone(), why }));
        }
    }
    let identity = |bundle: &Released| Identity {
        name: format!("{}/{}", record.name, bundle.name),
        main_hash: bundle.main_hash,
        digest_root: bundle.digest_root,
    };
    record.artefacts.iter().map(identity).collect()
}

fn one(path: &Path, bundle: &Released) -> Vec<String> {
    match bundle.format {
        Format::MlPackage => match Package::open(path) {
            Ok(package) => {
                let lifts = package.functions().iter().filter_map(|function| package.lift(&function.name).err());
                let lifts: Vec<String> = lifts.map(|error| chain(&error)).collect();
                package.violations().iter().map(ToString::to_string).chain(lifts).collect()
            }
            Err(error) => vec![chain(&error)],
        },
        Format::AiModel => match AiModel::open(path) {
            Ok(model) if model.hash.is_wrong() => vec![format!("main.hash is wrong: {}", model.hash)],
            Ok(model) => hash(bundle, model.hash.declared()),
            Err(error) => vec![chain(&error)],
        },
        Format::AiModelC => match CompiledBundle::open(path) {
            Ok(compiled) => compiled_faults(&compiled, bundle),
            Err(error) => vec![chain(&error)],
        },
        Format::MlModelC => Vec::new(),
    }
}

fn compiled_faults(compiled: &CompiledBundle, bundle: &Released) -> Vec<String> {
    let mut faults: Vec<String> = compiled.faults().iter().map(ToString::to_string).collect();
    let recorded = &bundle.regions.architectures;
    for (name, count) in recorded {
        match compiled.architectures.get(name) {
            Some(architecture) if architecture.region_count() == count.found => {}
            Some(architecture) => faults.push(format!(
                "{name}: regions found {}, the record has {}",
                architecture.region_count(),
                count.found
            )),
            None => faults.push(format!("the record has regions of {name}, which the bundle lacks")),
        }
        if let Some(expected) = count.expected.filter(|expected| *expected != count.found) {
            faults.push(format!("{name}: regions expected {expected}, the record has {}", count.found));
        }
    }
    let untold = compiled.architectures.keys().filter(|name| !recorded.contains_key(*name));
    faults.extend(untold.map(|name| format!("the record has no regions of {name}")));
    faults.extend(hash(bundle, compiled.hash.declared()));
    faults
}

fn hash(bundle: &Released, declared: Option<Digest>) -> Vec<String> {
    if declared == bundle.main_hash {
        return Vec::new();
    }
    let show = |digest: Option<Digest>| digest.map_or_else(|| "none".to_string(), |d| d.to_string());
    vec![format!("main.hash is {}, the record has {}", show(declared), show(bundle.main_hash))]
}
