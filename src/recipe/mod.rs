//! Recipes: what a release is made of, made into and held to, as versioned TOML. Level 7: the types below it are those
//! of the stages, so that what a recipe says is checked when it is read and not when its stage is reached.
//!
//! Paths in a recipe are relative to its folder.

mod error;
mod form;
#[cfg(test)]
mod tests;

pub use error::{RecipeError, RecipeFault};

use crate::bundle::Format;
use crate::bundle::compiled::Expectation;
use crate::digest::Digest;
use crate::files;
pub use crate::gate::LimitOverrides;
use crate::gate::Limits;
use crate::models::gemma_audio::Buckets;
use crate::models::laya::Lengths;
use crate::models::reader::{RELEASE_NAME, Tokens, is_release_name};
use crate::passes::Precision;
use crate::toolchain::{Architecture, Platform, Prefer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Version of the recipes' form.
pub const VERSION: i64 = 1;

/// The licence whose text need not be given.
pub const LICENSE: &str = "Apache-2.0";

/// Fewest layers in front of an fp16 body, below which the published model's accuracy is lost: 0.988 after 4, 0.9967 after 7.
pub const SPLIT_MIN: usize = 7;

/// One release.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// What the release and its folder are called.
    pub name: String,
    /// The file, as it was read.
    pub text: String,
    /// Its digest.
    pub sha256: Digest,
    /// What is made.
    pub model: Model,
    /// In which numbers.
    pub precision: Precision,
    /// In which formats.
    pub formats: Vec<Format>,
    /// Of what.
    pub source: Source,
    /// What an `.aimodel` is compiled for.
    pub compile: Vec<Compile>,
    /// What the artefacts are judged by; none where they are not.
    pub gate: Option<Gate>,
}

/// What is made.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are those of the jobs' options")]
pub enum Model {
    Encoder { buckets: Buckets, split_after: Option<usize> },
    Reader { tokens: Tokens, release_name: Option<String> },
    Laya { lengths: Lengths },
}

impl Model {
    /// Its name in recipes and records.
    pub const fn name(&self) -> &'static str {
        match self {
            Model::Encoder { .. } => "encoder",
            Model::Reader { .. } => "reader",
            Model::Laya { .. } => "laya",
        }
    }
}

/// Where weights come from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The repository they were published in.
    pub repository: Option<String>,
    /// Its revision.
    pub revision: Option<String>,
    /// Under which licence, as an SPDX identifier.
    pub license: String,
    /// Its text; none where it is [`LICENSE`], whose text is at hand.
    pub license_file: Option<PathBuf>,
    /// Whether the weights are random, so that the release is none of a model.
    pub synthetic: bool,
    /// Seed of weights that are in no file.
    pub seed: Option<u64>,
    /// Rows of a seeded reader's table.
    pub words: Option<usize>,
    /// The checkpoint, where it is not looked for.
    pub checkpoint: Option<PathBuf>,
    /// The config, where it is not beside the checkpoint.
    pub config: Option<PathBuf>,
    /// Digests of files by name; what is not among them is not pinned.
    pub sha256: BTreeMap<String, Digest>,
}

/// One call of the compiler for each architecture.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the types say what each is")]
pub struct Compile {
    pub platform: Platform,
    pub architectures: Vec<Architecture>,
    pub prefer: Prefer,
    /// Regions there should be.
    pub regions: Option<Expectation>,
}

/// What artefacts are judged by.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Golden clips, and folders of such.
    pub goldens: Vec<PathBuf>,
    /// Recordings, and folders of such.
    pub audio: Vec<PathBuf>,
    /// Question sets of a decision model.
    pub questions: Vec<PathBuf>,
    /// The reader's words.
    pub words: Option<PathBuf>,
    /// The reference's transcripts.
    pub transcripts: Option<PathBuf>,
    /// What was truly said.
    pub wer: Option<PathBuf>,
    /// A reader for an encoder's soft tokens.
    pub reader: Option<PathBuf>,
    /// An encoder for a reader's recordings.
    pub encoder: Option<PathBuf>,
    /// The formats that are judged; the others' checks are not run.
    pub formats: Vec<Format>,
    /// Runs of each clip that must agree.
    pub repeats: usize,
    /// Limits in the place of the precision's.
    pub limits: LimitOverrides,
}

impl Recipe {
    /// Reads the recipe at `path`.
    ///
    /// # Errors
    /// It cannot be read, is of another version, has a key that is none of this version's, or asks for what cannot be.
    pub fn read(path: &Path) -> Result<Recipe, RecipeError> {
        let at = |source: RecipeFault| RecipeError { path: path.into(), source };
        let bytes = files::read(path, files::TEXT_MAX).map_err(|e| at(e.into()))?;
        let text = String::from_utf8(bytes).map_err(|_| at(RecipeFault::NotText))?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Self::parse(text, &stem, path.parent().unwrap_or(Path::new(""))).map_err(at)
    }

