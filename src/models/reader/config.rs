//! `reader_config.json`: sizes, guesses, names of tensors, and where the files are.

use crate::models::section::{self, ConfigError, Section};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Most layers a graph is authored for: each is some 60 ops.
const MAX_LAYERS: usize = 256;

/// Largest eps of a norm: its root over the norms' floor, squared, must stay within fp16.
const MAX_EPS: f64 = 5e-4;

/// Largest base of a rotary embedding: long contexts go to some 10^7. At 1 or less, no angle grows more slowly than
/// another, which no model wants.
const MAX_ROTARY_BASE: f64 = 1e12;

/// Parts of tensor names that the config's `names` may replace; the names themselves are the defaults.
const PARTS: [&str; 16] = [
    "layers",
    "input_norm",
    "input_proj",
    "attn_norm",
    "ff_norm",
    "q_proj",
    "k_proj",
    "v_proj",
    "qkv_proj",
    "out_proj",
    "ff_in",
    "ff_out",
    "output_norm",
    "output_proj",
    "blank",
    "log_scale",
];

/// How the two numbers that a rotary embedding turns together lie in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RotaryLayout {
    /// Number `i` of the first half with number `i` of the second.
    HalfSplit,
    /// Side by side.
    Interleaved,
}

/// Which form of GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gelu {
    /// By the error function.
    Erf,
    /// By a hyperbolic tangent.
    Tanh,
}

/// What the blank head reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BlankInput {
    /// The projected vector as it is.
    BeforeNormalization,
    /// The vector of unit length that is held against the table.
    AfterNormalization,
}

/// How query, key and value projections are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Qkv {
    /// A tensor each.
    Separate,
    /// One tensor, the rows of the query first, those of the value last.
    Fused,
}

/// What is not known of the published reader.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the types say what each is")]
pub struct Guesses {
    pub rotary_layout: RotaryLayout,
    pub gelu: Gelu,
    /// eps of every LayerNorm.
    pub layer_norm_eps: f64,
    pub blank_input: BlankInput,
    pub qkv: Qkv,
}

impl Default for Guesses {
    fn default() -> Guesses {
        Guesses {
            rotary_layout: RotaryLayout::HalfSplit,
            gelu: Gelu::Erf,
            layer_norm_eps: 1e-5,
            blank_input: BlankInput::BeforeNormalization,
            qkv: Qkv::Separate,
        }
    }
}

/// One guess, for the record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guess {
    /// Its key in the config.
    pub key: String,
    /// What was taken.
    pub value: Value,
    /// `config` or `default`.
    pub from: &'static str,
}

/// Parts of tensor names by what they are called in the checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Names(BTreeMap<&'static str, String>);

impl Names {
    /// What the checkpoint calls `part`.
    pub fn of<'n>(&'n self, part: &'n str) -> &'n str {
        self.0.get(part).map_or(part, String::as_str)
    }

    fn read(section: &Section<'_>, map: &Map<String, Value>) -> Result<Names, ConfigError> {
        if let Some(other) = map.keys().find(|key| !PARTS.contains(&key.as_str())) {
            return Err(section.wrong(other, "no part of a name".into(), &PARTS.join(", ")));
        }
        let mut names = BTreeMap::new();
        for part in PARTS {
            if let Some(name) = section.text(part)? {
                names.insert(part, name.to_string());
            }
        }
        Ok(Names(names))
    }
}

/// Files that the config names, relative to its own folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFiles {
    /// The network's weights.
    pub weights: Option<String>,
    /// The table of word vectors.
    pub table: Option<String>,
    /// The table's tensor within its file.
    pub table_tensor: Option<String>,
    /// The words, one a line.
    pub words: Option<String>,
}

/// What a reader is built from.
#[derive(Clone, Debug, PartialEq)]
pub struct ReaderConfig {
    /// The release, e.g. `v2`, where the config says so.
    pub version: Option<String>,
    /// Transformer layers.
    pub layers: usize,
    /// Their width.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of the feed forwards.
    pub feed_forward: usize,
    /// Width of a soft token.
    pub input_width: usize,
    /// Width of a word vector.
    pub table_width: usize,
    /// Base of the rotary embedding's angles.
    pub rotary_base: f64,
    /// What is not known of the published reader.
    pub guesses: Guesses,
    /// Names of the tensors.
    pub names: Names,
    /// Where the files are.
    pub files: ConfigFiles,
    /// Matmul mode that the weights were trained in, as the config spells it. It says nothing of their dtype.
    pub matmul_mode: Option<String>,
    /// Keys of the architecture that the config left to the published default.
    pub assumed: Vec<String>,
    /// The guesses, with where each came from.
    pub listed: Vec<Guess>,
    /// Keys that mean nothing here.
    pub ignored: Vec<String>,
}

