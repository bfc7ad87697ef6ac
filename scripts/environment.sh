# Sourced by the other scripts: makes .venv where there is none and installs the checkout with the extras asked for.
# Another interpreter: PYTHON=python3.12 bash scripts/demo.sh

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# prepare_environment EXTRAS: a comma-separated list. Installs again only when pyproject.toml has changed since.
prepare_environment() {
    local python=${PYTHON:-python3} extras=$1 wanted have
    if [ ! -x .venv/bin/python ]; then
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
            echo "error: $python is older than Python 3.10; name a newer one: PYTHON=python3.12 bash $0" >&2
            exit 1
        }
        "$python" -m venv .venv
    fi
    wanted=$(cat pyproject.toml - <<<"$extras" | cksum)
    have=$(cat .venv/installed-"$extras" 2>/dev/null || true)
    if [ "$wanted" != "$have" ]; then
        echo "installing into .venv (once; torch is large) ..."
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
        echo "$wanted" >.venv/installed-"$extras"
    fi
}
