"""Makes tests/fixtures/reader_inputs: small weight files as torch and numpy write them, good ones and bad ones.

    python scripts/reader_inputs.py        # torch==2.11.0, numpy==2.4.6, safetensors==0.8.0; Python 3.11

state.safetensors holds the tensors of state.pt, nested.safetensors those of nested.pt and nested_protocol4.pt.
Two runs give the same bytes but for legacy.pt, which names its storage by an address, and an id in torchscript.pt.
The values are small whole numbers and halves, so that every dtype holds them exactly.
"""
import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy
import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "reader_inputs"


class Call:
    """Pickled as a call of `function` when loaded."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


class Foreign:
    """A class that only this script has."""


def ramp(*shape, dtype=torch.float32):
    """-1, -0.5, 0, ... in row order."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) / 2 - 1).reshape(shape).to(dtype)


def save(name, value, **options):
    torch.save(value, FOLDER / name, **options)


def plain():
    floats = {str(d).removeprefix("torch."): ramp(2, 3, dtype=d)
              for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}
    whole = {str(d).removeprefix("torch."): torch.arange(5).to(d)
             for d in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool)}
    shared = ramp(4, 3)
    return {**floats, **whole, "scalar": torch.tensor(0.5), "none": torch.zeros(0, 3),
            "rows.first": shared[:1], "rows.rest": shared[1:], "column": ramp(3, 1)}


def nested():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    for p in model.parameters():
        p.data.copy_(ramp(*p.shape))
    return {"model": model.state_dict(), "extra": {"gain": torch.nn.Parameter(ramp(2)), 7: ramp(1)}, "step": 3,
            "rate": 1e-3, "name": "reader", "shape": torch.Size([2, 3]), "dtype": torch.float16,
            "history": [1, 2], "best": None, "big": 1 << 70, "device": torch.device("cpu")}


def flat(value, prefix=""):
    found = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            found |= flat(inner, f"{prefix}{key}.")
        elif isinstance(inner, torch.Tensor):
            found[f"{prefix}{key}"] = inner.detach().clone()
    return found


def repack(source, name, edit):
    """The archive `source` with its members replaced by edit(name, bytes); None leaves one out."""
    with zipfile.ZipFile(FOLDER / source) as old, zipfile.ZipFile(FOLDER / name, "w") as new:
        for member in old.namelist():
            data = edit(member, old.read(member))
            if data is not None:
                new.writestr(zipfile.ZipInfo(member), data)


def pytorch():
    state = plain()
    save("state.pt", state)
    save_file(flat(state), FOLDER / "state.safetensors")
    save("nested.pt", nested())
    save("nested_protocol4.pt", nested(), pickle_protocol=4)
    save_file(flat(nested()), FOLDER / "nested.safetensors")
    attributed = torch.nn.Parameter(ramp(2))
    attributed.note = "kept by torch, passed over here"
    save("parameter.pt", {"weight": attributed})
    save("tensor.pt", ramp(2, 3))
    save("table.pt", {"table": ramp(2, 3), "scale": ramp(1)})
    save("float8.pt", {"weight": ramp(2, 3, dtype=torch.float8_e4m3fn), "bias": ramp(2)})
    # Bad ones.
    save("transposed.pt", {"weight": ramp(2, 3).T})
    save("expanded.pt", {"weight": ramp(1, 3).expand(2, 3)})
    save("legacy.pt", {"weight": ramp(2, 3)}, _use_new_zipfile_serialization=False)
    save("system.pt", {"weight": ramp(2), "call": Call(os.system, "true")})
    save("foreign.pt", {"model": Foreign()})
    save("list.pt", [ramp(2)])
    save("sparse.pt", {"weight": torch.eye(2).to_sparse()})
    save("clash.pt", {"a.b": ramp(2), "a": {"b": ramp(2)}})
    save("big_endian.pt", {"weight": ramp(2)})
    repack("big_endian.pt", "big_endian.pt.new",
           lambda name, data: b"big" if name.endswith("byteorder") else data)
    (FOLDER / "big_endian.pt.new").replace(FOLDER / "big_endian.pt")
    repack("tensor.pt", "storage_missing.pt", lambda name, data: None if "/data/" in name else data)
    repack("tensor.pt", "storage_short.pt", lambda name, data: data[:-1] if "/data/" in name else data)
    repack("tensor.pt", "two_pickles.pt", lambda name, data: data)
    repack("tensor.pt", "same_member.pt", lambda name, data: data)
    for name, member in (("two_pickles.pt", "other/data.pkl"), ("same_member.pt", "tensor/data.pkl")):
        with zipfile.ZipFile(FOLDER / name, "a") as archive:
            archive.writestr(zipfile.ZipInfo(member), pickle.dumps({}, 2))
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 1)), FOLDER / "torchscript.pt.new")
    # Without the paths of the machine that it was made on.
    repack("torchscript.pt.new", "torchscript.pt", lambda name, data: None if name.endswith("debug_pkl") else data)
    (FOLDER / "torchscript.pt.new").unlink()
    with zipfile.ZipFile(FOLDER / "deflated.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), pickle.dumps({}, 2), zipfile.ZIP_DEFLATED)


def npy():
    values = ramp(2, 3).numpy()
    for dtype in ("f8", "f4", "f2", "i8", "u2", "?"):
        numpy.save(FOLDER / f"{numpy.dtype(dtype).name}.npy", values.astype(dtype))
    for version in ((1, 0), (2, 0), (3, 0)):
        with open(FOLDER / f"version{version[0]}.npy", "wb") as file:
            numpy.lib.format.write_array(file, values, version)
    numpy.save(FOLDER / "scalar.npy", numpy.float32(0.5))
    numpy.save(FOLDER / "fortran.npy", numpy.asfortranarray(values))
    numpy.save(FOLDER / "big_endian.npy", values.astype(">f4"))
    # What ml_dtypes's bfloat16 is saved as.
    numpy.save(FOLDER / "bfloat16.npy", ramp(2, 3, dtype=torch.bfloat16).view(torch.uint16).numpy().view("V2"))
    numpy.save(FOLDER / "record.npy", numpy.zeros(2, [("a", "<f4")]))
    numpy.save(FOLDER / "object.npy", numpy.array([None, 1]))
    numpy.savez(FOLDER / "several.npz", a=values)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    torch.manual_seed(0)
    pytorch()
    npy()
