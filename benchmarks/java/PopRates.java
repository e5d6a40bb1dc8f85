// The rate of Java push consumers, which pop if the broker's mode of their group says so.
//
// Arguments: NameServer, group, topic, whether they pop, members, threads each, messages. Prints the rate, the processor
// time in us for a message, and whether all messages came within four minutes.

import java.lang.management.ManagementFactory;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

public class PopRates {
    static final int BATCH = 32;

    public static void main(String[] arguments) throws Exception {
        boolean pops = Boolean.parseBoolean(arguments[3]);
        int threads = Integer.parseInt(arguments[5]);
        long messages = Long.parseLong(arguments[6]);
        AtomicLong left = new AtomicLong(messages), began = new AtomicLong(), spent = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        for (int number = 0; number < Integer.parseInt(arguments[4]); number++) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[1]);
            consumer.setNamesrvAddr(arguments[0]);
            consumer.setInstanceName("member" + number);
            consumer.setMqClientApiTimeout(20_000);
            consumer.setClientRebalance(!pops);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeThreadMin(threads);
            consumer.setConsumeThreadMax(threads);
            consumer.setPopBatchNums(BATCH);
            consumer.subscribe(arguments[2], "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (taken, context) -> {
                if (began.compareAndSet(0, System.nanoTime())) {
                    spent.set(processorNanos());
                }
                if (left.addAndGet(-taken.size()) <= 0) {
                    done.countDown();
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }
        boolean all = done.await(4, TimeUnit.MINUTES);
        double seconds = (System.nanoTime() - began.get()) / 1e9, micros = (processorNanos() - spent.get()) / 1e3;
        System.out.printf("%.0f %.1f %s%n", messages / seconds, micros / messages, all);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static long processorNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
