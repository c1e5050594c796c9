#!/usr/bin/env bash
# The web console in Chromium, against a real controller with agents and jobs, and against a sample of 10,000 nodes:
# console.sh RANKGUARD [FOLDER]
# FOLDER, outside the checkout, takes the driver of the browser from npm, at the versions of console/package-lock.json.
# Debian's archive has only the newest Chromium, so the browser is the one that is installed (CHROMIUM names another).
# CONSOLE_PICTURES names a folder for pictures of the pages.
set -euo pipefail
rankguard=$(realpath "${1:?the program is missing: console.sh RANKGUARD [FOLDER]}")
here=$(cd "$(dirname "$0")" && pwd)
folder=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/rankguard-console}
case "$folder" in "$(cd "$here/.." && pwd)"/*) echo "$folder lies in the checkout; choose another place" >&2; exit 2;; esac
. "$here/../.ci/skip.sh"
command -v node >/dev/null || skip "node is not there, so the console is not tested in a browser"
browser=${CHROMIUM:-$(command -v chromium || true)}
if [ -z "$browser" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update && apt-get install -y --no-install-recommends chromium; } >/dev/null 2>&1 || true
    browser=$(command -v chromium || true)
fi
[ -n "$browser" ] || skip "Chromium is not there (Debian: chromium), so the console is not tested in a browser"
mkdir -p "$folder"
cmp -s "$here/console/package-lock.json" "$folder/installed.json" || {
    cp "$here/console/package.json" "$here/console/package-lock.json" "$folder/"
    npm ci --silent --no-audit --no-fund --prefix "$folder" &&
        cp "$folder/package-lock.json" "$folder/installed.json"
} || skip "puppeteer-core and axe-core cannot be had (npm), so the console is not tested in a browser"
"$browser" --version
export RANKGUARD=$rankguard CHROMIUM=$browser CONSOLE_MODULES=$folder
cd "$here/.."
# One file at a time: each starts a browser. With the whole workspace, so that Cargo reuses what `cargo test` has built.
cargo test --workspace --locked --no-run --test api_tests
for suite in cluster sample size; do node --test --test-reporter spec "$here/console/$suite.test.mjs"; done
