"""Builds the wheel with the program in it: `python python/build_wheel.py --out DIST [--profile release|dev] [--program FILE]`.

The program is built with cargo, unless one is given, stripped and added to the wheel of maturin as a script, so that
`pip install` puts `rankguard` on the path. The same inputs give the same entry: times and modes in the archive are fixed.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the wheel with the program in it.")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory of the wheel")
    parser.add_argument("--profile", choices=("release", "dev"), default="release")
    parser.add_argument("--program", type=pathlib.Path, help="program to pack; without it cargo builds one")
    args = parser.parse_args()
    print(build(args.out.resolve(), args.profile, args.program or built_program(args.profile)))


def built_program(profile: str) -> pathlib.Path:
    """Builds the program."""
    subprocess.run(["cargo", "build", "--locked", "--profile", profile, "-p", "rankguard"], check=True, cwd=ROOT)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / ("debug" if profile == "dev" else profile) / "rankguard"


def build(out: pathlib.Path, profile: str, program: pathlib.Path) -> pathlib.Path:
    """Builds the native module and packs both; returns the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        maturin = [sys.executable, "-m", "maturin", "build", "--profile", profile, "--quiet", "--out", folder]
        subprocess.run(maturin, check=True, cwd=ROOT / "python")
        (wheel,) = work.glob("*.whl")
        subprocess.run(["strip", "-o", str(work / "rankguard"), str(program)], check=True)
        packed = work / "packed.whl"
        add_script(wheel, work / "rankguard", packed)
        out.mkdir(parents=True, exist_ok=True)
        shutil.move(packed, out / wheel.name)
    return out / wheel.name


def add_script(wheel: pathlib.Path, program: pathlib.Path, packed: pathlib.Path) -> None:
    """Copies a wheel with a script added, and its line in RECORD."""
    data = program.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as target:
        (record,) = (name for name in source.namelist() if name.endswith(".dist-info/RECORD"))
        script = record.replace(".dist-info/RECORD", ".data/scripts/rankguard")
        for info in source.infolist():
            if info.filename != record:
                target.writestr(info, source.read(info), zipfile.ZIP_DEFLATED)
        entry = zipfile.ZipInfo(script, (1980, 1, 1, 0, 0, 0))
        entry.external_attr = (stat.S_IFREG | 0o755) << 16
        target.writestr(entry, data, zipfile.ZIP_DEFLATED)
        lines = source.read(record).decode() + f"{script},sha256={digest},{len(data)}\n"
        target.writestr(source.getinfo(record), lines, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
