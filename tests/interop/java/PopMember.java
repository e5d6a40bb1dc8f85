// A Java consumer that pops, as a worker of support/groups/pop_workers.py: the broker says that its group pops.
//
// Arguments: NameServer, group, topic, file for its lines, invisible milliseconds, most milliseconds of work. Its lines
// are those of support/groups/pop_lines.py. It works until it is killed.

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

public class PopMember {
    static final int THREADS = 2;

    public static void main(String[] arguments) throws Exception {
        FileOutputStream output = new FileOutputStream(arguments[3], true);
        int mostWork = Integer.parseInt(arguments[5]);
        Random draw = new Random();
        while (true) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[1]);
            consumer.setNamesrvAddr(arguments[0]);
            consumer.setMqClientApiTimeout(20_000);
            consumer.setClientRebalance(false);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeThreadMin(THREADS);
            consumer.setConsumeThreadMax(THREADS);
            consumer.setPopBatchNums(THREADS);
            consumer.setPopThresholdForQueue(THREADS);
            consumer.setPopInvisibleTime(Long.parseLong(arguments[4]));
            consumer.subscribe(arguments[2], "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    try {
                        note(output, "begins", message);
                        Thread.sleep(draw.nextInt(mostWork));
                        note(output, "acks", message);
                    } catch (IOException | InterruptedException failed) {
                        throw new IllegalStateException(failed);
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            try {
                consumer.start();
                Thread.currentThread().join();
            } catch (IllegalStateException notReached) { // its broker may be down
                consumer.shutdown();
                Thread.sleep(500);
            }
        }
    }

    // One write, so that the lines of several processes do not mix.
    static void note(FileOutputStream output, String what, MessageExt message) throws IOException {
        String[] receipt = message.getProperty("POP_CK").split(" ");
        double[] times = {
            Long.parseLong(receipt[1]), Long.parseLong(receipt[2]), message.getStoreTimestamp(), System.currentTimeMillis()
        };
        StringBuilder line = new StringBuilder(what + " " + new String(message.getBody(), StandardCharsets.UTF_8) + " "
            + message.getReconsumeTimes() + " java-" + ProcessHandle.current().pid());
        for (double time : times) {
            line.append(String.format(" %.3f", time / 1000));
        }
        output.write(line.append("\n").toString().getBytes(StandardCharsets.UTF_8));
    }
}
