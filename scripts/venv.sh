# Shared by the scripts next to it: a virtual environment in .venv with archec in it.
# Read with ".", after setting "root" to the checkout. POSIX sh; says what it does on stderr.

say() { printf '%s\n' "$*" >&2; }

die() {
    say "$@"
    exit 1
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }

# The first Python that is new enough: $PYTHON if it is set, else what is on PATH.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || die "PYTHON=$PYTHON is not a Python 3.10 or later."
        printf '%s\n' "$PYTHON"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do
        if new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    found=$(python3 --version 2>/dev/null || python --version 2>&1) || found="none"
    die "archec needs Python 3.10 or later; found: $found." "Install one, or name it: PYTHON=/path/to/python3 $0"
}

# Makes $root/.venv, unless it is there and works.
make_venv() {
    venv=$root/.venv
    if [ -e "$venv" ] && [ ! -e "$venv/pyvenv.cfg" ]; then
        die "$venv is there and is not a virtual environment: move it away."
    fi
    if new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(find_python) || exit 1
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        die "$python has no venv module. On Debian and Ubuntu: apt install python3-venv"
    fi
    say "Making .venv with $("$python" --version 2>&1) ..."
    "$python" -m venv --clear "$venv" || die "$python could not make $venv."
}

# What an installed archec depends on, as one checksum: "code" all of it, "metadata" its dependencies only.
fingerprint() {
    "$venv/bin/python" - "$1" "$root" <<'PYTHON'
import hashlib, pathlib, sys

root = pathlib.Path(sys.argv[2])
files = [root / "setup.cfg", root / "pyproject.toml"]
if sys.argv[1] == "code":
    files += sorted(p for p in (root / "archec").rglob("*") if p.is_file() and "__pycache__" not in p.parts)
digest = hashlib.sha256(sys.version.encode())
for file in files:
    digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
print(digest.hexdigest())
PYTHON
}

# Installs with pip, once for each state of the checkout. $1 names the state, the rest is for pip.
install() {
    stamp=$venv/archec-installed
    state=$1
    shift
    if [ "$(cat "$stamp" 2>/dev/null)" = "$state" ] && [ -x "$venv/bin/archec" ]; then
        return
    fi
    say "Installing archec into .venv ..."
    rm -f "$stamp"
    rm -rf "$root/build/lib" # else modules that are no longer there would be packed again
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" ||
        die "pip could not install archec: see above. It needs a network or a mirror to get the dependencies from."
    printf '%s\n' "$state" >"$stamp"
}
