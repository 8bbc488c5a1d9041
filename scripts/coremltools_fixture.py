"""Write tests/fixtures/coremltools.mlpackage: a package as coremltools saves it, for the reader's tests.

    python scripts/coremltools_fixture.py tests/fixtures/coremltools.mlpackage

It holds what our own writer never makes: a state, a compressed weight, layer_norm, clip, defaults left out.
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
def program(x, cache):
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


model = ct.convert(
    program,
    minimum_deployment_target=ct.target.iOS18,
    compute_precision=ct.precision.FLOAT16,
    skip_model_load=True,
    pass_pipeline=ct.PassPipeline.EMPTY,
)
out = Path(sys.argv[1])
shutil.rmtree(out, ignore_errors=True)
model.save(str(out))
# The identifiers are random; fixed ones keep the fixture the same from run to run.
manifest = json.loads((out / "Manifest.json").read_text())
names = {key: f"fixture-{item['name']}" for key, item in sorted(manifest["itemInfoEntries"].items())}
manifest["itemInfoEntries"] = {names[key]: item for key, item in sorted(manifest["itemInfoEntries"].items(), key=lambda i: i[1]["name"])}
manifest["rootModelIdentifier"] = names[manifest["rootModelIdentifier"]]
(out / "Manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
