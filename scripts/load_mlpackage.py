"""Loads a .mlpackage with coremltools and holds what the file declares against what coremltools infers.

    python scripts/load_mlpackage.py MODEL.mlpackage [--values OUT.npz]

Prints one JSON object: the op census of each function, how many results were compared, and every disagreement in
dtype, shape or feature, every value name given twice, and every constant that is not finite. Exits 1 where there is
one. --values writes each float constant as coremltools reads it. Nothing is run: that needs macOS.
"""
import argparse
import json
import sys
from collections import Counter

import coremltools as ct
import numpy as np
from coremltools.converters.mil.backend.mil.helper import types_to_proto_primitive
from coremltools.converters.mil.frontend.milproto.load import load
from coremltools.proto import FeatureTypes_pb2, MIL_pb2

FEATURE_OF = {MIL_pb2.FLOAT16: "FLOAT16", MIL_pb2.FLOAT32: "FLOAT32", MIL_pb2.INT32: "INT32"}


def tensor(value_type):
    t = value_type.tensorType
    return t.dataType, tuple(d.constant.size for d in t.dimensions)


def feature(f):
    a = f.type.multiArrayType
    return f.name, FeatureTypes_pb2.ArrayFeatureType.ArrayDataType.Name(a.dataType), tuple(a.shape)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model")
    ap.add_argument("--values")
    args = ap.parse_args()
    model = ct.models.MLModel(args.model, skip_model_load=True)
    spec = model.get_spec()
    program = load(spec, specification_version=spec.specificationVersion, file_weights_dir=model.weights_dir)
    faults, values, census, compared = [], {}, {}, 0
    for name, function in sorted(spec.mlProgram.functions.items()):
        block = function.block_specializations[function.opset]
        declared = {}
        for out in [*function.inputs, *(o for op in block.operations for o in op.outputs)]:
            if out.name in declared:
                faults.append(f"{name}: value {out.name} is defined twice")
            declared[out.name] = tensor(out.type)
        described = next((d for d in spec.description.functions if d.name == name), spec.description)
        wanted = [(n, FEATURE_OF.get(declared[n][0]), declared[n][1])
                  for n in [*(i.name for i in function.inputs), *block.outputs]]
        got = [feature(f) for f in [*described.input, *described.output]]
        if wanted != got:
            faults.append(f"{name}: features {got} are not the function's {wanted}")
        for op in program.functions[name].operations:
            for out in op.outputs:
                # An operand that stands at a compressed constant is a const of its own here, under a made-up name.
                if op.op_type == "const" and out.name not in declared:
                    continue
                inferred = types_to_proto_primitive(out.dtype), tuple(out.shape)
                compared += 1
                if declared[out.name] != inferred:
                    faults.append(f"{name}/{out.name}: {op.op_type} declares {declared[out.name]}, inferred {inferred}")
            if op.op_type == "const" and np.asarray(op.val.val).dtype.kind == "f":
                value = np.asarray(op.val.val)
                values[f"{name}/{op.name}"] = value
                if not np.isfinite(value).all():
                    faults.append(f"{name}/{op.name}: a constant is not finite")
        census[name] = dict(sorted(Counter(o.op_type for o in program.functions[name].operations).items()))
    if not compared:
        faults.append("nothing was compared")
    if args.values:
        np.savez(args.values, **values)
    print(json.dumps({"census": census, "compared": compared, "faults": faults}))
    sys.exit(bool(faults))


main()
