// A Java consumer that reads a whole topic from its beginning and prints each message.
//
// Arguments: NameServer, topic, number of messages to wait for, namespace or "". Prints
// "read BROKER QUEUE OFFSET MSGID KEYS TAGS BODYLENGTH BODYCRC BODY-AS-HEX(first 32 bytes)" lines.

import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class ReadTopic {
    public static void main(String[] arguments) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("java-reader");
        consumer.setNamesrvAddr(arguments[0]);
        if (!arguments[3].isEmpty()) {
            consumer.setNamespace(arguments[3]);
        }
        consumer.setMqClientApiTimeout(20_000);
        consumer.start();
        int wanted = Integer.parseInt(arguments[2]);
        long deadline = System.currentTimeMillis() + 60_000;
        int readable = 0;
        while (readable < wanted && System.currentTimeMillis() < deadline) {
            readable = 0;
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(arguments[1])) {
                readable += consumer.maxOffset(queue) - consumer.minOffset(queue);
            }
        }
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(arguments[1])) {
            read(consumer, queue);
        }
        consumer.shutdown();
    }

    static void read(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        long offset = consumer.minOffset(queue);
        while (offset < consumer.maxOffset(queue)) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            offset = result.getNextBeginOffset();
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    CRC32 crc = new CRC32();
                    crc.update(message.getBody());
                    System.out.printf("read %s %d %d %s %s %s %d %d %s%n", queue.getBrokerName(), queue.getQueueId(),
                        message.getQueueOffset(), message.getMsgId(), message.getKeys(), message.getTags(),
                        message.getBody().length, crc.getValue(), message.getTopic());
                }
            }
        }
    }
}
