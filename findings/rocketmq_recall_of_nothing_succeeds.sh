#!/usr/bin/env bash
# Package: org.apache.rocketmq:rocketmq-client, -namesrv and -broker 5.5.0 (Maven Central), recallMessageEnable=true.
# Behaviour: recallMessage() returns the id of the message for one that was recalled before and for one that never was,
#   as for a message that waits for its time.
# The guess one would make: like the deletion of a row that is gone, the second recall fails or says that there was
#   nothing; a returned id is the receipt that one message will not be delivered.
# Where it matters: a payment that is to be stopped. The answer is the same whether it was stopped or was never there (a
#   handle of another environment whose broker and topic have the same names), so no program can tell by it.
# Output seen: recalled: its id; recalled again: its id; never sent: the id that was asked for
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
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-client</artifactId><version>5.5.0</version></dependency>
</dependencies></project>
POM
mvn -q -B -f servers/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/servers/lib" >&2 || exit 2

free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
names=$(free)
broker=$((RANDOM % 5000 + 21000))
echo "listenPort=$names" > names.conf
printf '%s\n' brokerName=a "listenPort=$broker" brokerIP1=127.0.0.1 "namesrvAddr=127.0.0.1:$names" recallMessageEnable=true \
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
cat > Recall.java <<'JAVA'
import java.util.Base64;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.producer.RecallMessageHandle;

public class Recall {
    static DefaultMQProducer producer;

    static String outcome(String handle, String identifier) throws Exception {
        try {
            String answer = producer.recallMessage("payments", handle);
            return answer.equals(identifier) ? "its id" : answer;
        } catch (MQBrokerException error) {
            return "code " + error.getResponseCode();
        }
    }

    public static void main(String[] arguments) throws Exception {
        producer = new DefaultMQProducer("senders");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        long due = System.currentTimeMillis() + 3_600_000;
        Message message = new Message("payments", "10.00".getBytes());
        message.setDeliverTimeMs(due);
        SendResult sent = producer.send(message);
        String first = outcome(sent.getRecallHandle(), sent.getMsgId());
        String again = outcome(sent.getRecallHandle(), sent.getMsgId());
        String unsent = MessageClientIDSetter.createUniqID();
        String handle = RecallMessageHandle.HandleV1.buildHandle("payments", "a", Long.toString(due), unsent);
        System.out.println("recalled: " + first + "; recalled again: " + again + "; never sent: " + outcome(handle, unsent));
        System.exit(0);
    }
}
JAVA

timeout 240 java "${options[@]}" -cp 'servers/lib/*' Recall.java "127.0.0.1:$names" > output 2>&1 || { tail -n 3 output >&2; exit 2; }
grep '^recalled: ' output
grep -qx 'recalled: its id; recalled again: its id; never sent: its id' output || exit 1