    /// The recipe of a text, called `stem` where it names itself not, with paths relative to `folder`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(text: String, stem: &str, folder: &Path) -> Result<Recipe, RecipeFault> {
        let toml = |e: toml::de::Error| RecipeFault::Toml(e.to_string().trim_end().to_string());
        let table: toml::Table = toml::from_str(&text).map_err(toml)?;
        // First, so that another version's keys are not told of as unknown.
        match table.get("version") {
            None => return Err(RecipeFault::NoVersion),
            Some(version) if version.as_integer() == Some(VERSION) => {}
            Some(other) => return Err(RecipeFault::Version { found: other.to_string() }),
        }
        let form: form::Form = toml::from_str(&text).map_err(toml)?;
        let name = form.name.clone().unwrap_or_else(|| stem.to_string());
        if !is_name(&name) {
            return Err(RecipeFault::Value { key: "name", found: name, expected: NAME });
        }
        let model = model(&form)?;
        let precision = one_of(&Precision::ALL, Precision::name, "precision", &form.precision, PRECISIONS)?;
        if !matches!(model, Model::Encoder { .. }) && precision == Precision::Int8 {
            return Err(RecipeFault::Value {
                key: "precision",
                found: form.precision,
                expected: "fp16, fp32 or fp16w32",
            });
        }
        let formats = formats("formats", &form.formats)?;
        let compile = form.compile.into_iter().map(Compile::of).collect::<Result<Vec<_>, _>>()?;
        let mut names = compile.iter().flat_map(|c| &c.architectures).map(Architecture::as_str).collect::<Vec<_>>();
        names.sort_unstable();
        // A bundle's name has its architecture and nothing else of what it was compiled for.
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(RecipeFault::Twice { key: "compile", found: pair[0].into() });
        }
        if !compile.is_empty() && !formats.contains(&Format::AiModel) {
            return Err(RecipeFault::Needless { key: "compile", why: "formats has no aimodel to compile" });
        }
        let source = Source::of(form.source, folder, &model)?;
        let gate = form.gate.map(|gate| {
            gate.belongs_to(&model, &source)?;
            Gate::of(gate, folder, precision, &formats)
        });
        let gate = gate.transpose()?;
        let sha256 = Digest::of(text.as_bytes());
        Ok(Recipe { name, text, sha256, model, precision, formats, source, compile, gate })
    }
}

const NAME: &str = "letters, digits, `.`, `_` and `-`, the first a letter or digit, 64 at most, not ending in .kit";
const PRECISIONS: &str = "fp16, fp32, fp16w32 or int8";
const FORMATS: &str = "mlpackage or aimodel";

const MAX_BUCKETS: usize = 16;

/// Whether a folder may be called so, and told from hidden ones.
fn is_name(name: &str) -> bool {
    let good = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    // What a release is packed into for a Mac stands beside it as NAME.kit.
    let kit = name.to_ascii_lowercase().ends_with(".kit");
    !kit && name.len() <= 64 && name.bytes().all(good) && name.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric())
}

/// Whether a text is one line that shows all that it is, as it goes into the texts of a release.
fn is_line(text: &str) -> bool {
    // Separators of lines and paragraphs, and marks that turn the order in which text is shown.
    let hidden = |c: char| matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    !text.chars().any(|c| c.is_control() || hidden(c))
}

fn one_of<T: Copy>(
    all: &[T],
    name: impl Fn(T) -> &'static str,
    key: &'static str,
    found: &str,
    expected: &'static str,
) -> Result<T, RecipeFault> {
    let known = all.iter().copied().find(|one| name(*one) == found);
    known.ok_or_else(|| RecipeFault::Value { key, found: found.into(), expected })
}

fn formats(key: &'static str, words: &[String]) -> Result<Vec<Format>, RecipeFault> {
    let mut found = Vec::new();
    for word in words {
        let format = one_of(&[Format::MlPackage, Format::AiModel], Format::ending, key, word, FORMATS)?;
        if found.contains(&format) {
            return Err(RecipeFault::Twice { key, found: word.clone() });
        }
        found.push(format);
    }
    if found.is_empty() {
        Err(RecipeFault::Missing { key, why: "a release has one format or more" })
    } else {
        Ok(found)
    }
}

