# shellcheck shell=bash
# Functions for the other scripts: they find the checkout and cargo, and install missing packages.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$ROOT" || exit

# A shell that was opened before rustup was installed does not have cargo on its PATH.
if ! command -v cargo >/dev/null && [[ -r "${CARGO_HOME:-$HOME/.cargo}/env" ]]; then
    # shellcheck source=/dev/null
    source "${CARGO_HOME:-$HOME/.cargo}/env"
fi

die() {
    echo "error: $*" >&2
    exit 2
}

require_cargo() {
    command -v cargo >/dev/null || die "cargo not found: install Rust first (rustup, or the distribution's)"
}

MISSING=()

# need COMMAND PACKAGE...: adds the Debian packages to MISSING unless the command exists. It asks for
# the command and not for the package, so other distributions and tools that were built by hand work.
need() {
    command -v "$1" >/dev/null || MISSING+=("${@:2}")
}

# Installs the packages in MISSING.
install_missing() {
    ((${#MISSING[@]} == 0)) || install_packages "${MISSING[@]}"
}

# install_packages PACKAGE...: installs Debian packages in one call of apt-get, whose output is shown
# only if it fails. Called in the foreground, so that sudo can ask for a password.
install_packages() {
    echo "installing: $*"
    if ! command -v apt-get >/dev/null; then
        echo "error: no apt-get here: install the equivalents of these by hand" >&2
        return 1
    fi
    local as_root=()
    if ((EUID != 0)); then
        if ! command -v sudo >/dev/null; then
            echo "error: neither root nor sudo: run 'apt-get install $*' as root" >&2
            return 1
        fi
        as_root=(sudo)
        [[ ${CI:-} == true ]] && as_root+=(--non-interactive)
    fi
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 --yes)
    local log
    log="$(mktemp)"
    # An old package list often still works, so only the result of the install counts.
    "${apt[@]}" update >"$log" 2>&1 </dev/null || true
    if ! "${apt[@]}" install --no-install-recommends "$@" >>"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}
