#!/usr/bin/env python3
"""Makes tests/fixtures/traced.aimodel with coreai-torch 0.4.3 (torch 2.11.0, coreai-core 1.0.0b3), debug locations and
all: they name this script and torch's own files by absolute path. Run a copy of it from a folder of a made-up author,
such as /tmp/home/author/, so that the fixture names nobody.

    cp scripts/traced_aimodel.py /tmp/home/author/ && python /tmp/home/author/traced_aimodel.py OUT.aimodel
"""
import sys
from pathlib import Path

import torch
from coreai_torch import TorchConverter, get_decomp_table


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Linear(8, 32)
        self.down = torch.nn.Linear(32, 8)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Tower(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))

    def forward(self, features):
        for block in self.blocks:
            features = block(features)
        return features


def main(out):
    torch.manual_seed(0)
    example = torch.zeros(1, 6, 8)
    program = torch.export.export(Tower().eval(), (example,)).run_decompositions(get_decomp_table())
    converter = TorchConverter()
    converter.add_exported_program(program, input_names=["features"], output_names=["tokens"])
    converter.to_coreai().save_asset(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
