import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Messages a second that the Java client has acknowledged, and its processor time for each in microseconds:
 * NAMESERVER TOPIC async|autobatch|batch|keyless COUNT WINDOW. keyless is batch without keys.
 *
 * Keys exist before the clock starts: String.format costs more than an automatically batched send.
 */
public class SendRates {
    static final byte[] BODY = "x".repeat(100).getBytes();
    static final int NEAR_ONE_MIB = 5_000;
    static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static long processorNanos;

    public static void main(String[] args) throws Exception {
        String topic = args[1], mode = args[2];
        int count = Integer.parseInt(args[3]), window = Integer.parseInt(args[4]);
        DefaultMQProducer producer = new DefaultMQProducer("java-" + mode);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(30_000);
        producer.setAutoBatch(mode.equals("autobatch"));
        producer.start();
        try {
            String[] keys = mode.equals("keyless") ? null : keys(count);
            run(producer, topic, mode, Math.max(1, count / 4), window, keys);
            processorNanos = 0;
            System.out.printf("rate %.1f%n", count / run(producer, topic, mode, count, window, keys));
            System.out.printf("cpu %.3f%n", processorNanos / 1e3 / count);
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);  // the client's threads would keep the process alive
        }
    }

    static double run(
            DefaultMQProducer producer, String topic, String mode, int count, int window, String[] keys)
            throws Exception {
        return mode.equals("batch") || mode.equals("keyless")
                ? batches(producer, topic, count, keys)
                : async(producer, topic, count, window, keys);
    }

    static double async(DefaultMQProducer producer, String topic, int count, int window, String[] keys)
            throws Exception {
        Semaphore room = new Semaphore(window);
        AtomicLong failures = new AtomicLong();
        SendCallback told = new SendCallback() {
            public void onSuccess(SendResult result) {
                room.release();
            }

            public void onException(Throwable error) {
                failures.incrementAndGet();
                room.release();
            }
        };
        long began = System.nanoTime(), processor = SYSTEM.getProcessCpuTime();
        for (int number = 0; number < count; number++) {
            room.acquire();
            producer.send(new Message(topic, "TagA", keys[number], BODY), told);
        }
        room.acquire(window);
        double seconds = (System.nanoTime() - began) / 1e9;
        processorNanos += SYSTEM.getProcessCpuTime() - processor;
        System.out.printf("%d sends failed%n", failures.get());
        return seconds * count / Math.max(1, count - failures.get()); // only what is acknowledged counts
    }

    /** The messages exist before the clock starts, as the list does that is handed to send_batch. */
    static double batches(DefaultMQProducer producer, String topic, int count, String[] keys) throws Exception {
        List<List<Message>> batches = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            if (number % NEAR_ONE_MIB == 0) {
                batches.add(new ArrayList<>());
            }
            Message message =
                    keys == null ? new Message(topic, "TagA", BODY) : new Message(topic, "TagA", keys[number], BODY);
            batches.get(batches.size() - 1).add(message);
        }
        long began = System.nanoTime(), processor = SYSTEM.getProcessCpuTime();
        for (List<Message> batch : batches) {
            producer.send(batch);
        }
        processorNanos += SYSTEM.getProcessCpuTime() - processor;
        return (System.nanoTime() - began) / 1e9;
    }

    static String[] keys(int count) {
        String[] keys = new String[count];
        for (int number = 0; number < count; number++) {
            keys[number] = String.format("key-%06d", number);
        }
        return keys;
    }
}
