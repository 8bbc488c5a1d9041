"""Runs inside the interpreter that has Apple's serializer. Takes the path of a JSON request, answers in a JSON file.

An answer is always written, errors included; where there is none, the serializer crashed. Nothing here knows a model.
"""
import asyncio
import hashlib
import json
import mmap
import os
import sys
from importlib import metadata as packages
from pathlib import Path


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


def mapped(path, size):
    if size == 0:
        return b""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)


def write(request):
    from coreai._compiler import ir
    from coreai.authoring import AIProgram
    from coreai.authoring.context import Context
    from coreai.runtime import _AIModelAsset

    blobs = {blob["placeholder"]: blob for blob in request["blobs"]}
    buffer = memoryview(mapped(request["weights"], request["weight_bytes"]))
    with Context()._mlir_context, ir.Location.unknown():
        try:
            module = ir.Module.parse(Path(request["text"]).read_text())
            attach(ir, module, blobs, buffer)
            module.operation.verify()
        except ir.MLIRError as error:
            raise verifier(error) from None
        out = Path(request["out"])
        out.mkdir(exist_ok=True)
        asset = _AIModelAsset._create(path=str(out), metadata=described(request["metadata"]))
        AIProgram._from_mlir_module(module)._save_bytecode(asset._program_bytecode_path)
    with open(asset._program_bytecode_path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    asset._program_hash_path.write_bytes(digest)

    def stamp(metadata):
        metadata.creation_date = None
        metadata._producer = request["producer"]

    asset.update_metadata(updates=stamp)
    # The library orders keys at random.
    path = out / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True, indent=2, ensure_ascii=False) + "\n")
    return {"bytes": Path(asset._program_bytecode_path).stat().st_size}


def attach(ir, module, blobs, buffer):
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
                part = buffer[blob["offset"] : blob["offset"] + blob["bytes"]]
                made[at] = ir.DenseResourceElementsAttr.get_from_buffer(part, blob["name"], kind)
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
    """Every function of a bundle, operation by operation, with a digest of each constant's values."""
    from coreai._compiler import ir
    from coreai.authoring import AIModelAsset
    from coreai.authoring.context import Context

    with Context()._mlir_context, ir.Location.unknown():
        module = AIModelAsset.load(request["path"]).program._module._mlir_module
        resources = Resources()
        module.operation.print(file=resources)
        return {"functions": [function(ir, graph, resources.digests) for graph in module.body.operations]}


class Resources:
    """Takes the printed module and keeps a digest of each resource; printing is the only way to their bytes."""

    def __init__(self):
        self.digests = {}
        self.before, self.inside, self.begun = "", False, False
        self.hash, self.hex = None, ""

    def write(self, text):
        if not self.begun:
            self.before += text
            at = self.before.find("dialect_resources: {")
            if at < 0:
                self.before = self.before[-64:]
                return
            self.begun, text, self.before = True, self.before[at:], ""
        for at, part in enumerate(text.split('"')):
            if at:
                self.quote()
            if self.inside:
                self.value(part)
            else:
                self.before = (self.before + part)[-256:]

    def quote(self):
        if not self.inside:
            self.name = self.before.rstrip().rstrip(":").split()[-1] if self.before.strip() else ""
        elif self.hash is not None:
            self.digests[self.name] = self.hash.hexdigest()
        elif self.hex:
            # A name that needs quotes; its value is a string of its own.
            self.before = self.hex.replace(" ", "") + ":"
            self.inside, self.hash, self.hex = False, None, ""
            return
        self.inside, self.hash, self.hex = not self.inside, None, ""

    def value(self, part):
        self.hex += part
        if self.hash is None:
            if len(self.hex) < 10 or not self.hex.startswith("0x"):
                return
            # Four bytes of alignment come first.
            self.hash, self.hex = hashlib.sha256(), self.hex[10:]
        whole = len(self.hex) // 2 * 2
        self.hash.update(bytes.fromhex(self.hex[:whole]))
        self.hex = self.hex[whole:]

    def flush(self):
        pass


def function(ir, graph, resources):
    block = graph.regions[0].blocks[0]
    numbers = {argument: at for at, argument in enumerate(block.arguments)}
    lines = []
    for op in block.operations:
        lines.append({
            "kind": op.name,
            "operands": [numbers[operand] for operand in op.operands],
            "results": [str(result.type) for result in op.results],
            "value": digest(ir, op.attributes["value"], resources) if op.name == "coreai.constant" else None,
        })
        for result in op.results:
            numbers[result] = len(numbers)
    name = ir.StringAttr(graph.attributes["sym_name"]).value
    given = named(ir, graph, "arg_attrs", block.arguments)
    taken = named(ir, graph, "res_attrs", block.operations[len(block.operations) - 1].operands)
    return {"name": name, "inputs": given, "outputs": taken, "lines": lines}


def named(ir, graph, attribute, values):
    known = graph.attributes[attribute] if attribute in graph.attributes else [{}] * len(values)
    name = lambda entry: ir.StringAttr(entry["coreai.name"]).value if "coreai.name" in entry else ""
    return [[name(entry), str(value.type)] for entry, value in zip(known, values)]


def digest(ir, attribute, resources):
    import numpy as np

    if ir.DenseResourceElementsAttr.isinstance(attribute):
        return resources.get(resource(attribute))
    values = ir.DenseElementsAttr(attribute)
    kind = values.type
    if values.is_splat:
        one = np.array(ir.DenseElementsAttr.get_splat(ir.RankedTensorType.get([1], kind.element_type), values.get_splat_value()))
        count = values_bytes(ir, kind) // one.nbytes
        return hashlib.sha256(one.tobytes() * count).hexdigest()
    return hashlib.sha256(np.ascontiguousarray(np.array(values)).tobytes()).hexdigest()


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


def main():
    request = json.loads(Path(sys.argv[1]).read_text())
    try:
        check_versions(request["coreai_core"])
        answer = {"ok": {"write": write, "read": read, "run": execute}[request["command"]](request)}
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
