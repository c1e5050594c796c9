#!/usr/bin/env bash
# The HTTP API of a real controller against requests that schemathesis makes from its OpenAPI document: schemathesis.sh RANKGUARD
# A client that knows the document only, with good, bad and missing values: no server error, no answer that the document lacks.
set -euo pipefail
rankguard=$(realpath "${1:?the program is missing: schemathesis.sh RANKGUARD}")
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../.ci/skip.sh"
. "$here/../python/tests/find_python.sh"
python=$(find_python) || skip "there is no CPython that runs, so the HTTP API meets no generated requests"
folder=$(mktemp -d)
children=()
end() {
    for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
    wait
    rm -rf "$folder"
}
trap end EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check 'schemathesis==4.32.5' 'hypothesis==6.170.17' >"$folder/pip.log" 2>&1 ||
    skip "schemathesis cannot be installed from PyPI, so the HTTP API meets no generated requests"

# A node, a job that ended well and one that failed: every list of the API has an entry.
cat >"$folder/site.toml" <<'END'
[controller]
http_listen = "127.0.0.1:0"
[controller.policy]
settle_ms = 300
END
"$rankguard" --config "$folder/site.toml" controller --listen 127.0.0.1:0 --state-dir "$folder/controller" >"$folder/controller.log" 2>&1 &
children+=($!)
wait_for() {
    for _ in $(seq 600); do
        [ ! -s "$1" ] || return 0
        sleep 0.1
    done
    echo "error: $1 was not written in a minute" >&2
    cat "$folder"/*.log >&2
    exit 1
}
wait_for "$folder/controller/controller.addr"
wait_for "$folder/controller/http.addr"
controller=$(cat "$folder/controller/controller.addr")
"$rankguard" agent --controller "$controller" --node n1 --slots 1 --state-dir "$folder/agent" >"$folder/agent.log" 2>&1 &
children+=($!)
"$rankguard" run --controller "$controller" --name good --nodes 1 -- sh -c 'echo step 1' >"$folder/good.log" 2>&1
"$rankguard" run --controller "$controller" --name bad --nodes 1 -- sh -c 'echo "KeyError: 1" >&2; exit 1' >"$folder/bad.log" 2>&1 || true

# Not asked: a watch, which does not end by itself (tests/http_api.rs reads it), and whether every cursor is accepted, because only those
# that a list has given are. A query that is too long is refused with 414, which schemathesis does not expect by itself.
cd "$folder"
cat >schemathesis.toml <<'END'
[checks.negative_data_rejection]
expected-statuses = [400, 403, 404, 405, 414]
END
"$folder/env/bin/schemathesis" run "http://$(cat "$folder/controller/http.addr")/api/v1/openapi.json" \
    --exclude-path /api/v1/watch --checks all --exclude-checks positive_data_acceptance \
    --mode all --max-examples "${EXAMPLES:-60}" --seed 1 --request-timeout 30 --no-color
