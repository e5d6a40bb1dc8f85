// A Java push consumer with message trace. It prints each message that its handler receives, and ends after some calls.
//
// Arguments: NameServer, topic, group, calls. The tag decides how the first call with a message ends: "later" gives it
// back, "raise" raises; each call has one message. Prints "consumed MSGID RECONSUMETIMES KEYS REGION" lines.

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

public class TracedConsumer {
    public static void main(String[] arguments) throws Exception {
        CountDownLatch calls = new CountDownLatch(Integer.parseInt(arguments[3]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2], true, null);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            System.out.printf("consumed %s %d %s %s%n", message.getMsgId(), message.getReconsumeTimes(),
                message.getKeys(), message.getProperty("MSG_REGION"));
            calls.countDown();
            context.setDelayLevelWhenNextConsume(1);
            if (message.getReconsumeTimes() == 0 && "later".equals(message.getTags())) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            if (message.getReconsumeTimes() == 0 && "raise".equals(message.getTags())) {
                throw new IllegalStateException("as the tag says");
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = calls.await(60, TimeUnit.SECONDS);
        consumer.shutdown();
        System.exit(all ? 0 : 1);
    }
}
