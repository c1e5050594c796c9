#!/usr/bin/env bash
# Packs the programs as Debian packages: build_deb.sh OUT [PROGRAMS]
# OUT gets rankguard_VERSION_ARCH.deb and rankguard-history_VERSION_ARCH.deb. PROGRAMS is a folder with rankguard and
# rankguard-history of one version; without it cargo makes a release build.
#   DEBFULLNAME, DEBEMAIL  maintainer of the packages
#   DEB_REVISION           revision of the packages (1)
#   DEB_COMPRESSION        options of dpkg-deb
# Needs Debian's debhelper and python3. The same inputs give the same packages: times are those of the commit.
set -euo pipefail
out=$(mkdir -p "${1:?the folder of the packages is missing: build_deb.sh OUT [PROGRAMS]}" && realpath "$1")
root=$(realpath "$(dirname "$0")/..")
cd "$root"
if [ $# -lt 2 ]; then
    cargo build --release --locked -p rankguard -p rankguard-history
fi
programs=$(realpath "${2:-${CARGO_TARGET_DIR:-$root/target}/release}")
version=$("$programs/rankguard" --version | cut -d' ' -f2)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}
maintainer="${DEBFULLNAME:-Rankguard maintainers} <${DEBEMAIL:-maintainers@rankguard.invalid}>"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
work=$folder/rankguard-$version
mkdir "$work"
cp -r packaging/debian "$work/"
sed -i "s|@MAINTAINER@|$maintainer|" "$work/debian/control"
cat >"$work/debian/changelog" <<CHANGELOG
rankguard ($version-${DEB_REVISION:-1}) unstable; urgency=medium

  * Version $version; see changelog.gz beside this file.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
CHANGELOG
cp "$programs/rankguard" "$programs/rankguard-history" packaging/rankguard.toml CHANGELOG.md "$work/"
cp -r packaging/checks "$work/"
cp deploy/prometheus/rankguard.rules.yml deploy/grafana/rankguard.json "$work/"
cp packaging/systemd/*.service "$work/debian/"
for unit in controller agent slurm; do mv "$work/debian/rankguard-$unit.service" "$work/debian/rankguard.rankguard-$unit.service"; done
cp packaging/systemd/rankguard.sysusers "$work/debian/rankguard.sysusers"
python3 packaging/third_party.py --notices "$work/third-party-notices.txt" --sbom "$work/sbom.cdx.json"

# The history program stands beside the program, so that its pages and commands are written too.
"$work/rankguard" shell man --out "$work/man" >/dev/null
mkdir "$work/completions"
"$work/rankguard" shell completions bash >"$work/completions/rankguard"
"$work/rankguard" shell completions zsh >"$work/completions/_rankguard"
"$work/rankguard" shell completions fish >"$work/completions/rankguard.fish"
history='^rankguard-(dataset|study|replay|simulate)[-.]'
(cd "$work" && ls man/* | grep -vE "${history/^/^man/}" >debian/rankguard.manpages)
(cd "$work" && ls man/* | grep -E "${history/^/^man/}" >debian/rankguard-history.manpages)

(cd "$work" && debian/rules binary) >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
cp "$folder"/*.deb "$out/"
ls "$out"/rankguard*_"$version"-*.deb
