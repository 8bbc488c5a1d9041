//! The two configs of a Laya checkpoint: `encoder/config.json` for the encoder's numbers, `rl_agent_config.json` for the
//! decision head's and the host's.

use crate::models::section::{self, ConfigError, Section};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Where a checkpoint keeps the encoder's config.
pub const ENCODER_FILE: &str = "encoder/config.json";

/// Where it keeps the decision head's and the host's.
pub const AGENT_FILE: &str = "rl_agent_config.json";

/// Most layers a graph is authored for: each is some 180 ops.
const MAX_LAYERS: usize = 128;

/// Width of a head of the decision head's attention.
const AGENT_HEAD: usize = 64;

/// What a layer of the encoder looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Every token.
    Global,
    /// Tokens at most half of [`Encoder::window`] away.
    Local,
}

impl LayerKind {
    const WORDS: [(&str, LayerKind); 2] =
        [("full_attention", LayerKind::Global), ("sliding_attention", LayerKind::Local)];

    fn word(self) -> &'static str {
        match self {
            LayerKind::Global => "full_attention",
            LayerKind::Local => "sliding_attention",
        }
    }
}

/// Numbers of the ModernBERT encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoder {
    /// Rows of the table of embeddings.
    pub vocab: usize,
    /// Width.
    pub hidden: usize,
    /// Width inside a feed forward, of each half.
    pub intermediate: usize,
    /// Attention heads.
    pub heads: usize,
    /// What each layer looks at.
    pub layers: Vec<LayerKind>,
    /// Tokens that a local layer sees, half of them on either side.
    pub window: usize,
    /// Base of the rotary embedding of global layers.
    pub global_theta: f64,
    /// Base of that of local ones.
    pub local_theta: f64,
    /// eps of every LayerNorm of the encoder.
    pub eps: f64,
    /// Whether they add a bias.
    pub norm_bias: bool,
    /// Whether attention's projections do.
    pub attention_bias: bool,
    /// Whether the feed forwards' do.
    pub mlp_bias: bool,
}

impl Encoder {
    /// Width of a head.
    pub fn head_width(&self) -> usize {
        self.hidden / self.heads.max(1)
    }

    /// Base of the rotary embedding of a layer.
    pub fn theta(&self, kind: LayerKind) -> f64 {
        match kind {
            LayerKind::Global => self.global_theta,
            LayerKind::Local => self.local_theta,
        }
    }
}

/// What the decision head and the host go by.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// Layers of the decision head.
    pub layers: usize,
    /// What can be done instead of answering, in the order of the action head's rows behind the first.
    pub actions: Vec<String>,
    /// Most tokens of a question with its state.
    pub max_len: usize,
    /// Most tokens of the question alone, as far as its options leave it that.
    pub head_max_len: usize,
    /// Temperatures of the three question types, as they are written.
    pub temperature: [Value; 3],
    /// Temperatures by `type:bucket`, as they are written.
    pub temperature_by_options: BTreeMap<String, Value>,
}

/// Both configs.
#[derive(Clone, Debug, PartialEq)]
pub struct LayaConfig {
    /// The encoder's.
    pub encoder: Encoder,
    /// The decision head's and the host's.
    pub agent: Agent,
    /// Keys that were absent and took the default.
    pub assumed: Vec<String>,
}

impl LayaConfig {
    /// The published multilingual model: 22 layers of 768, local attention of 128 tokens.
    pub fn multilingual() -> LayaConfig {
        let kind = |index: usize| if index.is_multiple_of(3) { LayerKind::Global } else { LayerKind::Local };
        LayaConfig {
            encoder: Encoder {
                vocab: 256_000,
                hidden: 768,
                intermediate: 1152,
                heads: 12,
                layers: (0..22).map(kind).collect(),
                window: 128,
                global_theta: 160_000.0,
                local_theta: 160_000.0,
                eps: 1e-5,
                norm_bias: false,
                attention_bias: false,
                mlp_bias: false,
            },
            agent: Agent {
                layers: 2,
                // Its 321,908,998 parameters leave room for one besides the answer.
                actions: vec!["escalate".into()],
                max_len: 512,
                head_max_len: 192,
                temperature: [1.0.into(), 1.0.into(), 1.0.into()],
                temperature_by_options: BTreeMap::new(),
            },
            assumed: Vec::new(),
        }
    }

