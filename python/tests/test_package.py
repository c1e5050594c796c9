"""What the package says of itself: Python 3.9, the stable ABI, types, and the snippet of its README."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

import rankguard
import readme

PACKAGE = pathlib.Path(rankguard.__file__).parent
SOURCES = sorted([*PACKAGE.glob("*.py"), *PACKAGE.glob("*.pyi")])


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_the_sources_are_python_3_9(source):
    tree = ast.parse(source.read_text(), source.name, feature_version=(3, 9))
    if source.suffix == ".py" and any(isinstance(node, ast.AnnAssign) for node in ast.walk(tree)):
        # Else `X | None` in an annotation would be evaluated, which Python 3.9 cannot.
        futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        assert futures and futures[0].names[0].name == "annotations"


def test_the_native_part_is_of_the_stable_abi():
    from rankguard import _rankguard

    assert _rankguard.__file__.endswith(".abi3.so")
    wanted = subprocess.run(["nm", "--dynamic", "--undefined-only", _rankguard.__file__], capture_output=True, text=True)
    names = {line.split()[-1] for line in wanted.stdout.splitlines()}
    python = {name for name in names if re.match(r"_?Py", name)}
    assert len(python) > 30
    # The buffer protocol and vectorcall came to the stable ABI after 3.9.
    assert not python & {"PyObject_GetBuffer", "PyBuffer_Release", "PyObject_Vectorcall", "PyObject_CallNoArgs"}
    public = {"_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct", "_Py_Dealloc"}
    assert {name for name in python if name.startswith("_")} <= public


def test_types_are_shipped():
    assert (PACKAGE / "py.typed").exists()
    stub = ast.parse((PACKAGE / "_rankguard.pyi").read_text())
    for told in (node for node in stub.body if isinstance(node, ast.ClassDef)):
        real = getattr(rankguard._rankguard, told.name)
        methods = {node.name for node in told.body if isinstance(node, ast.FunctionDef)} - {"__new__"}
        assert methods == {name for name in vars(real) if not name.startswith("_")}, told.name


def test_the_snippet_of_the_readme_runs_and_resumes(tmp_path):
    for steps, start in ((4, None), (6, 4)):
        subprocess.run([sys.executable, "-c", readme.program(tmp_path, steps, start)], check=True, timeout=60)
