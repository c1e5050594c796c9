#!/usr/bin/env bash
# E-mail of notifications against aiosmtpd, plain and over STARTTLS with a password: smtp.sh RANKGUARD
set -euo pipefail
rankguard=$(realpath "${1:?the program is missing: smtp.sh RANKGUARD}")
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../.ci/skip.sh"
. "$here/../python/tests/find_python.sh"
python=$(find_python) || skip "there is no CPython that runs, so no e-mail is sent"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check 'aiosmtpd==1.4.6' >"$folder/pip.log" 2>&1 ||
    skip "aiosmtpd cannot be installed from PyPI, so no e-mail is sent"
"$folder/env/bin/python" "$here/smtp.py" "$rankguard" "$folder"
