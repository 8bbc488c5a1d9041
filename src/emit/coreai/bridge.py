"""Runs inside the interpreter that has Apple's serializer. Takes the path of a JSON request, answers in a JSON file.

An answer is always written, errors included; where there is none, the serializer crashed. Nothing here knows a model.
"""
import os

# Taken first: loading the libraries takes seconds, in which the parent may die.
PARENT = os.getppid()

import asyncio
import hashlib
import json
import mmap
import sys
import time
from importlib import metadata as packages
from pathlib import Path


# Most bytes of a constant that are told one by one.
INLINE_MAX = 1 << 16


class Refused(Exception):
    def __init__(self, kind, message, line=None):
        super().__init__(message)
        self.answer = {"kind": kind, "message": message, "line": line}


def check_versions(want):
    if sys.version_info < (3, 11):
        raise Refused("python", f"Python is {sys.version.split()[0]}, expected 3.11 or later")
    try:
        have = packages.version("coreai-core")
    except packages.PackageNotFoundError:
        raise Refused("missing", f"coreai-core is not installed, expected {want}") from None
    if have != want:
        raise Refused("version", f"coreai-core is {have}, expected {want}")


def mapped(path):
    if Path(path).stat().st_size == 0:
        return memoryview(b"")
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def write(request):
    from coreai._compiler import ir
    from coreai.authoring import AIProgram
    from coreai.authoring.context import Context
    from coreai.runtime import _AIModelAsset

    blobs = {blob["placeholder"]: blob for blob in request["blobs"]}
    places = {blob["file"] or request["weights"] for blob in request["blobs"]}
    buffers = {place: mapped(place) for place in places}
    for blob in request["blobs"]:
        values = buffers[blob["file"] or request["weights"]][blob["offset"] : blob["offset"] + blob["bytes"]]
        if len(values) != blob["bytes"]:
            raise Refused("weights", f"{blob['name']} is cut short")
        blob["values"] = values
    with Context()._mlir_context, ir.Location.unknown():
        text = Path(request["text"]).read_text()
        try:
            module = ir.Module.parse(text)
            attach(ir, module, blobs)
            module.operation.verify()
        except ir.MLIRError as error:
            raise verifier(located(ir, text) or error) from None
        out = Path(request["out"])
        out.mkdir(exist_ok=True)
        asset = _AIModelAsset._create(path=str(out), metadata=described(request["metadata"]))
        AIProgram._from_mlir_module(module)._save_bytecode(asset._program_bytecode_path)

    def stamp(metadata):
        metadata.creation_date = None
        metadata._producer = request["producer"]

    asset.update_metadata(updates=stamp)
    # The library orders keys at random.
    path = out / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True, indent=2, ensure_ascii=False) + "\n")
    return {"bytes": Path(asset._program_bytecode_path).stat().st_size}


def attach(ir, module, blobs):
    """Gives each placeholder its values; one without is fatal for the process that saves it."""
    made = {}
    for graph in module.body.operations:
        for op in graph.regions[0].blocks[0].operations:
            key = placeholder(op)
            if key is None:
                continue
            blob, kind = blobs.get(key), op.results[0].type
            if blob is None:
                raise Refused("weights", f"no values for {key}")
            if values_bytes(ir, kind) != blob["bytes"]:
                raise Refused("weights", f"{key} has {blob['bytes']} bytes, which are no {kind}")
            at = (key, str(kind))
            if at not in made:
                made[at] = ir.DenseResourceElementsAttr.get_from_buffer(blob["values"], blob["name"], kind)
            op.attributes["value"] = made[at]


def placeholder(op):
    return resource(op.attributes["value"]) if op.name == "coreai.constant" else None


def resource(attribute):
    """The key of `dense_resource<key>`; None for values that stand in the text."""
    text = str(attribute)
    return text.split(">")[0].removeprefix("dense_resource<").strip('"') if text.startswith("dense_resource<") else None


def values_bytes(ir, kind):
    count = 1
    for extent in kind.shape:
        count *= extent
    element = str(kind.element_type)
    bits = 8 if element == "i1" else int("".join(c for c in element if c.isdigit()))
    return (count * bits + 7) // 8


