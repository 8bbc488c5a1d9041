"""Makes tests/fixtures/encoder_*: small seeded checkpoints and the soft tokens transformers computes from them.

    python scripts/encoder_goldens.py        # with the packages of scripts/requirements-goldens.txt

One fixture is an EmbeddingGemma 2 checkpoint in one f32 file; the other a Gemma 4 checkpoint in bf16 shards, whose
names stand under `model.`, whose clips are half open, and whose attention blocks are longer than their horizon.
golden.safetensors holds features [1, 200, 128] without padding and, for n = 197..200 valid frames,
soft_tokens_n [1, ceil(ceil(n / 2) / 2), D]: what the tower gives for the first n frames, in float32. Its header says
which weights these are of: source_sha256, the digest of each weights file, with commas between.

clips/ has two of them as `eg2-convert gate` takes goldens, a file a clip, for the recipes in recipes/tiny: one of
n % 4 = 1, which silence in the padding breaks, and one of n % 4 = 2, which a mask of ones breaks.
"""
import hashlib
import math
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModel, EmbeddingGemma2Config, Gemma4Config, Gemma4ForConditionalGeneration
from transformers.models.gemma4.configuration_gemma4 import Gemma4AudioConfig

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
BUCKET = 200
TEXT = dict(vocab_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
            head_dim=16, hidden_size_per_layer_input=8, vocab_size_per_layer_input=64, global_head_dim=16)
AUDIO = dict(num_attention_heads=3, num_hidden_layers=2, hidden_size=48, subsampling_conv_channels=[128, 4])


def randomize(model, seed, open_clips):
    """Weights that keep every part of the tower in play; bounds near the activations, so that they clip."""
    rng = torch.Generator().manual_seed(seed)
    normal = lambda shape: torch.randn(shape, generator=rng)
    for name, p in model.named_parameters():
        with torch.no_grad():
            if p.ndim >= 2:
                p.copy_(normal(p.shape) / math.sqrt(p[0].numel()))
            elif name.endswith("per_dim_scale"):
                p.copy_(normal(p.shape) * 0.4)
            elif name.endswith("weight"):
                p.copy_(1 + 0.25 * normal(p.shape))
            else:
                p.copy_(0.1 * normal(p.shape))
    for index, (name, bound) in enumerate(n for n in model.named_buffers() if n[0].endswith(("_min", "_max"))):
        if open_clips and index % 3 == 0:
            continue
        size = 1.5 + torch.rand((), generator=rng)
        bound.copy_(-size if name.endswith("_min") else size)


def write(name, build, config, seed, dtype, shard, open_clips=False, clips=()):
    torch.manual_seed(seed)
    model = build(config).eval().float()
    randomize(model, seed, open_clips)
    out = FIXTURES / name
    model.to(dtype).save_pretrained(out, max_shard_size=shard)
    (out / "generation_config.json").unlink(missing_ok=True)
    # Loaded anew: a model that went through bf16 keeps its timescales rounded.
    model = type(model).from_pretrained(out, dtype=torch.float32).eval()
    model = getattr(model, "model", model)
    rng = torch.Generator().manual_seed(seed + 1)
    features = torch.randn(1, BUCKET, 128, generator=rng) * 2 - 4
    features[:, 90:110] = math.log(0.001)
    golden = {"features": features}
    for n in range(BUCKET - 3, BUCKET + 1):
        mask = torch.arange(BUCKET)[None] < n
        with torch.no_grad():
            tower = model.audio_tower(features * mask[..., None], mask)
            soft = model.embed_audio(inputs_embeds=tower.last_hidden_state)
        golden[f"soft_tokens_{n}"] = soft[:, : int(tower.attention_mask.sum())].contiguous()
    weights = sorted(out.glob("model*.safetensors"))
    metadata = {
        "source_sha256": ",".join(hashlib.sha256(file.read_bytes()).hexdigest() for file in weights),
        "reference": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, default attention"}
    save_file(golden, out / "golden.safetensors", metadata=metadata)
    for n in clips:
        write_clip(out / "clips" / f"n{n}.safetensors", golden, n, metadata)
    for file in out.iterdir():
        file.chmod(0o755 if file.is_dir() else 0o644)


def write_clip(path, golden, n, metadata):
    """The first n frames as a golden of one clip: what goes in, padded with zeros, and the soft tokens of the clip."""
    path.parent.mkdir(exist_ok=True)
    valid = (torch.arange(BUCKET)[None] < n).float()
    tokens = golden[f"soft_tokens_{n}"]
    soft = torch.zeros(1, BUCKET // 4, tokens.shape[-1])
    soft[:, : tokens.shape[1]] = tokens
    save_file({"features": golden["features"] * valid[..., None], "half_mask": valid[:, ::2].contiguous(),
               "soft_tokens": soft}, path, metadata=metadata)
    path.chmod(0o644)


if __name__ == "__main__":
    write("encoder_eg2", AutoModel.from_config, EmbeddingGemma2Config(
        text_config=dict(hidden_size=24, embedding_dim=24, **TEXT), vision_config=None,
        audio_config=Gemma4AudioConfig(output_proj_dims=40, **AUDIO)), 11, torch.float32, "1GB",
        clips=(197, 198))
    write("encoder_gemma4", Gemma4ForConditionalGeneration, Gemma4Config(
        text_config=dict(hidden_size=32, **TEXT), vision_config=None,
        audio_config=Gemma4AudioConfig(output_proj_dims=56, attention_chunk_size=16, **AUDIO)),
        12, torch.bfloat16, "250KB", open_clips=True)
