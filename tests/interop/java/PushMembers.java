// Java push consumers of two groups: members "one" and "two" of GROUP, by an SQL expression, and an ordered member of GROUP-ordered.
//
// Arguments: NameServer, topic, group, SQL expression. Prints "member NAME CLIENTID" and "consumed NAME BODY QUEUE" lines; runs until it is killed.

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

public class PushMembers {
    public static void main(String[] arguments) throws Exception {
        for (String name : List.of("one", "two", "ordered")) {
            boolean ordered = name.equals("ordered");
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(ordered ? arguments[2] + "-ordered" : arguments[2]);
            consumer.setNamesrvAddr(arguments[0]);
            consumer.setInstanceName(name);
            consumer.setMqClientApiTimeout(20_000);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setPersistConsumerOffsetInterval(500);
            if (ordered) {
                consumer.subscribe(arguments[1], "*");
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    print(name, messages);
                    return ConsumeOrderlyStatus.SUCCESS;
                });
            } else {
                consumer.subscribe(arguments[1], MessageSelector.bySql(arguments[3]));
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    print(name, messages);
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            }
            consumer.start();
            System.out.println("member " + name + " " + consumer.buildMQClientId());
        }
        Thread.sleep(Long.MAX_VALUE);
    }

    static void print(String name, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            System.out.println("consumed " + name + " " + body + " " + message.getQueueId());
        }
    }
}
