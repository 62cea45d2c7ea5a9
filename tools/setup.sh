#!/usr/bin/env bash
# Set-up: .venv with the locked dependencies and the `sarit` command.  Needs Python >= 3.11 alone; `uv` is
# installed privately when the machine has none.  Java >= 17 is looked for at the end: only Spark needs it.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }
install_packages() { # $@: Debian packages; quiet unless it fails
    apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1 ||
        { apt-get update >/dev/null 2>&1 && apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1; }
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    return 1
}

find_uv() { # prints the command; installs uv into .cache/uv when there is none that works
    local private=.cache/uv
    if uv --version >/dev/null 2>&1; then echo uv; return; fi
    if [ -x "$private/bin/uv" ]; then echo "$private/bin/uv"; return; fi
    say "installing uv into $private" >&2
    if ! "$1" -m venv "$private" >/dev/null 2>&1; then
        rm -rf "$private"
        may_install || fail "this Python has no venv module; on Debian: apt-get install python3-venv"
        install_packages python3-venv || fail "apt-get install python3-venv failed"
        "$1" -m venv "$private"
    fi
    "$private/bin/pip" install --quiet --disable-pip-version-check 'uv>=0.8' >&2
    echo "$private/bin/uv"
}

java_major() { # prints the major version, or nothing
    local java=java
    if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then java=$JAVA_HOME/bin/java; fi
    "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

check_java() {
    local major
    major=$(java_major || true)
    if [ "${major:-0}" -ge 17 ]; then return; fi
    if may_install; then
        say "installing a Java runtime for Spark"
        install_packages openjdk-17-jre-headless || install_packages default-jre-headless || true
        major=$(java_major || true)
        if [ "${major:-0}" -ge 17 ]; then return; fi
    fi
    say "Java >= 17 is missing; Spark alone needs it. On Debian: sudo apt-get install openjdk-17-jre-headless"
}

python=$(find_python) || fail "Python >= 3.11 is needed; set PYTHON=/path/to/python3 if it has another name"
uv=$(find_uv "$python")
say "installing the locked dependencies into .venv"
# Compiled here once: Spark starts hundreds of Python processes, and an environment may forbid them to write bytecode.
"$uv" sync --quiet --locked --compile-bytecode --python "$python"
check_java
say "done: .venv/bin/sarit"
