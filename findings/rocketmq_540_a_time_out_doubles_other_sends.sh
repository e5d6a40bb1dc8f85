#!/usr/bin/env bash
# Package: org.apache.rocketmq:rocketmq-client, -namesrv and -broker 5.4.0 (Maven Central).
# Behaviour: a request whose time ends closes the connection, which all requests of a client to that broker share. An
#   asynchronous send that waits there, begun a little later, fails with the connection before its own time ends, and
#   is sent once more. The broker, which only stood still, stores both; the callback hears of one success. With the
#   system property com.rocketmq.remoting.client.closeSocketIfTimeout=false one copy is stored.
# The guess one would make: a time-out is the matter of its own call; a broker that pauses costs time, and only a call
#   that fails is repeated, by the program that sees it fail.
# Where it matters: each pause of a broker that is longer than the time-out of any request on the connection, a heartbeat
#   too: asynchronous sends of the program's last seconds are stored twice, and no error says so.
# Output seen: asynchronous send: ok, copies: 2; with closeSocketIfTimeout=false: ok, copies: 1
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
cat > Pause.java <<'JAVA'
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

public class Pause {
    static long stored(DefaultMQProducer producer) throws Exception {
        long sum = 0;
        for (MessageQueue queue : producer.fetchPublishMessageQueues("orders")) {
            sum += producer.maxOffset(queue);
        }
        return sum;
    }

    static void signal(String name, String process) throws Exception {
        new ProcessBuilder("kill", name, process).start().waitFor();
    }

    static Message message() {
        return new Message("orders", "body".getBytes());
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("senders");
        producer.setNamesrvAddr(arguments[0]);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        producer.send(message(), 60_000);
        long before = -1;
        while (before < 1) {
            try {
                before = stored(producer);
            } catch (MQClientException early) {
                Thread.sleep(200);
            }
        }
        Thread.sleep(2_000);
        signal("-STOP", arguments[1]);
        Thread.sleep(200);
        Thread other = new Thread(() -> {
            try {
                producer.send(message());
            } catch (Exception ended) {
                System.err.println(ended);
            }
        });
        other.start();
        Thread.sleep(500);
        CompletableFuture<String> outcome = new CompletableFuture<>();
        producer.send(message(), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                outcome.complete("ok");
            }

            @Override
            public void onException(Throwable error) {
                outcome.complete(error.getClass().getSimpleName());
            }
        });
        Thread.sleep(2_900);
        signal("-CONT", arguments[1]);
        String end = outcome.get(30, TimeUnit.SECONDS);
        other.join();
        Thread.sleep(2_000);
        System.out.println("asynchronous send: " + end + ", copies: " + (stored(producer) - before - 1));
        System.exit(0);
    }
}
JAVA

broker_process=${pids[1]}
outcome() {
    timeout 240 java "$@" "${options[@]}" -cp 'servers/lib/*' Pause.java "127.0.0.1:$names" "$broker_process" > output 2> errors \
        || { kill -CONT "$broker_process"; tail -n 3 output errors >&2; exit 2; }
    grep '^asynchronous' output | sed 's/asynchronous send: //'
}
closing=$(outcome)
kept=$(outcome -Dcom.rocketmq.remoting.client.closeSocketIfTimeout=false)
echo "asynchronous send: $closing; with closeSocketIfTimeout=false: $kept"
[ "$closing; $kept" = "ok, copies: 2; ok, copies: 1" ] || exit 1
