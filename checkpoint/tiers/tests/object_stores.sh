#!/usr/bin/env bash
# The object tier against servers that speak S3, GCS and Azure, on free ports of this machine: object_stores.sh [FOLDER]
# FOLDER, outside the checkout, takes them: some 150 MB from PyPI and npm, once.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/rankguard-object-stores}
case "$folder" in "$(cd "$here/../../.." && pwd)"/*) echo "$folder lies in the checkout; choose another place" >&2; exit 2;; esac
mkdir -p "$folder"
. "$here/../../../.ci/skip.sh"
. "$here/../../../python/tests/find_python.sh"

moto=5.2.5 azurite=3.35.0
if ! { [ -e "$folder/moto-$moto" ] || { "$(find_python || echo python3)" -m venv "$folder/python" &&
    "$folder/python/bin/pip" install --quiet --disable-pip-version-check "moto[server]==$moto" && touch "$folder/moto-$moto"; }; }; then
    skip "moto $moto cannot be had (a Python with venv, PyPI), so no object store but memory and folders is tested"
fi
if ! { [ -e "$folder/azurite-$azurite" ] || { command -v npm > /dev/null &&
    npm install --silent --no-audit --no-fund --prefix "$folder/azurite" "azurite@$azurite" && touch "$folder/azurite-$azurite"; }; }; then
    (skip "Azurite $azurite cannot be had (node, npm), so Azure is not tested")
fi
cd "$here"
# With the whole workspace, so that Cargo reuses what `cargo test --workspace` has built.
exec "$folder/python/bin/python" "$here/object_store_servers.py" "$folder/azurite" \
    cargo test --workspace --locked --test tiers_tests object_stores:: -- --nocapture
