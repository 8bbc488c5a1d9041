"""Makes tests/fixtures/features.safetensors: rows of the published extractor's features for sounds of many lengths.

    python scripts/features_goldens.py        # the packages of scripts/requirements-goldens.txt; Python 3.11

The sounds are not stored: they are whole numbers of 16 bits made by the formula below, which the tests have as well. For each
length there are `frames_N`, how many frames it has and then the indices of some (all of a short sound; of a long one some,
and the last), and `rows_N`, the features of those.
"""
from pathlib import Path

import numpy
from safetensors.numpy import save_file
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor

LENGTHS = [0, 1, 160, 161, 320, 321, 479, 480, 481, 6123, 480_000, 480_001, 3_600_000]
ROWS = 40


def sound(samples):
    """A triangle wave that glides upwards, noise, and every fifth quarter of a second silence."""
    n = numpy.arange(samples, dtype=numpy.uint64)
    phase = (n * n * 3 // 2048 + n * 40) % 1024
    wave = numpy.abs(phase.astype(numpy.int64) - 512) * 40 - 10240
    mixed = n * 2654435761 % 2**32
    mixed ^= mixed >> 15
    mixed = mixed * 2246822519 % 2**32
    mixed ^= mixed >> 13
    noise = (mixed >> 20).astype(numpy.int64) - 2048
    quiet = n // 4000 % 5 == 3
    return numpy.where(quiet, 0, wave + noise).astype(numpy.int16)


extractor = Gemma4AudioFeatureExtractor()
tensors = {}
for samples in LENGTHS:
    heard = sound(samples).astype(numpy.float32) / 32768
    found = extractor([heard], max_length=None, truncation=False, pad_to_multiple_of=None, return_tensors="np")
    count = int(found["input_features_mask"][0].sum())
    step = max(1, count // ROWS)
    frames = sorted(set(range(0, count, step)) | set(range(max(0, count - 3), count)))
    tensors[f"frames_{samples}"] = numpy.array([count, *frames], numpy.int32)
    tensors[f"rows_{samples}"] = numpy.ascontiguousarray(found["input_features"][0][frames].astype(numpy.float32))
out = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "features.safetensors"
save_file(tensors, out)
print(f"{out.name}: {out.stat().st_size} bytes")