    /// Reads the contents of [`ENCODER_FILE`] and [`AGENT_FILE`], called so in messages.
    ///
    /// # Errors
    /// Not JSON, an entry of another kind, or one that a static graph cannot honour.
    pub fn parse(encoder: &str, agent: &str, [encoder_file, agent_file]: [&str; 2]) -> Result<LayaConfig, ConfigError> {
        let json = section::parse(encoder, encoder_file)?;
        let (encoder, mut assumed) = Encoder::read(object(&json, encoder_file)?, encoder_file)?;
        let json = section::parse(agent, agent_file)?;
        let (agent, of_agent) = Agent::read(object(&json, agent_file)?, agent_file)?;
        assumed.extend(of_agent);
        Ok(LayaConfig { encoder, agent, assumed })
    }

    /// Attention heads of the decision head.
    pub fn agent_heads(&self) -> usize {
        (self.encoder.hidden / AGENT_HEAD).max(1)
    }
}

fn object<'j>(json: &'j Value, file: &str) -> Result<&'j Map<String, Value>, ConfigError> {
    let whole = Map::new();
    let none = || Section::new(file, "", &whole).wrong("the whole", section::kind(json), "an object");
    json.as_object().ok_or_else(none)
}

impl Encoder {
    fn read(json: &Map<String, Value>, file: &str) -> Result<(Encoder, Vec<String>), ConfigError> {
        let mut config = Section::new(file, "", json);
        config.choice("model_type", (), &[("modernbert", ())])?;
        config.choice("hidden_activation", (), &[("gelu", ())])?;
        let published = LayaConfig::multilingual().encoder;
        let count = config.count("num_hidden_layers", published.layers.len())?;
        if count > MAX_LAYERS {
            return Err(config.unsupported("num_hidden_layers", count.to_string(), "128 at most"));
        }
        let [global_theta, local_theta] = thetas(&mut config)?;
        let encoder = Encoder {
            vocab: vocab(&mut config, published.vocab)?,
            hidden: config.count("hidden_size", published.hidden)?,
            intermediate: config.count("intermediate_size", published.intermediate)?,
            heads: config.count("num_attention_heads", published.heads)?,
            layers: kinds(&mut config, count)?,
            window: config.count("local_attention", published.window)?,
            global_theta,
            local_theta,
            eps: config.number("norm_eps", published.eps)?,
            norm_bias: config.flag("norm_bias", published.norm_bias)?,
            attention_bias: config.flag("attention_bias", published.attention_bias)?,
            mlp_bias: config.flag("mlp_bias", published.mlp_bias)?,
        };
        if !encoder.hidden.is_multiple_of(2 * encoder.heads) {
            let expected = format!("a divisor of half of hidden_size, which is {}", encoder.hidden);
            return Err(config.unsupported("num_attention_heads", encoder.heads.to_string(), &expected));
        }
        let heads = (encoder.hidden / AGENT_HEAD).max(1);
        if !encoder.hidden.is_multiple_of(heads) {
            let expected = "a width that heads of about 64 divide: the decision head has hidden_size / 64 of them";
            return Err(config.unsupported("hidden_size", encoder.hidden.to_string(), expected));
        }
        Ok((encoder, config.assumed))
    }
}

/// Rows of the table: far more than any width, since a host looks them up one at a time.
fn vocab(config: &mut Section<'_>, default: usize) -> Result<usize, ConfigError> {
    const MAX: u64 = 1 << 24;
    let found = match config.raw("vocab_size") {
        None | Some(Value::Null) => return config.count("vocab_size", default),
        Some(found) => found,
    };
    let rows = found.as_u64().filter(|n| (1..=MAX).contains(n));
    rows.map(|n| n as usize)
        .ok_or_else(|| config.wrong("vocab_size", found.to_string(), "a whole number from 1 to 16777216"))
}

/// The kind of each layer: a list of words, else global every so many.
fn kinds(config: &mut Section<'_>, count: usize) -> Result<Vec<LayerKind>, ConfigError> {
    const KEY: &str = "layer_types";
    let Some(list) = config.raw(KEY).filter(|list| !list.is_null()) else {
        let every = config.count("global_attn_every_n_layers", 3)?;
        let kind = |index: usize| if index.is_multiple_of(every) { LayerKind::Global } else { LayerKind::Local };
        let kinds: Vec<_> = (0..count).map(kind).collect();
        return if kinds.contains(&LayerKind::Local) {
            Ok(kinds)
        } else {
            let found = format!("{every} in an encoder of {count} layers");
            Err(config.unsupported("global_attn_every_n_layers", found, LOCAL_LAYER))
        };
    };
    let words = list.as_array().filter(|words| words.len() == count);
    let expected = || format!("a list of {count} kinds, one for each layer");
    let words = words.ok_or_else(|| config.wrong(KEY, section::kind(list), &expected()))?;
    let one = |word: &Value| {
        let known = LayerKind::WORDS.into_iter().find(|(name, _)| word.as_str() == Some(name));
        let names = || LayerKind::WORDS.map(|(name, _)| format!("{name:?}")).join(" or ");
        known.map(|(_, kind)| kind).ok_or_else(|| config.unsupported(KEY, word.to_string(), &names()))
    };
    let kinds = words.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    if kinds.contains(&LayerKind::Local) {
        Ok(kinds)
    } else {
        Err(config.unsupported(KEY, "all \"full_attention\"".into(), LOCAL_LAYER))
    }
}

