# Sourced: find_python prints the path of a CPython of 3.12 or later that runs and can make environments; fails if there is none.
# A version manager's stand-in is on the path and fails when it is run, so each candidate is tried.
find_python() {
    local candidate root_of_pyenv
    root_of_pyenv=$(pyenv root 2>/dev/null || true)
    for candidate in python3.12 python3.13 python3.14 \
        "${root_of_pyenv:-$HOME/.pyenv}"/versions/3.1[2-9].*/bin/python3 "$HOME"/.pyenv/versions/3.1[2-9].*/bin/python3 \
        /root/.pyenv/versions/3.1[2-9].*/bin/python3 "$(uv python find '>=3.12' 2>/dev/null || true)" \
        /usr/bin/python3.1[2-9] /usr/local/bin/python3.1[2-9] /usr/bin/python3 python3; do
        if [ -n "$candidate" ] && "$candidate" - >/dev/null 2>&1 <<'PROBE'
import ensurepip, platform, sys, venv
sys.exit(platform.python_implementation() != "CPython" or sys.version_info < (3, 12))
PROBE
        then
            command -v "$candidate"
            return
        fi
    done
    return 1
}
