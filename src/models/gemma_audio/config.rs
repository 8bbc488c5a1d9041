//! `config.json` of a checkpoint: the numbers the tower is built from, and what the static graph refuses.

use crate::models::section::{self, ConfigError, Section};
use serde_json::{Map, Value};

/// Architectural numbers of the audio tower and `embed_audio`.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioConfig {
    /// Width of the tower.
    pub hidden: usize,
    /// Conformer layers.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Output channels of the two subsampling convolutions.
    pub conv_channels: [usize; 2],
    /// Taps of the light convolution.
    pub conv_kernel: usize,
    /// Scale of a feed forward's result before the residual is added.
    pub residual_weight: f64,
    /// Tokens of one attention block of the published implementation; fixes where its relative positions start.
    pub chunk: usize,
    /// The published left context; a query sees one key fewer, its own included.
    pub context_left: usize,
    /// Soft cap of the attention logits.
    pub logit_cap: f64,
    /// Whether linears clamp their input and output.
    pub clipped: bool,
    /// eps of the norms that take it from the config.
    pub eps: f64,
    /// Width of the tower's output, which `embed_audio` projects.
    pub output_dims: usize,
    /// Width of a soft token: the text model's.
    pub text_hidden: usize,
    /// `model_type` of the whole checkpoint, where it is given.
    pub model_type: Option<String>,
    /// Keys that `config.json` left to the published default.
    pub assumed: Vec<String>,
}

/// Norms inside feed forwards and around attention keep this eps whatever the config says, as published.
pub const FIXED_EPS: f64 = 1e-6;

/// Most layers a graph is authored for: each is some 280 ops.
const MAX_LAYERS: usize = 256;
/// Longest context and convolution: each key or tap is a handful of ops in every layer.
const MAX_CONTEXT: usize = 512;

impl AudioConfig {
    /// The published EmbeddingGemma 2: 12 layers of 1024, soft tokens of 512.
    pub fn embedding_gemma2() -> AudioConfig {
        AudioConfig {
            hidden: 1024,
            layers: 12,
            heads: 8,
            conv_channels: [128, 32],
            conv_kernel: 5,
            residual_weight: 0.5,
            chunk: 12,
            context_left: 13,
            logit_cap: 50.0,
            clipped: true,
            eps: 1e-6,
            output_dims: 1536,
            text_hidden: 512,
            model_type: Some("embedding_gemma2".into()),
            assumed: Vec::new(),
        }
    }

    /// Reads `text`, the content of the config file named `file`.
    ///
    /// # Errors
    /// Not JSON, no audio tower, an entry of another kind, or one that a static graph cannot honour.
    pub fn parse(text: &str, file: &str) -> Result<AudioConfig, ConfigError> {
        let json = section::parse(text, file)?;
        let Some(audio) = json.get("audio_config").and_then(Value::as_object) else {
            let (section, meaning) = ("audio_config", "the checkpoint has no audio tower");
            return Err(ConfigError::NoSection { file: file.into(), section, meaning });
        };
        let mut audio = Section::new(file, "audio_config", audio);
        let published = Self::embedding_gemma2();
        let config = AudioConfig {
            hidden: audio.count("hidden_size", published.hidden)?,
            layers: audio.count("num_hidden_layers", published.layers)?,
            heads: audio.count("num_attention_heads", published.heads)?,
            conv_channels: audio.pair("subsampling_conv_channels", published.conv_channels)?,
            conv_kernel: audio.count("conv_kernel_size", published.conv_kernel)?,
            residual_weight: audio.number("residual_weight", published.residual_weight)?,
            chunk: audio.count("attention_chunk_size", published.chunk)?,
            context_left: audio.count("attention_context_left", published.context_left)?,
            logit_cap: audio.number("attention_logit_cap", published.logit_cap)?,
            clipped: audio.flag("use_clipped_linears", published.clipped)?,
            eps: audio.number("rms_norm_eps", published.eps)?,
            output_dims: audio.count("output_proj_dims", published.output_dims)?,
            text_hidden: text_hidden(&json, file)?,
            model_type: json.get("model_type").and_then(Value::as_str).map(Into::into),
            assumed: Vec::new(),
        };
        honour(&audio, &config)?;
        Ok(AudioConfig { assumed: audio.assumed, ..config })
    }

    /// Width of one attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads.max(1)
    }

    /// Keys a query sees: itself and those just before it.
    pub fn keys(&self) -> usize {
        self.context_left - 1
    }

    /// Position whose sinusoid belongs to the query's own key: 0 wherever a block is as long as the horizon.
    ///
    /// The published relative shift counts positions down from half the block's context, which is the distance
    /// itself only when block and horizon are equal.
    pub fn first_position(&self) -> i64 {
        let horizon = self.context_left as i64 - 1;
        (self.chunk as i64 + horizon) / 2 - horizon
    }
}

fn text_hidden(json: &Value, file: &str) -> Result<usize, ConfigError> {
    let empty = Map::new();
    let map = json.get("text_config").and_then(Value::as_object).unwrap_or(&empty);
    let mut text = Section::new(file, "text_config", map);
    match map.get("hidden_size") {
        Some(value) if !value.is_null() => text.count("hidden_size", 0),
        Some(_) | None => Err(text.wrong("hidden_size", "absent".into(), "the width of the text model")),
    }
}