def located(ir, text):
    """The first fault of the text, with its line: what is parsed for saving has no locations to tell one by."""
    try:
        ir.Module.parse(text.replace(" loc(unknown)", ""))
    except ir.MLIRError as error:
        return error
    return None


def verifier(error):
    found = error.error_diagnostics
    if not found:
        return Refused("verifier", str(error))
    at = str(found[0].location)
    numbers = [part for part in at.replace(")", ":").split(":") if part.isdigit()]
    return Refused("verifier", found[0].message, int(numbers[0]) if numbers else None)


def described(wanted):
    from coreai.runtime import AIModelAssetMetadata

    metadata = AIModelAssetMetadata()
    metadata.author = wanted["author"]
    metadata.license = wanted["license"]
    metadata.model_description = wanted["description"]
    for key, value in sorted(wanted["custom"].items()):
        metadata.set_custom(key, value)
    return metadata


def read(request):
    """Every function of a bundle, operation by operation. Loading maps the file, so that its weights cost nothing."""
    from coreai._compiler import ir
    from coreai.authoring import AIModelAsset
    from coreai.authoring.context import Context

    with Context()._mlir_context, ir.Location.unknown():
        module = AIModelAsset.load(request["path"]).program._module._mlir_module
        return {"functions": [function(ir, graph) for graph in module.body.operations]}


def function(ir, graph):
    block = graph.regions[0].blocks[0]
    numbers = {argument: at for at, argument in enumerate(block.arguments)}
    lines = []
    for op in block.operations:
        lines.append({
            "kind": op.name,
            "operands": [numbers[operand] for operand in op.operands],
            "results": [str(result.type) for result in op.results],
            "value": value(ir, op.attributes["value"]) if op.name == "coreai.constant" else None,
        })
        for result in op.results:
            numbers[result] = len(numbers)
    name = ir.StringAttr(graph.attributes["sym_name"]).value
    given = named(ir, graph, "arg_attrs", block.arguments)
    taken = named(ir, graph, "res_attrs", block.operations[len(block.operations) - 1].operands)
    private = "priv" in graph.attributes
    return {"name": name, "private": private, "inputs": given, "outputs": taken, "lines": lines}


def named(ir, graph, attribute, values):
    known = graph.attributes[attribute] if attribute in graph.attributes else [{}] * len(values)
    name = lambda entry: ir.StringAttr(entry["coreai.name"]).value if "coreai.name" in entry else ""
    return [[name(entry), str(value.type)] for entry, value in zip(known, values)]


def value(ir, attribute):
    """The name of a constant's values where they stand apart, otherwise the values; None for more than is written so."""
    if ir.DenseResourceElementsAttr.isinstance(attribute):
        return {"stored": resource(attribute)}
    values = ir.DenseElementsAttr(attribute)
    size = values_bytes(ir, values.type)
    return {"inline": inline(ir, values, size).hex()} if size <= INLINE_MAX else None