impl ReaderConfig {
    /// The published second release: 6 layers, 19,573,762 parameters.
    pub fn v2() -> ReaderConfig {
        ReaderConfig {
            version: Some("v2".into()),
            layers: 6,
            width: 512,
            heads: 8,
            feed_forward: 2048,
            input_width: 512,
            table_width: 768,
            rotary_base: 10_000.0,
            guesses: Guesses::default(),
            names: Names::default(),
            files: ConfigFiles::default(),
            matmul_mode: None,
            assumed: Vec::new(),
            listed: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// Width of one attention head.
    pub fn head_width(&self) -> usize {
        self.width / self.heads.max(1)
    }

    /// Reads `text`, the content of the config file named `file`.
    ///
    /// # Errors
    /// Not JSON, an entry of another kind, or one that a static graph cannot honour.
    pub fn parse(text: &str, file: &str) -> Result<ReaderConfig, ConfigError> {
        let json = section::parse(text, file)?;
        let Some(root) = json.as_object() else {
            let (section, meaning) = ("object at its top", "it is no reader's config");
            return Err(ConfigError::NoSection { file: file.into(), section, meaning });
        };
        let top = Section::new(file, "", root);
        let [architecture, assumed, names, weights, table] =
            ["architecture", "assumed", "names", "weights", "table"].map(|name| object(&top, name));
        let Some(architecture) = architecture? else {
            let (section, meaning) = ("architecture", "it is no reader's config");
            return Err(ConfigError::NoSection { file: file.into(), section, meaning });
        };
        let empty = Map::new();
        let [assumed, names, weights, table] = [assumed?, names?, weights?, table?].map(|map| map.unwrap_or(&empty));

        let mut sizes = Section::new(file, "architecture", architecture);
        let mut guessed = Section::new(file, "assumed", assumed);
        let named = Section::new(file, "names", names);
        let weights = Section::new(file, "weights", weights);
        let table = Section::new(file, "table", table);
        let published = Self::v2();
        let config = ReaderConfig {
            version: version(&top)?,
            // The first release's config names no depth.
            layers: sizes.count("layers", 4)?,
            width: sizes.count("d_model", published.width)?,
            heads: sizes.count("heads", published.heads)?,
            feed_forward: sizes.count("ff", published.feed_forward)?,
            input_width: sizes.count("in_dim", published.input_width)?,
            table_width: sizes.count("table_dim", published.table_width)?,
            rotary_base: sizes.number("rotary_base", published.rotary_base)?,
            guesses: guesses(&mut guessed)?,
            names: Names::read(&named, names)?,
            files: ConfigFiles {
                weights: weights.text("file")?.map(Into::into),
                table: table.text("file")?.map(Into::into),
                table_tensor: table.text("tensor")?.map(Into::into),
                words: table.text("words")?.map(Into::into),
            },
            matmul_mode: weights.text("format")?.map(Into::into),
            assumed: Vec::new(),
            listed: Vec::new(),
            ignored: ignored(&top, &sizes, &weights, &table),
        };
        honour(&sizes, &config)?;
        let listed = listed(&config.guesses, &config.names, &guessed.assumed);
        Ok(ReaderConfig { assumed: sizes.assumed, listed, ..config })
    }
}

/// The object called `name`, where there is one.
fn object<'a>(top: &Section<'a>, name: &str) -> Result<Option<&'a Map<String, Value>>, ConfigError> {
    match top.raw(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(other) => Err(top.wrong(name, other.to_string(), "an object")),
    }
}

/// `v2` and `2` are the same release. It becomes a part of the artefact's name.
fn version(top: &Section<'_>) -> Result<Option<String>, ConfigError> {
    let text = match top.raw("version") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(n)) => format!("v{n}"),
        Some(Value::String(text)) if text.starts_with(|c: char| c.is_ascii_digit()) => format!("v{text}"),
        Some(Value::String(text)) => text.clone(),
        Some(other) => return Err(top.wrong("version", other.to_string(), "a text or a number")),
    };
    if is_release_name(&text) { Ok(Some(text)) } else { Err(top.wrong("version", format!("{text:?}"), RELEASE_NAME)) }
}

/// What a release may be called, for messages.
pub const RELEASE_NAME: &str = "1 to 32 letters, digits, dots, dashes or underscores, a letter or digit first";