/// Refuses by name what the graph has no form for.
fn honour(audio: &Section<'_>, config: &AudioConfig) -> Result<(), ConfigError> {
    let refuse = |key, found, expected: &str| Err(audio.unsupported(key, found, expected));
    match audio.raw("hidden_act") {
        None => {}
        Some(Value::String(act)) if act == "silu" || act == "swish" => {}
        Some(other) => return refuse("hidden_act", other.to_string(), "\"silu\""),
    }
    match audio.raw("attention_context_right") {
        None => {}
        Some(right) if right.as_u64() == Some(0) => {}
        Some(right) => return refuse("attention_context_right", right.to_string(), "0 (causal)"),
    }
    // Masked keys get weight 0 here, so the published value must leave them none either: with logits capped, one
    // of -1e4 and below does.
    match audio.raw("attention_invalid_logits_value") {
        None => {}
        Some(value) if value.as_f64().is_some_and(|v| v <= -1e4) => {}
        Some(value) => return refuse("attention_invalid_logits_value", value.to_string(), "-1e4 or less"),
    }
    // The published clamp against exploding values; at 65504 and above it changes no finite fp16 value.
    match audio.raw("gradient_clipping") {
        None => {}
        Some(clip) if clip.as_f64().is_some_and(|c| c >= 65504.0) => {}
        Some(clip) => return refuse("gradient_clipping", clip.to_string(), "65504 or more"),
    }
    if !config.hidden.is_multiple_of(config.heads) {
        let expected = format!("a divisor of hidden_size {}", config.hidden);
        return Err(audio.wrong("num_attention_heads", config.heads.to_string(), &expected));
    }
    if !config.hidden.is_multiple_of(2) {
        return refuse("hidden_size", config.hidden.to_string(), "an even width (sinusoid halves)");
    }
    for (key, found, most) in [
        ("num_hidden_layers", config.layers, MAX_LAYERS),
        ("attention_context_left", config.context_left, MAX_CONTEXT),
        ("conv_kernel_size", config.conv_kernel, MAX_CONTEXT),
    ] {
        if found > most {
            return refuse(key, found.to_string(), &format!("at most {most}"));
        }
    }
    if config.context_left < 2 {
        return refuse("attention_context_left", config.context_left.to_string(), "2 or more (one key)");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(change: impl FnOnce(&mut Value)) -> Result<AudioConfig, ConfigError> {
        let mut json = json!({
            "audio_config": {
                "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                "subsampling_conv_channels": [128, 8], "output_proj_dims": 96,
                "attention_context_right": 0, "hidden_act": "silu", "gradient_clipping": 1e10
            },
            "text_config": { "hidden_size": 32 }
        });
        change(&mut json);
        AudioConfig::parse(&json.to_string(), "config.json")
    }

    fn refused(key: &str, value: Value) -> String {
        parse(|j| j["audio_config"][key] = value).unwrap_err().to_string()
    }

    #[test]
    fn reads_and_notes_what_was_assumed() {
        let config = parse(|_| ()).unwrap();
        assert_eq!((config.hidden, config.layers, config.text_hidden, config.conv_channels), (64, 2, 32, [128, 8]));
        assert_eq!((config.keys(), config.first_position(), config.head_dim()), (12, 0, 16));
        assert!(config.assumed.contains(&"audio_config.conv_kernel_size".to_string()));
        assert!(!config.assumed.contains(&"audio_config.hidden_size".to_string()));
    }

    #[test]
    fn another_block_length_moves_the_positions() {
        let config = parse(|j| j["audio_config"]["attention_chunk_size"] = json!(16)).unwrap();
        assert_eq!(config.first_position(), 2);
        let config = parse(|j| j["audio_config"]["attention_chunk_size"] = json!(8)).unwrap();
        assert_eq!(config.first_position(), -2);
    }

    #[test]
    fn refuses_by_name() {
        insta::assert_snapshot!(refused("attention_context_right", json!(4)), @"config.json: audio_config.attention_context_right is 4, which a static graph cannot honour; it takes 0 (causal)");
        insta::assert_snapshot!(refused("hidden_act", json!("gelu")), @r#"config.json: audio_config.hidden_act is "gelu", which a static graph cannot honour; it takes "silu""#);
        insta::assert_snapshot!(refused("gradient_clipping", json!(100.0)), @"config.json: audio_config.gradient_clipping is 100.0, which a static graph cannot honour; it takes 65504 or more");
        insta::assert_snapshot!(refused("attention_invalid_logits_value", json!(-1.0)), @"config.json: audio_config.attention_invalid_logits_value is -1.0, which a static graph cannot honour; it takes -1e4 or less");
        insta::assert_snapshot!(refused("num_hidden_layers", json!(20_000)), @"config.json: audio_config.num_hidden_layers is 20000, which a static graph cannot honour; it takes at most 256");
        insta::assert_snapshot!(refused("num_attention_heads", json!(5)), @"config.json: audio_config.num_attention_heads is 5, expected a divisor of hidden_size 64");
        insta::assert_snapshot!(refused("num_hidden_layers", json!(0)), @"config.json: audio_config.num_hidden_layers is 0, expected a whole number from 1 to 131072");
        insta::assert_snapshot!(refused("subsampling_conv_channels", json!([128])), @"config.json: audio_config.subsampling_conv_channels is [128], expected two whole numbers from 1 to 131072");
        insta::assert_snapshot!(refused("rms_norm_eps", json!("x")), @r#"config.json: audio_config.rms_norm_eps is "x", expected a positive number"#);
        insta::assert_snapshot!(refused("attention_context_left", json!(1)), @"config.json: audio_config.attention_context_left is 1, which a static graph cannot honour; it takes 2 or more (one key)");
        insta::assert_snapshot!(parse(|j| j["audio_config"] = Value::Null).unwrap_err(), @"config.json has no audio_config, so the checkpoint has no audio tower");
        insta::assert_snapshot!(parse(|j| j["text_config"] = Value::Null).unwrap_err(), @"config.json: text_config.hidden_size is absent, expected the width of the text model");
    }
}
