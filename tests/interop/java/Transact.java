// A Java producer in transactions: one committed, one rolled back, two that the broker has to ask about, and one about
// which it asks until it gives up; that one is resumed by the admin client, and then committed.
//
// Before them it sends a plain message.
//
// Arguments: NameServer, topic, group. Prints "sent BODY STATUS MSGID QUEUE", "checked BODY TIMES TRANSACTIONID TOPIC" and
// "read BODY MSGID TRANSACTIONID QUEUE" lines.

import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class Transact {
    static final String DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC";
    static final long SECONDS = 60;
    static final Set<String> resumed = ConcurrentHashMap.newKeySet();

    static LocalTransactionState state(String body) {
        switch (body) {
            case "commit":
            case "checked-commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
            case "checked-rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return resumed.contains(body) ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }

    static class Listener implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            return body.startsWith("checked") ? LocalTransactionState.UNKNOW : state(body);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            System.out.printf("checked %s %s %s %s%n", body, message.getProperty("TRANSACTION_CHECK_TIMES"),
                message.getTransactionId(), message.getTopic());
            return state(body);
        }
    }

    static java.util.List<MessageExt> readAll(DefaultMQPullConsumer consumer, String topic, int wanted)
        throws Exception {
        long deadline = System.nanoTime() + SECONDS * 1_000_000_000L;
        while (true) {
            java.util.List<MessageExt> found = new java.util.ArrayList<>();
            try {
                for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                    long end = consumer.maxOffset(queue);
                    for (long offset = 0; offset < end; ) {
                        PullResult pulled = consumer.pull(queue, "*", offset, 32);
                        found.addAll(pulled.getMsgFoundList());
                        offset = pulled.getNextBeginOffset();
                    }
                }
            } catch (org.apache.rocketmq.client.exception.MQClientException missing) {
                // the topic has no route yet
            }
            if (found.size() >= wanted) {
                return found;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(topic + " has " + found.size() + " messages");
            }
            Thread.sleep(50);
        }
    }

    // On a busy machine the broker may give up others as well, whose checks were answered too late.
    static MessageExt discarded(DefaultMQPullConsumer consumer, String body) throws Exception {
        for (int wanted = 1;; wanted++) {
            for (MessageExt message : readAll(consumer, DISCARDED, wanted)) {
                if (body.equals(new String(message.getBody(), StandardCharsets.UTF_8))) {
                    return message;
                }
            }
        }
    }

    // A broker asks producers of which it had a heartbeat; the first one is sent a second after the start, to
    // those that it knows by then.
    static void awaitHeartbeat(TransactionMQProducer producer, DefaultMQAdminExt admin, String topic) throws Exception {
        long deadline = System.nanoTime() + SECONDS * 1_000_000_000L;
        while (true) {
            try {
                admin.examineProducerConnectionInfo(producer.getProducerGroup(), topic);
                return;
            } catch (org.apache.rocketmq.client.exception.MQBrokerException early) {
                if (System.nanoTime() > deadline) {
                    throw early;
                }
                Thread.sleep(50);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        TransactionMQProducer producer = new TransactionMQProducer(arguments[2]);
        producer.setNamesrvAddr(arguments[0]);
        producer.setMqClientApiTimeout(20_000);
        producer.setSendMsgTimeout(20_000);
        producer.setTransactionListener(new Listener());
        producer.start();
        producer.send(new Message(topic, "plain".getBytes(StandardCharsets.UTF_8)));
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(arguments[2] + "-readers");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setMqClientApiTimeout(20_000);
        consumer.start();
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(arguments[0]);
        admin.setMqClientApiTimeout(20_000);
        admin.setInstanceName("admin-" + arguments[2]);
        admin.start();
        awaitHeartbeat(producer, admin, topic);
        for (String body : new String[] {"commit", "rollback", "checked-commit", "checked-rollback", "forgotten"}) {
            TransactionSendResult result =
                producer.sendMessageInTransaction(new Message(topic, body.getBytes(StandardCharsets.UTF_8)), null);
            System.out.printf("sent %s %s %s %d%n", body, result.getSendStatus(), result.getMsgId(),
                result.getMessageQueue().getQueueId());
        }
        readAll(consumer, topic, 3);
        MessageExt discarded = discarded(consumer, "forgotten");
        resumed.add("forgotten");
        // The id of a message is that of its producer; the place of the half message is what the broker needs.
        String place = ((org.apache.rocketmq.common.message.MessageClientExt) discarded).getOffsetMsgId();
        System.out.printf("resumed %s%n", admin.resumeCheckHalfMessage(DISCARDED, place));
        for (MessageExt message : readAll(consumer, topic, 4)) {
            System.out.printf("read %s %s %s %d%n", new String(message.getBody(), StandardCharsets.UTF_8),
                message.getMsgId(), message.getTransactionId(), message.getQueueId());
        }
        admin.shutdown();
        consumer.shutdown();
        producer.shutdown();
    }
}