/// Whether `name` is [`RELEASE_NAME`].
pub fn is_release_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=32).contains(&name.len()) && name.chars().all(legal) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn guesses(section: &mut Section<'_>) -> Result<Guesses, ConfigError> {
    let default = Guesses::default();
    let known = ["rotary_layout", "gelu", "layer_norm_eps", "blank_input", "qkv"];
    if let Some(other) = section.others(&known).first() {
        let key = other.trim_start_matches("assumed.");
        return Err(section.wrong(key, "no guess known here".into(), &known.join(", ")));
    }
    let layer_norm_eps = section.number("layer_norm_eps", default.layer_norm_eps)?;
    if layer_norm_eps > MAX_EPS {
        let (found, expected) = (layer_norm_eps.to_string(), format!("at most {MAX_EPS}"));
        return Err(section.unsupported("layer_norm_eps", found, &expected));
    }
    Ok(Guesses {
        layer_norm_eps,
        rotary_layout: section.choice(
            "rotary_layout",
            default.rotary_layout,
            &[("half_split", RotaryLayout::HalfSplit), ("interleaved", RotaryLayout::Interleaved)],
        )?,
        gelu: section.choice("gelu", default.gelu, &[("erf", Gelu::Erf), ("tanh", Gelu::Tanh)])?,
        blank_input: section.choice(
            "blank_input",
            default.blank_input,
            &[
                ("before_normalization", BlankInput::BeforeNormalization),
                ("after_normalization", BlankInput::AfterNormalization),
            ],
        )?,
        qkv: section.choice("qkv", default.qkv, &[("separate", Qkv::Separate), ("fused", Qkv::Fused)])?,
    })
}

/// Every guess with its value; `defaults` are the keys that the config lacks.
fn listed(guesses: &Guesses, names: &Names, defaults: &[String]) -> Vec<Guess> {
    let values = serde_json::to_value(guesses).unwrap_or_default();
    let mut listed: Vec<Guess> = Vec::new();
    for (key, value) in values.as_object().into_iter().flatten() {
        let key = format!("assumed.{key}");
        let from = if defaults.contains(&key) { "default" } else { "config" };
        listed.push(Guess { key, value: value.clone(), from });
    }
    for part in PARTS {
        let from = if names.0.contains_key(part) { "config" } else { "default" };
        listed.push(Guess { key: format!("names.{part}"), value: names.of(part).into(), from });
    }
    listed
}

fn ignored(top: &Section<'_>, sizes: &Section<'_>, weights: &Section<'_>, table: &Section<'_>) -> Vec<String> {
    [
        top.others(&["version", "architecture", "assumed", "names", "weights", "table"]),
        sizes.others(&["layers", "d_model", "heads", "ff", "in_dim", "table_dim", "rotary_base"]),
        weights.others(&["file", "format"]),
        table.others(&["file", "tensor", "words"]),
    ]
    .concat()
}

