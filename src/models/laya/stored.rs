//! Tensors of a checkpoint that the host reads and the graph does not have.

use super::LayaConfig;

/// The table of embeddings `[vocab, C]`.
pub const TABLE: &str = "encoder.embeddings.tok_embeddings.weight";

/// The vectors `[KINDS, C]` of the question types.
pub const TYPES: &str = "type_emb.weight";

/// Question types.
pub const KINDS: usize = 3;

/// The two linear layers of the action head, `[ACT_WIDTH, C + ABOUT]` and `[actions, ACT_WIDTH]`.
pub const ACT: [&str; 2] = ["act_head.0", "act_head.2"];

/// Width inside the action head.
pub const ACT_WIDTH: usize = 256;

/// Numbers about the options that the action head reads behind the class token's.
pub const ABOUT: usize = 4;

/// Temperatures by type, which the config has too and which is what is taken.
const TEMPERATURE: &str = "temperature";

/// Each of these tensors in a checkpoint of `config`, by name and shape.
pub fn all(config: &LayaConfig) -> Vec<(String, Vec<usize>)> {
    let (c, actions) = (config.encoder.hidden, config.agent.actions.len() + 1);
    let mut all = vec![(TABLE.to_string(), vec![config.encoder.vocab, c]), (TYPES.to_string(), vec![KINDS, c])];
    for (layer, [outputs, inputs]) in ACT.into_iter().zip([[ACT_WIDTH, c + ABOUT], [actions, ACT_WIDTH]]) {
        all.push((format!("{layer}.weight"), vec![outputs, inputs]));
        all.push((format!("{layer}.bias"), vec![outputs]));
    }
    all.push((TEMPERATURE.to_string(), vec![KINDS]));
    all
}
