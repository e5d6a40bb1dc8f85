#!/usr/bin/env bash
# Package: org.apache.rocketmq:rocketmq-namesrv and -broker 5.5.0 (Maven Central).
# Behaviour: a NameServer answers the same request for a topic's route in one of two grammars, by the number in the
#   request's member `version`: 399 gets {0:"..."}, with keys that are no strings, which JSON parsers refuse, and 453 gets
#   {"0":"..."}. The request for the cluster is answered in the first grammar for every number.
# The guess one would make: the number tells which release the client is, for statistics, and the answers are JSON.
# Where it matters: a client in another language that sends 0 or any old number, and a proxy or recorder between two
#   releases. Its parser works until it asks for the cluster, or fails on routes with one number and not with another.
# Output seen: route, version 399: {0:; version 453: {"0":; cluster, version 399: {0:; version 453: {0:
set -euo pipefail

work=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"

mkdir -p servers
cat > servers/pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-namesrv</artifactId><version>5.5.0</version></dependency>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-broker</artifactId><version>5.5.0</version></dependency>
</dependencies></project>
POM
mvn -q -B -f servers/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/servers/lib" >&2 || exit 2

free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
names=$(free)
broker=$((RANDOM % 5000 + 21000))
echo "listenPort=$names" > names.conf
printf '%s\n' brokerName=a "listenPort=$broker" brokerIP1=127.0.0.1 "namesrvAddr=127.0.0.1:$names" \
    "storePathRootDir=$work/store" "storePathCommitLog=$work/store/log" mappedFileSizeCommitLog=67108864 waitTimeMillsInSendQueue=60000 > broker.conf
options=("-Duser.home=$work" "-Drocketmq.home.dir=$work" "-Djava.io.tmpdir=$work"
    --add-opens java.base/java.nio=ALL-UNNAMED --add-opens java.base/sun.nio.ch=ALL-UNNAMED)
run() { exec java "${options[@]}" "$@"; }
run -cp 'servers/lib/*' org.apache.rocketmq.namesrv.NamesrvStartup -c names.conf > names.log 2>&1 &
pids+=($!)
run -Xmx1g -cp 'servers/lib/*' org.apache.rocketmq.broker.BrokerStartup -c broker.conf > broker.log 2>&1 &
pids+=($!)
for _ in $(seq 300); do
    grep -q 'boot success' broker.log && break
    sleep 0.2
done
grep -q 'boot success' broker.log || { tail -n 3 names.log broker.log >&2; exit 2; }
sleep 3
cat > ask.py <<'PYTHON'
import json
import re
import socket
import struct
import sys
import time

ROUTE, CLUSTER = 105, 106


def ask(code, version, fields):
    header = {"code": code, "language": "JAVA", "version": version, "opaque": 1, "flag": 0, "extFields": fields}
    text = json.dumps(header).encode()
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) as connection:
        connection.sendall(struct.pack(">II", 4 + len(text), len(text)) + text)
        stream = connection.makefile("rb")
        length, of_header = struct.unpack(">II", stream.read(8))
        answer = stream.read(length - 4)
    return json.loads(answer[:of_header]), answer[of_header:].decode()


def first_key(code, version, fields):
    for _ in range(150):
        header, body = ask(code, version, fields)
        found = re.search(r'\{"?0"?:', body)
        if header["code"] == 0 and found:
            return found[0]
        time.sleep(0.2)
    sys.exit(2)


topic = {"topic": "TBW102"}
texts = [first_key(code, version, topic) for code in (ROUTE, CLUSTER) for version in (399, 453)]
print("route, version 399: {}; version 453: {}; cluster, version 399: {}; version 453: {}".format(*texts))
PYTHON
line=$(python3 ask.py "$names") || exit 2
echo "$line"
[ "$line" = 'route, version 399: {0:; version 453: {"0":; cluster, version 399: {0:; version 453: {0:' ] || exit 1
