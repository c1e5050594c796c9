#!/usr/bin/env bash
# Lints the metrics pages of a running agent and of a running controller, checks and tests the alert rules, and checks
# the dashboard:
# promtool.sh RANKGUARD [PROMTOOL]
set -euo pipefail
rankguard=${1:?the program is missing: promtool.sh RANKGUARD [PROMTOOL]}
promtool=${2:-${PROMTOOL:-promtool}}
. "$(dirname "$0")/../.ci/skip.sh"
command -v "$promtool" >/dev/null || skip "$promtool is not there (Debian: prometheus), so the metrics pages are not checked"

folder=$(mktemp -d)
daemons=()
trap '[ "${#daemons[@]}" = 0 ] || kill "${daemons[@]}" 2>/dev/null; rm -rf "$folder"' EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# lint NAME PORT PATTERN: waits until the page of a daemon holds the pattern, then lints the page.
lint() {
    local name=$1 port=$2 pattern=$3
    for _ in $(seq 300); do
        if curl -sf "http://127.0.0.1:$port/metrics" >"$folder/page" && grep -q "$pattern" "$folder/page"; then
            "$promtool" check metrics <"$folder/page"
            cp "$folder/page" "$folder/$name.page"
            echo "$name: $(grep -vc '^#' "$folder/page") samples, no finding"
            return
        fi
        sleep 0.1
    done
    echo "error: the page of the $name does not show $pattern; its log:" >&2
    cat "$folder/$name.log" >&2
    exit 1
}

rules=$(dirname "$0")/../deploy/prometheus/rankguard.rules.yml
"$promtool" check rules "$rules"
"$promtool" test rules "${rules%.yml}.test.yml"
python3 "$(dirname "$0")/grafana.py" "$(dirname "$0")/../deploy/grafana/rankguard.json" "$folder/panels.yml"
"$promtool" check rules "$folder/panels.yml"

controller_port=$(free_port)
printf "[[controller.notify]]\nname = 'hook'\nkind = 'webhook'\nurl = 'http://127.0.0.1:1/'\n" >"$folder/notify.toml"
RANKGUARD_CONTROLLER_METRICS_LISTEN=127.0.0.1:$controller_port \
    "$rankguard" --config "$folder/notify.toml" controller --listen 127.0.0.1:0 --state-dir "$folder/controller" 2>"$folder/controller.log" &
daemons+=($!)
for _ in $(seq 300); do [ ! -s "$folder/controller/controller.addr" ] || break; sleep 0.1; done

agent_port=$(free_port)
: >"$folder/kmsg"
"$rankguard" agent --node promtool --controller "$(cat "$folder/controller/controller.addr")" --state-dir "$folder/agent" \
    --kernel-log "$folder/kmsg" --metrics-listen "127.0.0.1:$agent_port" 2>"$folder/agent.log" &
daemons+=($!)
echo "4,1,1000000,-;NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=python, GPU has fallen off the bus." >>"$folder/kmsg"

lint agent "$agent_port" 'class="gpu-fallen-off-bus"'
lint controller "$controller_port" '^rankguard_controller_nodes 1'

# Every metric of the rules and of the dashboard is on a page.
for metric in $(grep -ho 'rankguard_[a-z_]*' "$rules" "$folder/panels.yml" | sort -u); do
    grep -q "^# TYPE $metric " "$folder/agent.page" "$folder/controller.page" || { echo "error: no page has $metric" >&2; exit 1; }
done
echo "rules and dashboard: every metric is on a page"
