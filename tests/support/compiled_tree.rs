//! Builds `.aimodelc` trees of the form that coreai-build writes, right or wrong.

use eg2_convert::digest::Digest;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Region hash of a bundle without regions.
pub const NO_REGIONS: &str = "CB3FA77A6B0458BC550AB7C272729A68FA6D74ED03463EC907576A0DD82B027D_\
                              E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855";

/// A bundle in a folder of its own.
pub struct Tree {
    pub root: PathBuf,
}

/// What a manifest says.
#[derive(Default)]
pub struct Manifest<'a> {
    pub hashes: BTreeMap<&'a str, String>,
    /// Attributes by entry function.
    pub entries: BTreeMap<&'a str, Vec<&'a str>>,
    pub bundles: Vec<&'a str>,
}

/// The symbol of function `name`; its hash is one character repeated.
pub fn symbol(name: &str, hash: char) -> String {
    format!("{name}_{}_0", hash.to_string().repeat(22))
}

/// The package of an architecture's only delegate.
pub fn package(architecture: &str) -> String {
    format!("main-{architecture}-delegates/MPSGraph/mpsExecutable.mpsgraphpackage")
}

impl Tree {
    /// An empty folder `name` in `folder`.
    pub fn empty(folder: &Path, name: &str) -> Tree {
        let root = folder.join(name);
        fs_err::create_dir_all(&root).unwrap();
        Tree { root }
    }

    /// A bundle without regions for the architectures, with a hash that fits the first stub.
    pub fn new(folder: &Path, name: &str, architectures: &[&str]) -> Tree {
        let tree = Self::empty(folder, name);
        for architecture in architectures {
            let stub = format!("ML\u{ef}R\0{architecture}\0preferredDevice=NeuralEngine\0main\0");
            tree.write(&format!("main-{architecture}.mlirb"), stub.as_bytes());
            tree.write(&format!("{}/resources.bin", package(architecture)), b"weights");
        }
        let first = fs_err::read(tree.root.join(format!("main-{}.mlirb", architectures[0]))).unwrap();
        tree.write("main.hash", Digest::of(&first).bytes());
        tree.write("metadata.json", br#"{"assetVersion": "2.0", "producer": "coreai-build-3600.67.5.8.1"}"#);
        tree.write("stats.json", br#"{"operationDistribution":[{"count":3,"name":"mul"},{"name":"add","count":2}]}"#);
        tree
    }

    /// Writes a file and the folders above it.
    pub fn write(&self, path: &str, bytes: &[u8]) {
        let full = self.root.join(path);
        fs_err::create_dir_all(full.parent().unwrap()).unwrap();
        fs_err::write(full, bytes).unwrap();
    }

    /// A region of six bytes of code, and of that many bytes of weights.
    pub fn region(&self, architecture: &str, stem: &str, weights: Option<usize>) {
        let folder = format!("{}/binary_0.llir.bundle/{stem}.bc", package(architecture));
        self.write(&format!("{folder}/{architecture}/{stem}.mlir.bc"), b"region");
        if let Some(bytes) = weights {
            self.write(&format!("{folder}/{stem}.bc.weights"), &vec![7; bytes]);
        }
    }

    /// The manifest of an architecture's package.
    pub fn manifest(&self, architecture: &str, manifest: &Manifest<'_>) {
        let dict = |entries: Vec<(String, String)>| {
            let entries: String = entries.iter().map(|(key, value)| format!("<key>{key}</key>{value}")).collect();
            format!("<dict>{entries}</dict>")
        };
        let string = |text: &str| format!("<string>{text}</string>");
        let hashes = manifest.hashes.iter().map(|(key, hash)| (key.to_string(), string(hash)));
        let entries = manifest.entries.iter().map(|(symbol, flags)| {
            let flags: String = flags.iter().map(|flag| string(flag)).collect();
            (symbol.to_string(), format!("<array>{flags}</array>"))
        });
        let bundles = manifest.bundles.iter().enumerate();
        let bundles = bundles.map(|(i, name)| (i.to_string(), dict(vec![("File Name".into(), string(name))])));
        let module = dict(vec![("Entry Function Attributes".into(), dict(entries.collect()))]);
        let version = dict(vec![
            ("ANERegionsHash".into(), dict(hashes.collect())),
            ("Binary File Resources".into(), dict(bundles.collect())),
            ("Optimized Modules".into(), dict(vec![("key".into(), module)])),
        ]);
        let root = dict(vec![("Package Version".into(), dict(vec![("7.0.56".into(), version)]))]);
        let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<plist version=\"1.0\">{root}</plist>\n");
        self.write(&format!("{}/manifest.plist", package(architecture)), text.as_bytes());
    }
}
