//! `kit.json`: what a kit has to try, read as strictly as it is written.

use crate::bundle::FileDigest;
use crate::digest::Digest;
use crate::provenance::device::Protocol;
use crate::provenance::release::Program;
use crate::provenance::texts::listed;
use crate::toolchain::{Architecture, Platform, Prefer};
use serde::{Deserialize, Serialize};

/// Version of the plan's form.
pub const KIT_VERSION: u32 = 1;

/// The plan's file.
pub const KIT_FILE: &str = "kit.json";
/// The folder of the release in a kit.
pub const RELEASE_FOLDER: &str = "release";
/// The folder of the inputs.
pub const INPUTS_FOLDER: &str = "inputs";
/// The command of a kit.
pub const RUN_FILE: &str = "run.sh";

/// Processes of each arm, calls before the timed ones, and those.
pub const PROTOCOL: Protocol = Protocol { rounds: 4, warmups: 3, runs: 20 };

/// What a kit has to try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KitPlan {
    /// Always [`KIT_VERSION`].
    pub kit_version: u32,
    /// The release.
    pub release: String,
    /// Digest of its record.
    pub release_sha256: Digest,
    /// What made the kit.
    pub tool: Program,
    /// How it is timed.
    pub protocol: Protocol,
    /// What is tried, one after another.
    pub subjects: Vec<Subject>,
}

/// A bundle for one architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The `.aimodel` that is compiled.
    pub model: String,
    /// Its digest root.
    pub model_root: Digest,
    /// The release's own bundle for this target, which is loaded as it ships; none where it has to be compiled.
    pub shipped: Option<Shipped>,
    /// `macOS` or `iOS`.
    pub platform: String,
    /// Such as `h16c`.
    pub architecture: String,
    /// `neural-engine` or `gpu`. The former is compiled for the GPU too, to be compared with.
    pub prefer: String,
    /// Regions by the recipe.
    pub regions: Option<usize>,
    /// Least cosine to the GPU's outputs, the limit of the recipe's gate.
    pub cosine_limit: f64,
    /// What is run.
    pub functions: Vec<FunctionPlan>,
}

/// A compiled bundle of the release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shipped {
    /// Folder name.
    pub name: String,
    /// Its digest root.
    pub digest_root: Digest,
}

/// A function and what it is run on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionPlan {
    /// Its name.
    pub name: String,
    /// Files of the inputs' folder: a tensor for each input, in its dtype.
    pub inputs: Vec<String>,
    /// Whether they are seeded random numbers and no recording.
    pub random: bool,
}

/// Why a plan cannot be carried out.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PlanFault {
    #[error("{KIT_FILE} is no plan of ours")]
    Form(#[from] serde_json::Error),
    #[error("{KIT_FILE} has version {found}, expected {KIT_VERSION}")]
    Version { found: u64 },
    #[error("{KIT_FILE}: {key} is {found:?}, expected {expected}")]
    Value { key: &'static str, found: String, expected: &'static str },
}

/// What a subject is compiled for.
#[derive(Clone, Debug)]
pub struct Target {
    /// The system.
    pub platform: Platform,
    /// The device.
    pub architecture: Architecture,
    /// The unit.
    pub prefer: Prefer,
}

impl KitPlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// It is none, of another version, or asks for what cannot be.
    pub fn parse(bytes: &[u8]) -> Result<KitPlan, PlanFault> {
        let value = crate::json::read(bytes)?;
        match value.get("kit_version").and_then(serde_json::Value::as_u64) {
            Some(found) if found != u64::from(KIT_VERSION) => return Err(PlanFault::Version { found }),
            Some(_) | None => {}
        }
        let plan: KitPlan = serde_json::from_value(value)?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), PlanFault> {
        let value = |key, found: String, expected| Err(PlanFault::Value { key, found, expected });
        let Protocol { rounds, runs, .. } = self.protocol;
        if rounds == 0 || runs == 0 {
            return value("protocol", format!("{rounds} rounds of {runs} runs"), "at least one of each");
        }
        // They become names of files.
        for name in self.subjects.iter().flat_map(Subject::names).chain([self.release.as_str()]) {
            if !is_name(name) {
                return value("a name", name.into(), "the name of a file in its folder");
            }
        }
        self.subjects.iter().try_for_each(|subject| subject.target().map(drop))
    }
}

/// Whether a name leads to nowhere but its folder.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}

impl Subject {
    fn names(&self) -> impl Iterator<Item = &str> {
        let inputs = self.functions.iter().flat_map(|function| &function.inputs).map(String::as_str);
        let shipped = self.shipped.as_ref().map(|shipped| shipped.name.as_str());
        inputs.chain(shipped).chain([self.model.as_str()])
    }

    /// The release's bundle that a result is of, and its digest root.
    pub fn artefact(&self) -> (&str, Digest) {
        match &self.shipped {
            Some(shipped) => (&shipped.name, shipped.digest_root),
            None => (&self.model, self.model_root),
        }
    }