const LOCAL_LAYER: &str = "one layer of local attention or more, which the graph's input local_mask is for";

/// The bases of global and of local layers: by `rope_parameters`, else by keys of their own, else 160000 and 10000.
fn thetas(config: &mut Section<'_>) -> Result<[f64; 2], ConfigError> {
    const KEY: &str = "rope_parameters";
    let empty = Map::new();
    let by_kind = match config.raw(KEY) {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(map)) => map,
        Some(other) => return Err(config.wrong(KEY, section::kind(other), "an object of one for each kind of layer")),
    };
    let known = LayerKind::WORDS.map(|(word, _)| word);
    if let Some(other) = by_kind.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(config.unsupported(
            KEY,
            format!("{other:?}"),
            "entries \"full_attention\" and \"sliding_attention\"",
        ));
    }
    let mut theta = |kind: LayerKind, key: &str, default: f64| {
        // A null is no absence: some implementations take the other kind's base for it, others fail.
        if config.raw(key).is_some_and(Value::is_null) {
            return Err(config.wrong(key, "null".into(), "a positive number, or no such key"));
        }
        let own = config.raw(key).is_some();
        let base = match by_kind.get(kind.word()) {
            None | Some(Value::Null) => None,
            Some(entry) => rope(config, KEY, kind, entry)?,
        };
        match base {
            Some(base) if own => config.number(key, default).map(|_| base),
            Some(base) => Ok(base),
            None => config.number(key, default),
        }
    };
    Ok([
        theta(LayerKind::Global, "global_rope_theta", 160_000.0)?,
        theta(LayerKind::Local, "local_rope_theta", 10_000.0)?,
    ])
}

/// The base in one entry of `rope_parameters`, whose kind must be the plain one.
fn rope(config: &Section<'_>, key: &str, kind: LayerKind, entry: &Value) -> Result<Option<f64>, ConfigError> {
    let path = format!("{key}.{}", kind.word());
    let Some(entry) = entry.as_object() else {
        return Err(config.wrong(&path, section::kind(entry), "an object"));
    };
    let named = |name: &str| format!("{path}.{name}");
    for name in ["rope_type", "type"] {
        match entry.get(name) {
            None => {}
            Some(Value::String(word)) if word == "default" => {}
            Some(other) => return Err(config.unsupported(&named(name), other.to_string(), "\"default\"")),
        }
    }
    if let Some(other) = entry.keys().find(|k| !["rope_type", "type", "rope_theta"].contains(&k.as_str())) {
        return Err(config.unsupported(&path, format!("an entry {other:?}"), "rope_type and rope_theta"));
    }
    match entry.get("rope_theta") {
        None => Ok(None),
        Some(theta) => match theta.as_f64().filter(|theta| theta.is_finite() && *theta > 0.0) {
            Some(theta) => Ok(Some(theta)),
            None => Err(config.wrong(&named("rope_theta"), theta.to_string(), "a positive number")),
        },
    }
}

impl Agent {
    fn read(json: &Map<String, Value>, file: &str) -> Result<(Agent, Vec<String>), ConfigError> {
        let mut config = Section::new(file, "", json);
        // Parallel options have positions and masks of their own, which the graph's inputs have no room for.
        config.choice("option_layout", (), &[("sequential", ())])?;
        let layers = config.count("head_layers", LayaConfig::multilingual().agent.layers)?;
        if layers > MAX_LAYERS {
            return Err(config.unsupported("head_layers", layers.to_string(), "128 at most"));
        }
        let agent = Agent {
            layers,
            actions: map(&config, "act_costs", "an object of costs by action")?.keys().cloned().collect(),
            max_len: config.count("max_len", 512)?,
            head_max_len: config.count("head_max_len", 192)?,
            temperature: temperature(&config)?,
            temperature_by_options: map(&config, "temperature_by_options", "an object of temperatures by bucket")?
                .into_iter()
                .collect(),
        };
        Ok((agent, config.assumed))
    }
}

