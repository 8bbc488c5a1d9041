"""Writes src/toolchain/serializer.txt: Apple's serializer and all it needs, at exact versions, with the sha256 of
every wheel that fits a platform and Python the serializer itself has wheels for.

    python3.11 scripts/pin_serializer.py > src/toolchain/serializer.txt

Run it with the oldest Python listed below, so that the versions found are good for all of them. Versions come from
pip's resolver, hashes from the package index that pip is configured with. Needs pip 23 or later and nothing else.
"""
import json
import os
import subprocess
import sys
import urllib.request

from pip._internal.models.index import PyPI
from pip._vendor.packaging.tags import compatible_tags, cpython_tags, mac_platforms
from pip._vendor.packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = "coreai-core==1.0.0b3"
PYTHONS = [(3, 11), (3, 12), (3, 13), (3, 14)]
PLATFORMS = {
    "linux x86-64": [f"manylinux_2_{minor}_x86_64" for minor in range(34, 4, -1)]
    + ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"],
    "macOS arm64": list(mac_platforms((26, 0), "arm64")),
}
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def index_url():
    """Where pip would look: environment, then its configuration, then its default."""
    if url := os.environ.get("PIP_INDEX_URL"):
        return url
    found = subprocess.run([*PIP, "config", "get", "global.index-url"], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else PyPI.simple_url


def resolved():
    """Name and version of all packages, as pip's resolver chooses them."""
    command = [*PIP, "install", "--quiet", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report", "-", ROOT]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return sorted((canonicalize_name(p["metadata"]["name"]), p["metadata"]["version"]) for p in report["install"])


def files(name):
    """All files of a package that the index has and nobody withdrew."""
    request = urllib.request.Request(
        f"{index_url().rstrip('/')}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return [file for file in json.load(answer)["files"] if not file.get("yanked")]


def pinned(name, version):
    """The wheels of one version that fit any target, and a complaint where a target has none."""
    wheels = {}
    for file in files(name):
        if file["filename"].endswith(".whl"):
            _, have, _, tags = parse_wheel_filename(file["filename"])
            if str(have) == version:
                wheels[file["filename"]] = (tags, file["hashes"]["sha256"])
    fitting = set()
    for python in PYTHONS:
        for platform, names in PLATFORMS.items():
            known = set(cpython_tags(python, platforms=names)) | set(compatible_tags(python, f"cp{python[0]}{python[1]}", names))
            fits = {wheel for wheel, (tags, _) in wheels.items() if tags & known}
            if not fits:
                sys.exit(f"{name} {version} has no wheel for Python {python[0]}.{python[1]} on {platform}")
            fitting |= fits
    return sorted(wheels[wheel][1] for wheel in fitting)


def main():
    if sys.version_info[:2] != PYTHONS[0]:
        sys.exit(f"run this with Python {PYTHONS[0][0]}.{PYTHONS[0][1]}, not {sys.version.split()[0]}")
    print("# Made by scripts/pin_serializer.py: wheels for Python 3.11 to 3.14 on Linux x86-64 and macOS arm64.")
    for name, version in resolved():
        lines = [f"{name}=={version}"] + [f"    --hash=sha256:{digest}" for digest in pinned(name, version)]
        print(" \\\n".join(lines))


main()
