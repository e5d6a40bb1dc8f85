// A Java producer and a Java push consumer that know nothing of traces; OpenTelemetry's agent is added to the process.
//
// Arguments: NameServer, topic to send to, topic to consume. Sends "single", "async", "one-way" and the batch "member 0",
// "member 1", and ends when it has consumed one message. Prints "consumed BODY".

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

public class AgentHops {
    static final long SECONDS = 100;

    public static void main(String[] arguments) throws Exception {
        String first = arguments[1];
        CountDownLatch consumed = new CountDownLatch(1);
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> { // the consumer's threads would stay
            error.printStackTrace();
            System.exit(1);
        });
        CountDownLatch answered = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("readers_" + first);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            System.out.println("consumed " + new String(messages.get(0).getBody(), StandardCharsets.UTF_8));
            consumed.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("senders_" + first);
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        producer.send(message(first, "single"));
        producer.send(message(first, "async"), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                answered.countDown();
            }

            @Override
            public void onException(Throwable error) {
                System.out.println("failed: " + error);
            }
        });
        producer.sendOneway(message(first, "one-way"));
        producer.send(List.of(message(first, "member 0"), message(first, "member 1")));
        boolean done = answered.await(SECONDS, TimeUnit.SECONDS) && consumed.await(SECONDS, TimeUnit.SECONDS);
        consumer.shutdown();
        producer.shutdown();
        System.exit(done ? 0 : 1);
    }

    static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }
}
