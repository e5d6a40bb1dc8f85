// A Java lite pull consumer, a member of a group, that prints each message until it is killed.
//
// Arguments: NameServer, group, topic. Prints "started", then "polled BODY" lines.

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

public class PollTopic {
    public static void main(String[] arguments) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(arguments[1]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setMqClientApiTimeout(20_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[2], "*");
        consumer.start();
        System.out.println("started");
        while (true) {
            for (MessageExt message : consumer.poll(1000)) {
                System.out.println("polled " + new String(message.getBody(), StandardCharsets.UTF_8));
            }
        }
    }
}