def inline(ir, values, size):
    import numpy as np

    if values.is_splat:
        one = ir.RankedTensorType.get([1], values.type.element_type)
        one = np.array(ir.DenseElementsAttr.get_splat(one, values.get_splat_value())).tobytes()
        return one * (size // len(one))
    return np.ascontiguousarray(np.array(values)).tobytes()


def strip(request):
    """Writes the program again without its debug locations."""
    from coreai._compiler import ir
    from coreai._compiler.passmanager import PassManager
    from coreai.authoring import AIModelAsset, AIProgram
    from coreai.authoring.context import Context

    with Context()._mlir_context, ir.Location.unknown():
        module = AIModelAsset.load(request["path"]).program._module._mlir_module
        PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
        AIProgram._from_mlir_module(module)._save_bytecode(request["program"])
    return {"bytes": Path(request["program"]).stat().st_size}


def listing(request):
    """Writes all that a program is, but for locations and the bytes of its resources: an operation a line."""
    from coreai._compiler import ir
    from coreai.authoring import AIModelAsset
    from coreai.authoring.context import Context

    with Context()._mlir_context, ir.Location.unknown(), open(request["listing"], "w") as out:
        module = AIModelAsset.load(request["path"]).program._module._mlir_module
        counts = {"operations": 0, "located": 0}
        told(module.operation, 0, {}, out, counts)
    return counts


# What a location prints as where there is none; the others after such a file was read.
NOWHERE = ("loc(unknown)", 'loc("-":0:0)', '#debuginfo.location<loc("-":0:0) in unit>')


def told(op, depth, numbers, out, counts):
    counts["operations"] += 1
    located = str(op.location) not in NOWHERE
    operands = " ".join(str(numbers.get(operand, "?")) for operand in op.operands)
    for result in op.results:
        numbers[result] = len(numbers)
    entries = " ".join(f"{entry}={short(str(op.attributes[entry]))}" for entry in names(op))
    results = " ".join(str(result.type) for result in op.results)
    print(f"{' ' * depth}{op.name} ({operands}) {entries} -> {results}", file=out)
    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                numbers[argument] = len(numbers)
                located |= str(argument.location) not in NOWHERE
            print(f"{' ' * depth}{{ {' '.join(str(argument.type) for argument in block.arguments)}", file=out)
            for inner in block.operations:
                told(inner.operation, depth + 1, numbers, out, counts)
    counts["located"] += located


def names(op):
    """Names of an operation's attributes, sorted; versions of the library differ in what they iterate over."""
    return sorted(entry if isinstance(entry, str) else entry.name for entry in op.attributes)


def short(text):
    return text if len(text) <= 256 else "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def execute(request):
    """Runs one function on Apple's CPU runtime. Tensors cross as raw files: no package beyond numpy is needed."""
    import numpy as np
    from coreai.authoring import AIModelAsset
    from coreai.runtime import NDArray

    kinds = {"f32": np.float32, "f16": np.float16, "i32": np.int32}

    def load(entry):
        return NDArray(np.fromfile(entry["file"], kinds[entry["dtype"]]).reshape(entry["shape"]))

    async def go():
        async with AIModelAsset.load(request["path"]).executable() as model:
            function = model.load_function(request["function"])
            return await function({name: load(entry) for name, entry in request["inputs"].items()})

    answers = {}
    for at, (name, value) in enumerate(sorted(asyncio.run(go()).items())):
        array = np.ascontiguousarray(value.numpy())
        file = f"{request['folder']}/output{at}"
        array.tofile(file)
        dtype = next((short for short, kind in kinds.items() if array.dtype == kind), str(array.dtype))
        answers[name] = {"file": file, "dtype": dtype, "shape": list(array.shape)}
    return {"outputs": answers}


def abandoned():
    """Whether nobody is left to ask anything. The parent is a shell where the interpreter is behind a script, and was
    another process already where the tool died before this one could look, so the tool itself is looked for too."""
    try:
        os.kill(int(os.environ["EG2_CONVERT_PID"]), 0)
    except ProcessLookupError:
        return True
    return os.getppid() != PARENT


def awaited(path):
    """The request, once it is there. The libraries are loaded meanwhile; what is wrong with them is told later."""
    if not path.exists():
        try:
            import coreai.authoring, coreai.authoring.context, coreai.runtime, coreai._compiler.ir
        except Exception:
            pass
    while not path.exists():
        if abandoned():
            os._exit(1)
        time.sleep(0.001)
    return json.loads(path.read_text())


def main():
    request = awaited(Path(sys.argv[1]))
    if request["command"] == "none":
        os._exit(0)
    try:
        check_versions(request["coreai_core"])
        commands = {"write": write, "read": read, "run": execute, "strip": strip, "listing": listing}
        answer = {"ok": commands[request["command"]](request)}
    except Refused as refused:
        answer = {"error": refused.answer}
    except Exception as error:
        causes = f"{error}: {error.__cause__}" if error.__cause__ else str(error)
        answer = {"error": {"kind": "failed", "message": f"{type(error).__name__}: {causes}", "line": None}}
    Path(request["answer"]).write_text(json.dumps(answer))
    # Apple's runtime now and then aborts while its threads are taken down, when all work is done and on disk.
    sys.stderr.flush()
    os._exit(0)


main()
