#!/usr/bin/env bash
# Package: org.apache.rocketmq:rocketmq-client, -namesrv and -broker 5.4.0 (Maven Central).
# Behaviour: a batch takes messages with setDelayTimeSec, and they can be read at once, with the delay still among their
#   properties. The same batch with setDelayTimeLevel is refused before it is sent. (5.5.0's client refuses both.)
# The guess one would make: what a batch cannot do is refused, as it is for levels; so a batch that is accepted is
#   delivered at its time, as the same messages are when each is sent alone.
# Where it matters: moving from the 18 levels to delays in seconds turns a refused send into one that delivers reminders
#   and time-outs at once; the property in the message still says 600 s.
# Output seen: alone: 0 within 10 s; batch with levels: refused; batch with seconds: SEND_OK, 2 within 10 s
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
cat > Delays.java <<'JAVA'
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class Delays {
    static Message later(String topic, boolean level) {
        Message message = new Message(topic, "reminder".getBytes());
        if (level) {
            message.setDelayTimeLevel(14);
        } else {
            message.setDelayTimeSec(600);
        }
        return message;
    }

    static int readable(String nameserver, String topic) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("readers-" + topic);
        consumer.setNamesrvAddr(nameserver);
        consumer.setMqClientApiTimeout(20_000);
        consumer.start();
        var queues = consumer.fetchMessageQueues(topic);
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        int seen = 0;
        long end = System.nanoTime() + 10_000_000_000L;
        while (System.nanoTime() < end) {
            for (MessageExt message : consumer.poll(500)) {
                seen += message.getUserProperty("first") == null ? 1 : 0;
            }
        }
        consumer.shutdown();
        return seen;
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("senders");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        for (String topic : List.of("alone", "batch")) {
            Message first = new Message(topic, "first".getBytes());
            first.putUserProperty("first", "yes");
            producer.send(first);
        }
        producer.send(later("alone", false));
        String levels;
        try {
            levels = producer.send(List.of(later("batch", true), later("batch", true))).getSendStatus().toString();
        } catch (MQClientException error) {
            levels = "refused";
        }
        var seconds = producer.send(List.of(later("batch", false), later("batch", false))).getSendStatus();
        System.out.println("alone: " + readable(arguments[0], "alone") + " within 10 s; batch with levels: " + levels
            + "; batch with seconds: " + seconds + ", " + readable(arguments[0], "batch") + " within 10 s");
        System.exit(0);
    }
}
JAVA

timeout 240 java "${options[@]}" -cp 'servers/lib/*' Delays.java "127.0.0.1:$names" > output 2>&1 || { tail -n 3 output >&2; exit 2; }
grep '^alone: ' output
grep -qx 'alone: 0 within 10 s; batch with levels: refused; batch with seconds: SEND_OK, 2 within 10 s' output || exit 1
