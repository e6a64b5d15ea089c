#!/bin/sh
# The flwr command, with this server as its SuperLink. Written by pffl deploy.
#   ./flwr.sh supernode register keys/NAME.pub    lets a site in
#   ./flwr.sh run ../app --stream                 starts the run
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
bin=${PFFL_BIN:-$here/venv/bin}
umask 077
export FLWR_TELEMETRY_ENABLED=0
export FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_HOME="$here/flwr"
export PATH="$bin:$PATH"

server=${PFFL_SERVER:-@ADDRESS@}
mkdir -p "$FLWR_HOME"
cat >"$FLWR_HOME/config.toml" <<CONFIG
[superlink]
default = "pffl"

[superlink.pffl]
address = "$server"
root-certificates = "$here/ca.crt"
insecure = false
CONFIG

# The server takes some seconds to start: wait until it answers.
case "${1:-}" in
run | list | log | stop | supernode | federation)
    python -m pffl.flower.health "$server" "$here/ca.crt"
    ;;
esac

exec flwr "$@"
