// Java push consumers that leave messages: the first is in its handler until the end, the second starts suspended, and the third suspends itself.
//
// Arguments: NameServer, topic, group of each. Prints "consumed" for a message; runs until it is killed.

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

public class SlowMembers {
    public static void main(String[] arguments) throws Exception {
        for (int place = 2; place < 5; place++) {
            boolean slow = place == 2;
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[place]);
            consumer.setNamesrvAddr(arguments[0]);
            consumer.setInstanceName(arguments[place]);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setPersistConsumerOffsetInterval(500);
            consumer.subscribe(arguments[1], "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                if (slow) {
                    sleepLong();
                }
                consumer.suspend();
                messages.forEach(message -> System.out.println("consumed"));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            if (place == 3) {
                consumer.suspend();
            }
            consumer.start();
        }
        sleepLong();
    }

    static void sleepLong() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
