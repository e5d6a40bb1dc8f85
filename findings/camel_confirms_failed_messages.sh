#!/usr/bin/env bash
# Package: org.apache.camel:camel-rocketmq 4.6.0 with camel-main 4.6.0, beside org.apache.rocketmq:rocketmq-broker 5.4.0.
# Behaviour: a message whose route throws is confirmed. The group's offset goes past it, it never comes again, and there
#   is nothing in the group's dead letters.
# The guess one would make: RocketMQ's consumer offers a failed message again (16 times, the first time after 10 s) and
#   then puts it among the dead letters, and a component for it reports a failed exchange as such.
# Where it matters: a database that is away for a minute loses the messages of that minute; only Camel's own error
#   handler, written for each route, keeps them.
# Output seen: processed 1 time in 40 s; offset 1 of 1; dead letters: none
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
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-namesrv</artifactId><version>5.4.0</version></dependency>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-broker</artifactId><version>5.4.0</version></dependency>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-client</artifactId><version>5.4.0</version></dependency>
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
for _ in $(seq 1500); do
    grep -q 'boot success' broker.log && break
    sleep 0.2
done
grep -q 'boot success' broker.log || { tail -n 3 names.log broker.log >&2; exit 2; }
sleep 3
mkdir -p camel
cat > camel/pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.camel</groupId><artifactId>camel-rocketmq</artifactId><version>4.6.0</version></dependency>
<dependency><groupId>org.apache.camel</groupId><artifactId>camel-main</artifactId><version>4.6.0</version></dependency>
</dependencies></project>
POM
mvn -q -B -f camel/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/camel/lib" >&2 || exit 2
cat > Route.java <<'JAVA'
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.impl.DefaultCamelContext;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageQueue;

public class Route {
    public static void main(String[] arguments) throws Exception {
        String common = "rocketmq:orders?namesrvAddr=" + arguments[0];
        Semaphore processed = new Semaphore(0);
        DefaultCamelContext context = new DefaultCamelContext();
        context.addRoutes(new RouteBuilder() {
            public void configure() {
                from(common + "&consumerGroup=billing").process(exchange -> {
                    processed.release();
                    throw new IllegalStateException("the database is away");
                });
            }
        });
        context.start();
        context.createProducerTemplate().sendBody(common + "&producerGroup=shop", "order 1");
        if (!processed.tryAcquire(90, TimeUnit.SECONDS)) {
            System.exit(2);
        }
        Thread.sleep(40_000);
        int times = 1 + processed.availablePermits();
        context.stop();
        DefaultLitePullConsumer group = new DefaultLitePullConsumer("billing");
        group.setNamesrvAddr(arguments[0]);
        group.start();
        long confirmed = 0, stored = 0;
        for (MessageQueue queue : group.fetchMessageQueues("orders")) {
            confirmed += Math.max(0, group.committed(queue));
            stored += group.offsetForTimestamp(queue, System.currentTimeMillis());
        }
        String dead = "some";
        try {
            group.fetchMessageQueues("%DLQ%billing");
        } catch (Exception absent) {
            dead = "none";
        }
        System.out.println("processed " + times + " time in 40 s; offset " + confirmed + " of " + stored
            + "; dead letters: " + dead);
        System.exit(0);
    }
}
JAVA

timeout 240 java "${options[@]}" -cp 'camel/lib/*' Route.java "127.0.0.1:$names" > output 2>&1 || { tail -n 3 output >&2; exit 2; }
grep '^processed ' output
grep -qx 'processed 1 time in 40 s; offset 1 of 1; dead letters: none' output || exit 1
