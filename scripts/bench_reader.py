"""Times the word reader at its published size against what it is measured by, in one run, so that ratios hold anywhere.

    cargo build --release && python scripts/bench_reader.py [RUNS]    # with the packages of scripts/requirements-goldens.txt

Makes a seeded reader of 6 layers and 200,000 words in a folder that is removed again. Writing its fp16 package is held
against `cp` and `openssl dgst -sha256` of its inputs; evaluating 750 tokens, the whole command with all its reading,
against the forward pass of the same network in PyTorch, which has its weights in memory. Each pair is run in turn.
"""
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import reader_goldens as reference
import torch
from safetensors.torch import save_file

TOOL = Path(__file__).resolve().parent.parent / "target" / "release" / "eg2-convert"
reference.WIDTH, reference.HEADS, reference.LAYERS, reference.FF = 512, 8, 6, 2048
reference.IN, reference.TABLE, reference.WORDS = 512, 768, 200_000
TOKENS = 750


def seconds(*command, **named):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **named)
    return time.perf_counter() - start


def make(folder):
    """The files of a reader, and a clip; returns what the forward pass takes."""
    rng = torch.Generator().manual_seed(1)
    name = lambda part: part
    weights = reference.parameters(rng, False, name)
    table = torch.nn.functional.normalize(torch.randn(reference.WORDS, reference.TABLE, generator=rng), dim=-1)
    soft, mask = torch.randn(1, TOKENS, reference.IN, generator=rng), torch.ones(1, TOKENS)
    save_file(weights, folder / "reader.safetensors")
    save_file({"table": table}, folder / "table.safetensors")
    save_file({"soft_tokens": soft, "token_mask": mask}, folder / "clip.safetensors")
    (folder / "words.txt").write_text("".join(f"word{i}\n" for i in range(reference.WORDS)))
    config = {"architecture": {"layers": 6}, "weights": {"file": "reader.safetensors"}, "table": {"file": "table.safetensors", "words": "words.txt"}}
    (folder / "reader_config.json").write_text(json.dumps(config))
    return lambda: reference.read(weights, name, reference.DEFAULTS, soft, mask, table)


def main(runs):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        forward = make(folder)
        inputs = [folder / name for name in ("reader.safetensors", "table.safetensors", "words.txt", "reader_config.json")]
        copies = folder / "copies"
        copies.mkdir()
        convert = [TOOL, "reader", "--config", inputs[3], "--format", "mlpackage", "--out", folder / "out", "--quiet", "--force"]
        package = folder / "out" / "eg2_reader_fp16_T750.mlpackage"
        evaluate = [TOOL, "run", package, "--inputs", folder / "clip.safetensors", "--outputs", folder / "read.safetensors", "--quiet"]
        figures = {"cp + openssl dgst": [], "reader, fp16": [], "PyTorch forward": [], "run, fp16": []}
        for _ in range(runs):
            limit = seconds("cp", *inputs, copies) + seconds("openssl", "dgst", "-sha256", *inputs)
            figures["cp + openssl dgst"].append(limit)
            figures["reader, fp16"].append(seconds(*convert))
            start = time.perf_counter()
            forward()
            figures["PyTorch forward"].append(time.perf_counter() - start)
            figures["run, fp16"].append(seconds(*evaluate))
        for what, measured in figures.items():
            print(f"{what:20} {statistics.median(measured):.2f} s (median of {runs}: {', '.join(f'{m:.2f}' for m in measured)})")
        ratio = lambda ours, limit: statistics.median(figures[ours]) / statistics.median(figures[limit])
        print(f"{'ratios':20} {ratio('reader, fp16', 'cp + openssl dgst'):.2f}, {ratio('run, fp16', 'PyTorch forward'):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