    /// What it is compiled for.
    ///
    /// # Errors
    /// The compiler knows no such target.
    pub fn target(&self) -> Result<Target, PlanFault> {
        let value = |key, found: &str, expected| PlanFault::Value { key, found: found.into(), expected };
        let platform = [Platform::macOS, Platform::iOS].into_iter().find(|p| p.name() == self.platform);
        let prefer = [Prefer::Gpu, Prefer::NeuralEngine].into_iter().find(|p| p.name() == self.prefer);
        Ok(Target {
            platform: platform.ok_or_else(|| value("platform", &self.platform, "macOS or iOS"))?,
            architecture: self
                .architecture
                .parse()
                .map_err(|_| value("architecture", &self.architecture, "an h, two digits and a letter"))?,
            prefer: prefer.ok_or_else(|| value("prefer", &self.prefer, "gpu or neural-engine"))?,
        })
    }
}

/// Files that were changed, are missing or are too many, by their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Differences {
    pub changed: Vec<String>,
    pub missing: Vec<String>,
    pub extra: Vec<String>,
}

impl Differences {
    /// Between the lines of a list of digests and the files there are; the list itself is in no line of it.
    pub fn of(list: &str, list_name: &str, files: &[FileDigest]) -> Differences {
        let (mut listed, wrong) = listed(list);
        let mut found = Differences::default();
        if !wrong.is_empty() {
            found.changed.push(list_name.into());
        }
        for file in files.iter().filter(|file| file.path != list_name) {
            match listed.remove(file.path.as_str()) {
                None => found.extra.push(file.path.clone()),
                Some(sha256) if sha256 != file.sha256 => found.changed.push(file.path.clone()),
                Some(_) => {}
            }
        }
        found.missing = listed.into_keys().map(str::to_string).collect();
        found
    }

    /// Whether there are none.
    pub const fn none(&self) -> bool {
        self.changed.is_empty() && self.missing.is_empty() && self.extra.is_empty()
    }
}

impl std::fmt::Display for Differences {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let told = [("changed", &self.changed), ("missing", &self.missing), ("extra", &self.extra)];
        let told = told.iter().filter(|(_, paths)| !paths.is_empty());
        let told: Vec<String> = told.map(|(word, paths)| format!("{word}: {}", paths.join(", "))).collect();
        f.write_str(&told.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn plan() -> Value {
        let subject = json!({
            "model": "m.aimodel",
            "model_root": Digest::of(b"m"),
            "shipped": null,
            "platform": "macOS",
            "architecture": "h16c",
            "prefer": "neural-engine",
            "regions": 1,
            "cosine_limit": 0.999,
            "functions": [{ "name": "main", "inputs": ["a.safetensors"], "random": true }],
        });
        json!({
            "kit_version": 1,
            "release": "m",
            "release_sha256": Digest::of(b"r"),
            "tool": { "name": "eg2-convert", "version": "0" },
            "protocol": PROTOCOL,
            "subjects": [subject],
        })
    }

    #[test]
    fn what_can_be_carried_out() {
        KitPlan::parse(plan().to_string().as_bytes()).unwrap();
        let fault = |at: &str, value: Value| {
            let mut plan = plan();
            *plan.pointer_mut(at).unwrap() = value;
            KitPlan::parse(plan.to_string().as_bytes()).unwrap_err().to_string()
        };
        insta::assert_snapshot!(fault("/kit_version", json!(2)), @"kit.json has version 2, expected 1");
        insta::assert_snapshot!(fault("/protocol/rounds", json!(0)), @r#"kit.json: protocol is "0 rounds of 20 runs", expected at least one of each"#);
        insta::assert_snapshot!(fault("/release", json!("../m")), @r#"kit.json: a name is "../m", expected the name of a file in its folder"#);
        insta::assert_snapshot!(fault("/subjects/0/model", json!("a/../../m.aimodel")), @r#"kit.json: a name is "a/../../m.aimodel", expected the name of a file in its folder"#);
        insta::assert_snapshot!(fault("/subjects/0/functions/0/inputs/0", json!("/etc/passwd")), @r#"kit.json: a name is "/etc/passwd", expected the name of a file in its folder"#);
        insta::assert_snapshot!(fault("/subjects/0/platform", json!("macos")), @r#"kit.json: platform is "macos", expected macOS or iOS"#);
        insta::assert_snapshot!(fault("/subjects/0/architecture", json!("m4")), @r#"kit.json: architecture is "m4", expected an h, two digits and a letter"#);
        insta::assert_snapshot!(fault("/subjects/0/prefer", json!("cpu")), @r#"kit.json: prefer is "cpu", expected gpu or neural-engine"#);
        insta::assert_snapshot!(fault("/tool", json!({})), @"kit.json is no plan of ours");
    }

    #[test]
    fn every_difference_is_named() {
        let file = |path: &str, text: &str| FileDigest {
            path: path.into(),
            sha256: Digest::of(text.as_bytes()),
            size: text.len() as u64,
        };
        let files = [file("a", "1"), file("b", "2"), file("SUMS", "")];
        let list = crate::provenance::texts::sums(&files[..2]);
        assert!(Differences::of(&list, "SUMS", &files).none());
        let other = [file("a", "0"), file("c", "2")];
        insta::assert_snapshot!(Differences::of(&list, "SUMS", &other), @"changed: a; missing: b; extra: c");
        for more in ["x\n", list.lines().next().unwrap(), "\n"] {
            insta::allow_duplicates! {
                insta::assert_snapshot!(Differences::of(&format!("{list}{more}"), "SUMS", &files), @"changed: SUMS");
            }
        }
    }
}
