// Debezium's embedded engine, whose changes RocketMQ's Java producer sends as Debezium Server's sink for RocketMQ does:
// the key's text as KEYS, its hash for the queue, headers as properties, and all sends of a batch at once.
//
// Unlike the sink, `_` takes the place of each `.` in a topic. With "in-order" a send waits for the one before it.
//
// Arguments: NameServer, file of the engine's properties, topic whose keys are printed ("sent OP KEY"), "as-sink" or
// "in-order". Prints "ended" with the engine's error, if it ends.

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.Header;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueHeaderChangeEventFormat;
import java.io.FileReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

public class SendChanges {
    static final int TIMEOUT_MS = 60_000;

    static DefaultMQProducer producer;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[1])) {
            properties.load(file);
        }
        producer = new DefaultMQProducer("debezium");
        producer.setNamesrvAddr(arguments[0]);
        producer.setMqClientApiTimeout(TIMEOUT_MS);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        boolean inOrder = arguments[3].equals("in-order");
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine
            .create(KeyValueHeaderChangeEventFormat.of(Json.class, Json.class, Json.class))
            .using(properties)
            .using((success, message, error) -> {
                System.out.println("ended " + message);
                if (error != null) {
                    error.printStackTrace(System.out);
                }
            })
            .notifying((changes, committer) -> {
                send(changes, inOrder);
                for (ChangeEvent<String, String> change : changes) {
                    committer.markProcessed(change);
                }
                committer.markBatchFinished();
                for (ChangeEvent<String, String> change : changes) {
                    if (topic(change).equals(arguments[2])) {
                        String operation = change.value().replaceAll("(?s).*\"op\":\"(.)\".*", "$1");
                        System.out.println("sent " + operation + " " + change.key());
                    }
                }
            })
            .build();
        engine.run();
        System.exit(1);
    }

    static String topic(ChangeEvent<String, String> change) {
        return change.destination().replace('.', '_');
    }

    static void send(List<ChangeEvent<String, String>> changes, boolean inOrder) throws InterruptedException {
        CountDownLatch unanswered = new CountDownLatch(changes.size());
        SendCallback callback = new SendCallback() {
            public void onSuccess(SendResult result) {
                unanswered.countDown();
            }

            public void onException(Throwable error) {
                error.printStackTrace(System.out);
                Runtime.getRuntime().halt(2);
            }
        };
        try {
            for (ChangeEvent<String, String> change : changes) {
                Message message = new Message(
                    topic(change), null, change.key(), change.value().getBytes(StandardCharsets.UTF_8));
                List<Header<String>> headers = change.headers();
                for (Header<String> header : headers) {
                    message.putUserProperty(header.getKey(), header.getValue());
                }
                if (inOrder) {
                    producer.send(message, new SelectMessageQueueByHash(), change.key());
                    unanswered.countDown();
                } else {
                    producer.send(message, new SelectMessageQueueByHash(), change.key(), callback);
                }
            }
        } catch (Exception error) {
            error.printStackTrace(System.out);
            Runtime.getRuntime().halt(3);
        }
        unanswered.await();
    }
}
