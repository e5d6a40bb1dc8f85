#!/usr/bin/env bash
# Package: org.apache.rocketmq:rocketmq-client, -namesrv and -broker 5.4.0 (Maven Central).
# Behaviour: a priority (Message.setPriority) is a queue number. The broker stores the message in the queue of that
#   number, also where the producer named another one or chose it by the hash of a key, and on a plain topic as well. In a
#   batch the same priority is stored as a property and moves nothing.
# The guess one would make: a priority says what consumers get first, and the queue of send(message, queue) or of a
#   selector is the one that the message goes to, as without a priority.
# Where it matters: the order of a key. One urgent message among the others of its key goes to another queue, and is no
#   longer behind them, though its send names the right queue. A batch of the same messages keeps its queue.
# Output seen: named queue 0: plain to 0, with priority 3 to 3, with priority 9 to 3, a batch with priority 3 to 0
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
cat > Urgent.java <<'JAVA'
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

public class Urgent {
    static Message message(int priority) {
        Message message = new Message("orders", "body".getBytes());
        if (priority >= 0) {
            message.setPriority(priority);
        }
        return message;
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("senders");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        producer.send(message(-1));
        List<MessageQueue> queues = new ArrayList<>();
        while (queues.size() < 4) {
            try {
                queues = new ArrayList<>(producer.fetchPublishMessageQueues("orders"));
            } catch (MQClientException early) {
                Thread.sleep(200);
            }
        }
        Collections.sort(queues);
        MessageQueue first = queues.get(0);
        System.out.println("named queue " + first.getQueueId()
            + ": plain to " + producer.send(message(-1), first).getMessageQueue().getQueueId()
            + ", with priority 3 to " + producer.send(message(3), first).getMessageQueue().getQueueId()
            + ", with priority 9 to " + producer.send(message(9), first).getMessageQueue().getQueueId()
            + ", a batch with priority 3 to "
            + producer.send(List.of(message(3), message(3)), first).getMessageQueue().getQueueId());
        System.exit(0);
    }
}
JAVA

timeout 240 java "${options[@]}" -cp 'servers/lib/*' Urgent.java "127.0.0.1:$names" > output 2>&1 || { tail -n 3 output >&2; exit 2; }
grep '^named queue' output
grep -qx 'named queue 0: plain to 0, with priority 3 to 3, with priority 9 to 3, a batch with priority 3 to 0' output || exit 1
