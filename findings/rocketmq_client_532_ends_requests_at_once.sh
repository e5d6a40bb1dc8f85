#!/usr/bin/env bash
# Package: org.apache.rocketmq:rocketmq-client 5.3.2 (Maven Central), which rocketmq-spring-boot-starter 2.3.4 brings,
#   beside a NameServer and a broker 5.4.0.
# Behaviour: request(message, 20000) fails within a second or two with RequestTimeoutException, whose text says that the
#   reply did not come within 20000 ms. The request was stored, the consumer gets it, and has nobody to answer. The same
#   program with client 5.4.0 gets its answer.
# The guess one would make: the error is thrown when the time is over, so the consumer is too slow or the answer got lost.
# Where it matters: one looks for the fault in the consumer and raises the timeout. A caller that asks again doubles the
#   work, since each request is consumed though its caller has given up.
# Output seen:
#   5.3.2: RequestTimeoutException (20000 ms) before a quarter of that time, question consumed
#   5.4.0: answer
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
mkdir -p client
cat > client/pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-client</artifactId><version>5.3.2</version></dependency>
</dependencies></project>
POM
mvn -q -B -f client/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/client/lib" >&2 || exit 2
cat > Ask.java <<'JAVA'
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class Ask {
    static DefaultMQProducer producer(String nameserver, String name) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(name);
        producer.setInstanceName(name);
        producer.setNamesrvAddr(nameserver);
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        return producer;
    }

    public static void main(String[] arguments) throws Exception {
        String topic = "questions-" + arguments[1].replace('.', '-');
        DefaultMQProducer asking = producer(arguments[0], "asking");
        DefaultMQProducer answering = producer(arguments[0], "answering");
        CountDownLatch ready = new CountDownLatch(1);
        CountDownLatch consumed = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("workers-" + topic);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setMqClientApiTimeout(20_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (new String(message.getBody()).equals("ready?")) {
                    ready.countDown();
                    continue;
                }
                consumed.countDown();
                try {
                    answering.send(MessageUtil.createReplyMessage(message, "answer".getBytes()));
                } catch (Exception error) {
                    // The caller is gone.
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        asking.send(new Message(topic, "ready?".getBytes()));
        consumer.start();
        if (!ready.await(60, TimeUnit.SECONDS)) {
            System.exit(2);
        }
        long start = System.nanoTime();
        String outcome;
        try {
            outcome = new String(asking.request(new Message(topic, "question".getBytes()), 20_000).getBody());
        } catch (RequestTimeoutException error) {
            boolean early = System.nanoTime() - start < 5_000_000_000L;
            boolean named = error.getMessage().contains("20000 ms");
            outcome = "RequestTimeoutException" + (named ? " (20000 ms)" : "")
                + (early ? " before a quarter of that time" : "")
                + (consumed.await(60, TimeUnit.SECONDS) ? ", question consumed" : "");
        }
        System.out.println(arguments[1] + ": " + outcome);
        System.exit(0);
    }
}
JAVA

timeout 240 java "${options[@]}" -cp 'client/lib/*' Ask.java "127.0.0.1:$names" 5.3.2 > old 2>&1 || { tail -n 3 old >&2; exit 2; }
timeout 240 java "${options[@]}" -cp 'servers/lib/*' Ask.java "127.0.0.1:$names" 5.4.0 > new 2>&1 || { tail -n 3 new >&2; exit 2; }
grep -h '^5\.[34]\.[02]: ' old new
grep -qx '5.3.2: RequestTimeoutException (20000 ms) before a quarter of that time, question consumed' old || exit 1
grep -qx '5.4.0: answer' new || exit 1
