import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
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
 * NAMESERVER TOPIC async|autobatch|batch|keyless COUNT WINDOW ROWS. keyless is batch without keys; ROWS is a file of
 * lines with the head and first number of a key, the tag, the region or nothing, and the body.
 *
 * Keys exist before the clock starts: to make them costs more than an automatically batched send.
 */
public class SendRates {
    static final List<Row> ROWS = new ArrayList<>();
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
        producer.setMqClientApiTimeout(30_000); // of routes, which are slow to come while a machine is busy
        producer.setAutoBatch(mode.equals("autobatch"));
        producer.start();
        for (String line : Files.readAllLines(Path.of(args[5]))) {
            String[] parts = line.split("\t", 5);
            ROWS.add(new Row(parts[0], Long.parseLong(parts[1]), parts[2], parts[3], parts[4].getBytes()));
        }
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
            producer.send(message(topic, number, keys), told);
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
            batches.get(batches.size() - 1).add(message(topic, number, keys));
        }
        long began = System.nanoTime(), processor = SYSTEM.getProcessCpuTime();
        for (List<Message> batch : batches) {
            producer.send(batch);
        }
        processorNanos += SYSTEM.getProcessCpuTime() - processor;
        return (System.nanoTime() - began) / 1e9;
    }

    static Message message(String topic, int number, String[] keys) {
        Row row = ROWS.get(number % ROWS.size());
        Message message = new Message(topic, row.tag, row.body);
        if (keys != null) {
            message.setKeys(keys[number]);
        }
        if (!row.region.isEmpty()) {
            message.putUserProperty("region", row.region);
            message.putUserProperty("attempt", Integer.toString(number));
        }
        return message;
    }

    record Row(String head, long first, String tag, String region, byte[] body) {}

    static String[] keys(int count) {
        String[] keys = new String[count];
        for (int number = 0; number < count; number++) {
            Row row = ROWS.get(number % ROWS.size());
            keys[number] = row.head + (row.first + number);
        }
        return keys;
    }
}
