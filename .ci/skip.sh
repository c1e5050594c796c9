# Sourced by the checks of .ci: what is done where a part cannot be had.
#   skip WHAT     prints one line and ends the check with success; with RANKGUARD_CI_FULL=1, which .ci/run sets, with failure
skip() {
    echo "SKIPPED: $1" >&2
    if [ "${RANKGUARD_CI_FULL:-0}" = 1 ]; then
        echo "error: RANKGUARD_CI_FULL=1 allows no skipped check" >&2
        exit 1
    fi
    exit 0
}
