// A Java producer and a Java pull consumer on one topic: sends in every plain way, then reads all queues and prints each message.
//
// Arguments: NameServer, topic. Prints "sent STATUS MSGID QUEUE OFFSET" and "read QUEUE OFFSET KEYS TAGS MSGID BODY" lines.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class SendAndPull {
    public static void main(String[] arguments) throws Exception {
        int sent = send(arguments[0], arguments[1]);
        pull(arguments[0], arguments[1], sent);
    }

    static int send(String nameServer, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-producer");
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(20_000);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        for (int i = 0; i < 20; i++) {
            told(producer.send(message(topic, "single", i, "plain " + i)));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            batch.add(message(topic, "batch", i, "batched " + i));
        }
        told(producer.send(batch));
        told(producer.send(message(topic, "large", 0, "large ".repeat(2000))));
        producer.shutdown();
        return 20 + 50 + 1;
    }

    static Message message(String topic, String tag, int number, String body) {
        return new Message(topic, tag, tag + "-" + number, body.getBytes(StandardCharsets.UTF_8));
    }

    static void told(SendResult result) {
        System.out.printf("sent %s %s %d %d%n", result.getSendStatus(), result.getMsgId(),
            result.getMessageQueue().getQueueId(), result.getQueueOffset());
    }

    static void pull(String nameServer, String topic, int expected) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("java-consumer");
        consumer.setNamesrvAddr(nameServer);
        consumer.setMqClientApiTimeout(20_000);
        consumer.start();
        int read = 0;
        long deadline = System.currentTimeMillis() + 60_000;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long offset = consumer.minOffset(queue);
            while (offset < consumer.maxOffset(queue) && System.currentTimeMillis() < deadline) {
                PullResult result = consumer.pull(queue, "*", offset, 32);
                offset = result.getNextBeginOffset();
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        read++;
                        System.out.printf("read %d %d %s %s %s %s%n", message.getQueueId(), message.getQueueOffset(),
                            message.getKeys(), message.getTags(), message.getMsgId(),
                            new String(message.getBody(), StandardCharsets.UTF_8).strip());
                    }
                }
            }
            consumer.updateConsumeOffset(queue, offset);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        }
        consumer.shutdown();
        if (read != expected) {
            throw new IllegalStateException("sent " + expected + ", read " + read);
        }
    }
}
