# shellcheck shell=bash
# Set-up shared by the scripts; source it, then call `prepare`.
#
# `prepare` needs Python >= 3.11 with pip, and a package index as pip or uv are configured to use. It makes a virtual
# environment, installs the locked packages (checked against their hashes) and this package in editable mode, and
# leaves a stamp, so that the next start installs nothing. It sets $root (the repository) and $venv.
#
#   PYTHON             the interpreter to use; default: the first python3 of 3.11 or later
#   SEAMARK_VENV       where the environment goes; default: .venv, or the user cache where .venv cannot be written
#   SEAMARK_INSTALLER  "pip" leaves uv alone; default: uv where there is one or it can be had, else pip

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/seamark

# A user's pip may be told to install elsewhere; in here it has to install into $venv.
export PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf 'seamark: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

version_of() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null; }

find_python() {
  local candidate
  if [ -n "${PYTHON:-}" ]; then
    is_recent "$PYTHON" || fail "PYTHON=$PYTHON is not a Python of 3.11 or later."
    printf '%s\n' "$PYTHON"
    return
  fi
  for candidate in python3 python3.13 python3.12 python3.11 python3.14 python; do
    if is_recent "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail "no Python of 3.11 or later was found; install one, or name it: PYTHON=/path/to/python $0"
}

# What the environment was made from; also fails when its interpreter does not work.
fingerprint() {
  "$venv/bin/python" - "$root" <<'PYTHON' 2>/dev/null
import hashlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
parts = [(root / name).read_bytes() for name in ("requirements.lock", "pyproject.toml")]
parts += [sys.version.encode(), str(root).encode()]
print(hashlib.sha256(b"\0".join(parts)).hexdigest())
PYTHON
}

is_ready() {
  local now
  [ -f "$venv/seamark-stamp" ] && now=$(fingerprint) && [ "$now" = "$(cat "$venv/seamark-stamp")" ] || return 1
  [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$(version_of "$venv/bin/python")" ]
}

# The uv on PATH, else one installed beside the repository's environment; empty where there is none to be had.
find_uv() {
  [ "${SEAMARK_INSTALLER:-}" != pip ] || return 0
  local tools
  tools="$(dirname "$venv")/.tools"
  if uv --version >/dev/null 2>&1; then
    printf 'uv\n'
  elif "$tools/bin/uv" --version >/dev/null 2>&1 ||
    { "$1" -m pip install --quiet --target "$tools" uv >>"$log" 2>&1 && "$tools/bin/uv" --version >/dev/null 2>&1; }; then
    printf '%s\n' "$tools/bin/uv"
  fi
}

# An environment with an interpreter; pip comes with it or is added when it is needed.
make_venv() {
  local python=$1 uv=$2
  "$python" -m venv --clear "$venv" >>"$log" 2>&1 && return
  # some systems ship Python without the parts that venv needs
  if [ -n "$uv" ]; then
    "$uv" venv --clear --python "$python" "$venv" >>"$log" 2>&1 && return
  fi
  local tools
  tools="$(dirname "$venv")/.tools"
  "$python" -m pip install --quiet --target "$tools" virtualenv >>"$log" 2>&1 &&
    PYTHONPATH=$tools "$python" -m virtualenv --clear "$venv" >>"$log" 2>&1
}

with_uv() {
  [ -n "$uv" ] && "$uv" pip install --python "$venv/bin/python" "$@" >>"$log" 2>&1
}

with_pip() {
  "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >>"$log" 2>&1
  "$venv/bin/python" -m pip install "$@" >>"$log" 2>&1
}

# uv does not read pip's configuration, so what uv cannot reach, pip may.
install() {
  with_uv "$@" || with_pip "$@"
}

# The requirements of pyproject.toml, development tools included, without versions of the lock.
unlocked() {
  "$venv/bin/python" - "$root/pyproject.toml" <<'PYTHON'
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)
print(*project["project"]["dependencies"], *project["dependency-groups"]["dev"], sep="\n")
PYTHON
}

install_all() {
  if ! install --only-binary :all: --require-hashes -r "$root/requirements.lock"; then
    if grep -qiE 'do not match the hashes|hash mismatch' "$log"; then
      fail "a downloaded package is not the one that requirements.lock names (hash mismatch); see $log"
    fi
    say "requirements.lock could not be installed for Python $(version_of "$venv/bin/python"); resolving pyproject.toml"
    unlocked >"$venv/requirements.txt"
    install -r "$venv/requirements.txt" ||
      fail "the packages could not be installed: $(grep -iE 'error' "$log" | tail -n 1); see $log"
  fi
  install --no-deps --editable "$root" ||
    fail "this package could not be installed: $(grep -iE 'error' "$log" | tail -n 1); see $log"
}

# Tools keep their caches in the tree where it can be written, else in the user's cache.
place_caches() {
  [ ! -w "$root" ] || return 0
  export RUFF_CACHE_DIR="$cache/ruff" MYPY_CACHE_DIR="$cache/mypy" IMPORT_LINTER_CACHE_DIR="$cache/imports"
  export HYPOTHESIS_STORAGE_DIRECTORY="$cache/hypothesis" PYTEST_ADDOPTS="-o cache_dir=$cache/pytest ${PYTEST_ADDOPTS:-}"
}

prepare() {
  venv=${SEAMARK_VENV:-$root/.venv}
  place_caches
  ! is_ready || return 0
  if [ -z "${SEAMARK_VENV:-}" ] && ! { [ -w "$root" ] && { [ ! -e "$venv" ] || [ -w "$venv" ]; }; }; then
    venv=$cache/venv-$(printf '%s' "$root" | cksum | cut -d ' ' -f 1)
    ! is_ready || return 0
  fi
  mkdir -p "$(dirname "$venv")" || fail "$(dirname "$venv") cannot be written; set SEAMARK_VENV to another folder."

  local python
  python=$(find_python)
  log=$(mktemp "${TMPDIR:-/tmp}/seamark-setup.XXXXXX")
  uv=$(find_uv "$python")
  say "setting up $venv with Python $(version_of "$python") (once; takes a minute or two)"
  if ! is_recent "$venv/bin/python" || [ "$(version_of "$python")" != "$(version_of "$venv/bin/python")" ]; then
    make_venv "$python" "$uv" || fail "no virtual environment could be made with $python; see $log"
  fi
  install_all
  fingerprint >"$venv/seamark-stamp"
  rm -f "$log"
}
