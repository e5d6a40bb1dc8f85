// Java's lite pull consumer reads everything of a topic, 32 a pull, and prints how many messages a second.
//
// Arguments: NameServer, topic, messages that are there.

import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class LitePull {
    public static void main(String[] arguments) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("lite-pull");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(32);
        consumer.start();
        // Each pass reads it all from the start; the first warms the virtual machine.
        double rate = 0;
        for (int pass = 0; pass < 2; pass++) {
            rate = read(consumer, arguments[1], Integer.parseInt(arguments[2]));
        }
        System.out.printf("rate %.1f%n", rate);
        consumer.shutdown();
        System.exit(0);
    }

    static double read(DefaultLitePullConsumer consumer, String topic, int expected) throws Exception {
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        long began = System.nanoTime();
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        long deadline = began + 120_000_000_000L;
        int read = 0;
        while (read < expected && System.nanoTime() < deadline) {
            List<MessageExt> messages = consumer.poll(1000);
            read += messages.size();
        }
        if (read < expected) {
            throw new IllegalStateException("read " + read + " of " + expected);
        }
        return expected / ((System.nanoTime() - began) / 1e9);
    }
}
