#!/usr/bin/env python3
"""Makes tests/fixtures/two_functions.aimodel with Apple's serializer (coreai-core 1.0.0b3).

    python3 scripts/aimodel_fixture.py tests/fixtures/two_functions.aimodel

Two functions that share weights, blobs of several alignments, constants in line, operations with regions.
"""
import json
import sys
from pathlib import Path

from coreai._compiler import ir
from coreai.authoring import AIProgram
from coreai.authoring.context import Context

GRAPH = """
  coreai.graph @NAME(%x: tensor<ROWSx4xf32> {coreai.name = "x"} loc(unknown)) -> (tensor<ROWSx3xf32> {coreai.name = "y"}) {
    %w = coreai.constant dense_resource<weight> : tensor<4x3xf32> loc(unknown)
    %b = coreai.constant dense_resource<bias> : tensor<3xf32> loc(unknown)
    %h = coreai.constant dense<0.5> : tensor<1xf32> loc(unknown)
    %0 = coreai.decomposable.broadcasting_batch_matmul %x, %w : (tensor<ROWSx4xf32>, tensor<4x3xf32>) -> tensor<ROWSx3xf32> loc(unknown)
    %1 = coreai.decomposable.broadcasting_add %0, %b : (tensor<ROWSx3xf32>, tensor<3xf32>) -> tensor<ROWSx3xf32> loc(unknown)
    %2 = coreai.decomposable.broadcasting_mul %1, %h : (tensor<ROWSx3xf32>, tensor<1xf32>) -> tensor<ROWSx3xf32> loc(unknown)
    %3 = coreai.silu %2 : (tensor<ROWSx3xf32>) -> tensor<ROWSx3xf32> loc(unknown)
    coreai.output %3 : tensor<ROWSx3xf32> loc(unknown)
  } loc(unknown)
"""


def blob(alignment, count):
    import struct

    values = b"".join(struct.pack("<f", n / 8) for n in range(1, count + 1))
    return "0x" + (alignment.to_bytes(4, "little") + values).hex().upper()


def main(out):
    graphs = "".join(GRAPH.replace("NAME", name).replace("ROWS", rows) for name, rows in [("short", "2"), ("long", "5")])
    resources = f'weight: "{blob(64, 12)}", bias: "{blob(4, 3)}"'
    text = "module {" + graphs + "} loc(unknown)\n{-# dialect_resources: { builtin: { " + resources + " } } #-}\n"
    with Context()._mlir_context, ir.Location.unknown():
        AIProgram._from_mlir_module(ir.Module.parse(text)).save_asset(out)
    path = out / "metadata.json"
    metadata = {k: v for k, v in json.loads(path.read_text()).items() if k != "creationDate"}
    path.write_text(json.dumps(metadata, sort_keys=True, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