fn temperature(config: &Section<'_>) -> Result<[Value; 3], ConfigError> {
    const KEY: &str = "temperature";
    match config.raw(KEY) {
        None | Some(Value::Null) => Ok([1.0.into(), 1.0.into(), 1.0.into()]),
        Some(Value::Array(list)) => match list.as_slice() {
            [choice, score, noul] => Ok([choice.clone(), score.clone(), noul.clone()]),
            _ => Err(config.wrong(KEY, format!("a list of {}", list.len()), "a list of 3, one for each question type")),
        },
        Some(other) => Err(config.wrong(KEY, section::kind(other), "a list of 3, one for each question type")),
    }
}

fn map(config: &Section<'_>, key: &str, expected: &str) -> Result<Map<String, Value>, ConfigError> {
    match config.raw(key) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(other) => Err(config.wrong(key, section::kind(other), expected)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The configs with entries put in or replaced.
    fn parse(encoder: Value, agent: Value) -> Result<LayaConfig, String> {
        let mut text = json!({
            "model_type": "modernbert", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 24,
            "num_hidden_layers": 3, "num_attention_heads": 2,
        });
        text.as_object_mut().unwrap().extend(encoder.as_object().unwrap().clone());
        LayaConfig::parse(&text.to_string(), &agent.to_string(), ["e.json", "a.json"]).map_err(|e| e.to_string())
    }

    fn encoder(entries: Value) -> Result<Encoder, String> {
        parse(entries, json!({})).map(|config| config.encoder)
    }

    #[test]
    fn defaults_are_the_published_ones() {
        let LayaConfig { encoder, agent, assumed } = parse(json!({}), json!({})).unwrap();
        assert_eq!(
            (encoder.global_theta, encoder.local_theta, encoder.eps, encoder.window),
            (160_000.0, 10_000.0, 1e-5, 128)
        );
        assert_eq!(encoder.layers, [LayerKind::Global, LayerKind::Local, LayerKind::Local]);
        assert!(!encoder.norm_bias && !encoder.attention_bias && !encoder.mlp_bias);
        assert_eq!((agent.layers, agent.max_len, agent.head_max_len, agent.actions.len()), (2, 512, 192, 0));
        assert!(
            ["local_attention", "norm_eps", "head_layers", "max_len"]
                .iter()
                .all(|key| assumed.iter().any(|a| a == key))
        );
        let empty = LayaConfig::parse("{}", "{}", ["e", "a"]).unwrap();
        let published = LayaConfig::multilingual();
        let Encoder { local_theta, .. } = empty.encoder;
        assert_eq!(empty.encoder, Encoder { local_theta, ..published.encoder });
    }

    #[test]
    fn kinds_and_bases_by_either_name() {
        let found = encoder(json!({
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": { "rope_type": "default", "rope_theta": 9e4 },
                "sliding_attention": { "rope_theta": 700 },
            },
            "local_rope_theta": 5.0,
        }));
        let found = found.unwrap();
        assert_eq!(found.layers, [LayerKind::Local, LayerKind::Global, LayerKind::Local]);
        assert_eq!((found.global_theta, found.local_theta), (9e4, 700.0));
        let found =
            encoder(json!({ "global_rope_theta": 2.0, "local_rope_theta": 3.0, "rope_parameters": {} })).unwrap();
        assert_eq!((found.global_theta, found.local_theta), (2.0, 3.0));
        let every = encoder(json!({ "global_attn_every_n_layers": 2 })).unwrap();
        assert_eq!(every.layers, [LayerKind::Global, LayerKind::Local, LayerKind::Global]);
    }

    #[test]
    fn what_a_static_graph_cannot_honour() {
        let rope = |entry: Value| json!({ "rope_parameters": { "full_attention": entry } });
        let all = [
            json!({ "model_type": "bert" }),
            json!({ "hidden_activation": "silu" }),
            json!({ "hidden_activation": 3 }),
            json!({ "num_hidden_layers": 129 }),
            json!({ "num_attention_heads": 3 }),
            json!({ "hidden_size": 200, "num_attention_heads": 10 }),
            json!({ "vocab_size": 1 << 25 }),
            json!({ "layer_types": ["full_attention"] }),
            json!({ "layer_types": ["full_attention", "full_attention", "chunked_attention"] }),
            json!({ "layer_types": 3 }),
            json!({ "layer_types": ["full_attention", "full_attention", "full_attention"] }),
            json!({ "global_attn_every_n_layers": 1 }),
            json!({ "num_hidden_layers": 1 }),
            json!({ "global_attn_every_n_layers": 0 }),
            json!({ "local_rope_theta": null }),
            json!({ "local_rope_theta": -1 }),
            json!({ "rope_parameters": { "rope_theta": 1e4 } }),
            json!({ "rope_parameters": [] }),
            rope(json!({ "rope_type": "yarn" })),
            rope(json!({ "rope_theta": 0 })),
            rope(json!({ "rope_theta": 1e4, "factor": 2 })),
            rope(json!(1e4)),
            json!({ "norm_eps": 0 }),
            json!({ "norm_bias": "yes" }),
        ];
        let told: Vec<String> = all.into_iter().map(|entries| encoder(entries).unwrap_err()).collect();
        insta::assert_snapshot!(told.join("\n"), @r#"
        e.json: model_type is "bert", which a static graph cannot honour; it takes "modernbert"
        e.json: hidden_activation is "silu", which a static graph cannot honour; it takes "gelu"
        e.json: hidden_activation is 3, which a static graph cannot honour; it takes "gelu"
        e.json: num_hidden_layers is 129, which a static graph cannot honour; it takes 128 at most
        e.json: num_attention_heads is 3, which a static graph cannot honour; it takes a divisor of half of hidden_size, which is 32
        e.json: hidden_size is 200, which a static graph cannot honour; it takes a width that heads of about 64 divide: the decision head has hidden_size / 64 of them
        e.json: vocab_size is 33554432, expected a whole number from 1 to 16777216
        e.json: layer_types is a list of 1, expected a list of 3 kinds, one for each layer
        e.json: layer_types is "chunked_attention", which a static graph cannot honour; it takes "full_attention" or "sliding_attention"
        e.json: layer_types is 3, expected a list of 3 kinds, one for each layer
        e.json: layer_types is all "full_attention", which a static graph cannot honour; it takes one layer of local attention or more, which the graph's input local_mask is for
        e.json: global_attn_every_n_layers is 1 in an encoder of 3 layers, which a static graph cannot honour; it takes one layer of local attention or more, which the graph's input local_mask is for
        e.json: global_attn_every_n_layers is 3 in an encoder of 1 layers, which a static graph cannot honour; it takes one layer of local attention or more, which the graph's input local_mask is for
        e.json: global_attn_every_n_layers is 0, expected a whole number from 1 to 131072
        e.json: local_rope_theta is null, expected a positive number, or no such key
        e.json: local_rope_theta is -1, expected a positive number
        e.json: rope_parameters is "rope_theta", which a static graph cannot honour; it takes entries "full_attention" and "sliding_attention"
        e.json: rope_parameters is a list of 0, expected an object of one for each kind of layer
        e.json: rope_parameters.full_attention.rope_type is "yarn", which a static graph cannot honour; it takes "default"
        e.json: rope_parameters.full_attention.rope_theta is 0, expected a positive number
        e.json: rope_parameters.full_attention is an entry "factor", which a static graph cannot honour; it takes rope_type and rope_theta
        e.json: rope_parameters.full_attention is 10000.0, expected an object
        e.json: norm_eps is 0, expected a positive number
        e.json: norm_bias is "yes", expected true or false
        "#);
        let all = [
            json!({ "option_layout": "parallel" }),
            json!({ "head_layers": 0 }),
            json!({ "head_layers": 129 }),
            json!({ "act_costs": ["a"] }),
            json!({ "temperature": [1, 2] }),
            json!({ "temperature": 1 }),
            json!({ "temperature_by_options": [] }),
            json!({ "max_len": 0 }),
            json!([]),
        ];
        let told: Vec<String> = all.into_iter().map(|agent| parse(json!({}), agent).unwrap_err()).collect();
        insta::assert_snapshot!(told.join("\n"), @r#"
        a.json: option_layout is "parallel", which a static graph cannot honour; it takes "sequential"
        a.json: head_layers is 0, expected a whole number from 1 to 131072
        a.json: head_layers is 129, which a static graph cannot honour; it takes 128 at most
        a.json: act_costs is a list of 1, expected an object of costs by action
        a.json: temperature is a list of 2, expected a list of 3, one for each question type
        a.json: temperature is 1, expected a list of 3, one for each question type
        a.json: temperature_by_options is a list of 0, expected an object of temperatures by bucket
        a.json: max_len is 0, expected a whole number from 1 to 131072
        a.json: the whole is a list of 0, expected an object
        "#);
    }
}