fn model(form: &form::Form) -> Result<Model, RecipeFault> {
    const OWNERS: [(&str, &str); 3] = [("encoder", "an encoder"), ("reader", "a reader"), ("laya", "a decision model")];
    let Some((model, _)) = OWNERS.into_iter().find(|(model, _)| *model == form.model) else {
        return Err(RecipeFault::Value {
            key: "model",
            found: form.model.clone(),
            expected: "encoder, reader or laya",
        });
    };
    let [encoder, reader, laya] = OWNERS;
    let keys = [
        ("buckets", form.buckets.is_some(), encoder),
        ("split_after", form.split_after.is_some(), encoder),
        ("tokens", form.tokens.is_some(), reader),
        ("release_name", form.release_name.is_some(), reader),
        ("lengths", form.lengths.is_some(), laya),
    ];
    if let Some((key, _, (_, owner))) = keys.into_iter().find(|(_, given, (of, _))| *given && *of != model) {
        return Err(RecipeFault::OtherModel { key, owner, model });
    }
    match model {
        "encoder" => encoder_of(form),
        "reader" => reader_of(form),
        _ => {
            let lengths = form.lengths.as_deref();
            let lengths =
                lengths.ok_or(RecipeFault::Missing { key: "lengths", why: "a decision model has one or more" })?;
            Ok(Model::Laya { lengths: Lengths::new(lengths)? })
        }
    }
}

fn encoder_of(form: &form::Form) -> Result<Model, RecipeFault> {
    let buckets = form.buckets.as_deref();
    if let Some(several) = buckets.filter(|buckets| buckets.len() > MAX_BUCKETS) {
        let found = format!("a list of {}", several.len());
        return Err(RecipeFault::Value { key: "buckets", found, expected: "16 at most: the artefact's name has all" });
    }
    let buckets = buckets.ok_or(RecipeFault::Missing { key: "buckets", why: "an encoder has one or more" })?;
    // A body of other numbers has the accuracy of the front.
    let half = form.precision == Precision::Fp16.name();
    if let Some(after) = form.split_after.filter(|after| half && *after < SPLIT_MIN) {
        return Err(RecipeFault::Split { after, least: SPLIT_MIN });
    }
    Ok(Model::Encoder { buckets: Buckets::new(buckets)?, split_after: form.split_after })
}

fn reader_of(form: &form::Form) -> Result<Model, RecipeFault> {
    let tokens = form.tokens.ok_or(RecipeFault::Missing { key: "tokens", why: "a reader has one length" })?;
    if let Some(name) = form.release_name.as_ref().filter(|name| !is_release_name(name)) {
        return Err(RecipeFault::Value { key: "release_name", found: name.clone(), expected: RELEASE_NAME });
    }
    Ok(Model::Reader { tokens: Tokens::new(tokens)?, release_name: form.release_name.clone() })
}

impl Source {
    fn of(form: form::Source, folder: &Path, model: &Model) -> Result<Source, RecipeFault> {
        let needless = |key, why| Err(RecipeFault::Needless { key, why });
        if form.seed.is_some() && form.checkpoint.is_some() {
            return needless("source.checkpoint", "seeded weights are in no file");
        }
        match (model, form.seed, form.words) {
            (_, _, None) | (Model::Reader { .. }, Some(_), Some(1..=MAX_WORDS)) => {}
            (Model::Reader { .. }, Some(_), Some(words)) => {
                let found = words.to_string();
                return Err(RecipeFault::Value { key: "source.words", found, expected: "1 to 1000000" });
            }
            (Model::Encoder { .. } | Model::Reader { .. } | Model::Laya { .. }, _, Some(_)) => {
                return needless("source.words", "only a seeded reader's table has rows of choice");
            }
        }
        if matches!(model, Model::Reader { .. }) && form.checkpoint.is_some() {
            return needless("source.checkpoint", "a reader's config names its files");
        }
        let told = [
            ("source.repository", &form.repository),
            ("source.revision", &form.revision),
            ("source.license", &form.license),
        ];
        for (key, text) in told {
            if let Some(found) = text.as_ref().filter(|text| !is_line(text)) {
                return Err(RecipeFault::Value { key, found: found.clone(), expected: "one line of printable text" });
            }
        }
        let license = form.license.unwrap_or_else(|| LICENSE.into());
        match (license == LICENSE, &form.license_file) {
            (true, Some(_)) => return needless("source.license_file", "the text of Apache-2.0 is put in as it is"),
            (false, None) => {
                return Err(RecipeFault::Missing {
                    key: "source.license_file",
                    why: "a release has its licence's text",
                });
            }
            (true, None) | (false, Some(_)) => {}
        }
        Ok(Source {
            repository: form.repository,
            revision: form.revision,
            license,
            license_file: form.license_file.map(|path| folder.join(path)),
            synthetic: form.synthetic || form.seed.is_some(),
            seed: form.seed,
            words: form.words,
            checkpoint: form.checkpoint.map(|path| folder.join(path)),
            config: form.config.map(|path| folder.join(path)),
            sha256: form.sha256,
        })
    }
}

