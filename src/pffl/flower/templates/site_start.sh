#!/bin/sh
# Starts the Flower node of this site, and starts it again when it ends: a node that
# was killed is let in again only after about a minute. Written by pffl deploy.
set -eu
cd "$(dirname "$0")"
here=$(pwd -P)
bin=${PFFL_BIN:-$here/venv/bin}
server=${PFFL_SERVER:-@ADDRESS@}
port=${PFFL_NODE_PORT:-@NODE_PORT@} # of this machine's loopback interface
umask 077

# Nothing calls home, and nothing is installed at run time.
export FLWR_TELEMETRY_ENABLED=0
export FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export FLWR_HOME="$here/flwr"
export PATH="$bin:$PATH"

for file in site.toml federation.json prepared/manifest.json ca.crt node_key; do
    if [ ! -r "$file" ]; then
        echo "start.sh: '$file' is missing: see README.md" >&2
        exit 1
    fi
done

node=
stop() {
    if [ -n "$node" ]; then
        kill -TERM "$node" 2>/dev/null || true
        wait "$node" || true
    fi
    exit 0
}
trap stop TERM INT

while true; do
    python -m pffl.flower.node \
        --superlink "$server" \
        --root-certificates ca.crt \
        --auth-supernode-private-key node_key \
        --port "$port" \
        --node-config "site='$here'" &
    node=$!
    status=0
    wait "$node" || status=$?
    if [ "$status" -eq 2 ]; then # refused, and would be refused again
        exit 2
    fi
    echo "start.sh: the node has ended; it is started again in 20 seconds" >&2
    sleep 20 &
    node=$!
    wait "$node" || true
done
