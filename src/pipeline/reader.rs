//! The reader job: config, weights, table and words, or a seed, to one package.

use super::origin::{SourceFiles, config_text};
use super::package::{Function, Job, Plan, package};
use super::{Converted, Destination, PipelineError, Progress};
use crate::checkpoint::{Checkpoint, Joined, Ledger, check_unit_rows, sole_tensor};
use crate::emit::mil::Description;
use crate::models::reader::{ReaderConfig, TABLE, Tokens, Words, author};
use crate::passes::Precision;
use crate::tensor::WeightSource;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What to convert, and how.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Where weights come from.
    pub origin: ReaderOrigin,
    /// Static length.
    pub tokens: Tokens,
    /// Precision of the artefact.
    pub precision: Precision,
    /// What the artefact's name calls the release where the config does not.
    pub release_name: Option<String>,
}

/// Where a reader's weights come from.
#[derive(Clone, Debug)]
pub enum ReaderOrigin {
    /// The files that a config names, or others in their place.
    Files {
        /// The config.
        config: PathBuf,
        /// Weights of the network.
        weights: Option<PathBuf>,
        /// The table of word vectors.
        table: Option<PathBuf>,
        /// The words.
        words: Option<PathBuf>,
    },
    /// Seeded values of the shapes that the config asks for, or of the published second release.
    Synthetic {
        /// The seed.
        seed: u64,
        /// The config.
        config: Option<PathBuf>,
        /// Rows of the table; those of the published one where it is not said.
        words: Option<usize>,
    },
}

/// Rows of the published table, and of a synthetic one.
const PUBLISHED_WORDS: usize = 200_000;

/// Converts the word reader to a checked package.
///
/// # Errors
/// Any stage's; nothing is left half-written.
pub fn reader(
    options: &ReaderOptions,
    to: &Destination,
    progress: &dyn Progress,
) -> Result<Vec<Converted>, PipelineError> {
    match &options.origin {
        ReaderOrigin::Files { config, weights, table, words } => {
            let ReaderWeights { config, source, words, files } =
                ReaderWeights::open(config, [weights, table, words].map(Option::as_deref))?;
            let ready = plan(options, &config, words.len(), &source)?;
            check_unit_rows(&source, TABLE)?;
            package(Job { artefacts: vec![ready], source: &source, files }, to, progress)
        }
        ReaderOrigin::Synthetic { seed, config: path, words } => {
            let words = words.unwrap_or(PUBLISHED_WORDS);
            let config = path.as_deref().map_or_else(|| Ok(ReaderConfig::v2()), read_config)?;
            let blueprint = Ledger::blueprint(*seed);
            author(&config, options.tokens, words, &blueprint)?;
            let weights = blueprint.into_synthetic();
            let ready = plan(options, &config, words, &weights)?;
            let files = SourceFiles::synthetic(*seed, path.as_deref());
            package(Job { artefacts: vec![ready], source: &weights, files }, to, progress)
        }
    }
}

fn read_config(path: &Path) -> Result<ReaderConfig, PipelineError> {
    let (text, name) = config_text(path)?;
    let config = ReaderConfig::parse(&text, &name)?;
    for key in &config.ignored {
        tracing::warn!("{name}: {key} means nothing here and is ignored");
    }
    Ok(config)
}

/// A reader's weights, table and words, and the config that shapes its graph.
pub(super) struct ReaderWeights {
    pub config: ReaderConfig,
    pub source: Joined,
    pub words: Words,
    pub files: SourceFiles,
}

impl ReaderWeights {
    /// Those that the config at `path` names, or the weights, the table and the words that are given in their place.
    pub fn open(path: &Path, given: [Option<&Path>; 3]) -> Result<ReaderWeights, PipelineError> {
        let config = read_config(path)?;
        let found = Found::of(path, &config, given)?;
        let table = Checkpoint::open(&found.table)?;
        let tensor = sole_tensor(&table, config.files.table_tensor.as_deref())?.to_string();
        let rows = rows_of(&table, &tensor)?;
        let words = Words::read(&found.words, Some(rows))?;
        let source = Joined::new(Checkpoint::open(&found.weights)?, table, &tensor, TABLE)?;
        let files = source.files().chain([found.words.as_path(), path]).map(Path::to_path_buf).collect();
        Ok(ReaderWeights { config, source, words, files: SourceFiles::of(files) })
    }
}

