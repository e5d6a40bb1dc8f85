// A Java consumer that replies to every request of a topic with "java: " and the request's body, until it is killed.
//
// Arguments: NameServer, topic. Prints "ready" when its consumer has its queues.

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class Replier {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-repliers");
        producer.setNamesrvAddr(arguments[0]);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java-request-readers");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setMqClientApiTimeout(20_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = ("java: " + new String(message.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
                    Message reply = MessageUtil.createReplyMessage(message, body);
                    System.out.println("replied " + producer.send(reply, 10_000).getSendStatus());
                } catch (Exception error) {
                    System.out.println("no reply: " + error);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("ready");
        Thread.sleep(240_000);
    }
}
