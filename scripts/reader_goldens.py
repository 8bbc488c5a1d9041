"""Makes tests/fixtures/reader_*: small seeded word readers, and what PyTorch computes from them in float32.

    python scripts/reader_goldens.py        # with the packages of scripts/requirements-goldens.txt

reader_plain makes every guess as the defaults have it; its weights are safetensors and its table is .npy.
reader_guessed makes every guess the other way round: one tensor for query, key and value, rotary pairs side by side,
GELU by tanh, a blank head behind the normalization, other names. Its weights are a state dict as a training script
saves it, its table is safetensors in float16.

Each golden_T<tokens>.safetensors holds soft_tokens [1, T, in], token_mask [1, T], top1_index [1, T] (int32), top1_logit,
blank_logit and margin [1, T] (the best word's logit less the second's). Its metadata names the SHA-256 of the weights.
"""
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
WIDTH, HEADS, LAYERS, FF, IN, TABLE, WORDS = 48, 3, 2, 80, 24, 20, 331
NAMES = {"layers": "encoder.blocks", "attn_norm": "ln_1", "ff_norm": "ln_2", "qkv_proj": "attn.qkv", "out_proj": "attn.out",
         "ff_in": "mlp.0", "ff_out": "mlp.2", "input_norm": "front.norm", "log_scale": "logit_scale"}


def parameters(rng, fused, name):
    """A dict of tensors: every weight in play, norms about 1, biases about 0."""
    normal = lambda *shape: torch.randn(shape, generator=rng)
    made = {}

    def linear(path, rows, columns):
        made[path + ".weight"] = normal(rows, columns) / math.sqrt(columns)
        made[path + ".bias"] = 0.2 * normal(rows)

    def norm(path, width):
        made[path + ".weight"] = 1 + 0.3 * normal(width)
        made[path + ".bias"] = 0.2 * normal(width)

    norm(name("input_norm"), IN)
    linear(name("input_proj"), WIDTH, IN)
    for index in range(LAYERS):
        at = f"{name('layers')}.{index}."
        norm(at + name("attn_norm"), WIDTH)
        norm(at + name("ff_norm"), WIDTH)
        for part in ["qkv_proj"] if fused else ["q_proj", "k_proj", "v_proj"]:
            linear(at + name(part), WIDTH * (3 if fused else 1), WIDTH)
        linear(at + name("out_proj"), WIDTH, WIDTH)
        linear(at + name("ff_in"), FF, WIDTH)
        linear(at + name("ff_out"), WIDTH, FF)
    norm(name("output_norm"), WIDTH)
    linear(name("output_proj"), TABLE, WIDTH)
    linear(name("blank"), 1, TABLE)
    made[name("log_scale")] = torch.tensor(math.log(60.0))
    return made


