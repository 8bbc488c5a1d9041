"""Loads a compiled bundle on a Mac and times its functions: one process a round. Takes the path of a JSON request,
answers in a JSON file, always; where there is none, the runtime crashed.

Nothing here knows a model. What is only known by reading: on macOS 27 the installed package hands over to the system's
framework, whose `AIModel` takes `.aimodelc` bundles as well as `.aimodel` ones, and a preferred unit.
"""
import asyncio
import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path

DTYPES = {"F32": "float32", "F16": "float16", "I32": "int32"}


class Refused(Exception):
    pass


def said(*argv):
    """The first line of what a program prints; nothing where it fails."""
    try:
        run = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = run.stdout.strip().splitlines() if run.returncode == 0 else []
    return lines[0].strip() if lines else ""


def thermal():
    """`NSProcessInfo.thermalState` by the Objective-C runtime, which needs no package; what `pmset` says where that fails."""
    names = ["nominal", "fair", "serious", "critical"]
    try:
        return names[thermal_state()]
    except Exception:
        pass
    try:
        run = subprocess.run(["pmset", "-g", "therm"], capture_output=True, text=True, timeout=30)
        return by_pmset(run.stdout) if run.returncode == 0 else "unknown"
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def thermal_state():
    if sys.platform != "darwin":
        raise OSError("not a Mac")
    ctypes.CDLL("/System/Library/Frameworks/Foundation.framework/Foundation")
    objc = ctypes.CDLL("/usr/lib/libobjc.dylib")
    objc.objc_getClass.restype = objc.sel_registerName.restype = ctypes.c_void_p
    objc.objc_getClass.argtypes = objc.sel_registerName.argtypes = [ctypes.c_char_p]
    address = ctypes.cast(objc.objc_msgSend, ctypes.c_void_p).value

    def send(kind, target, name):
        call = ctypes.CFUNCTYPE(kind, ctypes.c_void_p, ctypes.c_void_p)(address)
        return call(target, objc.sel_registerName(name))

    info = send(ctypes.c_void_p, objc.objc_getClass(b"NSProcessInfo"), b"processInfo")
    return send(ctypes.c_long, info, b"thermalState")


def by_pmset(text):
    """`CPU_Speed_Limit` is 100 where nothing is slowed down; pmset knows no finer levels."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "CPU_Speed_Limit" and value.strip().isdigit():
            return "nominal" if int(value) >= 100 else "serious"
    return "nominal" if "No thermal warning level" in text else "unknown"


def peak_rss():
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def machine(_):
    from importlib import metadata

    import coreai.runtime as runtime

    supported = runtime.SpecializationOptions.is_supported()
    version, build = said("sw_vers", "-productVersion"), said("sw_vers", "-buildVersion")
    return {
        "model": said("sysctl", "-n", "hw.model") or "unknown",
        "system": f"macOS {version} ({build})" if version else "unknown",
        "runtime": metadata.version("coreai-core"),
        "supported": bool(supported),
    }


def tensors(path):
    """The tensors of a safetensors file, by name."""
    import numpy as np

    data = Path(path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + length + start : 8 + length + end], DTYPES[entry["dtype"]])
        found[name] = values.reshape(entry["shape"])
    return found


async def load(request):
    from coreai.runtime import AIModel, ComputeUnitKind, SpecializationOptions

    kinds = {"neural-engine": ComputeUnitKind.neural_engine, "gpu": ComputeUnitKind.gpu}
    options = SpecializationOptions.from_preferred_compute_unit_kind(kinds[request["prefer"]]())
    started = time.perf_counter()
    model = await AIModel.load(request["bundle"], specialization_options=options)
    # A model owns no weights; the functions loaded from it do.
    functions = {entry["name"]: model.load_function(entry["name"]) for entry in request["functions"]}
    return time.perf_counter() - started, functions


async def timed(request, functions):
    from coreai.runtime import NDArray

    entries = []
    for entry in request["functions"]:
        function = functions[entry["name"]]
        for number, path in enumerate(entry["inputs"]):
            inputs = {name: NDArray(values) for name, values in tensors(path).items()}
            # One call at a time: two of one function in flight give wrong outputs.
            for _ in range(request["warmups"]):
                await function(inputs)
            seconds = []
            for _ in range(request["runs"]):
                started = time.perf_counter()
                results = await function(inputs)
                seconds.append(time.perf_counter() - started)
            outputs = kept(results, f"{request['folder']}/{len(entries)}")
            entries.append({"function": entry["name"], "input": number, "seconds": seconds, "outputs": outputs})
    return entries


def kept(results, prefix):
    import numpy as np

    outputs = {}
    for at, (name, value) in enumerate(sorted(results.items())):
        array = np.ascontiguousarray(value.numpy())
        file = f"{prefix}-{at}"
        array.tofile(file)
        dtype = next((short for short, kind in DTYPES.items() if array.dtype == kind), None)
        if dtype is None:
            raise Refused(f"output {name} is {array.dtype}, which is not compared here")
        outputs[name] = {"file": file, "dtype": dtype.lower(), "shape": list(array.shape)}
    return outputs


def round_of(request):
    async def go():
        before = thermal()
        seconds, functions = await load(request)
        del functions
        warm, functions = await load(request)
        entries = await timed(request, functions)
        return {
            "load_seconds": seconds,
            "warm_load_seconds": warm,
            "thermal_before": before,
            "thermal_after": thermal(),
            "peak_rss_bytes": peak_rss(),
            "functions": entries,
        }

    return asyncio.run(go())


def main():
    request = json.loads(Path(sys.argv[1]).read_text())
    try:
        answer = {"ok": {"machine": machine, "round": round_of}[request["command"]](request)}
    except Exception as error:
        causes = f"{error}: {error.__cause__}" if error.__cause__ else str(error)
        answer = {"error": f"{type(error).__name__}: {causes}"}
    answer_file = Path(request["answer"])
    part = answer_file.with_suffix(".part")
    part.write_text(json.dumps(answer))
    part.rename(answer_file)
    # Apple's runtime now and then aborts while its threads are taken down, when all work is done and on disk.
    sys.stderr.flush()
    os._exit(0)


main()