/// Refuses by name what the graph has no form for.
fn honour(sizes: &Section<'_>, config: &ReaderConfig) -> Result<(), ConfigError> {
    if config.layers > MAX_LAYERS {
        return Err(sizes.unsupported("layers", config.layers.to_string(), &format!("at most {MAX_LAYERS}")));
    }
    if config.rotary_base <= 1.0 || config.rotary_base > MAX_ROTARY_BASE {
        let found = sizes.raw("rotary_base").map(ToString::to_string).unwrap_or_default();
        return Err(sizes.wrong("rotary_base", found, "a number above 1 and at most 1e12"));
    }
    if !config.width.is_multiple_of(config.heads) || !config.head_width().is_multiple_of(2) {
        let expected = format!("a divisor of d_model {} that leaves heads of even width", config.width);
        return Err(sizes.wrong("heads", config.heads.to_string(), &expected));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(change: impl FnOnce(&mut Value)) -> Result<ReaderConfig, ConfigError> {
        let mut json = json!({
            "architecture": { "layers": 2, "d_model": 64, "heads": 2, "ff": 128, "in_dim": 32, "table_dim": 48 },
            "assumed": { "gelu": "tanh" },
            "weights": { "file": "reader.safetensors", "format": "TF32" },
            "table": { "file": "table.npy", "words": "words.txt" }
        });
        change(&mut json);
        ReaderConfig::parse(&json.to_string(), "reader_config.json")
    }

    #[test]
    fn reads_and_lists_every_guess_with_its_origin() {
        let config = parse(|_| ()).unwrap();
        assert_eq!((config.layers, config.width, config.head_width(), config.table_width), (2, 64, 32, 48));
        assert_eq!(config.assumed, ["architecture.rotary_base"]);
        assert_eq!(config.matmul_mode.as_deref(), Some("TF32"));
        let listed: Vec<String> =
            config.listed.iter().take(6).map(|g| format!("{} = {} ({})", g.key, g.value, g.from)).collect();
        insta::assert_snapshot!(listed.join("\n"), @r#"
        assumed.rotary_layout = "half_split" (default)
        assumed.gelu = "tanh" (config)
        assumed.layer_norm_eps = 0.00001 (default)
        assumed.blank_input = "before_normalization" (default)
        assumed.qkv = "separate" (default)
        names.layers = "layers" (default)
        "#);
        assert_eq!(config.listed.len(), 5 + PARTS.len());
    }

    #[test]
    fn the_first_release_names_no_depth() {
        let config = parse(|j| j["architecture"] = json!({})).unwrap();
        assert_eq!((config.layers, config.width, config.table_width), (4, 512, 768));
        assert_eq!(config.assumed.len(), 7);
    }

    #[test]
    fn versions_and_names() {
        for (given, want) in [(json!("v2"), "v2"), (json!(2), "v2"), (json!("2.1"), "v2.1"), (json!("rc-1"), "rc-1")] {
            assert_eq!(parse(|j| j["version"] = given).unwrap().version.as_deref(), Some(want));
        }
        let config = parse(|j| j["names"] = json!({ "layers": "encoder.blocks", "ff_in": "mlp.0" })).unwrap();
        assert_eq!(
            [config.names.of("layers"), config.names.of("ff_in"), config.names.of("ff_out")],
            ["encoder.blocks", "mlp.0", "ff_out"]
        );
        let other = parse(|j| j["architecture"]["dropout"] = json!(0.1)).unwrap();
        assert_eq!(other.ignored, ["architecture.dropout"]);
    }

    #[test]
    fn refuses_by_name() {
        let refused = |change: &dyn Fn(&mut Value)| parse(|j| change(j)).unwrap_err().to_string();
        let all = [
            refused(&|j| j["architecture"]["layers"] = json!(0)),
            refused(&|j| j["architecture"]["layers"] = json!(257)),
            refused(&|j| j["architecture"]["heads"] = json!(3)),
            refused(&|j| j["architecture"]["heads"] = json!(64)),
            refused(&|j| j["architecture"]["rotary_base"] = json!(-1)),
            refused(&|j| j["architecture"]["rotary_base"] = json!(1.0)),
            refused(&|j| j["architecture"]["rotary_base"] = json!(1e300)),
            refused(&|j| j["assumed"]["gelu"] = json!("sigmoid")),
            refused(&|j| j["assumed"]["rotary"] = json!("half_split")),
            refused(&|j| j["assumed"]["layer_norm_eps"] = json!(0.01)),
            refused(&|j| j["assumed"] = json!("erf")),
            refused(&|j| j["names"] = json!({ "attention": "attn" })),
            refused(&|j| j["names"] = json!({ "layers": "" })),
            refused(&|j| j["weights"]["file"] = json!(7)),
            refused(&|j| j["version"] = json!("../v2")),
            refused(&|j| j["version"] = json!([2])),
            refused(&|j| j["architecture"] = Value::Null),
            refused(&|j| *j = json!([])),
            ReaderConfig::parse("{", "reader_config.json").unwrap_err().to_string(),
        ];
        insta::assert_snapshot!(all.join("\n"));
        for base in [1.5, 1e12] {
            assert_eq!(parse(|j| j["architecture"]["rotary_base"] = json!(base)).unwrap().rotary_base, base);
        }
    }

    #[test]
    fn a_text_that_means_two_things_or_starts_with_a_mark() {
        use std::error::Error;
        let twice = r#"{"architecture": {"layers": 2, "layers": 4}}"#;
        let refused = ReaderConfig::parse(twice, "reader_config.json").unwrap_err();
        insta::assert_snapshot!(refused.source().unwrap(), @r#"key "layers" is given twice at line 1 column 43"#);
        let marked = ReaderConfig::parse("\u{feff}{}", "reader_config.json").unwrap_err();
        insta::assert_snapshot!(marked, @"reader_config.json starts with a byte order mark; save it as UTF-8 without one");
        assert!(ReaderConfig::parse(r#"{"architecture": {"layers": 2}, "layers": 4}"#, "reader_config.json").is_ok());
    }
}
