// A Java producer and a Java push consumer that sign: sends three messages one by one and a batch, and consumes them all.
//
// Arguments: NameServer, topic, group, access key, secret key. Prints "sent STATUS", "consumed BODY", or "refused CODE TEXT" for a send.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

public class SignedClient {
    static final int MESSAGES = 6;

    public static void main(String[] arguments) throws Exception {
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(arguments[3], arguments[4]));
        if (send(arguments[0], arguments[1], hook)) {
            consume(arguments[0], arguments[1], arguments[2], hook);
        }
    }

    static boolean send(String nameServer, String topic, RPCHook hook) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("signed-producer", hook);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("signed-" + System.nanoTime());
        producer.setSendMsgTimeout(20_000);
        producer.setMqClientApiTimeout(20_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            for (int i = 0; i < 3; i++) {
                System.out.println("sent " + producer.send(message(topic, i)).getSendStatus());
            }
            List<Message> batch = new ArrayList<>();
            for (int i = 3; i < MESSAGES; i++) {
                batch.add(message(topic, i));
            }
            System.out.println("sent " + producer.send(batch).getSendStatus());
            return true;
        } catch (MQClientException failed) {
            MQBrokerException refused = (MQBrokerException) failed.getCause();
            System.out.println("refused " + refused.getResponseCode() + " " + refused.getErrorMessage());
            return false;
        } finally {
            producer.shutdown();
        }
    }

    static Message message(String topic, int number) {
        return new Message(topic, "tag", ("body-" + number).getBytes(StandardCharsets.UTF_8));
    }

    static void consume(String nameServer, String topic, String group, RPCHook hook) throws Exception {
        CountDownLatch left = new CountDownLatch(MESSAGES);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("signed-" + System.nanoTime());
        consumer.setMqClientApiTimeout(20_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                System.out.println("consumed " + new String(message.getBody(), StandardCharsets.UTF_8));
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await(60, TimeUnit.SECONDS);
        consumer.shutdown();
    }
}
