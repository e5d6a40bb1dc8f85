#!/usr/bin/env bash
# Package: org.apache.rocketmq:rocketmq-tools (with its client), -namesrv and -broker 5.5.0 (Maven Central).
# Behaviour: a topic that was created with message.type=NORMAL takes delayed messages, transactions and messages with a
#   priority from a client of the remoting protocol, and so does one of type FIFO. Only the proxy, for clients of gRPC,
#   refuses a message of another type than the topic's.
# The guess one would make: the broker checks what it stores against the type of its own topic, for every client.
# Where it matters: the type guards nothing while one producer uses the older clients, Spring's starter or a connector. A
#   consumer of a FIFO topic gets delayed messages out of order, and no one was refused.
# Output seen: NORMAL: delayed SEND_OK, transaction SEND_OK, priority SEND_OK; FIFO: delayed SEND_OK, transaction SEND_OK,
#   priority SEND_OK
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
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-tools</artifactId><version>5.5.0</version></dependency>
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
cat > Types.java <<'JAVA'
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class Types {
    public static void main(String[] arguments) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(60_000L);
        admin.setNamesrvAddr(arguments[0]);
        admin.start();
        TransactionMQProducer producer = new TransactionMQProducer("senders");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(20_000);
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        StringBuilder line = new StringBuilder();
        for (String type : new String[] {"NORMAL", "FIFO"}) {
            TopicConfig topic = new TopicConfig("of_type_" + type, 2, 2);
            topic.setAttributes(Map.of("+message.type", type));
            admin.createAndUpdateTopicConfig(arguments[1], topic);
            Message delayed = new Message(topic.getTopicName(), "later".getBytes());
            delayed.setDelayTimeLevel(1);
            Message plain = new Message(topic.getTopicName(), "together".getBytes());
            Message urgent = new Message(topic.getTopicName(), "now".getBytes());
            urgent.setPriority(1);
            line.append(line.length() == 0 ? "" : "; ").append(type)
                .append(": delayed ").append(producer.send(delayed, 60_000).getSendStatus())
                .append(", transaction ").append(producer.sendMessageInTransaction(plain, null).getSendStatus())
                .append(", priority ").append(producer.send(urgent, 60_000).getSendStatus());
        }
        System.out.println(line);
        System.exit(0);
    }
}
JAVA

timeout 240 java "${options[@]}" -cp 'servers/lib/*' Types.java "127.0.0.1:$names" "127.0.0.1:$broker" > output 2>&1 || { tail -n 3 output >&2; exit 2; }
grep '^NORMAL: ' output
one="delayed SEND_OK, transaction SEND_OK, priority SEND_OK"
grep -qx "NORMAL: $one; FIFO: $one" output || exit 1
