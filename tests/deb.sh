#!/usr/bin/env bash
# The Debian packages: lintian finds nothing, they install into a clean Debian root, the demo runs there as an ordinary
# user, and a purge of the unused installation leaves nothing: deb.sh PROGRAMS
# PROGRAMS is a folder with rankguard and rankguard-history. Needs root for the Debian root.
set -euo pipefail
programs=$(realpath "${1:?the folder of the programs is missing: deb.sh PROGRAMS}")
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../.ci/skip.sh"
[ "$(id -u)" = 0 ] || skip "this user is not root, so no Debian root is made and the packages are not tested"
command -v apt-get >/dev/null || skip "this is no Debian, so the packages are not tested"
needed=(debhelper lintian mmdebstrap)
dpkg-query -W "${needed[@]}" >/dev/null 2>&1 ||
    { apt-get update && apt-get install -y --no-install-recommends "${needed[@]}"; } >/dev/null 2>&1 ||
    skip "${needed[*]} cannot be installed, so the packages are not tested"

folder=$(mktemp -d)
root=$folder/root
trap 'rm -rf "$folder"' EXIT

# Quick and large: what is tested is the same.
DEB_COMPRESSION="-Zgzip -z1" DEB_BUILD_OPTIONS=noautodbgsym "$here/../packaging/build_deb.sh" "$folder" "$programs"
(cd "$folder" && lintian --fail-on warning,error rankguard*.deb 2>"$folder/lintian.log") || { cat "$folder/lintian.log"; exit 1; }
echo "lintian: no finding"

python3 - "$folder"/rankguard_*.deb <<'PYTHON'
import gzip, io, json, subprocess, sys, tarfile
archive = tarfile.open(fileobj=io.BytesIO(subprocess.run(["dpkg-deb", "--fsys-tarfile", sys.argv[1]], stdout=subprocess.PIPE, check=True).stdout))
text = lambda name: gzip.decompress(archive.extractfile(f"./usr/share/doc/rankguard/{name}.gz").read()).decode()
crates = json.loads(text("sbom.cdx.json"))["components"]
notices = text("third-party-notices.txt")
missing = [crate["name"] for crate in crates if f"{crate['name']} {crate['version']} (" not in notices]
assert {"tokio", "tonic", "prost", "regex", "polars"} <= {crate["name"] for crate in crates} and not missing, missing
assert all(crate.get("licenses") and crate.get("hashes") for crate in crates)
print(f"bill of materials: {len(crates)} crates, each with licence, checksum and notice")
PYTHON

mmdebstrap --quiet --mode=root --variant=minbase \
    --customize-hook="copy-in $(echo "$folder"/*.deb) /root" \
    --customize-hook='chroot "$1" sh -c "apt-get install -y --no-install-recommends /root/*.deb && rm /root/*.deb"' \
    bookworm "$root" >"$folder/root.log" 2>&1 ||
    { grep -q 'Setting up rankguard' "$folder/root.log" && { cat "$folder/root.log" >&2; exit 1; }
      tail -n 5 "$folder/root.log" >&2; skip "no Debian root can be made, so the packages are not installed"; }

# inside USER COMMAND: runs a command in the root, in namespaces that end with it.
inside() {
    unshare --mount --pid --fork --kill-child sh -c '
        mount -t proc proc "$1/proc" && mount -t tmpfs shm "$1/dev/shm" && exec chroot --userspec="$2" "$1" sh -euc "$3"
    ' sh "$root" "$1" "$2"
}
inside root '
    getent passwd rankguard rankguard-job >/dev/null
    [ "$(stat -c "%U %a" /etc/rankguard)" = "rankguard 700" ]
    rankguard --config /etc/rankguard.toml config check
    rankguard dataset ls >/dev/null
    for page in rankguard rankguard-agent rankguard-history rankguard-study; do [ -e "/usr/share/man/man1/$page.1.gz" ]; done'
inside nobody:nogroup 'cd "$(mktemp -d)"; rankguard demo >report 2>steps || { cat steps; exit 1; }; tail -n 5 report'
inside root '
    dpkg --purge rankguard-history rankguard >/dev/null 2>&1
    left=$(find / -xdev -path /tmp -prune -o -name "*rankguard*" -print)
    [ -z "$left" ] || { echo "a purge leaves $left" >&2; exit 1; }'
echo "packages: installed, demo ran, purged"
