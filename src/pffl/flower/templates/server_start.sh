#!/bin/sh
# Starts the Flower SuperLink: TLS, registered nodes only, one interface. Written by
# pffl deploy.
set -eu
cd "$(dirname "$0")"
here=$(pwd -P)
bin=${PFFL_BIN:-$here/venv/bin}
umask 077

# Nothing calls home, and nothing is installed at run time.
export FLWR_TELEMETRY_ENABLED=0
export FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export FLWR_HOME="$here/flwr"
export PATH="$bin:$PATH"

for file in ca.crt server.crt server.key; do
    if [ ! -r "$file" ]; then
        echo "start.sh: '$file' is missing: see README.md" >&2
        exit 1
    fi
done
mkdir -p flwr

# Flower's SuperLink; its commands (register, run) are taken from this machine only.
exec python -m pffl.flower.superlink \
    --host "${PFFL_HOST:-@HOST@}" --port "${PFFL_PORT:-@PORT@}" \
    --ssl-ca-certfile ca.crt \
    --ssl-certfile server.crt \
    --ssl-keyfile server.key \
    --enable-supernode-auth \
    --disable-runtime-dependency-installation \
    --database superlink.db
