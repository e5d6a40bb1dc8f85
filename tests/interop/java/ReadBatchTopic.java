// A Java push consumer and a Java lite pull consumer of one topic and one tag expression: both print what they get.
//
// Arguments: NameServer, topic, tag expression, how many messages each should get. Prints "push|lite OFFSET QUEUE MSGID TAGS KEYS BODY".

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

public class ReadBatchTopic {
    public static void main(String[] arguments) throws Exception {
        push(arguments[0], arguments[1], arguments[2], Integer.parseInt(arguments[3]));
        lite(arguments[0], arguments[1], arguments[2], Integer.parseInt(arguments[3]));
    }

    static void push(String nameServer, String topic, String tags, int expected) throws Exception {
        CountDownLatch left = new CountDownLatch(expected);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group("push", topic, tags));
        consumer.setNamesrvAddr(nameServer);
        consumer.setMqClientApiTimeout(20_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                print("push", message);
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await(40, TimeUnit.SECONDS);
        consumer.shutdown();
    }

    static void lite(String nameServer, String topic, String tags, int expected) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group("lite", topic, tags));
        consumer.setNamesrvAddr(nameServer);
        consumer.setMqClientApiTimeout(20_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, tags);
        consumer.start();
        int read = 0;
        long deadline = System.currentTimeMillis() + 40_000;
        while (read < expected && System.currentTimeMillis() < deadline) {
            List<MessageExt> messages = consumer.poll(500);
            for (MessageExt message : messages) {
                print("lite", message);
            }
            read += messages.size();
        }
        consumer.shutdown();
    }

    static String group(String how, String topic, String tags) {
        return how + "-" + topic + Math.abs(tags.hashCode());
    }

    static synchronized void print(String how, MessageExt message) {
        System.out.printf("%s %d %d %s %s %s %s%n", how, message.getQueueOffset(), message.getQueueId(), message.getMsgId(),
            message.getTags(), message.getKeys(), new String(message.getBody(), StandardCharsets.UTF_8));
    }
}
