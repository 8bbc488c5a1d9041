"""Times the decision model at its published size against what it is measured by, in one run, so that ratios hold anywhere.

    cargo build --release && python scripts/bench_laya.py [RUNS]    # with the packages of scripts/requirements-goldens.txt

Makes a seeded checkpoint of the published shapes, 1.2 GB in float32, in a folder that is removed again. Writing the fp16
package of 96 tokens is held against `cp` and `openssl dgst -sha256` of the checkpoint, each pair in turn; the largest
resident size is that of the converting process.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOOL = Path(__file__).resolve().parent.parent / "target" / "release" / "eg2-convert"
ENCODER = dict(model_type="modernbert", vocab_size=256000, hidden_size=768, intermediate_size=1152, num_hidden_layers=22, num_attention_heads=12,
               local_attention=128, local_rope_theta=160000.0)
AGENT = dict(head_layers=2, act_costs={"escalate": 0.3})


def make(folder):
    import torch
    from laya_coreml.torch_model import DecisionModel
    from safetensors.torch import save_file

    (folder / "encoder").mkdir(parents=True)
    (folder / "encoder" / "config.json").write_text(json.dumps(ENCODER))
    (folder / "rl_agent_config.json").write_text(json.dumps(AGENT))
    rng = torch.Generator().manual_seed(1)
    with torch.device("meta"):
        state = DecisionModel(ENCODER, AGENT, 96).state_dict()
    save_file({name: torch.randn(value.shape, generator=rng) * 0.03 for name, value in state.items()}, folder / "model.safetensors")


def timed(*command):
    """Seconds and the largest resident size in MB."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        # In a process of its own: the largest resident size of a child begins with that of the process it was forked from.
        subprocess.run([sys.executable, __file__, "--make", str(folder / "checkpoint")], check=True)
        weights = folder / "checkpoint" / "model.safetensors"
        ours, theirs, resident = [], [], []
        for run in range(runs + 1):
            out = folder / f"out{run}"
            seconds, size = timed(str(TOOL), "laya", "--length", "96", "--checkpoint", str(folder / "checkpoint"), "--out", str(out), "--format",
                                  "mlpackage", "-q")
            copied = timed("cp", str(weights), str(folder / "copy"))[0] + timed("openssl", "dgst", "-sha256", str(folder / "copy"))[0]
            subprocess.run(["rm", "-r", str(out), str(folder / "copy")], check=True)
            # The first of each warms the cache.
            if run:
                ours.append(seconds), theirs.append(copied), resident.append(size)
    middle, other = statistics.median(ours), statistics.median(theirs)
    print(f"laya fp16 L96   {middle:.2f} s ({min(ours):.2f} to {max(ours):.2f}), at most {max(resident):.0f} MB resident")
    print(f"cp + sha256     {other:.2f} s ({min(theirs):.2f} to {max(theirs):.2f})")
    print(f"ratio           {middle / other:.2f}")


if sys.argv[1:2] == ["--make"]:
    make(Path(sys.argv[2]))
else:
    main()
