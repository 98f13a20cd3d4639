# shellcheck shell=bash
# What scripts/demo and scripts/test share: finding the checkout and cargo, and installing what is
# missing. Nothing here may know a stage.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$ROOT" || exit

# A shell opened before rustup was installed does not have cargo on its PATH.
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

# need THING PACKAGE...: remember the Debian packages unless THING, a command or a path, is there.
# Asking for the thing and not for the package leaves other distributions and hand-built tools alone.
need() {
    local thing=$1
    shift
    if [[ $thing == /* ]]; then
        [[ -e $thing ]] && return
    else
        command -v "$thing" >/dev/null && return
    fi
    MISSING+=("$@")
}

# Installs what `need` found missing, in one go; silent when that is nothing or when all goes well.
# Called in the foreground, so that sudo can ask for a password.
install_missing() {
    ((${#MISSING[@]})) || return 0
    echo "installing: ${MISSING[*]}"
    if ! command -v apt-get >/dev/null; then
        echo "error: no apt-get here: install the equivalents of these by hand" >&2
        return 1
    fi
    local as_root=()
    if ((EUID != 0)); then
        if ! command -v sudo >/dev/null; then
            echo "error: neither root nor sudo: run 'apt-get install ${MISSING[*]}' as root" >&2
            return 1
        fi
        as_root=(sudo)
        [[ ${CI:-} == true ]] && as_root+=(--non-interactive)
    fi
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 --yes)
    local log
    log="$(mktemp)"
    # A stale list often still serves, so only the install decides.
    "${apt[@]}" update >"$log" 2>&1 </dev/null || true
    if ! "${apt[@]}" install --no-install-recommends "${MISSING[@]}" >>"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
    MISSING=()
}

# need_cargo_tool COMMAND COMPONENT PACKAGE: e.g. rustfmt, which neither a minimal rustup nor Debian's
# cargo brings along.
need_cargo_tool() {
    cargo "$1" --version >/dev/null 2>&1 && return
    if command -v rustup >/dev/null; then
        rustup --quiet component add "$2"
    else
        MISSING+=("$3")
    fi
}

# Succeeds when the standard library for a target is there or could be installed.
have_target() {
    [[ -d "$(rustc --print target-libdir --target "$1")" ]] && return
    if ! command -v rustup >/dev/null; then
        echo "no rustup here to install the target $1"
        return 1
    fi
    rustup --quiet target add "$1"
}
