"""Stand-ins for CUDA libraries, so that torch's wheel of PyPI runs on a machine without a GPU and without gigabytes of wheels.

    python cuda_stubs.py SITE_PACKAGES

`torch._C` is loaded with all symbols bound at once, so every function that torch's libraries import from cuBLAS, cuDNN and
the like must exist, although a run on CPUs calls none of them. For each library that torch names and that is not there, this
builds one that defines the missing functions, each answering with an error, under the versions that torch asks for. Nothing
that is installed is changed. Wants gcc and binutils.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

#: Where torch's libraries look for a library (their RPATH), by a part of its name; else in `nvidia/cu13/lib`.
FOLDERS = {
    "cudnn": "nvidia/cudnn/lib",
    "cusparseLt": "nvidia/cusparselt/lib",
    "nccl": "nvidia/nccl/lib",
    "nvshmem": "nvidia/nvshmem/lib",
}

#: Functions that torch imports without a version, by the beginning of their name.
PREFIXES = ("cublas", "cudnn", "cufft", "cusparse", "cusolver", "nvrtc", "nccl", "pnccl", "nvshmem", "cuFile", "nvJitLink")

#: What the machine itself has.
SYSTEM = re.compile(r"^(ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z|quadmath|cuda)\.so)")


def said(*command: str) -> list[str]:
    """Lines of what a tool says."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


class Library:
    """What one shared library needs and imports."""

    def __init__(self, path: pathlib.Path) -> None:
        dynamic = "\n".join(said("readelf", "--dynamic", "--wide", str(path)))
        self.needs = set(re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic))
        self.defines: set[str] = set()
        #: Name of an imported function to its version, which may be empty.
        self.imports: dict[str, str] = {}
        for line in said("nm", "--dynamic", "--with-symbol-versions", str(path)):
            words = line.split()
            name, _, version = words[-1].partition("@")
            if words[-2] == "U":
                self.imports[name] = version.lstrip("@")
            elif words[-2] != "w":
                self.defines.add(name)
        #: Library to the versions that are asked of it.
        self.versions: dict[str, set[str]] = {}
        library = None
        for line in said("readelf", "--version-info", "--wide", str(path)):
            if "Version definition section" in line:
                library = None
            named = re.search(r"Version: \d+\s+File: (\S+)", line)
            asked = re.search(r"Name: (\S+)\s+Flags", line)
            if named:
                library = named.group(1)
            elif asked and library:
                self.versions.setdefault(library, set()).add(asked.group(1))


def build(soname: str, functions: list[str], version: str, place: pathlib.Path) -> None:
    """Makes one stand-in."""
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source, script = pathlib.Path(folder, "stub.c"), pathlib.Path(folder, "stub.map")
        source.write_text("".join(f"int {name}(void) {{ return 999; }}\n" for name in functions))
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{soname}", "-o", str(place / soname)]
        if version:
            script.write_text(f"{version} {{ global: *; }};\n")
            command.append(f"-Wl,--version-script={script}")
        subprocess.run([*command, str(source)], check=True)


def main(site: pathlib.Path) -> None:
    """Builds what is missing, and says what."""
    paths = [*sorted(site.glob("torch/lib/*.so*")), *site.glob("torch/_C*.so")]
    if not paths:
        sys.exit(f"there is no torch in {site}")
    installed = sorted(path for path in site.glob("nvidia/**/*.so*") if path.is_file())
    torch, others = [Library(path) for path in paths], [Library(path) for path in installed]
    there = {path.name for path in [*paths, *installed]}
    missing = {name for one in torch for name in one.needs if name not in there and not SYSTEM.match(name)}
    defined = {name for one in [*torch, *others] for name in one.defines}
    wanted = {name: version for one in torch for name, version in one.imports.items() if name not in defined}
    for soname in sorted(missing):
        versions = {version for one in torch for version in one.versions.get(soname, set())}
        if len(versions) > 1:
            sys.exit(f"{soname} is asked for under several versions, which this tool does not make: {sorted(versions)}")
        version = next(iter(versions), "")
        stem = soname.split(".so")[0][3:].split("_")[0]
        of_prefix = [prefix for prefix in PREFIXES if stem.lower().startswith(prefix.lower().lstrip("p"))]
        functions = [
            name
            for name, asked in sorted(wanted.items())
            if re.fullmatch(r"\w+", name)
            and (asked == version if version else not asked and any(name.startswith(prefix) for prefix in of_prefix))
        ]
        folder = next((where for part, where in FOLDERS.items() if part in soname), "nvidia/cu13/lib")
        build(soname, functions, version, site / folder)
        print(f"{soname}: {len(functions)} functions {version}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: cuda_stubs.py SITE_PACKAGES")
    main(pathlib.Path(sys.argv[1]))
