#!/usr/bin/env bash
# Package: io.opentelemetry.javaagent:opentelemetry-javaagent 2.20.1 on org.apache.rocketmq:rocketmq-client 5.4.0, with
#   a NameServer and a broker 5.4.0.
# Behaviour: a message that is sent alone, answered or one-way, carries a traceparent. The members of a batch carry none,
#   and what a consumer reads of them is not part of the sender's trace.
# The guess one would make: the agent adds the context to each message of send(Collection), as it does to the records of
#   a Kafka producer, where batching is the client's own affair.
# Where it matters: sending the same messages in batches, a change for speed, cuts every trace at this topic without a
#   log line; consumers start traces of their own.
# Output seen: alone: traceparent; one-way: traceparent; member 1: none; member 2: none
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
mkdir -p agent
cat > agent/pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>io.opentelemetry.javaagent</groupId><artifactId>opentelemetry-javaagent</artifactId><version>2.20.1</version></dependency>
</dependencies></project>
POM
mvn -q -B -f agent/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/agent/lib" >&2 || exit 2
cat > Traced.java <<'JAVA'
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class Traced {
    static Message message(String body) {
        return new Message("orders", body.getBytes());
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("senders");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        producer.send(message("alone"));
        producer.sendOneway(message("one-way"));
        producer.send(List.of(message("member 1"), message("member 2")));
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("readers");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setMqClientApiTimeout(20_000);
        consumer.start();
        var queues = consumer.fetchMessageQueues("orders");
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        Map<String, String> seen = new TreeMap<>();
        while (seen.size() < 4) {
            for (MessageExt message : consumer.poll(1000)) {
                String context = message.getUserProperty("traceparent");
                seen.put(new String(message.getBody()), context == null ? "none" : "traceparent");
            }
        }
        System.out.println("seen: " + seen);
        System.exit(0);
    }
}
JAVA

quiet="-Dotel.traces.exporter=none -Dotel.metrics.exporter=none -Dotel.logs.exporter=none"
timeout 240 java "${options[@]}" -javaagent:agent/lib/opentelemetry-javaagent-2.20.1.jar $quiet -cp 'servers/lib/*' Traced.java "127.0.0.1:$names" \
    > output 2>&1 || { tail -n 3 output >&2; exit 2; }
grep '^seen: ' output
grep -qx 'seen: {alone=traceparent, member 1=none, member 2=none, one-way=traceparent}' output || exit 1