/// The rows of a table of word vectors.
fn rows_of(table: &Checkpoint, tensor: &str) -> Result<usize, PipelineError> {
    let fact = table.fact(tensor);
    match fact.map(|fact| fact.shape.dims()) {
        Some(&[rows, width]) if rows > 0 && width > 0 => Ok(rows),
        _ => {
            let found = fact.map_or_else(|| "of a dtype that is not read here".to_string(), ToString::to_string);
            Err(PipelineError::Table { file: table.place(tensor), tensor: tensor.into(), found })
        }
    }
}

/// The files of one reader.
struct Found {
    weights: PathBuf,
    table: PathBuf,
    words: PathBuf,
}

impl Found {
    /// Those given, else those that the config at `path` names, which are relative to its folder.
    fn of(path: &Path, config: &ReaderConfig, given: [Option<&Path>; 3]) -> Result<Found, PipelineError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let find = |given: Option<&Path>, named: &Option<String>, key, option| match (given, named) {
            (Some(given), _) => Ok(given.to_path_buf()),
            (None, Some(named)) => Ok(folder.join(named)),
            (None, None) => Err(PipelineError::NoReaderFile { config: path.into(), key, option }),
        };
        let [weights, table, words] = given;
        Ok(Found {
            weights: find(weights, &config.files.weights, "weights.file", "--weights")?,
            table: find(table, &config.files.table, "table.file", "--table")?,
            words: find(words, &config.files.words, "table.words", "--words")?,
        })
    }
}

fn plan(
    options: &ReaderOptions,
    config: &ReaderConfig,
    words: usize,
    source: &dyn WeightSource,
) -> Result<Plan, PipelineError> {
    let (tokens, precision) = (options.tokens.get(), options.precision);
    let (graph, report) = author(config, options.tokens, words, &Ledger::new(source))?;
    let release = config.version.as_deref().or(options.release_name.as_deref());
    let tag = release.map(|release| format!("_{release}")).unwrap_or_default();
    Ok(Plan {
        name: format!("eg2_reader{tag}_{}_T{tokens}", precision.name()),
        functions: vec![Function { graph, authoring: serde_json::to_value(&report)? }],
        precision,
        description: describe(options, config, words),
        options: json!({
            "model": "reader",
            "release": release.map_or(Value::Null, Value::from),
            "tokens": tokens,
            "words": words,
            "precision": precision,
        }),
    })
}

fn describe(options: &ReaderOptions, config: &ReaderConfig, words: usize) -> Description {
    let tokens = options.tokens.get();
    let synthetic = matches!(options.origin, ReaderOrigin::Synthetic { .. });
    let features = [
        (
            "soft_tokens",
            format!("one row of {} for each 40 ms ({tokens}); rows past the clip are 0", config.input_width),
        ),
        ("token_mask", "1 for every token of the clip, 0 past it".to_string()),
        ("top1_index", format!("the best of {words} words for each token, by its row of the table")),
        ("top1_logit", "the scaled cosine of that word".to_string()),
        ("blank_logit", "the logit of no word: where it is above top1_logit, the token reads blank".to_string()),
    ];
    let source = if synthetic { "seeded synthetic weights" } else { "a word reader's weights and table" };
    let mut user_defined = BTreeMap::from([
        ("source".to_string(), source.to_string()),
        ("modified".to_string(), "re-authored as a static graph".to_string()),
        ("precision".to_string(), options.precision.name().to_string()),
        ("words".to_string(), words.to_string()),
    ]);
    if let Some(version) = &config.version {
        user_defined.insert("release".into(), version.clone());
    }
    Description {
        short: format!("CTC word reader, {tokens} soft tokens over {words} words"),
        version: env!("CARGO_PKG_VERSION").into(),
        author: "eg2-convert".into(),
        license: "Apache-2.0".into(),
        user_defined,
        features: features.map(|(name, text)| (name.to_string(), text)).into(),
    }
}
