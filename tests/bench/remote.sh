#!/usr/bin/env bash
# remote.sh BIN_DIR OUT.json: what a hit of 128 KiB takes in a cache directory of 10 000 entries and from a remote (nginx on the loopback
# interface, signed entries), and what a remote adds once that refuses connections, or takes them and never answers. Medians of 200; needs nginx.
set -euo pipefail
usage="usage: remote.sh BIN_DIR OUT.json"
bin=$(cd "${1:?$usage}" && pwd) out=${2:?$usage}
scratch=$(mktemp -d)
server='' silent=''
trap 'kill $server $silent 2>/dev/null || true; rm -rf "$scratch"' EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port=$(free_port) dead=$(free_port)

mkdir -p "$scratch/www/cache"
temporary=$(for part in client_body proxy fastcgi uwsgi scgi; do echo "${part}_temp_path $scratch/$part;"; done)
cat >"$scratch/nginx.conf" <<CONF
daemon off; master_process off; pid $scratch/pid; error_log $scratch/error.log;
events { }
http { $temporary access_log off; client_max_body_size 100m;
  server { listen 127.0.0.1:$port; root $scratch/www; location /cache/ { dav_methods PUT; } } }
CONF
/usr/sbin/nginx -e "$scratch/error.log" -c "$scratch/nginx.conf" &
server=$!
python3 -c '
import socket, sys, time
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(16)
print(listener.getsockname()[1], flush=True)
time.sleep(3600)' >"$scratch/silent" &
silent=$!
until [ -s "$scratch/silent" ] && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.05; done

(umask 077 && head -c 32 /dev/urandom >"$scratch/key")
no_proxy='*' "$bin/xqajit_bench_cache" "$scratch/entries" "http://127.0.0.1:$port/cache" "http://127.0.0.1:$dead/cache" \
    "http://127.0.0.1:$(cat "$scratch/silent")/cache" "$scratch/key" >"$out"
cat "$out"
