"""Holds k-means against the `kmeans1d` package on weights of a full-size Laya's shapes, in one run, a thread each.

    cargo build --release --example kmeans_bench && python scripts/bench_kmeans.py [PROGRAM]    # with kmeans1d and numpy

Every tensor is taken by groups of 32 rows and whole, at 8, 6 and 4 bits. The package is given some of the groups, and
of a large tensor the first rows: its tables hold 16 bytes for each value and entry. Its entries are left in f64, ours
are those a palette stores. Exits with 1 if an error is above the package's (but for rounding, 1e-9 of it), or if at 8
bits the package takes less than 5 times as long. The whole body is timed as well, with two threads. Takes minutes, nearly
all of them the package's, and 3 GB.
"""
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import kmeans1d
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TENSORS = {
    "attn.Wqkv": (2304, 768),
    "attn.Wo": (768, 768),
    "mlp.Wi": (2304, 768),
    "mlp.Wo": (768, 1152),
    "head.in_proj": (2304, 768),
    "head.linear1": (3072, 768),
    "head.linear2": (768, 3072),
}
BITS = (8, 6, 4)
GROUPS = 2
WHOLE = 768 * 768
SLACK = 1e-9
LEAST_RATIO = 5


def package(values, bits):
    """Seconds and squared error of the package."""
    listed = values.astype(np.float64).tolist()
    start = time.perf_counter()
    clusters, centroids = kmeans1d.cluster(listed, 2**bits)
    seconds = time.perf_counter() - start
    return seconds, float(np.square(values - np.array(centroids)[clusters]).sum())


def ours(program, values, group, folder):
    """For each number of bits, seconds and squared error of each group."""
    path = Path(folder) / "values.f32"
    values.astype("<f4").tofile(path)
    lines = subprocess.run([program, path, str(group), *map(str, BITS)], check=True, capture_output=True, text=True)
    found = {bits: [] for bits in BITS}
    for line in lines.stdout.splitlines():
        bits, seconds, error = line.split()
        found[int(bits)].append((float(seconds), float(error)))
    return found


def main(program):
    rng = np.random.default_rng(9)
    failed, folder = [], tempfile.TemporaryDirectory()
    print(f"{'tensor':14}{'values':>8}  bits  {'ours':>9}  {'kmeans1d':>9}  {'times':>6}  error of ours over the package's, less 1")
    with folder:
        for name, (rows, columns) in TENSORS.items():
            # Rows of a trained matrix differ in scale.
            scale = 0.02 * np.exp(0.3 * rng.standard_normal((rows, 1)))
            values = (scale * rng.standard_normal((rows, columns))).astype(np.float16).astype(np.float32).ravel()
            whole = values[: min(len(values), WHOLE)]
            for part, group in ((values[: GROUPS * 32 * columns], 32 * columns), (whole, len(whole))):
                found = ours(program, part, group, folder.name)
                for bits in BITS:
                    theirs = [package(part[at : at + group], bits) for at in range(0, len(part), group)]
                    our_time, time = (sum(seconds for seconds, _ in all) for all in (found[bits], theirs))
                    over = max(a / b - 1 for (_, a), (_, b) in zip(found[bits], theirs, strict=True))
                    print(f"{name:14}{group:8}{bits:6}  {our_time * 1e3:6.1f} ms  {time:7.2f} s  {time / our_time:6.0f}  {over:+.1e}", flush=True)
                    if over > SLACK or (bits == 8 and time / our_time < LEAST_RATIO):
                        failed.append((name, group, bits))
    print(subprocess.run([program, "body", "2", *map(str, BITS)], check=True, capture_output=True, text=True).stdout, end="")
    if failed:
        sys.exit(f"failed: {failed}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target" / "release" / "examples" / "kmeans_bench")
