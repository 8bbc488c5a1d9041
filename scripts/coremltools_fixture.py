"""Write packages as coremltools saves them, for the reader's tests.

    python scripts/coremltools_fixture.py tests/fixtures

coremltools.mlpackage holds what our own writer never makes: a state, a compressed weight, layer_norm.
coremltools_spellings.mlpackage holds our operations spelled otherwise: defaults left out, masks, axes counted back.
"""
import json
import shutil
import sys
from pathlib import Path

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

rng = np.random.default_rng(0)


def weight(*shape):
    return rng.standard_normal(shape).astype(np.float16)


half = types.fp16


@mb.program(
    input_specs=[mb.TensorSpec((1, 4, 8), half), mb.StateTensorSpec((1, 4, 8), half)], opset_version=ct.target.iOS18
)
def stranger(x, cache):
    kept = mb.read_state(input=cache)
    x = mb.add(x=x, y=kept)
    mb.coreml_update_state(state=cache, value=x)
    x = mb.layer_norm(x=x, axes=[-1], gamma=weight(8), beta=weight(8), epsilon=np.float16(1e-3))
    packed = mb.constexpr_blockwise_shift_scale(
        data=rng.integers(-8, 8, (6, 8)).astype(np.int8), scale=np.full((6, 2), 0.05, np.float16)
    )
    x = mb.linear(x=x, weight=packed)
    x = mb.clip(x=x, alpha=np.float16(-2), beta=np.float16(2))
    return mb.softmax(x=x, axis=-1, name="probabilities")


@mb.program(input_specs=[mb.TensorSpec((1, 4, 8), half)], opset_version=ct.target.iOS18)
def spellings(x):
    x = mb.conv(x=x, weight=weight(6, 4, 3), pad_type="valid")
    x = mb.clip(x=x, alpha=np.float16(-2), beta=np.float16(2))
    x = mb.slice_by_index(x=x, begin=[0, 1, 0], end=[0, -1, 6], begin_mask=[True, False, False], end_mask=[True, False, False])
    x = mb.transpose(x=x, perm=[0, -1, 1])
    mean = mb.reduce_mean(x=x, axes=[-1])
    x = mb.sub(x=x, y=mb.expand_dims(x=mean, axes=[-1]))
    x = mb.mul(x=x, y=mb.rsqrt(x=mb.reduce_sum(x=mb.square(x=x), axes=[1, 2], keep_dims=True), epsilon=np.float16(1e-3)))
    x = mb.pad(x=x, pad=[1, 0])
    x = mb.reshape(x=x, shape=[1, -1])
    x = mb.linear(x=x, weight=weight(3, 30))
    x = mb.squeeze(x=mb.expand_dims(x=x, axes=[0]), axes=[0])
    x = mb.concat(values=[x, x], axis=-1)
    return mb.softmax(x=x, name="probabilities")


def save(program, out):
    model = ct.convert(
        program,
        minimum_deployment_target=ct.target.iOS18,
        compute_precision=ct.precision.FLOAT16,
        skip_model_load=True,
        pass_pipeline=ct.PassPipeline.EMPTY,
    )
    shutil.rmtree(out, ignore_errors=True)
    model.save(str(out))
    # The identifiers are random; fixed ones keep the fixture the same from run to run.
    manifest = json.loads((out / "Manifest.json").read_text())
    items = sorted(manifest["itemInfoEntries"].items(), key=lambda entry: entry[1]["name"])
    names = {key: f"fixture-{item['name']}" for key, item in items}
    manifest["itemInfoEntries"] = {names[key]: item for key, item in items}
    manifest["rootModelIdentifier"] = names[manifest["rootModelIdentifier"]]
    (out / "Manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


folder = Path(sys.argv[1])
save(stranger, folder / "coremltools.mlpackage")
save(spellings, folder / "coremltools_spellings.mlpackage")
