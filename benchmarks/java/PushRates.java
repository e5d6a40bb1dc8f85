import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * Messages a second that a Java push consumer passes to a listener which only counts, of all and of the second half:
 * NAMESERVER TOPIC COUNT BATCH.
 */
public class PushRates {
    public static void main(String[] args) throws Exception {
        long count = Long.parseLong(args[2]);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java-push-" + System.nanoTime());
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(Integer.parseInt(args[3]));
        consumer.subscribe(args[1], "*");
        AtomicLong seen = new AtomicLong(), began = new AtomicLong(), half = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            began.compareAndSet(0, System.nanoTime());
            long now = seen.addAndGet(messages.size());
            if (now >= count / 2) {
                half.compareAndSet(0, System.nanoTime());
            }
            if (now >= count) {
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        all.await();
        long ended = System.nanoTime();
        System.out.printf("rate %.1f%n", count * 1e9 / (ended - began.get()));
        System.out.printf("warm %.1f%n", count / 2 * 1e9 / (ended - half.get()));
        consumer.shutdown();
        System.exit(0);  // the client's threads would keep the process alive
    }
}
