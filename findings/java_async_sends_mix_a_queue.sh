#!/usr/bin/env bash
# Package: org.apache.rocketmq:rocketmq-client 5.4.0 (Maven Central), beside its own NameServer and broker 5.4.0.
# Behaviour: DefaultMQProducer.send(message, selector, key, callback) hands each call to a pool with a thread a
#   processor, and the pool's threads choose the queue and send. So the messages of one thread, for one key and one
#   queue, are stored in another order than they were sent.
# The guess one would make: a queue that is chosen by the hash of a key keeps the order of that key's messages, as the
#   synchronous send of the same name does, and as asynchronous sends of other clients do over one connection.
# Where it matters: Debezium Server's sink for RocketMQ sends the changes of a batch so. The last message of a row is
#   then not its last change, and a table that is made from the topic keeps old values for good.
# Output seen: 1000 messages of one key in one queue, N behind a later one; N differs from run to run and is not 0
set -euo pipefail

work=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"

cat > pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-namesrv</artifactId><version>5.4.0</version></dependency>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-broker</artifactId><version>5.4.0</version></dependency>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-client</artifactId><version>5.4.0</version></dependency>
</dependencies></project>
POM
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/lib" >&2 || exit 2

cat > Mixed.java <<'JAVA'
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class Mixed {
    static volatile MessageQueue queue;

    public static void main(String[] arguments) throws Exception {
        int count = 1000;
        DefaultMQProducer producer = new DefaultMQProducer("senders");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        queue = producer.send(new Message("orders", "first".getBytes()), new SelectMessageQueueByHash(), "key").getMessageQueue();
        CountDownLatch answers = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            Message message = new Message("orders", Integer.toString(i).getBytes());
            producer.send(message, new SelectMessageQueueByHash(), "key", new SendCallback() {
                public void onSuccess(SendResult result) {
                    answers.countDown();
                }

                public void onException(Throwable error) {
                    error.printStackTrace();
                    System.exit(2);
                }
            });
        }
        answers.await();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("readers");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.start();
        int last = -1, mixed = 0, seen = 0;
        long offset = 1;
        while (seen < count) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            offset = result.getNextBeginOffset();
            for (MessageExt message : result.getMsgFoundList() == null ? new java.util.ArrayList<MessageExt>() : result.getMsgFoundList()) {
                int number = Integer.parseInt(new String(message.getBody()));
                mixed += number < last ? 1 : 0;
                last = Math.max(last, number);
                seen++;
            }
        }
        System.out.println(seen + " messages of one key in one queue, " + mixed + " behind a later one");
        System.exit(mixed > 0 ? 0 : 1);
    }
}
JAVA

free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
names=$(free)
broker=$((RANDOM % 5000 + 21000))
echo "listenPort=$names" > names.conf
printf '%s\n' brokerName=a "listenPort=$broker" brokerIP1=127.0.0.1 "namesrvAddr=127.0.0.1:$names" \
    "storePathRootDir=$work/store" "storePathCommitLog=$work/store/log" mappedFileSizeCommitLog=67108864 waitTimeMillsInSendQueue=60000 > broker.conf
run() { exec java "-Duser.home=$work" "-Drocketmq.home.dir=$work" --add-opens java.base/java.nio=ALL-UNNAMED \
    --add-opens java.base/sun.nio.ch=ALL-UNNAMED -cp "$work/lib/*" "$@"; }
run org.apache.rocketmq.namesrv.NamesrvStartup -c names.conf > names.log 2>&1 &
pids+=($!)
run -Xmx1g org.apache.rocketmq.broker.BrokerStartup -c broker.conf > broker.log 2>&1 &
pids+=($!)
for _ in $(seq 1500); do
    grep -q 'boot success' broker.log && break
    sleep 0.2
done
grep -q 'boot success' broker.log || { tail -n 3 names.log broker.log >&2; exit 2; }
sleep 3
status=0
(run Mixed.java "127.0.0.1:$names") > output 2>&1 || status=$?
grep 'behind a later one' output || { grep -E 'Exception|CODE' output | head -4 >&2; exit 2; }
[ "$status" = 0 ] || exit 1