/// Rows of a table beyond which a seeded reader is no longer one.
const MAX_WORDS: usize = 1_000_000;

impl Compile {
    fn of(form: form::Compile) -> Result<Compile, RecipeFault> {
        const PLATFORM: &str = "macOS or iOS";
        const PREFER: &str = "gpu or neural-engine";
        let mut architectures: Vec<Architecture> = Vec::new();
        for word in &form.architectures {
            let architecture = word.parse()?;
            if architectures.contains(&architecture) {
                return Err(RecipeFault::Twice { key: "compile.architectures", found: word.clone() });
            }
            architectures.push(architecture);
        }
        if architectures.is_empty() {
            return Err(RecipeFault::Missing { key: "compile.architectures", why: "a compiled bundle is of one" });
        }
        let regions = form.regions.map(|regions| match regions {
            form::Regions::Each(count) => Expectation::each(count),
            form::Regions::Named(named) => Expectation { each: None, named },
        });
        let stranger = regions.iter().flat_map(|r| r.named.keys());
        if let Some(name) = stranger.into_iter().find(|name| architectures.iter().all(|a| a.as_str() != *name)) {
            let found = name.clone();
            return Err(RecipeFault::Value { key: "compile.regions", found, expected: "one of compile.architectures" });
        }
        let platforms = [Platform::macOS, Platform::iOS];
        Ok(Compile {
            platform: one_of(&platforms, Platform::name, "compile.platform", &form.platform, PLATFORM)?,
            prefer: one_of(&[Prefer::Gpu, Prefer::NeuralEngine], Prefer::name, "compile.prefer", &form.prefer, PREFER)?,
            architectures,
            regions,
        })
    }
}

impl form::Gate {
    /// Whether the gate of `model` reads all that is named.
    fn belongs_to(&self, model: &Model, source: &Source) -> Result<(), RecipeFault> {
        let speech = [
            ("gate.audio", !self.audio.is_empty()),
            ("gate.words", self.words.is_some()),
            ("gate.transcripts", self.transcripts.is_some()),
            ("gate.wer", self.wer.is_some()),
            ("gate.reader", self.reader.is_some()),
            ("gate.encoder", self.encoder.is_some()),
        ];
        let decisions = [("gate.questions", !self.questions.is_empty())];
        let (foreign, owner) = match model {
            Model::Laya { .. } => (speech.as_slice(), "an encoder or a reader"),
            Model::Encoder { .. } | Model::Reader { .. } => (decisions.as_slice(), "a decision model"),
        };
        if let Some((key, _)) = foreign.iter().copied().find(|(_, given)| *given) {
            return Err(RecipeFault::OtherModel { key, owner, model: model.name() });
        }
        if matches!(model, Model::Laya { .. }) && source.seed.is_some() {
            return Err(RecipeFault::Needless {
                key: "gate",
                why: "a decision model is judged with its checkpoint's host, and seeded weights have none",
            });
        }
        Ok(())
    }
}

impl Gate {
    fn of(form: form::Gate, folder: &Path, precision: Precision, made: &[Format]) -> Result<Gate, RecipeFault> {
        // Known here, so that a limit without sense does not wait for a conversion.
        Limits::of(precision).with(&form.limits)?;
        let all = |paths: Vec<PathBuf>| paths.into_iter().map(|path| folder.join(path)).collect();
        let one = |path: Option<PathBuf>| path.map(|path| folder.join(path));
        let judged = match form.formats {
            Some(words) => formats("gate.formats", &words)?,
            None => made.to_vec(),
        };
        if let Some(format) = judged.iter().find(|format| !made.contains(format)) {
            let found = format.ending().to_string();
            return Err(RecipeFault::Value { key: "gate.formats", found, expected: "one of formats" });
        }
        let repeats = form.repeats.unwrap_or(2);
        if !(1..=1000).contains(&repeats) {
            let found = repeats.to_string();
            return Err(RecipeFault::Value { key: "gate.repeats", found, expected: "1 to 1000" });
        }
        Ok(Gate {
            goldens: all(form.goldens),
            audio: all(form.audio),
            questions: all(form.questions),
            words: one(form.words),
            transcripts: one(form.transcripts),
            wer: one(form.wer),
            reader: one(form.reader),
            encoder: one(form.encoder),
            formats: judged,
            repeats,
            limits: form.limits,
        })
    }
}
