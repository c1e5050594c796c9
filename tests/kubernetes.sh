#!/usr/bin/env bash
# The client beside a real kube-apiserver and etcd, on free ports of this machine: kubernetes.sh [FOLDER]
# FOLDER, outside the checkout, takes Debian's packages and the build, once: some 3 GB and 10 CPU minutes, so this is no part of CI.
# Nothing is installed. Debian 12 has the source of Kubernetes 1.20.2, of which it builds the client only.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/rankguard-kubernetes}
case "$folder" in "$(cd "$here/.." && pwd)"/*) echo "$folder lies in the checkout; choose another place" >&2; exit 2;; esac
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
server=$folder/kube-apiserver
etcd=$folder/root/usr/bin/etcd
sources() {
    mkdir -p "$folder/apt/parts" "$folder/apt/lists/partial"
    printf 'Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: bookworm\nComponents: main\nSigned-By: %s\n' \
        /usr/share/keyrings/debian-archive-keyring.gpg >"$folder/apt/parts/source.sources"
    apt-get -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$folder/apt/parts" -o Dir::State::lists="$folder/apt/lists" "$@"
}
build() {
    cd "$folder"
    sources -qq update
    sources -qq --download-only source kubernetes
    [ -n "$(apt-cache madison golang-1.19-go)" ] || apt-get update -qq
    # Go 1.18 and later need reflect2 1.0.2, which is younger than this Kubernetes.
    apt-get download -qq golang-1.19-go golang-1.19-src etcd-server golang-github-modern-go-reflect2-dev
    for package in *.deb; do dpkg -x "$package" root; done
    export GOROOT=$folder/root/usr/lib/go-1.19 GOPATH=$folder/go GOCACHE=$folder/cache GO111MODULE=off CGO_ENABLED=0
    export PATH=$GOROOT/bin:$PATH
    mkdir -p "$GOPATH/src/k8s.io"
    rm -rf "$GOPATH/src/k8s.io/kubernetes"
    dpkg-source --no-check -x kubernetes_*.dsc "$GOPATH/src/k8s.io/kubernetes"
    cd "$GOPATH/src/k8s.io/kubernetes"
    local reflect=vendor/github.com/modern-go/reflect2
    rm -f "$reflect"/*.go "$reflect"/*.s
    cp "$folder"/root/usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} "$reflect/"
    rm -f "$reflect"/*_test.go
    # The OpenAPI document of the server is generated, and not in the source.
    go build -o "$folder/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    local tag='^// ?\+k8s:openapi-gen=' folders
    folders=$({
        grep -rlE --include=*.go "$tag" pkg cmd | xargs -n1 dirname | sed 's|^|k8s.io/kubernetes/|'
        cd staging/src
        grep -rlE --include=*.go "$tag" k8s.io | grep -vE '/(testdata|test|sample-apiserver|example)/' |
            xargs -n1 dirname | sed 's|^|k8s.io/kubernetes/vendor/|'
    } | sort -u | paste -sd,)
    "$folder/openapi-gen" -O zz_generated.openapi -i "$folders" -p k8s.io/kubernetes/pkg/generated/openapi \
        -h hack/boilerplate/boilerplate.generatego.txt -r "$folder/violations"
    go build -o "$server.new" ./cmd/kube-apiserver
    mv "$server.new" "$server"
}
[ -x "$server" ] && [ -x "$etcd" ] || (build) >"$folder/build.log" 2>&1 || { tail -n 20 "$folder/build.log" >&2; exit 1; }
state=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait || true; rm -rf "$state"' EXIT
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
client=$(port) peer=$(port) secure=$(port)
openssl genrsa -out "$state/sa.key" 2048 2>/dev/null
openssl rsa -in "$state/sa.key" -pubout -out "$state/sa.pub" 2>/dev/null
printf 'admin,admin,1,system:masters\nsync,sync,2\n' >"$state/tokens.csv"
"$etcd" --data-dir "$state/etcd" --listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
    --listen-peer-urls "http://127.0.0.1:$peer" >"$state/etcd.log" 2>&1 &
pids+=($!)
"$server" --etcd-servers="http://127.0.0.1:$client" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="$secure" \
    --cert-dir="$state/certs" --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$state/sa.pub" \
    --service-account-signing-key-file="$state/sa.key" --token-auth-file="$state/tokens.csv" --authorization-mode=RBAC \
    --service-cluster-ip-range=10.0.0.0/24 --allow-privileged --disable-admission-plugins=ServiceAccount,TaintNodesByCondition >"$state/server.log" 2>&1 &
pids+=($!)
url=https://127.0.0.1:$secure
for _ in $(seq 120); do
    [ "$(curl -sk -H 'Authorization: Bearer admin' "$url/readyz" || true)" = ok ] && break
    sleep 1
done
echo "$url" >"$state/url"
echo admin >"$state/admin-token"
echo sync >"$state/sync-token"
cp "$state/certs/apiserver.crt" "$state/ca.crt" || { tail -n 5 "$state/server.log" >&2; exit 1; }
cd "$here/.."
RANKGUARD_TEST_KUBERNETES=$state cargo test --workspace --locked --test kubernetes_tests real_server:: -- --nocapture
