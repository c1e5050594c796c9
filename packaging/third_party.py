"""Lists the crates that the programs contain: `python3 packaging/third_party.py --notices FILE --sbom FILE`.

NOTICES has the licence files of each foreign crate, one copy of equal texts. SBOM is CycloneDX 1.5 (JSON): name, version,
licence, package URL and checksum of each crate. Reads `cargo metadata`, so the crates must have been fetched, and Cargo.lock.
Needs Python 3.11.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = ("rankguard", "rankguard-history")
LICENCE_FILE = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)


def main() -> None:
    parser = argparse.ArgumentParser(description="List the crates that the programs contain.")
    parser.add_argument("--notices", type=pathlib.Path, required=True, help="file of the licence texts")
    parser.add_argument("--sbom", type=pathlib.Path, required=True, help="file of the bill of materials")
    args = parser.parse_args()
    own, crates = linked_crates()
    args.notices.write_text(notices(crates), encoding="utf-8")
    args.sbom.write_text(json.dumps(bill_of_materials(own, crates), indent=1) + "\n", encoding="utf-8")


def linked_crates() -> tuple[dict, list[dict]]:
    """Returns the package of the program and the foreign crates that the programs link, by name and version."""
    triple = next(line.split()[1] for line in run("rustc", "-vV").splitlines() if line.startswith("host:"))
    metadata = json.loads(run("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", triple))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [package["id"] for package in metadata["packages"] if package["name"] in PROGRAMS]
    own = next(package for package in metadata["packages"] if package["name"] == PROGRAMS[0])
    linked = set(todo)
    while todo:
        for dependency in nodes[todo.pop()]["deps"]:
            kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
            if None in kinds and dependency["pkg"] not in linked:
                linked.add(dependency["pkg"])
                todo.append(dependency["pkg"])
    crates = [packages[package] for package in linked if packages[package]["source"]]
    return own, sorted(crates, key=lambda crate: (crate["name"], crate["version"]))


def notices(crates: list[dict]) -> str:
    """Returns the licence texts, each with the crates that have it."""
    owners = collections.defaultdict(list)
    for crate in crates:
        name = f"{crate['name']} {crate['version']} ({crate['license'] or 'licence in a file'})"
        texts = licence_texts(pathlib.Path(crate["manifest_path"]).parent)
        for text in texts or [f"No licence file in the crate; its manifest states {crate['license']}; {crate['repository']}"]:
            owners[text].append(name)
    parts = ["\n".join(names) + "\n\n" + text for text, names in sorted(owners.items(), key=lambda part: part[1])]
    return f"\n\n{'-' * 80}\n\n".join(parts) + "\n"


def licence_texts(folder: pathlib.Path) -> list[str]:
    """Returns the texts of the licence files in the folder of a crate."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and LICENCE_FILE.match(path.name))
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]


def bill_of_materials(own: dict, crates: list[dict]) -> dict:
    """Returns a CycloneDX document; without time and serial number, so that equal inputs give equal bytes."""
    with (ROOT / "Cargo.lock").open("rb") as file:
        locked = {(package["name"], package["version"]): package for package in tomllib.load(file)["package"]}
    components = []
    for crate in crates:
        name, version = crate["name"], crate["version"]
        url = f"pkg:cargo/{name}@{version}"
        component = {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}
        if crate["license"]:
            component["licenses"] = [{"expression": crate["license"].replace("/", " OR ")}]
        if checksum := locked[name, version].get("checksum"):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    program = {"type": "application", "bom-ref": own["name"], "name": own["name"], "version": own["version"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program},
        "components": components,
    }


def run(*command: str) -> str:
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, env=dict(os.environ), check=False)
    if result.returncode:
        sys.exit(f"{' '.join(command)} failed with exit code {result.returncode}")
    return result.stdout.decode()


if __name__ == "__main__":
    main()
