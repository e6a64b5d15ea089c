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

# Only the apps that lie here as .fab files are run: the server sends its app along
# with its questions, and one that is not installed cannot be installed.
if ls ./*.fab >/dev/null 2>&1; then
    if [ -d flwr/apps ]; then
        chmod -R u+w flwr/apps
        rm -r flwr/apps
    fi
    mkdir -p flwr/apps
    for app in ./*.fab; do
        flwr install "$app"
    done
    chmod -R a-w flwr/apps
    if [ "$(id -u)" -eq 0 ]; then
        echo "start.sh: root can write everywhere, so any app is run: use another user" >&2
    fi
else
    echo "start.sh: there is no .fab file here, so any app of the server is run" >&2
fi

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
    flower-supernode \
        --superlink "$server" \
        --root-certificates ca.crt \
        --auth-supernode-private-key node_key \
        --host 127.0.0.1 --port "$port" \
        --node-config "site='$here'" &
    node=$!
    wait "$node" || true
    echo "start.sh: the node has ended; it is started again in 20 seconds" >&2
    sleep 20 &
    node=$!
    wait "$node" || true
done
