import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Java's file of a broadcasting consumer's offsets, without a broker.
 *
 * Arguments: directory, client id, group, then queues as topic,broker,queueId,offset. Prints a line for each queue, with
 * its offset in the file or -1; then stores the offsets named.
 */
public class LocalOffsets {
    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.client.localOffsetStoreDir", args[0]);
        MQClientInstance client = new MQClientInstance(new ClientConfig(), 0, args[1]);
        LocalFileOffsetStore store = new LocalFileOffsetStore(client, args[2]);
        store.load();
        Set<MessageQueue> changed = new HashSet<>();
        for (String text : Arrays.copyOfRange(args, 3, args.length)) {
            String[] parts = text.split(",", -1);
            MessageQueue queue = new MessageQueue(parts[0], parts[1], Integer.parseInt(parts[2]));
            System.out.println("offset " + queue + " " + store.readOffset(queue, ReadOffsetType.READ_FROM_STORE));
            if (!parts[3].isEmpty()) {
                store.updateOffset(queue, Long.parseLong(parts[3]), false);
                changed.add(queue);
            }
        }
        store.persistAll(changed);
        System.exit(0);
    }
}
