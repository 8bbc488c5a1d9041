"""Makes tests/fixtures/laya_variants: very small seeded decision models that differ in every key of the two configs, and
what the published modules compute of them in float32.

    python scripts/laya_variants.py       # with the packages of scripts/requirements-goldens.txt

Each golden_q<type>.safetensors has the graph's inputs for a sequence of 48 tokens, of which 37 are there, and its outputs:
logits [1, 1, 1, K] of the K options that have a marker, and cls [1, C, 1, 1]. The weights are loaded as the published
loader does it: it widens what is stored in 16 bits and keeps its rotary tables in float32.
"""
import json
from pathlib import Path

import torch
from laya_coreml.torch_model import DecisionModel, load_model
from safetensors.torch import save_file

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "laya_variants"
LENGTH, TOKENS, OPTIONS, SLOTS, WINDOW = 48, 37, 5, 32, 14
COMMON = dict(model_type="modernbert", vocab_size=64, hidden_size=32, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2, local_attention=WINDOW)
VARIANTS = {
    # Every key that has a default is left to it, but for what makes it small.
    "defaults": (COMMON, {"head_layers": 1}, torch.float32),
    # Every key differs from its default; what is stored is float16.
    "own": (
        dict(COMMON, norm_eps=1e-3, norm_bias=True, attention_bias=True, mlp_bias=True, global_attn_every_n_layers=2, hidden_activation="gelu",
             global_rope_theta=5e4, local_rope_theta=300.0, num_attention_heads=4),
        {"head_layers": 2, "act_costs": {"wait": 1.0}, "option_layout": "sequential"},
        torch.float16,
    ),
    # Kinds and bases by name, as newer configs have them; 130 wide, so that the decision head's heads are of 65.
    "named": (
        dict(COMMON, hidden_size=130, num_attention_heads=5, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
             rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 9e4}, "sliding_attention": {"rope_theta": 700.0}}),
        {"head_layers": 1, "act_costs": {}},
        torch.bfloat16,
    ),
}


def write(name, config, agent, dtype):
    folder = OUT / name
    (folder / "encoder").mkdir(parents=True, exist_ok=True)
    (folder / "encoder" / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "rl_agent_config.json").write_text(json.dumps(agent, indent=1) + "\n")
    rng = torch.Generator().manual_seed(len(name))
    weights = {}
    for key, value in DecisionModel(config, agent, LENGTH).state_dict().items():
        if key == "temperature":
            weights[key] = value
            continue
        noise = torch.randn(value.shape, generator=rng)
        if value.ndim > 1:
            value = noise / value.shape[-1] ** 0.5
        else:
            value = (1 if key.endswith("weight") else 0) + 0.2 * noise
        weights[key] = value.to(dtype)
    save_file(weights, folder / "model.safetensors")
    model = load_model(folder, LENGTH)
    ids = torch.randint(0, config["vocab_size"], (1, LENGTH), generator=rng)
    valid = torch.arange(LENGTH)[None] < TOKENS
    positions = torch.arange(LENGTH)
    near = (positions[:, None] - positions[None]).abs() <= config["local_attention"] // 2
    full = torch.where(valid[0][:, None].expand(LENGTH, LENGTH), 0.0, -1e4)
    local = torch.where(valid[0][:, None] & (near | ~valid[0][None]), 0.0, -1e4)
    markers = [3 + 6 * slot for slot in range(OPTIONS)]
    chosen = torch.zeros(1, LENGTH, 1, SLOTS)
    for slot, at in enumerate(markers):
        chosen[0, at, 0, slot] = 1
    padded = torch.tensor([markers + [0] * (SLOTS - OPTIONS)])
    there = torch.arange(SLOTS)[None] < OPTIONS
    for kind in range(3):
        kinds = torch.tensor([kind])
        with torch.no_grad():
            logits, _ = model(ids, valid, padded, there, kinds)
            hidden = model.encoder(ids, valid) + model.type_emb(kinds)[:, None]
            cls = model.head(hidden, valid[:, None, None])[:, :1].transpose(1, 2)[:, :, None]
            tensors = {
                "embeddings": model.encoder.embeddings.tok_embeddings(ids).transpose(1, 2)[:, :, None],
                "full_mask": full[None, :, None],
                "local_mask": local[None, :, None],
                "type_vectors": model.type_emb(kinds)[:, :, None, None],
                "marker_map": chosen,
                "logits": logits[:, None, None, :OPTIONS],
                "cls": cls,
            }
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"golden_q{kind}.safetensors")


for variant, (encoder, agent, stored) in VARIANTS.items():
    write(variant, encoder, agent, stored)
