# One door for people and CI. `just` lists what there is.

default:
    @just --list

# The main job: a training job goes through real failures.
demo *ARGS:
    cargo demo {{ARGS}}

# Everything that must hold before a change lands.
check: fmt deny clippy test

fmt:
    cargo fmt --all --check

clippy:
    cargo clippy --workspace --all-targets -- -D warnings

# Dependencies: licences, bans, sources, advisories.
deny:
    .ci/deny

# The README's test command.
test:
    cargo test --workspace

# The Rust tests with the long ones, then the Python package's with torch and the frameworks (.ci/python).
# RANKGUARD_TEST_HEAVY is how much of the heavy tests is done, percent: 10 is ten deaths of an agent and a minute alone.
test-all: test
    #!/usr/bin/env bash
    set -euo pipefail
    cargo build --release -p rankguard
    cargo test --release -p rankguard-agent --test exactly_once -- --ignored --test-threads 1
    tests/promtool.sh target/release/rankguard
    tests/smtp.sh target/release/rankguard
    cargo build --release -p rankguard-history
    tests/deb.sh target/release
    tests/slurm.sh
    tests/schemathesis.sh target/release/rankguard
    checkpoint/tiers/tests/object_stores.sh
    tests/console.sh target/release/rankguard
    .ci/python

# The Kubernetes client against a real API server, which is built once: some 3 GB and 10 minutes of a processor.
kubernetes *FOLDER:
    tests/kubernetes.sh {{FOLDER}}

# The Python package: checks and tests, in an environment with torch that is made once (TORCH_ENV names another).
python *ARGS:
    .ci/python {{ARGS}}

# The Python sources: style, form, types (strict), types of the native part as built, and that Python 3.9 has all they use.
check-python:
    .ci/python check

# The demo under random kills: seeds FROM to TO.
chaos FROM="1" TO="20":
    cargo build --release
    for seed in $(seq {{FROM}} {{TO}}); do target/release/rankguard demo --chaos $seed --format json > /dev/null && echo "seed $seed sound" || exit 1; done

# One fuzz target for some seconds; needs a nightly compiler and cargo-fuzz (fuzz/README.md).
fuzz TARGET SECONDS="600":
    mkdir -p fuzz/corpus/{{TARGET}}
    cd fuzz && cargo +nightly fuzz run {{TARGET}} corpus/{{TARGET}} seeds/{{TARGET}} -- -max_total_time={{SECONDS}} -timeout=25 -rss_limit_mb=4096

bench:
    cargo bench -p rankguard-checkpoint -p rankguard-faults -p rankguard-offline -p rankguard-templates
    cargo run --release -- bench match
