#!/usr/bin/env bash
# Makes an environment with torch on CPUs and what the tests and the peers' benchmark want, outside the checkout:
#   python/tests/torch_env.sh FOLDER [PYTHON]
# About 900 MB from PyPI, 2.3 GB on disk. The CUDA libraries that torch wants are stand-ins (cuda_stubs.py), which is why
# nothing here is for a machine with a GPU.
set -euo pipefail
folder=${1:?usage: torch_env.sh FOLDER [PYTHON]}
here=$(cd "$(dirname "$0")" && pwd)
. "$here/find_python.sh"
python=${2:-$(find_python)} || { echo "there is no CPython of 3.12 or later that runs (python3.12, pyenv, uv, /usr/bin)" >&2; exit 1; }
case "$folder" in "$(cd "$here/../.." && pwd)"/*) echo "$folder lies in the checkout; choose another place" >&2; exit 2;; esac

"$python" -m venv "$folder"
pip="$folder/bin/pip --disable-pip-version-check --quiet"
$pip install --no-deps torch==2.15.0
$pip install filelock==4.2.11 typing_extensions==4.16.0 sympy==1.14.0 networkx==3.7 Jinja2==3.1.6 fsspec==2026.9.0 \
    numpy==2.5.5 setuptools==84.2.1
$pip install --no-deps nvidia-cuda-runtime==13.2.86 nvidia-cuda-cupti==13.2.86 nvidia-cufile==1.17.1.22
$pip install pytest==9.2.0 pytest-xdist==3.8.0 execnet==2.1.2 maturin==1.16.0 psutil==7.2.2 grpcio==1.85.1 protobuf==7.36.2 \
    requests deprecated pyyaml packaging
$pip install --no-deps safetensors==0.8.0 dlrover==0.6.1
# The frameworks that there are adapters for, with what of their needs a run on CPUs imports.
$pip install --no-deps lightning==2.6.6 lightning-utilities==0.15.3 torchmetrics==1.9.0 accelerate==1.15.0 \
    transformers==5.23.0 tokenizers==0.23.3 huggingface_hub==2.4.0
# torchft, whose lighthouse the controller can be, and what it imports.
$pip install --no-deps torchft-nightly==2026.10.26
$pip install opentelemetry-api==1.45.2 opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-http==1.45.2
# StatefulDataLoader.
$pip install --no-deps torchdata==0.11.0
# 8-bit optimizers: tensors that are made of other tensors.
$pip install --no-deps torchao==0.18.0
$pip install regex==2026.11.15 tqdm==4.70.1 httpx==0.28.1 httpx2==2.16.2 typer==0.29.2
$pip install --no-deps jax==0.12.0.1 jaxlib==0.12.0.1 ml_dtypes==0.6.0 opt_einsum==3.4.0 scipy==1.18.1
$pip install ruff==0.17.6 mypy==2.4.1 vermin==1.9.2
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$folder/bin/python" "$here/cuda_stubs.py" "$site"
"$folder/bin/python" -c 'import torch; assert not torch.cuda.is_available(); print("torch", torch.__version__)'
