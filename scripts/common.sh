# What every script here shares: where things are, and how to install what is missing.
# Sourced, never run.

CALLER=$PWD
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${WEIR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weir}
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
STAGE=$ROOT/target/weir
export WEIR_CACHE=$CACHE CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}

say() { printf '\n== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# help_of FILE: prints the comment block at the top of a script.
help_of() { sed -n '2,/^$/s/^# \{0,1\}//p' "$1"; }

# need COMMAND PACKAGE...: installs Debian packages unless the command is there.
need() {
    local command=$1; shift
    command -v "$command" >/dev/null 2>&1 && return
    command -v apt-get >/dev/null 2>&1 || die "$command is missing; install $*"
    local sudo=''
    [ "$(id -u)" = 0 ] || sudo=sudo
    if [ ! -e "$CACHE/apt-updated" ] || [ -n "$(find "$CACHE/apt-updated" -mmin +1440)" ]; then
        mkdir -p "$CACHE"
        $sudo apt-get update -qq >/dev/null && touch "$CACHE/apt-updated"
    fi
    # Somebody else may be installing: that is waited for.
    local said
    said=$(DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=600 "$@" 2>&1) ||
        die "could not install $*: $(tail -n 1 <<<"$said")"
    hash -r
    command -v "$command" >/dev/null 2>&1 || die "$command is still missing after installing $*"
}

# cpython VERSION: prints the path of an interpreter such as 3.12, pyenv's or the system's; fails where there is none.
cpython() {
    local found
    found=$(ls -d "$HOME/.pyenv/versions/$1".*/bin/python"$1" 2>/dev/null | tail -n 1)
    [ -n "$found" ] || found=$(command -v "python$1") || return
    echo "$found"
}

# venv NAME REQUIREMENTS [VERSION]: prints the interpreter of a virtual environment in the cache folder, with exactly the
# packages of a requirements file, on the CPython of that version. Another list is another folder: one that is in use
# never changes. Made once, under a lock, so that two runs at the same time share it.
venv() {
    local name=$1 list=$2 version=${3:-} python=python3 folder
    folder=$CACHE/venv-$name-$({ cat "$list" && echo "$version"; } | sha256sum | cut -c 1-8)
    mkdir -p "$CACHE"
    (
        flock 9
        [ ! -e "$folder/ok" ] || exit 0
        if [ -n "$version" ]; then python=$(cpython "$version") || die "python$version is missing"; fi
        echo "installing $(basename "$list") into $folder" >&2
        rm -rf "$folder"
        # The list is complete: nothing is resolved, so nothing unpinned can come in.
        "$python" -m venv "$folder" &&
            "$folder/bin/pip" install -q --disable-pip-version-check --no-deps -r "$list" >&2 && touch "$folder/ok"
    ) 9>"$folder.lock" || die "could not install $list"
    echo "$folder/bin/python"
}

# The compiler is the one thing that is not installed here: rustup does that better.
need_rust() {
    command -v cargo >/dev/null 2>&1 || die "no Rust toolchain: install one from https://rustup.rs (1.88 or newer)"
    need cc gcc libc6-dev
    need pip3 python3 python3-venv python3-pip
}
