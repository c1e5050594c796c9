#!/usr/bin/env bash
# What a running agent serves for Prometheus, before promtool: promtool.sh RANKGUARD [PROMTOOL]
set -euo pipefail

rankguard=${1:?the program is to be named}
promtool=${2:-${PROMTOOL:-promtool}}
if ! command -v "$promtool" > /dev/null; then
    echo "SKIPPED: $promtool is not there (Debian: prometheus), so the metrics page is not checked" >&2
    exit 0
fi

folder=$(mktemp -d)
agent=
trap '[ -z "$agent" ] || kill "$agent" 2> /dev/null; rm -rf "$folder"' EXIT
: > "$folder/kmsg"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$rankguard" agent --node promtool --controller 127.0.0.1:1 --state-dir "$folder/state" --kernel-log "$folder/kmsg" \
    --metrics-listen "127.0.0.1:$port" 2> "$folder/log" &
agent=$!
echo "4,1,1000000,-;NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=python, GPU has fallen off the bus." >> "$folder/kmsg"
for _ in $(seq 300); do
    if curl -sf "http://127.0.0.1:$port/metrics" > "$folder/page" && grep -q 'class="gpu-fallen-off-bus"' "$folder/page"; then
        "$promtool" check metrics < "$folder/page"
        echo "$(grep -vc '^#' "$folder/page") samples, nothing to say"
        exit 0
    fi
    sleep 0.1
done
echo "the agent does not serve its finding; it said:" >&2
cat "$folder/log" >&2
exit 1
