"""Times the features of a long recording against the published extractor's, in one run.

    python scripts/bench_features.py [--minutes 54] [--pairs 3] [--tool target/release/eg2-convert]

Needs the packages of scripts/requirements-goldens.txt. Both read the same 16-bit WAV and write their features to a file; the
extractor's seconds are those of its call alone, without its imports, the tool's are those of the whole process. Prints the
medians, their ratio, each peak of resident memory, and the largest difference of the features.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path

import numpy

RATE = 16000


def recording(path, minutes):
    """Tones that glide over noise, with silences between."""
    generator = numpy.random.default_rng(7)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        for minute in range(minutes):
            t = numpy.arange(60 * RATE) / RATE
            tone = 0.4 * numpy.sin(2 * numpy.pi * (100 + 7 * minute + 20 * t) * t) + 0.02 * generator.standard_normal(t.size)
            tone[20 * RATE : 25 * RATE] = 0
            file.writeframes((numpy.clip(tone, -1, 1) * 32767).astype("<i2").tobytes())


def reference(path, out):
    """The published extractor in a process of its own: prints its seconds and its peak."""
    from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor

    with wave.open(str(path), "rb") as file:
        samples = numpy.frombuffer(file.readframes(file.getnframes()), "<i2").astype(numpy.float32) / 32768
    extractor = Gemma4AudioFeatureExtractor()
    started = time.perf_counter()
    found = extractor([samples], max_length=None, truncation=False, pad_to_multiple_of=None, return_tensors="np")
    seconds = time.perf_counter() - started
    frames = int(found["input_features_mask"][0].sum())
    numpy.save(out, found["input_features"][0][:frames])
    print(json.dumps({"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def tool(binary, path, out):
    started = time.perf_counter()
    process = subprocess.Popen([binary, "features", str(path), "-o", str(out), "--quiet"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    assert status == 0, "the tool failed"
    return {"seconds": seconds, "peak": usage.ru_maxrss / 1024}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=int, default=54)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--tool", default="target/release/eg2-convert")
    parser.add_argument("--reference", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.reference:
        return reference(*given.reference)
    with tempfile.TemporaryDirectory() as folder:
        clip, theirs, ours = (Path(folder) / name for name in ("clip.wav", "theirs.npy", "ours.safetensors"))
        recording(clip, given.minutes)
        runs = {"tool": [], "extractor": []}
        for _ in range(given.pairs):
            runs["tool"].append(tool(given.tool, clip, ours))
            command = [sys.executable, __file__, "--reference", str(clip), str(theirs)]
            runs["extractor"].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        medians = {}
        for name, found in runs.items():
            seconds = [run["seconds"] for run in found]
            medians[name] = statistics.median(seconds)
            peak = max(run["peak"] for run in found)
            print(f"{name:10} {min(seconds):6.2f} {medians[name]:6.2f} {max(seconds):6.2f} s   peak {peak:.0f} MiB")
        from safetensors.numpy import load_file

        apart = numpy.abs(load_file(ours)["features"] - numpy.load(theirs)).max()
        print(f"{medians['extractor'] / medians['tool']:.1f} times as fast; features apart by {apart:.1e} at most")


main()
