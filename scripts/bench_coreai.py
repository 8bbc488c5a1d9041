#!/usr/bin/env python3
"""Times a full-size fp32 .aimodel against Apple's serializer alone on the same bytes, in one run, in turn.

    PYTHON scripts/bench_coreai.py CHECKPOINT_FOLDER [--runs N] [--tool target/release/eg2-convert]

PYTHON has coreai-core 1.0.0b3. Linux only: memory is read from /proc. Apple alone is: load the bundle that was written,
which maps it, stream it to another file, hash that file. Prints the stages, the ratio of each pair and its median, and
the peak of anonymous and of all resident memory of each process.
"""
import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BALLAST = 4 << 30

STAND_IN = """#!/bin/sh
echo "$(date +%s.%N) start" >> "{log}"
"{python}" "$@"
code=$?
echo "$(date +%s.%N) end" >> "{log}"
exit $code
"""


def alone(bundle, out):
    from coreai._compiler import ir
    from coreai.authoring import AIModelAsset
    from coreai.authoring.context import Context

    with Context()._mlir_context, ir.Location.unknown():
        AIModelAsset.load(bundle).program._save_bytecode(Path(out))
    with open(out, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    assert digest == (Path(bundle) / "main.hash").read_bytes(), "other bytes than the bundle's"


def children(pid):
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += children(child)
    return found


def level(folder):
    """Leaves nothing of an earlier run to be written out, and enough memory that was in use a moment ago: a virtual machine
    has to ask its host for any other, which costs seconds, and whoever is timed first would have the better share."""
    ballast = folder / "ballast"
    with open(ballast, "wb") as file:
        for _ in range(BALLAST >> 20):
            file.write(bytes(1 << 20))
    ballast.unlink()
    os.sync()


def watched(command, **options):
    """Wall seconds, and by process name the peaks of anonymous and all resident memory in MiB."""
    peaks = {}
    start = time.time()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)

    def watch():
        while process.poll() is None:
            try:
                for pid in children(process.pid):
                    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
                    name = rows["Name"].strip()
                    now = [int(rows[key].split()[0]) // 1024 for key in ("RssAnon", "VmRSS") if key in rows]
                    if len(now) == 2:
                        peaks[name] = [max(a, b) for a, b in zip(now, peaks.get(name, [0, 0]))]
            except (OSError, ValueError):
                pass
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, err = process.communicate()
    end = time.time()
    watcher.join()
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}: {err.decode()}")
    return start, end, peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tool", default="target/release/eg2-convert")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        log, python = work / "log", work / "python"
        python.write_text(STAND_IN.format(log=log, python=sys.executable))
        python.chmod(0o755)
        convert = [options.tool, "encoder", "--bucket", "3000", "--precision", "fp32", "--format", "aimodel"]
        convert += ["--checkpoint", options.checkpoint, "--out", str(work / "out")]
        ratios, peaks, parts = [], {}, []
        for _ in range(options.runs):
            for old in ("out", "alone.mlirb", "log"):
                shutil.rmtree(work / old, ignore_errors=True) if old == "out" else (work / old).unlink(missing_ok=True)
            level(work)
            start, end, seen = watched(convert, env={"EG2_COREAI_PYTHON": str(python), "PATH": "/usr/bin:/bin"})
            # The process that saves starts at once, the one that reads when all weights are made.
            _, made, saved, was_read = (float(line.split()[0]) for line in log.read_text().splitlines())
            bundle = next((work / "out").glob("*.aimodel"))
            level(work)
            a, b, apple = watched([sys.executable, __file__, "--alone", str(bundle), str(work / "alone.mlirb")])
            parts.append([made - start, saved - made, end - saved, was_read - saved, end - start, b - a])
            ratios.append((end - start) / (b - a))
            for name, peak in [*seen.items(), *((f"{name} alone", peak) for name, peak in apple.items())]:
                peaks[name] = [max(x, y) for x, y in zip(peak, peaks.get(name, [0, 0]))]
    names = ["weights made", "saved", "read back", "  Apple's reader within", "all", "Apple's serializer alone"]
    for name, values in zip(names, zip(*parts)):
        print(f"{name:28} {statistics.median(values):6.2f} s   {' '.join(f'{v:.2f}' for v in values)}")
    print(f"{'ratio':28} {statistics.median(ratios):6.2f}     {' '.join(f'{r:.2f}' for r in ratios)}")
    for name, (anonymous, resident) in sorted(peaks.items()):
        print(f"{name:28} {anonymous:6} MiB anonymous, {resident} MiB resident")


if __name__ == "__main__":
    alone(*sys.argv[2:]) if sys.argv[1:2] == ["--alone"] else main()