def turn(x, interleaved):
    """Rotary embedding of x [heads, t, head] as a product of complex numbers."""
    heads, t, head = x.shape
    pairs = x.reshape(heads, t, head // 2, 2) if interleaved else x.reshape(heads, t, 2, head // 2).transpose(-1, -2)
    angle = torch.arange(t, dtype=torch.float64)[:, None] * 1e4 ** (-torch.arange(head // 2, dtype=torch.float64) * 2 / head)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angle), angle).to(torch.complex64))
    return turned.reshape(x.shape) if interleaved else turned.transpose(-1, -2).reshape(x.shape)


def read(p, name, guesses, soft, mask, table):
    """top1_index, top1_logit, blank_logit and margin of one clip."""
    eps = guesses["layer_norm_eps"]
    norm = lambda x, path: F.layer_norm(x, x.shape[-1:], p[path + ".weight"], p[path + ".bias"], eps)
    linear = lambda x, path: F.linear(x, p[path + ".weight"], p[path + ".bias"])
    interleaved = guesses["rotary_layout"] == "interleaved"
    x = linear(norm(soft[0], name("input_norm")), name("input_proj"))
    for index in range(LAYERS):
        at = f"{name('layers')}.{index}."
        y = norm(x, at + name("attn_norm"))
        if guesses["qkv"] == "fused":
            q, k, v = linear(y, at + name("qkv_proj")).chunk(3, -1)
        else:
            q, k, v = (linear(y, at + name(part)) for part in ("q_proj", "k_proj", "v_proj"))
        q, k, v = (z.reshape(len(z), HEADS, -1).transpose(0, 1) for z in (q, k, v))
        y = F.scaled_dot_product_attention(turn(q, interleaved), turn(k, interleaved), v, attn_mask=mask.bool())
        x = x + linear(y.transpose(0, 1).reshape(x.shape), at + name("out_proj"))
        y = linear(norm(x, at + name("ff_norm")), at + name("ff_in"))
        y = F.gelu(y, approximate="tanh" if guesses["gelu"] == "tanh" else "none")
        x = x + linear(y, at + name("ff_out"))
    vector = linear(norm(x, name("output_norm")), name("output_proj"))
    unit = F.normalize(vector, dim=-1)
    blank = linear(unit if guesses["blank_input"] == "after_normalization" else vector, name("blank"))[:, 0]
    best = (p[name("log_scale")].exp() * (unit @ table.T)).topk(2, -1)
    return best.indices[:, 0].int(), best.values[:, 0], blank, best.values[:, 0] - best.values[:, 1]


def fixture(folder, seed, guesses, names, lengths):
    folder = FIXTURES / folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = torch.Generator().manual_seed(seed)
    name = lambda part: names.get(part, part)
    p = parameters(rng, guesses["qkv"] == "fused", name)
    table = F.normalize(torch.randn(WORDS, TABLE, generator=rng), dim=-1)
    guessed = bool(names)
    if guessed:
        table = table.half().float()
    clips = []
    for tokens, valid in lengths:
        mask = (torch.arange(tokens) < valid).float()[None]
        clips.append((tokens, mask, torch.randn(1, tokens, IN, generator=rng) * mask[..., None]))
    # About half of the first clip's tokens read blank.
    p[name("blank") + ".weight"] *= 8
    _, logit, blank, _ = read(p, name, guesses, clips[0][2], clips[0][1], table)
    p[name("blank") + ".bias"] += (logit - blank).median()

    if guessed:
        weights, stored = "reader.pt", "table.safetensors"
        torch.save({"model": p, "step": 1200}, folder / weights)
        save_file({"words": table.half()}, folder / stored)
    else:
        weights, stored = "reader.safetensors", "table.npy"
        save_file(p, folder / weights)
        np.save(folder / stored, table.numpy())
    (folder / "words.txt").write_text("".join(f"word{i}\n" for i in range(WORDS)))
    config = {
        "version": "v0" if not guessed else None,
        "architecture": dict(layers=LAYERS, d_model=WIDTH, heads=HEADS, ff=FF, in_dim=IN, table_dim=TABLE),
        "assumed": guesses if guessed else {},
        "names": names,
        "weights": {"file": weights, "format": "TF32"},
        "table": {"file": stored, "words": "words.txt"},
    }
    (folder / "reader_config.json").write_text(json.dumps({k: v for k, v in config.items() if v}, indent=1) + "\n")
    digest = hashlib.sha256((folder / weights).read_bytes()).hexdigest()
    for tokens, mask, soft in clips:
        index, logit, blank, margin = (v[None].contiguous() for v in read(p, name, guesses, soft, mask, table))
        golden = {"soft_tokens": soft, "token_mask": mask, "top1_index": index, "top1_logit": logit, "blank_logit": blank, "margin": margin}
        save_file(golden, folder / f"golden_T{tokens}.safetensors", metadata={"source_sha256": digest, "reference": f"torch {torch.__version__}, float32"})


torch.set_grad_enabled(False)
DEFAULTS = dict(rotary_layout="half_split", gelu="erf", layer_norm_eps=1e-5, blank_input="before_normalization", qkv="separate")
OTHERS = dict(rotary_layout="interleaved", gelu="tanh", layer_norm_eps=1e-6, blank_input="after_normalization", qkv="fused")
if __name__ == "__main__":
    fixture("reader_plain", 5, DEFAULTS, {}, [(40, 33), (7, 7)])
    fixture("reader_guessed", 6, OTHERS, NAMES, [(40, 33)])
