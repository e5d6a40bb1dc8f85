#!/usr/bin/env bash
# Package: org.apache.rocketmq:rocketmq-namesrv, -broker and -tools 5.3.3, 5.4.0 and 5.5.0 (Maven Central).
# Behaviour: the answer to GET_BROKER_RUNTIME_INFO (28, mqadmin brokerStatus) has the number brokerVersion up to 5.3.3.
#   5.4.0 and 5.5.0 leave it out; brokerVersionDesc is still there.
# The guess one would make: the members that every release from 4.x on has had stay, within a major release at least.
# Where it matters: programs that read all of the answer as numbers. rocketmq-exporter (0.0.3-SNAPSHOT at e1ab2dd) parses
#   brokerVersion without a check: at such a broker it has none of its 60 series rocketmq_brokeruntime_*, and only its log
#   says so; all its other series are there, so a board looks half alive.
# Output seen: 5.3.3: true V5_3_3; 5.4.0: false V5_4_0; 5.5.0: false V5_5_0
set -euo pipefail

work=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"

free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
options=("-Duser.home=$work" "-Drocketmq.home.dir=$work" "-Djava.io.tmpdir=$work"
    --add-opens java.base/java.nio=ALL-UNNAMED --add-opens java.base/sun.nio.ch=ALL-UNNAMED)
run() { exec java "${options[@]}" "$@"; }

cat > Members.java <<'JAVA'
import java.util.Map;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class Members {
    public static void main(String[] arguments) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(60_000);
        admin.setNamesrvAddr(arguments[0]);
        admin.start();
        Map<String, String> table = admin.fetchBrokerRuntimeStats(arguments[1]).getTable();
        System.out.println("seen " + table.containsKey("brokerVersion") + " " + table.get("brokerVersionDesc"));
        System.exit(0);
    }
}
JAVA

outcome() {
    mkdir -p "$1"
    cat > "$1/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-namesrv</artifactId><version>$1</version></dependency>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-broker</artifactId><version>$1</version></dependency>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-tools</artifactId><version>$1</version></dependency>
</dependencies></project>
POM
    mvn -q -B -f "$1/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/$1/lib" >&2 || exit 2
    names=$(free)
    broker=$((RANDOM % 5000 + 21000))
    echo "listenPort=$names" > names.conf
    printf '%s\n' brokerName=a "listenPort=$broker" brokerIP1=127.0.0.1 "namesrvAddr=127.0.0.1:$names" \
        "storePathRootDir=$work/store-$1" "storePathCommitLog=$work/store-$1/log" mappedFileSizeCommitLog=67108864 > broker.conf
    run -cp "$1/lib/*" org.apache.rocketmq.namesrv.NamesrvStartup -c names.conf > names.log 2>&1 &
    pids+=($!)
    run -Xmx1g -cp "$1/lib/*" org.apache.rocketmq.broker.BrokerStartup -c broker.conf > broker.log 2>&1 &
    pids+=($!)
    for _ in $(seq 1500); do
        grep -q 'boot success' broker.log && break
        sleep 0.2
    done
    grep -q 'boot success' broker.log || { tail -n 3 names.log broker.log >&2; exit 2; }
    timeout 120 java "${options[@]}" -cp "$1/lib/*" Members.java "127.0.0.1:$names" "127.0.0.1:$broker" > output 2>&1 \
        || { tail -n 3 output >&2; exit 2; }
    kill -9 "${pids[@]}"
    pids=()
    seen="${seen:+$seen; }$1: $(sed -n 's/^seen //p' output)"
}
for release in 5.3.3 5.4.0 5.5.0; do outcome "$release"; done
echo "$seen"
[ "$seen" = "5.3.3: true V5_3_3; 5.4.0: false V5_4_0; 5.5.0: false V5_5_0" ] || exit 1
