import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;

/**
 * Microseconds from the sending of messages, which each body tells, to the listener, of as many messages as are left
 * out before: NAMESERVER TOPIC COUNT.
 */
public class PushLatency {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java-latency");
        consumer.setNamesrvAddr(args[0]);
        consumer.subscribe(args[1], "*");
        long[] taken = new long[count];
        AtomicInteger next = new AtomicInteger();
        CountDownLatch all = new CountDownLatch(count);
        long started = System.currentTimeMillis() * 1000;
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            java.time.Instant now = java.time.Instant.now();
            long micros = now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
            long sent = Long.parseLong(new String(messages.get(0).getBody()));
            int index = sent < started ? -1 : next.getAndIncrement() - count;
            if (0 <= index && index < count) {
                taken[index] = micros - sent;
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        all.await();
        Arrays.sort(taken);
        System.out.printf("p50 %d p99 %d%n", taken[count / 2], taken[count * 99 / 100]);
        consumer.shutdown();
        System.exit(0);  // the client's threads would keep the process alive
    }
}
