#!/bin/sh
# A NameServer and three brokers that elect their master, on this machine, in the background.
#   deploy/three-brokers.sh start [DIR]    stores, logs and pid files below DIR (default ./three-brokers)
#   deploy/three-brokers.sh status|stop [DIR]
# Clients: NAMESRV_ADDR=127.0.0.1:9876. Kill any broker and start it again with the same command.
set -eu
action=${1:-start}
dir=${2:-three-brokers}
cometmq=${COMETMQ:-cometmq}
peers="1-127.0.0.1:9901;2-127.0.0.1:9902;3-127.0.0.1:9903"

running() { [ -f "$dir/$1.pid" ] && kill -0 "$(cat "$dir/$1.pid")" 2>/dev/null; }

launch() { # name, arguments
    name=$1
    shift
    if running "$name"; then
        echo "$name runs already"
        return
    fi
    "$cometmq" "$@" >>"$dir/$name.log" 2>&1 &
    echo $! >"$dir/$name.pid"
    echo "$name started, log: $dir/$name.log"
}

case $action in
start)
    mkdir -p "$dir"
    launch nameserver nameserver --host 127.0.0.1 --port 9876
    for n in 1 2 3; do
        launch "broker-$n" broker -n 127.0.0.1:9876 \
            -o brokerName=group-a -o brokerId="$n" -o brokerIP1=127.0.0.1 -o listenPort="1${n}911" \
            -o storePathRootDir="$dir/store-$n" -o enableControllerMode=true \
            -o controllerPeers="$peers" -o controllerSelfId="$n"
    done
    echo "see them with: $cometmq ha status -n 127.0.0.1:9876"
    ;;
status)
    "$cometmq" ha status -n 127.0.0.1:9876
    ;;
stop)
    for name in broker-1 broker-2 broker-3 nameserver; do
        if running "$name"; then
            kill "$(cat "$dir/$name.pid")"
            echo "$name stopped"
        fi
        rm -f "$dir/$name.pid"
    done
    ;;
*)
    echo "usage: $0 start|status|stop [DIR]" >&2
    exit 2
    ;;
esac
