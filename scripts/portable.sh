# Builds for other machines than this one: releases. Sourced by the scripts that make them, after common.sh.
#
# The library is loaded into every kind of job, so it is linked for the oldest glibc that Rust's own library supports, 2.17
# (RHEL 7), by zig, which has the symbol lists of all of them.

GLIBC=2.17
# What compiles a release: another compiler makes other bytes of the same commit.
RUST=1.95.0

# portable ARCH: from now on `portable_cargo` builds for x86_64 or aarch64; sets TRIPLE, STAGE and the tools' PATH.
portable() {
    case $1 in x86_64 | aarch64) ;; *) die "no release for '$1'; expected x86_64 or aarch64" ;; esac
    case $ROOT in *[[:space:]]*) die "$ROOT: a release cannot be built in a folder with a blank in its name" ;; esac
    TRIPLE=$1-unknown-linux-gnu
    # shellcheck disable=SC2034 # the scripts that source this use it
    STAGE=$TARGET/$TRIPLE/weir
    local tools
    tools=$(venv release "$ROOT/scripts/release.txt")
    PATH=$(dirname "$tools"):$PATH
    export PATH SOURCE_DATE_EPOCH
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct)}
    if [[ $(rustc -V) != "rustc $RUST "* ]]; then
        command -v rustup >/dev/null || die "a release is compiled by Rust $RUST, and this is $(rustc -V)"
        rustup toolchain list | grep -q "^$RUST-" || rustup -q toolchain install --profile minimal "$RUST" || die "could not install Rust $RUST"
        export RUSTUP_TOOLCHAIN=$RUST
    fi
    rustc --print target-libdir --target "$TRIPLE" 2>/dev/null | grep -q . && [ -d "$(rustc --print target-libdir --target "$TRIPLE")" ] ||
        rustup -q target add "$TRIPLE" || die "Rust has no library for $TRIPLE; install it (rustup target add $TRIPLE)"
}

# One unwinder per process: an exception or a cancelled thread of the job passes frames of libweir.so, whose personality
# function must ask the unwinder that called it. cargo-zigbuild would link another one in (LLVM's, static), so the linker
# sees this list of libgcc_s.so.1 first.
unwinder() {
    local folder=$TARGET/$TRIPLE/stubs
    mkdir -p "$folder"
    cat >"$folder/unwind.map" <<'MAP'
GCC_3.0 { global: _Unwind_Resume; _Unwind_GetIP; _Unwind_GetTextRelBase; _Unwind_GetDataRelBase;
    _Unwind_GetLanguageSpecificData; _Unwind_GetRegionStart; _Unwind_SetGR; _Unwind_SetIP; _Unwind_RaiseException;
    _Unwind_DeleteException; local: *; };
GCC_3.3 { global: _Unwind_Backtrace; _Unwind_GetCFA; _Unwind_FindEnclosingFunction; } GCC_3.0;
GCC_4.2.0 { global: _Unwind_GetIPInfo; } GCC_3.3;
MAP
    grep -o '_Unwind_[A-Za-z]*' "$folder/unwind.map" | sed 's/.*/void &(void) {}/' >"$folder/unwind.c"
    python -m ziglang cc -target "${TRIPLE%%-*}-linux-gnu.$GLIBC" -shared -nostdlib -fPIC -Wl,-soname,libgcc_s.so.1 \
        -Wl,--version-script="$folder/unwind.map" -o "$folder/libgcc_s.so.1" "$folder/unwind.c" || die 'zig does not link'
    echo "$folder/libgcc_s.so.1"
}

# Paths of this machine are in no file, so that any folder gives the same bytes.
portable_cargo() { # COMMAND ARGUMENT...
    RUSTFLAGS="--remap-path-prefix=$ROOT=/weir --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo -Clink-arg=$(unwinder)" \
        CARGO_INCREMENTAL=0 CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=debuginfo \
        cargo "$@" --target "$TRIPLE.$GLIBC"
}
