// A Java push consumer that gives back one message of a batch: prints "BODY TOPIC RECONSUMETIMES" for each that it gets.
//
// Arguments: NameServer, topic, the body to give back when it comes first, how many messages to wait for.

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

public class GiveBackOfBatch {
    public static void main(String[] arguments) throws Exception {
        CountDownLatch left = new CountDownLatch(Integer.parseInt(arguments[3]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("give-back-" + arguments[1]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setMqClientApiTimeout(20_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            synchronized (left) {
                System.out.printf("%s %s %d%n", body, message.getTopic(), message.getReconsumeTimes());
            }
            left.countDown();
            boolean fails = body.equals(arguments[2]) && message.getReconsumeTimes() == 0;
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await(60, TimeUnit.SECONDS);
        consumer.shutdown();
    }
}
